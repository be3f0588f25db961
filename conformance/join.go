package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of the joining rules, G3: what readers in one process may take from each
// other, while another process invalidates.

// isRead matches read or lease of key, with a token.
func (e *env) isRead(key string) func([]string) bool {
	match := MatchScript(protocol.Read.SHA1(), protocol.Read.Source())
	return func(command []string) bool {
		return match(command) && command[3] == e.value(key) && command[6] != ""
	}
}

func isFill(command []string) bool {
	return MatchScript(protocol.Fill.SHA1(), protocol.Fill.Source())(command)
}

// slowGets is a driver with plain GETs whose replies are on the way until they
// are let in.
type slowGets struct {
	driver.Evaler
	get      *driver.Script
	executed chan struct{}
	land     chan struct{}
}

// Get implements [driver.Getter].
func (s *slowGets) Get(ctx context.Context, key string) (string, bool, error) {
	r, err := s.Eval(ctx, s.get, []string{key}, nil)
	if err != nil {
		return "", false, err
	}
	select {
	case s.executed <- struct{}{}:
	case <-ctx.Done():
	}
	select {
	case <-s.land:
	case <-ctx.Done():
	}
	value, ok := r.Str()
	return value, ok, nil
}

var joinCases = []testCase{
	{
		name: "G3JoinedLoadThatWasAccepted", cache: true,
		rule: "Those who join a load after it began must get its value when the fill is accepted: one load serves them all.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			first := e.goRead(c, "k", g.loader("v1"))
			await(e, "the load begins", g.began)
			late := make([]*read, 10)
			for i := range late {
				late[i] = e.goRead(c, "k", g.loader("v2"))
			}
			e.misses(c, 11)
			g.open()
			first.want(e, "v1", leasecache.Loaded, "")
			for _, r := range late {
				r.want(e, "v1", leasecache.Joined, "")
			}
			e.wantStored("k", "v1")
			if n := g.count(); n != 1 {
				e.Errorf("%d loads ran; want one", n)
			}
		},
	},
	{
		name: "G3ReaderAfterInvalidationWhileALoadRuns", cache: true,
		rule: "A read that starts after another process invalidated must not get what a load that runs in this process had read before.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			g := newGate()
			before := e.goRead(here, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			e.mustInvalidate(there, "k")
			after := e.goRead(here, "k", loaderOf("new", nil))
			e.misses(here, 2)
			g.open()
			before.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			after.want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G3ReaderAfterInvalidationWhileTheFillsReplyIsOnItsWay", cache: true,
		rule: "A read that starts between the execution of a fill and its reply must not join that load: an invalidation may have come in between.",
		run: func(e *env) {
			h := e.holder()
			here, there := e.cacheOn(h.driver(), cacheOptions), e.cache(cacheOptions)
			h.hold(isFill)
			before := e.goRead(here, "k", loaderOf("old", nil))
			await(e, "the fill is executed", h.caught)
			e.wantStored("k", "old")
			e.mustInvalidate(there, "k")
			after := e.goRead(here, "k", loaderOf("new", nil))
			after.want(e, "new", leasecache.Loaded, "") // while the reply is held
			h.release()
			await(e, "the first read ends", before.done)
			e.wantStored("k", "new")
		},
	},
	{
		name: "G3ReaderAfterInvalidationWhileAPollsReplyIsOnItsWay", cache: true,
		rule: "A read that starts after a poll was sent must not get the value which that poll returns: an invalidation may have come after it was executed.",
		run: func(e *env) {
			h := e.holder()
			here, there := e.cacheOn(h.driver(), cacheOptions), e.cache(cacheOptions)
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			before := e.goRead(here, "k", loaderOf("wrong", nil))
			e.eventually("the read waits for the other's lease", func() bool { return here.Stats().Waits == 1 })
			h.hold(func(command []string) bool {
				if !e.isRead("k")(command) {
					return false
				}
				// The other fills right before this poll is executed.
				e.do("SET", e.value("k"), "old", "PX", "600000")
				e.do("DEL", e.lease("k"))
				return true
			})
			await(e, "a poll finds the value", h.caught)
			e.mustInvalidate(there, "k")
			after := e.goRead(here, "k", loaderOf("new", nil))
			e.misses(here, 2)
			h.release()
			before.want(e, "old", leasecache.Hit, "")
			after.want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G3SharedReadIsJoinedUntilItIsSent",
		rule: "With ShareReads, a read that starts after an invalidation must not get what a read that was sent before it returns.",
		run: func(e *env) {
			slow := &slowGets{Evaler: e.driver(), get: e.script("return redis.call('GET', KEYS[1])"), executed: make(chan struct{}), land: make(chan struct{})}
			here, there := e.cacheOn(slow, leasecache.Options{ShareReads: true}), e.cache(cacheOptions)
			e.do("SET", e.value("k"), "old", "PX", "600000")
			get := func() *read {
				r := &read{done: make(chan struct{})}
				go func() {
					defer close(r.done)
					r.res.Value, r.err = here.Get(e.ctx, "k", loaderOf("loaded", nil))
				}()
				return r
			}
			want := func(who, value string, rs ...*read) {
				e.Helper()
				for _, r := range rs {
					await(e, who+" ends", r.done)
					if r.res.Value != value || r.err != nil {
						e.Errorf("%s got %q, %v; want %q", who, r.res.Value, r.err, value)
					}
				}
			}
			shared := func(n uint64) {
				e.Helper()
				e.eventually(fmt.Sprintf("%d reads share one", n), func() bool { return here.Stats().SharedReads == n })
			}
			replace := func(value string) {
				e.Helper()
				e.mustInvalidate(there, "k")
				e.mustRead(there, "k", loaderOf(value, nil))
			}

			one, two := get(), get()
			for range 2 {
				await(e, "a read is executed", slow.executed)
			}
			three, four := get(), get()
			shared(2)
			replace("new") // the third and fourth are not sent yet
			slow.land <- struct{}{}
			await(e, "the read that two share is executed", slow.executed)
			replace("newest")
			five := get() // and now they are
			shared(3)
			for range 2 {
				slow.land <- struct{}{}
			}
			want("a read before the invalidation", "old", one, two)
			want("a read that was not sent before the first invalidation", "new", three, four)
			await(e, "the last read is executed", slow.executed)
			slow.land <- struct{}{}
			want("a read after both", "newest", five)
			e.wantStored("k", "newest")
		},
	},
	{
		name: "G3LocalInvalidationOvertakesTheLoad", cache: true,
		rule: "After Invalidate in this process, the next read must lease and load at once, rather than wait for the load that was overtaken, and those who joined that one late must move on with it.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			before := e.goRead(c, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			late := e.goRead(c, "k", loaderOf("new", nil))
			e.misses(c, 2)
			e.mustInvalidate(c, "k")
			after := e.goRead(c, "k", loaderOf("new", nil))
			// Both end while the old load still runs.
			await(e, "the late read ends", late.done)
			await(e, "the read after the invalidation ends", after.done)
			for _, r := range []*read{late, after} {
				if r.err != nil || r.res.Value != "new" || !r.res.Cached() {
					e.Errorf("Read returned %+v, %v; want the new value, cached", r.res, r.err)
				}
			}
			g.open()
			before.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			e.wantStored("k", "new")
		},
	},
	{
		name: "G3UnleasedLoadIsNotJoined", cache: true,
		rule: "A load without a lease must be shared only with those who were there before it began.",
		run: func(e *env) {
			o := cacheOptions
			o.WaitBound = 100 * time.Millisecond
			here, there := e.cache(o), e.cache(cacheOptions)
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			g := newGate()
			before := e.goRead(here, "k", g.loader("old"))
			await(e, "the load without a lease begins", g.began)
			e.mustInvalidate(there, "k")
			after := e.goRead(here, "k", loaderOf("new", nil))
			after.want(e, "new", leasecache.Loaded, "") // while the old load runs
			g.open()
			before.want(e, "old", leasecache.Loaded, leasecache.WaitedTooLong)
			e.wantStored("k", "new")
		},
	},
	{
		name: "G3LoadsThatAreNotStoredAreNotJoinedLate", cache: true,
		rule: "A load that ends without a fill must be shared only with those who were there before it began; those who came later must share the next one.",
		run: func(e *env) {
			o := repeatOptions
			o.MaxValueSize = 10
			boom := errors.New("boom")
			for name, end := range map[string]struct {
				load   leasecache.Loader[string]
				reason leasecache.Reason
				err    error
			}{
				"do not store": {reason: leasecache.NotStored, load: func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).DoNotStore()
					return "old", nil
				}},
				"too large": {reason: leasecache.TooLarge, load: func(context.Context) (string, error) { return "old, and too large", nil }},
				"error":     {err: boom, load: func(context.Context) (string, error) { return "", boom }},
				"not found, do not store": {err: leasecache.ErrNotFound, reason: leasecache.NotStored, load: func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).DoNotStore()
					return "", leasecache.ErrNotFound
				}},
			} {
				c := e.cache(o)
				g := newGate()
				first := e.goRead(c, name, g.loaderOf(end.load))
				await(e, "the load begins", g.began)
				var next counter
				late := []*read{e.goRead(c, name, loaderOf("new", &next)), e.goRead(c, name, loaderOf("new", &next))}
				e.misses(c, 3)
				g.open()
				await(e, "the first read ends", first.done)
				if !errors.Is(first.err, end.err) || first.res.Uncached != end.reason {
					e.Errorf("%s: the first read returned %+v, %v; want %q, %v", name, first.res, first.err, end.reason, end.err)
				}
				for _, r := range late {
					await(e, "a late read ends", r.done)
					if r.err != nil || r.res.Value != "new" || !r.res.Cached() {
						e.Errorf("%s: a late read returned %+v, %v; want the next load's value", name, r.res, r.err)
					}
				}
				if n := next.count(); n != 1 {
					e.Errorf("%s: the late reads ran %d loads; want to share one", name, n)
				}
				e.wantStored(name, "new")
			}
		},
	},
	{
		name: "G3LoadsWhileTheServerIsDownAreNotJoinedLate", cache: true,
		rule: "With UnavailableLoad, a load without the server must be shared only with those who were there before it began.",
		run: func(e *env) {
			p := e.proxy()
			o := cacheOptions
			o.OnUnavailable = leasecache.UnavailableLoad
			c := e.cacheOn(e.store(e.driverOn(p), 2*time.Second), o)
			p.Down()
			g := newGate()
			before := e.goRead(c, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			after := e.goRead(c, "k", loaderOf("new", nil))
			after.want(e, "new", leasecache.Loaded, leasecache.ServerDown)
			g.open()
			before.want(e, "old", leasecache.Loaded, leasecache.ServerDown)
			e.wantNotStored("k")
		},
	},
	{
		name: "G3LoadWhoseFillIsUnknownIsNotJoinedLate", cache: true,
		rule: "When it is not known whether a fill was accepted, the value must go only to those who were there before the load began.",
		run: func(e *env) {
			p := e.proxy()
			o := cacheOptions
			o.Lease = 5 * time.Second // the release may get lost too, behind the fill on the same connection
			c := e.cacheOn(e.store(e.warm(e.driverOn(p), "k"), time.Second), o)
			hung := p.On(isFill, -1, Hang)
			g := newGate()
			before := e.goRead(c, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			late := e.goRead(c, "k", loaderOf("new", nil))
			e.misses(c, 2)
			g.open()
			before.want(e, "old", leasecache.Loaded, leasecache.ServerDown)
			hung.Remove()
			await(e, "the late read ends", late.done)
			if late.err == nil && late.res.Value != "new" {
				e.Errorf("the late read returned %+v; want the next load's value, or an error", late.res)
			}
			if got, ok := e.stored("k"); ok && got != "new" {
				e.Errorf("stored value = %q; want none, or the next load's", got)
			}
		},
	},
	{
		name: "G3NobodyWaitsForTwoResultsHeCannotUse", cache: true,
		rule: "However often another process invalidates, a read must wait for no more than one load that it cannot use.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			gates := []*gate{newGate(), newGate(), newGate()}
			var mu sync.Mutex
			n := 0
			load := func(ctx context.Context) (string, error) {
				mu.Lock()
				g, v := gates[min(n, 2)], []string{"first", "second", "third"}[min(n, 2)]
				n++
				mu.Unlock()
				return g.loader(v)(ctx)
			}
			first := e.goRead(here, "k", load)
			await(e, "the first load begins", gates[0].began)
			late := e.goRead(here, "k", load) // too late for the first
			e.misses(here, 2)
			beside := e.goRead(here, "k", load)
			e.misses(here, 3)
			e.mustInvalidate(there, "k")
			gates[0].open()
			await(e, "the second load begins", gates[1].began)
			first.want(e, "first", leasecache.Loaded, leasecache.LeaseLost)
			e.mustInvalidate(there, "k") // the second cannot be cached either
			gates[1].open()
			late.want(e, "second", leasecache.Loaded, leasecache.LeaseLost)
			beside.want(e, "second", leasecache.Joined, leasecache.LeaseLost)
			e.wantNotStored("k")
		},
	},
	{
		name: "G3WhoMovesOnTakesWhatWasSentAfterHeCame", cache: true,
		rule: "A reader who moves on from a load that it cannot use must take the value of a read that was sent after it came, although it joins that read late.",
		run: func(e *env) {
			p := e.proxy()
			fill := holderOn(e.driverOn(p))
			poll := holderOn(fill.driver())
			here, there := e.cacheOn(poll.driver(), cacheOptions), e.cache(cacheOptions)
			g := newGate()
			first := e.goRead(here, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			late := e.goRead(here, "k", loaderOf("wrong", nil))
			e.misses(here, 2)
			e.mustInvalidate(there, "k")
			fill.hold(isFill)
			g.open()
			await(e, "the fill is rejected", fill.caught)
			poll.hold(func(command []string) bool {
				if !e.isRead("k")(command) {
					return false
				}
				e.do("SET", e.value("k"), "new", "PX", "60000")
				return true
			})
			next := e.goRead(here, "k", loaderOf("wrong", nil))
			await(e, "the next read finds a value", poll.caught)
			p.On(e.isRead("k"), -1, Hang) // there is no read after that one
			fill.release()
			first.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			poll.release()
			next.want(e, "new", leasecache.Hit, "")
			late.want(e, "new", leasecache.Hit, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G3FillThatIsPresentMayBeJoined", cache: true,
		rule: "When a fill's reply was lost and the fill is found present, all who came before it was sent must get the value.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			p.On(isFill, 1, DropReply)
			g := newGate()
			first := e.goRead(c, "k", g.loader("v"))
			await(e, "the load begins", g.began)
			late := e.goRead(c, "k", loaderOf("wrong", nil))
			e.misses(c, 2)
			g.open()
			first.want(e, "v", leasecache.Loaded, "")
			late.want(e, "v", leasecache.Joined, "")
			e.wantStored("k", "v")
			if s := c.Stats(); s.FillsPresent != 1 || s.Loads != 1 {
				e.Errorf("Stats: %d fills present, %d loads; want one each", s.FillsPresent, s.Loads)
			}
		},
	},
}
