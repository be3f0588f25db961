package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
)

// Cases of G5: stale copies.

var staleOptions = leasecache.Options{Stale: time.Minute}

var staleCases = []testCase{
	{
		name: "G5StaleCopyInsteadOfWaiting", cache: true,
		rule: "With stale serving, those who would wait after an invalidation must get the value from before it, marked as stale, while one read loads.",
		run: func(e *env) {
			here, there := e.cache(staleOptions), e.cache(staleOptions)
			e.mustRead(here, "k", loaderOf("old", nil))
			e.mustInvalidate(there, "k")
			g := newGate()
			leader := e.goRead(here, "k", g.loader("new"))
			await(e, "the load begins", g.began)
			// In the process that loads, and in another, while the load runs.
			for range 3 {
				e.goRead(here, "k", loaderOf("wrong", nil)).want(e, "old", leasecache.Stale, leasecache.StaleCopy)
				e.goRead(there, "k", loaderOf("wrong", nil)).want(e, "old", leasecache.Stale, leasecache.StaleCopy)
			}
			e.wantNotStored("k")
			g.open()
			leader.want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
			if e.exists(e.stale("k")) {
				e.Error("the stale copy is still there after the fill")
			}
			if n := here.Stats().StaleServed + there.Stats().StaleServed; n != 6 {
				e.Errorf("Stats: %d stale copies served; want 6", n)
			}
		},
	},
	{
		name: "G5ThoseBesideTheLeaderGetTheStaleCopy", cache: true,
		rule: "Those who joined the read that took the lease must get the stale copy that it found; only the one whose loader runs waits.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), staleOptions)
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			g := newGate()
			reads := []*read{e.goRead(c, "k", g.loader("new"))}
			e.misses(c, 1)
			for range 5 {
				reads = append(reads, e.goRead(c, "k", g.loader("new")))
			}
			e.misses(c, 6)
			e.eventually("all wait", func() bool { return c.Stats().Waits == 6 })
			var once sync.Once
			p.On(func(command []string) bool {
				if e.isRead("k")(command) {
					once.Do(func() {
						e.do("SET", e.stale("k"), "old", "PX", "60000")
						e.do("DEL", e.lease("k"))
					})
				}
				return false
			}, -1, DropReply)
			await(e, "the load begins", g.began)
			for _, r := range reads[1:] {
				r.want(e, "old", leasecache.Stale, leasecache.StaleCopy)
			}
			e.wantNotStored("k")
			g.open()
			reads[0].want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G5StaleCopyBesideTheLeaseIsNotForThoseWhoCameLater", cache: true,
		rule: "A read that starts after read or lease was sent must not get the stale copy that it found: a newer value may have been cached since.",
		run: func(e *env) {
			h := e.holder()
			here, there := e.cacheOn(h.driver(), staleOptions), e.cache(staleOptions)
			e.do("SET", e.stale("k"), "v1", "PX", "60000")
			h.hold(e.isRead("k"))
			g := newGate()
			leader := e.goRead(here, "k", g.loader("v3"))
			await(e, "read or lease is executed", h.caught)
			e.mustInvalidate(there, "k")
			e.mustRead(there, "k", loaderOf("v2", nil))
			e.mustInvalidate(there, "k") // now v2 is the stale copy
			late := e.goRead(here, "k", g.loader("v3"))
			e.misses(here, 2)
			h.release()
			await(e, "the load begins", g.began)
			g.open()
			leader.want(e, "v3", leasecache.Loaded, leasecache.LeaseLost)
			await(e, "the late read ends", late.done)
			if late.err != nil || late.res.Value == "v1" {
				e.Errorf("the late read returned %+v, %v; want no copy that is older than v2", late.res, late.err)
			}
		},
	},
	{
		name: "G5StaleCopyOfAnotherType", cache: true,
		rule: "A stale copy's key that holds something else than a string must not stand in the way of a read.",
		run: func(e *env) {
			c := e.cache(staleOptions)
			e.do("RPUSH", e.stale("k"), "x")
			e.goRead(c, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
			if e.exists(e.stale("k")) {
				e.Error("the fill left it there")
			}
		},
	},
	{
		name: "G5NoStaleCopyUnlessAskedFor", cache: true,
		rule: "A cache without stale serving must wait, whatever stale copies others have left.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.do("SET", e.stale("k"), "old", "PX", "60000")
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			r := e.goRead(c, "k", loaderOf("wrong", nil))
			e.eventually("the read waits", func() bool { return c.Stats().Waits == 1 })
			e.do("SET", e.value("k"), "new", "PX", "60000")
			r.want(e, "new", leasecache.Hit, "")
		},
	},
	{
		name: "G5StaleCopyIsNeverOlderThanAValueCachedSince", cache: true,
		rule: "A stale copy must not be handed out once a value was cached after it, not even to those who join a load that began before that.",
		run: func(e *env) {
			here, there := e.cache(staleOptions), e.cache(staleOptions)
			e.mustRead(here, "k", loaderOf("v1", nil))
			e.mustInvalidate(there, "k")
			g := newGate()
			leader := e.goRead(here, "k", g.loader("v2"))
			await(e, "the load begins", g.began) // it was offered v1 as the stale copy
			e.mustInvalidate(there, "k")
			e.mustRead(there, "k", loaderOf("v3", nil))
			e.mustInvalidate(there, "k") // now v3 is the stale copy
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			e.goRead(here, "k", loaderOf("wrong", nil)).want(e, "v3", leasecache.Stale, leasecache.StaleCopy)
			g.open()
			leader.want(e, "v2", leasecache.Loaded, leasecache.LeaseLost)
			e.wantNotStored("k")
		},
	},
	{
		name: "G5StaleCopyOfAPollIsNotForThoseWhoCameLater", cache: true,
		rule: "A read that starts after a poll was sent must not get the stale copy which that poll returns: a newer value may have been cached since.",
		run: func(e *env) {
			h := e.holder()
			here, there := e.cacheOn(h.driver(), staleOptions), e.cache(staleOptions)
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			before := e.goRead(here, "k", loaderOf("wrong", nil))
			e.eventually("the read waits", func() bool { return here.Stats().Waits == 1 })
			h.hold(func(command []string) bool {
				if !e.isRead("k")(command) {
					return false
				}
				e.do("SET", e.stale("k"), "v1", "PX", "60000")
				return true
			})
			await(e, "a poll finds the stale copy", h.caught)
			e.do("DEL", e.lease("k"))
			e.mustRead(there, "k", loaderOf("v2", nil))
			e.mustInvalidate(there, "k")
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			after := e.goRead(here, "k", loaderOf("wrong", nil))
			e.misses(here, 2)
			h.release()
			before.want(e, "v1", leasecache.Stale, leasecache.StaleCopy)
			after.want(e, "v2", leasecache.Stale, leasecache.StaleCopy)
			e.wantNotStored("k")
		},
	},
	{
		name: "G5NotFoundIsNotServedStale", cache: true,
		rule: "A cached not-found must never be served stale.",
		run: func(e *env) {
			here, there := e.cache(staleOptions), e.cache(staleOptions)
			if _, err := here.Get(e.ctx, "k", func(context.Context) (string, error) { return "", leasecache.ErrNotFound }); err == nil {
				e.Fatal("Get returned no error")
			}
			e.mustInvalidate(there, "k")
			g := newGate()
			leader := e.goRead(here, "k", g.loader("new"))
			await(e, "the load begins", g.began)
			other := e.goRead(there, "k", loaderOf("wrong", nil))
			e.eventually("the read waits", func() bool { return there.Stats().Waits == 1 })
			g.open()
			leader.want(e, "new", leasecache.Loaded, "")
			other.want(e, "new", leasecache.Hit, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G5StaleCopyIsNeverCachedAsTheValue", cache: true,
		rule: "Serving a stale copy must leave the value uncached and the copy's deadline as it is.",
		run: func(e *env) {
			c := e.cache(staleOptions)
			e.do("SET", e.stale("k"), "old", "PX", "5000")
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			for range 5 {
				e.goRead(c, "k", loaderOf("wrong", nil)).want(e, "old", leasecache.Stale, leasecache.StaleCopy)
			}
			e.wantNotStored("k")
			if ms := e.do("PTTL", e.stale("k")).Int; ms > 5000 {
				e.Errorf("the stale copy lives for %dms; want up to 5000, as before", ms)
			}
		},
	},
}
