package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of loads that end without a fill: what they leave in place of their
// lease, and what others make of it.

// repeatOptions are for cases in which a load is repeated right after it failed.
var repeatOptions = leasecache.Options{FailureBackoff: -1}

var errBoom = errors.New("boom")

// failing is a loader that fails with err.
func failing(err error) leasecache.Loader[string] {
	return func(context.Context) (string, error) { return "", err }
}

// unstored is a loader of a value that is not to be stored.
func unstored(v string) leasecache.Loader[string] {
	return func(ctx context.Context) (string, error) {
		leasecache.LoadFrom(ctx).DoNotStore()
		return v, nil
	}
}

// mark returns the mark of key, once there is one.
func (e *env) mark(key string) string {
	e.Helper()
	var mark string
	e.eventually("the load leaves a mark", func() bool {
		mark = e.do("GET", e.lease(key)).Str
		return strings.HasPrefix(mark, "!")
	})
	return mark
}

// fail makes the load of key fail in c, and waits for its mark.
func (e *env) fail(c *leasecache.Cache[string], key string) {
	e.Helper()
	if _, err := c.Get(e.ctx, key, failing(errBoom)); !errors.Is(err, errBoom) {
		e.Fatalf("Get returned %v; want the loader's error", err)
	}
	e.mark(key)
}

// wantHolderFailed checks that err is the failure of another's load.
func wantHolderFailed(e *env, err error, text string) {
	e.Helper()
	if !errors.Is(err, leasecache.ErrHolderFailed) || !strings.Contains(err.Error(), text) || errors.Is(err, errBoom) {
		e.Errorf("a read returned %v; want ErrHolderFailed, and %q as text alone", err, text)
	}
}

// angry is an error that does not say what it is.
type angry struct{}

// Error implements error.
func (angry) Error() string { panic("leave me alone") }

// refusing is a driver whose server has no memory for values.
type refusing struct{ driver.Evaler }

// Eval implements [driver.Evaler].
func (r refusing) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if s.Name() == protocol.Fill.Name() {
		return driver.Reply{}, driver.ParseServerError("OOM command not allowed when used memory > 'maxmemory'.", nil)
	}
	return r.Evaler.Eval(ctx, s, keys, args)
}

var backoffCases = []testCase{
	{
		name: "ReleaseLeavesAMark",
		rule: "A release must put its mark in place of the releaser's own lease, for as long as it says, and nowhere else; where a mark is refused, the lease must be free.",
		run: func(e *env) {
			d := e.driver()
			keys := e.keys("k")
			release := func(l protocol.Lease, m protocol.Mark, life time.Duration) bool {
				e.Helper()
				freed, err := protocol.ParseRelease(e.call(d, protocol.ReleaseCall(keys, l, m, life)))
				if err != nil {
					e.Fatal(err)
				}
				return freed
			}
			first := e.acquire(d, "k")
			if !release(first, protocol.MarkFailed("one"), time.Minute) || e.do("GET", keys.Lease).Str != "!fone" {
				e.Errorf("the lease key holds %q after a release with a mark", e.do("GET", keys.Lease).Str)
			}
			if ms := e.do("PTTL", keys.Lease).Int; ms <= 0 || ms > 60000 {
				e.Errorf("the mark lives for %dms; want up to 60000", ms)
			}
			// Its copy arrives late.
			if release(first, protocol.MarkFailed("two"), time.Hour) || e.do("GET", keys.Lease).Str != "!fone" || e.do("PTTL", keys.Lease).Int > 60000 {
				e.Error("the release that ran twice changed the mark, or said that it freed a lease")
			}
			e.do("DEL", keys.Lease)
			second := e.acquire(d, "k")
			if release(first, protocol.MarkFailed("one"), time.Minute) || e.do("GET", keys.Lease).Str != string(second) {
				e.Error("a release put its mark in place of another's lease")
			}
			if !release(second, protocol.NoMark, 0) || e.exists(keys.Lease) {
				e.Error("a release without a mark did not free the lease")
			}
			if release(second, protocol.MarkUnstored, time.Minute) || e.exists(keys.Lease) {
				e.Error("a release of a lease that has ended left a mark")
			}
			if !release(e.acquire(d, "k"), protocol.MarkUnstored, 0) || e.exists(keys.Lease) {
				e.Error("a mark that the server refused, for its life of 0ms, kept the lease")
			}
		},
	},
	{
		name: "ReadFindsAMark",
		rule: "A read that wants the lease must be told of a mark; a read that takes none must find nothing, and one that goes ahead, the lease.",
		run: func(e *env) {
			d := e.driver()
			want := func(o protocol.ReadOptions, want protocol.State, text string) {
				e.Helper()
				r := e.readOrLease(d, "k", protocol.NewToken(), o)
				if r.State != want || r.Text != text || r.Left <= 0 || r.Left > time.Minute {
					e.Errorf("read or lease returned %+v; want state %d, %q, and up to a minute", r, want, text)
				}
			}
			for mark, state := range map[string]protocol.State{"!fboom": protocol.StateFailed, "!f": protocol.StateFailed, "!n": protocol.StateUnstored} {
				text := strings.TrimPrefix(mark, "!f")
				if state == protocol.StateUnstored {
					text = ""
				}
				e.do("SET", e.lease("k"), mark, "PX", "60000")
				want(protocol.ReadOptions{}, state, text)
				want(protocol.ReadOptions{Stale: true}, state, text)
				for _, stale := range []bool{false, true} {
					if r := e.readOrLease(d, "k", "", protocol.ReadOptions{Stale: stale}); r.State != protocol.StateMiss {
						e.Errorf("%q: a read without a token returned %+v; want a miss", mark, r)
					}
				}
				if got := e.do("GET", e.lease("k")).Str; got != mark {
					e.Errorf("the mark %q became %q by reads that do not go ahead", mark, got)
				}
				e.do("SET", e.value("k"), "v", "PX", "60000")
				if r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{}); r.State != protocol.StateValue {
					e.Errorf("%q: a read of a key with a value returned %+v; want the value", mark, r)
				}
				e.do("DEL", e.value("k"))
				for _, ahead := range []protocol.ReadOptions{{OverMark: true}, {Refresh: true}} {
					e.do("SET", e.lease("k"), mark, "PX", "60000")
					token := protocol.NewToken()
					r := e.readOrLease(d, "k", token, ahead)
					if r.State != protocol.StateLeased || e.do("GET", e.lease("k")).Str != string(r.Lease) {
						e.Errorf("%q: a read that goes ahead (%+v) returned %+v; want the lease", mark, ahead, r)
					}
					if again := e.readOrLease(d, "k", token, ahead); again != r {
						e.Errorf("%q: sent again (%+v), it returned %+v; want %+v", mark, ahead, again, r)
					}
					if r := e.readOrLease(d, "k", protocol.NewToken(), ahead); r.State != protocol.StateWait {
						e.Errorf("%q: a read that goes ahead (%+v) took another's lease: %+v", mark, ahead, r)
					}
					e.wantFill(d, "k", r.Lease, "v", protocol.Accepted)
					e.do("DEL", e.value("k"))
				}
			}
		},
	},
	{
		name: "G5StaleCopyBesideAMark",
		rule: "A reader who would be given the failure of another's load must get the stale copy if he asked for it; one who may load must not.",
		run: func(e *env) {
			d := e.driver()
			e.do("SET", e.stale("k"), "older", "PX", "60000")
			e.do("SET", e.lease("k"), "!fboom", "PX", "60000")
			if r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{Stale: true}); r.State != protocol.StateStale || r.Value != "older" || r.Left <= 0 {
				e.Errorf("a read for stale copies returned %+v; want the copy", r)
			}
			if r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{}); r.State != protocol.StateFailed {
				e.Errorf("a read that did not ask for stale copies returned %+v; want the failure", r)
			}
			e.do("SET", e.lease("k"), "!n", "PX", "60000")
			if r := e.readOrLease(d, "k", protocol.NewToken(), protocol.ReadOptions{Stale: true}); r.State != protocol.StateUnstored {
				e.Errorf("a read after a load that was not stored returned %+v; want it to load", r)
			}
		},
	},
	{
		name: "G1FillAfterARelease",
		rule: "A fill of an acquisition that has been released with a mark must be rejected.",
		run: func(e *env) {
			d := e.driver()
			l := e.acquire(d, "k")
			e.call(d, protocol.ReleaseCall(e.keys("k"), l, protocol.MarkFailed(string(l)), time.Minute))
			e.wantFill(d, "k", l, "v", protocol.Rejected)
			e.wantNotStored("k")
		},
	},
	{
		name: "LoadsWithoutAFillLeaveTheirMark", cache: true,
		rule: "Each load that ends without a fill must leave the mark that says why, with the text of its error and no stack; without a back-off, none.",
		run: func(e *env) {
			for _, c := range []struct {
				name string
				load leasecache.Loader[string]
				want string
			}{
				{"error", failing(errBoom), "!fboom"},
				{"error that panics", failing(angry{}), "!f%!v(PANIC=Error method: leave me alone)"},
				{"panic", func(context.Context) (string, error) { explode(); return "", nil }, "!fthe loader panicked: boom"},
				{"Goexit", goexit, "!fleasecache: the loader called runtime.Goexit"},
				{"timeout", newGate().loader("wrong"), "!f" + leasecache.ErrLoadTimeout.Error()},
				{"TTL", func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).SetTTL(-time.Second)
					return "v", nil
				}, "!f" + leasecache.ErrTTL.Error()},
				{"do not store", unstored("v"), "!n"},
				{"not found, do not store", func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).DoNotStore()
					return "", leasecache.ErrNotFound
				}, "!n"},
				{"too large", loaderOf("0123456789a", nil), "!n"},
				{"encode error", loaderOf("no", nil), "!n"},
				{"refused", loaderOf("v", nil), "!n"},
			} {
				o := leasecache.Options{MaxValueSize: 10}
				if c.name == "timeout" {
					o.LoadTimeout = 50 * time.Millisecond
				}
				if c.name == "encode error" {
					o.Codec = fussyCodec{}
				}
				d := e.driver()
				if c.name == "refused" {
					d = refusing{d}
				}
				for _, backoff := range []time.Duration{0, -1} {
					o.FailureBackoff = backoff
					cache, key := e.cacheOn(d, o), fmt.Sprint(c.name, backoff)
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						_, _ = cache.Get(e.ctx, key, c.load)
					}()
					await(e, "the read ends", done)
					if backoff < 0 {
						e.leaseGone(key)
						if e.exists(e.lease(key)) {
							e.Errorf("%s: the lease key holds %q without a back-off", c.name, e.do("GET", e.lease(key)).Str)
						}
					} else if got := e.mark(key); !strings.HasPrefix(got, c.want) || strings.Contains(got, "explode") {
						e.Errorf("%s: the mark is %q; want %q", c.name, got, c.want)
					} else if ms := e.do("PTTL", e.lease(key)).Int; ms <= 0 || ms > (5*time.Minute).Milliseconds() {
						e.Errorf("%s: the mark lives for %dms; want up to FailureBackoff", c.name, ms)
					}
					e.wantNotStored(key)
				}
			}
		},
	},
	{
		name: "FailedLoadEndsTheWait", cache: true,
		rule: "When a load fails, those who wait for it in other processes must get ErrHolderFailed with its text, and nobody must repeat it during the back-off.",
		run: func(e *env) {
			here := e.cache(cacheOptions)
			g := newGate()
			first := e.goRead(here, "k", g.loaderOf(failing(errBoom)))
			await(e, "the load begins", g.began)
			var none counter
			var others []*leasecache.Cache[string]
			var reads []*read
			for range 3 {
				c := e.cache(cacheOptions)
				others = append(others, c)
				reads = append(reads, e.goRead(c, "k", loaderOf("wrong", &none)))
				e.eventually("a read waits", func() bool { return c.Stats().Waits == 1 })
			}
			g.open()
			await(e, "the load's own read ends", first.done)
			if !errors.Is(first.err, errBoom) || errors.Is(first.err, leasecache.ErrHolderFailed) {
				e.Errorf("the load's own read returned %v; want its error", first.err)
			}
			for _, r := range reads {
				await(e, "a read that waited ends", r.done)
				wantHolderFailed(e, r.err, "boom")
			}
			for _, c := range append(others, here) {
				_, err := c.Get(e.ctx, "k", loaderOf("wrong", &none))
				wantHolderFailed(e, err, "boom")
				if _, ok, err := c.Peek(e.ctx, "k"); ok || err != nil {
					e.Errorf("Peek returned %v, %v; want no value and no error", ok, err)
				}
			}
			if n := none.count() + g.count(); n != 1 {
				e.Errorf("%d loads ran; want the one that failed", n)
			}
			if n := others[0].Stats().HolderFailed; n != 2 {
				e.Errorf("Stats: %d failures of holders; want 2", n)
			}
			e.wantNotStored("k")
		},
	},
	{
		name: "FailedLoadIsRepeatedAfterTheBackoff", cache: true,
		rule: "When the back-off has passed, the next read must load.",
		run: func(e *env) {
			o := cacheOptions
			o.FailureBackoff = 200 * time.Millisecond
			here, there := e.cache(o), e.cache(o)
			if _, err := here.Get(e.ctx, "k", failing(errBoom)); !errors.Is(err, errBoom) {
				e.Fatalf("Get returned %v; want the loader's error", err)
			}
			e.eventually("a read loads", func() bool {
				_, err := there.Get(e.ctx, "k", loaderOf("v", nil))
				if err != nil {
					wantHolderFailed(e, err, "boom")
				}
				return err == nil
			})
			e.wantStored("k", "v")
		},
	},
	{
		name: "InvalidationEndsTheBackoff", cache: true,
		rule: "An invalidation, also by DEL, must end the back-off at once.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			e.fail(here, "k")
			e.mustInvalidate(there, "k")
			e.goRead(here, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
			e.fail(here, "k2")
			e.do("DEL", e.lease("k2"), e.value("k2"))
			e.goRead(there, "k2", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
		},
	},
	{
		name: "G3FailureOfAHolderIsNotForThoseWhoCameLater", cache: true,
		rule: "A read that starts after an invalidation must not get a failure from before it, even if it joins a read that was sent before.",
		run: func(e *env) {
			h := e.holder()
			here, there := e.cacheOn(h.driver(), cacheOptions), e.cache(cacheOptions)
			e.fail(there, "k")
			h.hold(e.isRead("k"))
			before := e.goRead(here, "k", loaderOf("wrong", nil))
			await(e, "read or lease is executed", h.caught)
			e.mustInvalidate(there, "k")
			after := e.goRead(here, "k", loaderOf("v", nil))
			e.misses(here, 2)
			h.release()
			await(e, "the read from before ends", before.done)
			wantHolderFailed(e, before.err, "boom")
			after.want(e, "v", leasecache.Loaded, "")
			e.wantStored("k", "v")
		},
	},
	{
		name: "RefreshGoesAheadOfABackoff", cache: true,
		rule: "Refresh must load although another's load failed a moment ago, and so must a cache without a back-off.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			e.fail(here, "k")
			if res, err := there.Refresh(e.ctx, "k", loaderOf("v", nil)); err != nil || !res.Cached() {
				e.Errorf("Refresh returned %+v, %v; want a value that is cached", res, err)
			}
			e.wantStored("k", "v")
			e.fail(here, "k2")
			e.goRead(e.cache(repeatOptions), "k2", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
			e.wantStored("k2", "v")
		},
	},
	{
		name: "G5StaleCopyInsteadOfAFailure", cache: true,
		rule: "With stale serving, readers must get the stale copy during the back-off after a failed load, and load after one that was not stored.",
		run: func(e *env) {
			here, there := e.cache(staleOptions), e.cache(staleOptions)
			e.mustRead(here, "k", loaderOf("old", nil))
			e.mustInvalidate(here, "k")
			e.fail(here, "k")
			for range 3 {
				e.goRead(here, "k", loaderOf("wrong", nil)).want(e, "old", leasecache.Stale, leasecache.StaleCopy)
				e.goRead(there, "k", loaderOf("wrong", nil)).want(e, "old", leasecache.Stale, leasecache.StaleCopy)
			}
			e.do("SET", e.lease("k"), "!n", "PX", "60000")
			e.goRead(there, "k", loaderOf("new", nil)).want(e, "new", leasecache.Loaded, leasecache.HolderNotStored)
		},
	},
	{
		name: "UnstoredLoadsRunInParallel", cache: true,
		rule: "When a load is not stored, those who wait for it in other processes must load at once, and not one after the other; nothing of it is cached.",
		run: func(e *env) {
			here := e.cache(cacheOptions)
			g, next := newGate(), newGate()
			first := e.goRead(here, "k", g.loaderOf(unstored("v")))
			await(e, "the load begins", g.began)
			var reads []*read
			for range 3 {
				c := e.cache(cacheOptions)
				reads = append(reads, e.goRead(c, "k", next.loader("w")))
				e.eventually("a read waits", func() bool { return c.Stats().Waits == 1 })
			}
			g.open()
			first.want(e, "v", leasecache.Loaded, leasecache.NotStored)
			e.eventually("all of them load at a time", func() bool { return next.count() == len(reads) })
			next.open()
			for _, r := range reads {
				r.want(e, "w", leasecache.Loaded, leasecache.HolderNotStored)
			}
			e.wantNotStored("k")
			if got := e.mark("k"); got != "!n" {
				e.Errorf("the mark became %q", got)
			}
		},
	},
	{
		name: "UnstoredLoadsQueueForTheLease", cache: true,
		rule: "A read that may load without a lease, and finds no place of MaxUnleasedLoads, must take the lease and not fail.",
		run: func(e *env) {
			o := cacheOptions
			o.MaxUnleasedLoads = 1
			c, other := e.cache(o), e.cache(cacheOptions)
			for _, key := range []string{"a", "b"} {
				if _, err := other.Get(e.ctx, key, unstored("v")); err != nil {
					e.Fatal(err)
				}
				e.mark(key)
			}
			g := newGate()
			a := e.goRead(c, "a", g.loader("a"))
			await(e, "the load without a lease begins", g.began)
			e.goRead(c, "b", loaderOf("b", nil)).want(e, "b", leasecache.Loaded, "")
			e.wantStored("b", "b")
			g.open()
			a.want(e, "a", leasecache.Loaded, leasecache.HolderNotStored)
			if s := c.Stats(); s.Overloads != 0 || s.UnleasedLoads != 1 {
				e.Errorf("Stats: %d overloads, %d unleased loads; want none, and one", s.Overloads, s.UnleasedLoads)
			}
			// The place is free again.
			e.goRead(c, "a", loaderOf("a", nil)).want(e, "a", leasecache.Loaded, leasecache.HolderNotStored)
		},
	},
	{
		name: "G3UnstoredLoadsAreNotJoinedLate", cache: true,
		rule: "A load that runs without a lease because another was not stored must be shared only with those who were there before it began.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			if _, err := there.Get(e.ctx, "k", unstored("v")); err != nil {
				e.Fatal(err)
			}
			e.mark("k")
			g := newGate()
			before := e.goRead(here, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			e.mustInvalidate(there, "k")
			e.goRead(here, "k", loaderOf("new", nil)).want(e, "new", leasecache.Loaded, "") // while the old load runs
			g.open()
			before.want(e, "old", leasecache.Loaded, leasecache.HolderNotStored)
			e.wantStored("k", "new")
		},
	},
	{
		name: "TextOfAFailedLoad", cache: true,
		rule: "The text of any error must reach other processes as the beginning of it, in up to 256 bytes of valid UTF-8, whatever it holds.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			for i, text := range []string{
				"", "!n", ":", "a\nb\x00c", "\xff\xfe\x80", strings.Repeat("long ", 10000), strings.Repeat("\u20ac", 10000), strings.Repeat("\xff", 10000),
			} {
				key := fmt.Sprint("k", i)
				if _, err := here.Get(e.ctx, key, failing(errors.New(text))); err == nil || err.Error() != text {
					e.Fatalf("Get returned %v; want the loader's error", err)
				}
				mark := e.mark(key)
				stored, ok := strings.CutPrefix(mark, "!f")
				if !ok || len(stored) > 256 || !utf8.ValidString(stored) || utf8.ValidString(text) && (!strings.HasPrefix(text, stored) || len(text) > 256 && len(stored) < 250) {
					e.Errorf("the mark of %.20q... is %q", text, mark)
				}
				_, err := there.Get(e.ctx, key, loaderOf("wrong", nil))
				wantHolderFailed(e, err, stored)
			}
			// Another client knows no bounds.
			e.do("SET", e.lease("k"), "!f"+strings.Repeat("\xff\u20ac", 1000), "PX", "60000")
			_, err := there.Get(e.ctx, "k", loaderOf("wrong", nil))
			if !errors.Is(err, leasecache.ErrHolderFailed) || !utf8.ValidString(err.Error()) || len(err.Error()) > 400 {
				e.Errorf("Get returned %v", err)
			}
		},
	},
}
