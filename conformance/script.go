package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of the scripts, each step by itself: what it returns and what it leaves
// stored.

func (e *env) keys(key string) protocol.Keys { return protocol.NewKeys(e.prefix, key) }

func (e *env) call(d driver.Evaler, c protocol.Call) driver.Reply {
	e.Helper()
	r, err := d.Eval(e.ctx, c.Script, c.Keys, c.Args)
	if err != nil {
		e.Fatalf("script %s: %v", c.Script.Name(), err)
	}
	return r
}

func (e *env) readOrLease(d driver.Evaler, key string, t protocol.Token, o protocol.ReadOptions) protocol.ReadReply {
	e.Helper()
	if o.Lease == 0 {
		o.Lease = 5 * time.Minute
	}
	r, err := protocol.ParseRead(e.call(d, protocol.ReadCall(e.keys(key), t, o)), t)
	if err != nil {
		e.Fatal(err)
	}
	return r
}

// acquire takes the lease of key, which must be free.
func (e *env) acquire(d driver.Evaler, key string) protocol.Lease {
	e.Helper()
	r := e.readOrLease(d, key, protocol.NewToken(), protocol.ReadOptions{})
	if r.State != protocol.StateLeased {
		e.Fatalf("read or lease found state %d; want the lease", r.State)
	}
	return r.Lease
}

func (e *env) fill(d driver.Evaler, key string, l protocol.Lease, stored string) (protocol.Outcome, time.Duration) {
	e.Helper()
	o, ttl, err := protocol.ParseFill(e.call(d, protocol.FillCall(e.keys(key), l, stored, time.Minute)))
	if err != nil {
		e.Fatal(err)
	}
	return o, ttl
}

func (e *env) wantFill(d driver.Evaler, key string, l protocol.Lease, stored string, want protocol.Outcome) {
	e.Helper()
	if got, _ := e.fill(d, key, l, stored); got != want {
		e.Errorf("fill with %q: outcome %d; want %d", stored, got, want)
	}
}

var scriptCases = []testCase{
	{
		name: "ReadOrLease",
		rule: "A read must return the value if there is one, else take the lease if it is free, else say for how long it is held.",
		run: func(e *env) {
			d := e.driver()
			if r := e.readOrLease(d, "k", "", protocol.ReadOptions{}); r.State != protocol.StateMiss {
				e.Errorf("a read without a token of a key that does not exist found state %d; want a miss", r.State)
			}
			if e.exists(e.lease("k")) {
				e.Error("a read without a token took the lease")
			}
			token := protocol.NewToken()
			first := e.readOrLease(d, "k", token, protocol.ReadOptions{Lease: time.Minute})
			if first.State != protocol.StateLeased || first.HasStale {
				e.Fatalf("read or lease of a free key returned %+v; want the lease", first)
			}
			if got := e.do("GET", e.lease("k")).Str; got != string(first.Lease) || !strings.HasPrefix(got, string(token)+":") {
				e.Errorf("the lease key holds %q; want %q, which begins with the token", got, first.Lease)
			}
			if ttl := e.do("PTTL", e.lease("k")).Int; ttl <= 0 || ttl > 60000 {
				e.Errorf("the lease runs for %dms; want up to 60000", ttl)
			}
			for _, token := range []protocol.Token{"", protocol.NewToken()} {
				r := e.readOrLease(d, "k", token, protocol.ReadOptions{Lease: time.Hour, Stale: true})
				if r.State != protocol.StateWait || r.Left <= 0 || r.Left > time.Minute {
					e.Errorf("a read of a key that is leased returned %+v; want to wait for up to a minute", r)
				}
			}
			if ttl := e.do("PTTL", e.lease("k")).Int; ttl > 60000 {
				e.Errorf("the lease runs for %dms after others asked for it; want no more than before", ttl)
			}
			e.do("SET", e.value("k"), "v", "PX", "60000")
			r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{})
			if r.State != protocol.StateValue || r.Value != "v" || r.TTL <= 0 || r.TTL > time.Minute {
				e.Errorf("a read of a key with a value returned %+v; want the value and its TTL", r)
			}
			e.do("DEL", e.lease("k"))
			r = e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{})
			if r.State != protocol.StateValue || e.exists(e.lease("k")) {
				e.Errorf("a read of a key with a value found state %d, lease taken: %v; want the value alone", r.State, e.exists(e.lease("k")))
			}
		},
	},
	{
		name: "G1ResentAcquisitionKeepsItsLease",
		rule: "An acquisition that is sent again finds its own token and gets the same nonce, so that a lost reply costs nothing; another's token does not match it.",
		run: func(e *env) {
			d := e.driver()
			token := protocol.NewToken()
			first := e.readOrLease(d, "k", token, protocol.ReadOptions{})
			again := e.readOrLease(d, "k", token, protocol.ReadOptions{})
			if again.State != protocol.StateLeased || again.Lease != first.Lease {
				e.Errorf("the acquisition sent again returned %+v; want the lease %q", again, first.Lease)
			}
			if r := e.readOrLease(d, "k", token[:31], protocol.ReadOptions{}); r.State != protocol.StateWait {
				e.Errorf("a token that the holder's begins with found state %d; want to wait", r.State)
			}
		},
	},
	{
		name: "G1LateAcquisitionRevivesNobody",
		rule: "A copy of an acquisition that arrives after an invalidation sets a lease with another nonce, which its old owner cannot fill with.",
		run: func(e *env) {
			d := e.driver()
			token := protocol.NewToken()
			old := e.readOrLease(d, "k", token, protocol.ReadOptions{})
			e.call(d, protocol.InvalidateCall(e.keys("k"), 0))
			late := e.readOrLease(d, "k", token, protocol.ReadOptions{})
			if late.State != protocol.StateLeased || late.Lease == old.Lease {
				e.Fatalf("the late copy returned %+v; want a lease other than %q", late, old.Lease)
			}
			e.wantFill(d, "k", old.Lease, "old", protocol.Rejected)
			e.wantNotStored("k")
		},
	},
	{
		name: "FillWhileTheLeaseIsHeld",
		rule: "A fill with the lease that is held must cache the value with its TTL, delete the stale copy and free the lease.",
		run: func(e *env) {
			d := e.driver()
			e.do("SET", e.stale("k"), "older")
			l := e.acquire(d, "k")
			if o, ttl := e.fill(d, "k", l, "v"); o != protocol.Accepted || ttl != time.Minute {
				e.Errorf("fill returned outcome %d and TTL %v; want accepted and a minute", o, ttl)
			}
			e.wantStored("k", "v")
			if ttl := e.do("PTTL", e.value("k")).Int; ttl <= 0 || ttl > 60000 {
				e.Errorf("the value lives for %dms; want up to 60000", ttl)
			}
			if e.exists(e.lease("k")) {
				e.Error("the lease is still held after the fill")
			}
			if e.exists(e.stale("k")) {
				e.Error("the stale copy outlived the fill, and is older than what is cached")
			}
		},
	},
	{
		name: "FillAfterTheLeaseEnded",
		rule: "A fill after the lease ended, without a successor, must write nothing and be rejected.",
		run: func(e *env) {
			d := e.driver()
			r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{Lease: 50 * time.Millisecond})
			e.eventually("the lease has expired on the server", func() bool { return !e.exists(e.lease("k")) })
			e.wantFill(d, "k", r.Lease, "old", protocol.Rejected)
			e.wantNotStored("k")
		},
	},
	{
		name: "FillWithAnothersLease",
		rule: "A fill while another holds the lease must write nothing, leave that lease alone, and be rejected; also after the other has filled.",
		run: func(e *env) {
			d := e.driver()
			old := e.acquire(d, "k")
			e.do("DEL", e.lease("k")) // as when it expires
			current := e.acquire(d, "k")
			for _, l := range []protocol.Lease{old, "", current[:len(current)-1], current + "0"} {
				e.wantFill(d, "k", l, "old", protocol.Rejected)
			}
			e.wantNotStored("k")
			if got := e.do("GET", e.lease("k")).Str; got != string(current) {
				e.Errorf("the lease is %q after others' fills; want %q", got, current)
			}
			e.wantFill(d, "k", current, "current", protocol.Accepted)
			e.wantFill(d, "k", old, "old", protocol.Rejected)
			e.wantStored("k", "current")
		},
	},
	{
		name: "FillWithoutTheCheckRegresses",
		rule: "The negative control: where the fill script must reject an old value, the same script without its comparison of the lease replaces the newer one, so the case above reaches the dangerous interleaving.",
		run: func(e *env) {
			const check = "if redis.call('GET', KEYS[2]) == ARGV[1] then"
			source := protocol.Fill.Source()
			if n := strings.Count(source, check); n != 1 {
				e.Fatalf("%q stands %d times in the fill script; want once", check, n)
			}
			unchecked := driver.NewScript("fill without the check", strings.Replace(source, check, "if true then", 1))
			d := e.driver()
			old := e.acquire(d, "k")
			e.do("DEL", e.lease("k")) // as when it expires
			e.wantFill(d, "k", e.acquire(d, "k"), "current", protocol.Accepted)

			call := protocol.FillCall(e.keys("k"), old, "old", time.Minute)
			e.wantFill(d, "k", old, "old", protocol.Rejected)
			e.wantStored("k", "current")
			call.Script = unchecked
			if did, _, err := protocol.ParseFill(e.call(d, call)); did != protocol.Accepted || err != nil {
				e.Errorf("without the check the fill returned outcome %d, %v; want accepted", did, err)
			}
			e.wantStored("k", "old")
		},
	},
	{
		name: "FillWithAnInvalidTTL",
		rule: "A fill must check the TTL before it changes anything: an invalid one is an error, and value, lease and stale copy stay as they are.",
		run: func(e *env) {
			d := e.driver()
			l := e.acquire(d, "k")
			e.do("SET", e.stale("k"), "older")
			keys := e.keys("k")
			for _, ttl := range []string{"0", "-1", "1.5", "", "abc", "nan", "-0.5", "0.5"} {
				_, err := d.Eval(e.ctx, protocol.Fill, []string{keys.Value, keys.Lease, keys.Stale}, []string{string(l), "v", ttl})
				var se *driver.ServerError
				if !errors.As(err, &se) || !strings.Contains(se.Message, "TTL must be") {
					e.Errorf("TTL %q: got the error %v; want one about the TTL", ttl, err)
				}
			}
			e.wantNotStored("k")
			if !e.exists(e.lease("k")) || !e.exists(e.stale("k")) {
				e.Error("the lease or the stale copy is gone after fills with an invalid TTL")
			}
		},
	},
	{
		name: "FillThatIsPresent",
		rule: "A fill whose lease has ended must say so if what is cached is byte for byte its candidate, with the remaining TTL, and write nothing.",
		run: func(e *env) {
			d := e.driver()
			l := e.acquire(d, "k")
			e.wantFill(d, "k", l, "v", protocol.Accepted)
			e.do("PEXPIRE", e.value("k"), "30000")
			if o, ttl := e.fill(d, "k", l, "v"); o != protocol.Present || ttl <= 0 || ttl > 30*time.Second {
				e.Errorf("fill again returned outcome %d, TTL %v; want present, with up to 30s", o, ttl)
			}
			if ttl := e.do("PTTL", e.value("k")).Int; ttl > 30000 {
				e.Errorf("the value lives for %dms after a fill without a lease; want no more than before", ttl)
			}
			e.wantFill(d, "k", l, "w", protocol.Rejected)
			e.wantStored("k", "v")
			e.do("DEL", e.value("k"))
			e.do("RPUSH", e.value("k"), "v")
			e.wantFill(d, "k", l, "v", protocol.Rejected) // a list is not the candidate
		},
	},
	{
		name: "ReleaseFreesItsOwnLeaseOnly",
		rule: "A release must free the lease only if it is the releaser's, by token and nonce; by the token alone when the nonce is not known.",
		run: func(e *env) {
			d := e.driver()
			keys := e.keys("k")
			release := func(l protocol.Lease) bool {
				e.Helper()
				freed, err := protocol.ParseRelease(e.call(d, protocol.ReleaseCall(keys, l, protocol.NoMark, 0)))
				if err != nil {
					e.Fatal(err)
				}
				return freed
			}
			token := protocol.NewToken()
			if release(token.Unknown()) {
				e.Error("the release of a lease that nobody holds said that it freed one")
			}
			old := e.readOrLease(d, "k", token, protocol.ReadOptions{}).Lease
			if !release(old) || e.exists(keys.Lease) {
				e.Error("the holder's release did not free the lease")
			}
			late := e.readOrLease(d, "k", token, protocol.ReadOptions{}).Lease
			if release(old) || release(protocol.NewToken().Unknown()) || !e.exists(keys.Lease) {
				e.Error("a release with another nonce or another token freed the lease")
			}
			if !release(token.Unknown()) || e.exists(keys.Lease) {
				e.Errorf("the release by token did not free %q", late)
			}
		},
	},
	{
		name: "InvalidateDeletesValueAndLease",
		rule: "An invalidation must delete value and lease together, whatever type the value has, and keep a stale copy only if asked to.",
		run: func(e *env) {
			d := e.driver()
			for i, set := range [][]string{{"SET", "v"}, {"RPUSH", "v"}, {"HSET", "f", "v"}, {"SADD", "v"}, {"ZADD", "1", "v"}, nil} {
				for _, window := range []time.Duration{0, time.Minute} {
					key := fmt.Sprint(i, window)
					if set != nil {
						e.do(append([]string{set[0], e.value(key)}, set[1:]...)...)
					}
					e.do("SET", e.lease(key), "held")
					if err := protocol.ParseOne(protocol.Invalidate, e.call(d, protocol.InvalidateCall(e.keys(key), window))); err != nil {
						e.Error(err)
					}
					if e.exists(e.value(key)) || e.exists(e.lease(key)) {
						e.Errorf("%v: value or lease are left after the invalidation", set)
					}
					if want := window > 0 && i == 0; e.exists(e.stale(key)) != want {
						e.Errorf("%v with a window of %v: stale copy kept: %v; want %v", set, window, !want, want)
					}
				}
			}
		},
	},
	{
		name: "G5StaleCopyDeadlines",
		rule: "A stale copy must live for the window, but never past the value's own TTL; a second invalidation must not extend it.",
		run: func(e *env) {
			d := e.driver()
			left := func(key string) int64 { return e.do("PTTL", e.stale(key)).Int }
			invalidate := func(key string, window time.Duration) {
				e.call(d, protocol.InvalidateCall(e.keys(key), window))
			}
			e.do("SET", e.value("long"), "v", "PX", "600000")
			invalidate("long", time.Minute)
			if ms := left("long"); ms <= 0 || ms > 60000 {
				e.Errorf("the stale copy of a value with 10 minutes to live lives for %dms; want up to the window of 60000", ms)
			}
			e.do("PEXPIRE", e.stale("long"), "5000")
			invalidate("long", time.Minute)
			if ms := left("long"); ms <= 0 || ms > 5000 {
				e.Errorf("after a second invalidation the stale copy lives for %dms; want up to 5000, as before", ms)
			}
			e.do("SET", e.value("short"), "v", "PX", "10000")
			invalidate("short", time.Minute)
			if ms := left("short"); ms <= 0 || ms > 10000 {
				e.Errorf("the stale copy of a value with 10s to live lives for %dms; want up to 10000", ms)
			}
			e.do("SET", e.value("ever"), "v")
			invalidate("ever", time.Minute)
			if ms := left("ever"); ms <= 0 || ms > 60000 {
				e.Errorf("the stale copy of a value without expiry lives for %dms; want up to 60000", ms)
			}
		},
	},
	{
		name: "G5NotFoundIsNeverKept",
		rule: "A not-found record must not become a stale copy; a value that merely resembles one must.",
		run: func(e *env) {
			d := e.driver()
			for stored, want := range map[string]bool{
				protocol.NotFound():                     false,
				"":                                      true,
				"not found":                             true,
				"\x00":                                  true,
				protocol.WrapValue("\x00\x02"):          true,
				protocol.WrapValue(protocol.NotFound()): true,
			} {
				e.do("SET", e.value("k"), stored, "PX", "60000")
				e.call(d, protocol.InvalidateCall(e.keys("k"), time.Minute))
				if got := e.exists(e.stale("k")); got != want {
					e.Errorf("%q kept as a stale copy: %v; want %v", stored, got, want)
				}
				e.do("DEL", e.stale("k"))
			}
		},
	},
	{
		name: "DropComparesAndBacksOff",
		rule: "A drop must delete the value only if it is still the one that was read, and once per back-off.",
		run: func(e *env) {
			d := e.driver()
			drop := func(stored string) bool {
				e.Helper()
				again, err := protocol.ParseDrop(e.call(d, protocol.DropCall(e.keys("k"), stored, time.Minute)))
				if err != nil {
					e.Fatal(err)
				}
				return again
			}
			e.do("SET", e.value("k"), "new")
			if !drop("old") || !e.exists(e.value("k")) {
				e.Error("a drop of a value that has changed meanwhile deleted the new one, or says not to read again")
			}
			if !drop("new") || e.exists(e.value("k")) {
				e.Error("the drop did not delete the value")
			}
			e.do("SET", e.value("k"), "other")
			if drop("other") || !e.exists(e.value("k")) {
				e.Error("a second drop within the back-off deleted the value, or says to load it under a lease")
			}
			e.do("DEL", e.value("k"))
			e.do("RPUSH", e.value("k"), "x")
			if !drop("x") {
				e.Error("the drop of a value that has become a list says not to read again")
			}
		},
	},
	{
		name: "RefreshTakesTheLeaseBesideAValue",
		rule: "A read for a refresh must take the lease although there is a value, and leave that alone.",
		run: func(e *env) {
			d := e.driver()
			e.do("SET", e.value("k"), "v", "PX", "60000")
			r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{Refresh: true})
			if r.State != protocol.StateLeased {
				e.Fatalf("found state %d; want the lease", r.State)
			}
			e.wantStored("k", "v")
			e.wantFill(d, "k", r.Lease, "w", protocol.Accepted)
			e.wantStored("k", "w")
		},
	},
	{
		name: "G5StaleCopyIsForWaiters",
		rule: "A read must return the stale copy only if asked to, and only to a reader that another's lease keeps waiting, or beside the lease for others.",
		run: func(e *env) {
			d := e.driver()
			e.do("SET", e.stale("k"), "older", "PX", "60000")
			if r := e.readOrLease(d, "k", "", protocol.ReadOptions{Stale: true}); r.State != protocol.StateMiss || r.HasStale {
				e.Errorf("a read of a key that nobody loads returned %+v; want a miss", r)
			}
			r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{Stale: true})
			if r.State != protocol.StateLeased || !r.HasStale || r.Value != "older" {
				e.Errorf("read or lease returned %+v; want the lease, and the stale copy for others", r)
			}
			for _, token := range []protocol.Token{"", protocol.NewToken()} {
				if r := e.readOrLease(d, "k", token, protocol.ReadOptions{Stale: true}); r.State != protocol.StateStale || r.Value != "older" || r.Left <= 0 {
					e.Errorf("a read that would wait returned %+v; want the stale copy", r)
				}
				if r := e.readOrLease(d, "k", token, protocol.ReadOptions{}); r.State != protocol.StateWait || r.HasStale {
					e.Errorf("a read that did not ask for stale copies returned %+v; want to wait", r)
				}
			}
			e.do("SET", e.value("k"), "v", "PX", "60000")
			if r := e.readOrLease(d, "k", "", protocol.ReadOptions{Stale: true}); r.State != protocol.StateValue || r.Value != "v" {
				e.Errorf("a read of a key with a value returned %+v; want the value", r)
			}
			e.do("DEL", e.stale("k"), e.value("k"), e.lease("k"))
			if r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{Stale: true}); r.State != protocol.StateLeased || r.HasStale {
				e.Errorf("read or lease without a stale copy returned %+v; want the lease alone", r)
			}
		},
	},
	{
		name: "DeleteDeletesOneKey",
		rule: "The script for slots that migrate must delete the one key that it is given.",
		run: func(e *env) {
			d := e.driver()
			e.do("SET", e.value("k"), "v")
			e.do("SET", e.lease("k"), "l")
			if err := protocol.ParseOne(protocol.Delete, e.call(d, protocol.DeleteCalls(e.keys("k"))[0])); err != nil {
				e.Error(err)
			}
			if e.exists(e.lease("k")) || !e.exists(e.value("k")) {
				e.Errorf("lease is left: %v, value is left: %v; want the value alone", e.exists(e.lease("k")), e.exists(e.value("k")))
			}
		},
	},
}
