package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
)

// Cases of G2: how many loads run, and who runs them.

var loadCases = []testCase{
	{
		name: "G2OneLoadAcrossProcesses", cache: true,
		rule: "Readers in several processes that miss one key must share one load.",
		run: func(e *env) {
			g := newGate()
			var wg sync.WaitGroup
			var caches []*leasecache.Cache[string]
			for range 5 {
				caches = append(caches, e.cache(cacheOptions))
			}
			for _, c := range caches {
				for range 10 {
					wg.Go(func() {
						v, err := c.Get(e.ctx, "k", g.loader("v"))
						if v != "v" || err != nil {
							e.Errorf("Get returned %q, %v", v, err)
						}
					})
				}
			}
			waiting := func() (n uint64) {
				for _, c := range caches {
					n += c.Stats().Waits
				}
				return n
			}
			for _, c := range caches {
				e.misses(c, 10)
			}
			// All processes but the holder's have met its lease.
			e.eventually("the others wait", func() bool { return waiting() >= 40 })
			g.open()
			wg.Wait()
			if n := g.count(); n != 1 {
				e.Errorf("%d loads ran; want one", n)
			}
			e.wantStored("k", "v")
			if e.exists(e.lease("k")) {
				e.Error("the lease is still held")
			}
		},
	},
	{
		name: "G2ProcessRunsTwoLoadsOfAKeyAtMost", cache: true,
		rule: "However often a key is invalidated, a process must never run more than two loads of it; further readers share the next one.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			var reads []*read
			for i := range 6 {
				reads = append(reads, e.goRead(c, "k", g.loader(fmt.Sprint("v", i))))
				e.misses(c, uint64(i+1))
				if i < 2 {
					e.eventually("the load begins", func() bool { return g.count() == i+1 })
				}
				e.mustInvalidate(c, "k")
			}
			g.open()
			for _, r := range reads {
				await(e, "a read ends", r.done)
				if r.err != nil {
					e.Errorf("Read: %v", r.err)
				}
			}
			if n := g.most(); n != 2 {
				e.Errorf("%d loads ran at a time; want two", n)
			}
			if n := g.count(); n != 3 {
				e.Errorf("%d loads ran; want three: two that were overtaken, and one for all others", n)
			}
			if last := reads[len(reads)-1].res; last.Cached() {
				e.wantStored("k", last.Value)
			} else {
				e.Errorf("the last read returned %+v; want what is cached", last)
			}
		},
	},
	{
		name: "G2LoaderThatIgnoresItsContext", cache: true,
		rule: "A loader that ignores its context must not hold up its readers beyond LoadTimeout; it keeps its place among the two loads of its key, and its result is dropped.",
		run: func(e *env) {
			o := repeatOptions
			o.LoadTimeout, o.WaitBound = 100*time.Millisecond, 300*time.Millisecond
			c := e.cache(o)
			end := make(chan struct{})
			e.Cleanup(func() { close(end) })
			var loads counter
			for i := range 4 {
				_, err := c.Get(e.ctx, "k", func(context.Context) (string, error) {
					loads.enter()
					defer loads.leave()
					<-end
					return "dropped", nil
				})
				want := leasecache.ErrLoadTimeout
				if i >= 2 {
					want = leasecache.ErrOverloaded
				}
				if !errors.Is(err, want) {
					e.Errorf("read %d returned %v; want %v", i, err, want)
				}
			}
			if n := loads.most(); n != 2 {
				e.Errorf("%d loads ran at a time; want two", n)
			}
			e.eventually("the lease is released", func() bool { return !e.exists(e.lease("k")) })
			e.wantNotStored("k")
		},
	},
	{
		name: "G2CrashedHolder", cache: true,
		rule: "A holder that crashed must cost no more than what is left of its lease.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.do("SET", e.lease("k"), "crashed", "PX", "600000")
			r := e.goRead(c, "k", loaderOf("v", nil))
			e.eventually("the read waits", func() bool { return c.Stats().Waits == 1 })
			e.do("PEXPIRE", e.lease("k"), "300") // what is left of the lease
			r.want(e, "v", leasecache.Loaded, "")
			e.wantStored("k", "v")
			if s := c.Stats(); s.Waits != 1 || s.UnleasedLoads != 0 {
				e.Errorf("Stats: %d waits, %d unleased loads; want one wait, and a load under a lease", s.Waits, s.UnleasedLoads)
			}

			// Also one who polls rarely, or is woken, looks when the lease runs out.
			o := cacheOptions
			o.PollInterval = time.Hour
			c = e.cache(o)
			e.do("SET", e.lease("k2"), "crashed", "PX", "1000")
			e.goRead(c, "k2", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
			e.wantStored("k2", "v")
		},
	},
	{
		name: "G2WaitBound", cache: true,
		rule: "A read that has waited for WaitBound must load without a lease, together with all who wait with it, and cache nothing.",
		run: func(e *env) {
			o := cacheOptions
			o.WaitBound = 200 * time.Millisecond
			c := e.cache(o)
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			g := newGate()
			var reads []*read
			for range 5 {
				reads = append(reads, e.goRead(c, "k", g.loader("v")))
			}
			await(e, "a load begins", g.began)
			e.misses(c, 5)
			g.open()
			loaded := 0
			for _, r := range reads {
				await(e, "a read ends", r.done)
				if r.err != nil || r.res.Value != "v" || r.res.Uncached != leasecache.WaitedTooLong {
					e.Errorf("Read returned %+v, %v; want the value, uncached", r.res, r.err)
				}
				if r.res.Source == leasecache.Loaded {
					loaded++
				}
			}
			if n := g.count(); n != loaded || n > 2 {
				e.Errorf("%d loads ran for %d readers that loaded; want them shared", n, loaded)
			}
			e.wantNotStored("k")
			if got := e.do("GET", e.lease("k")).Str; got != "another's" {
				e.Errorf("the lease is %q; want the other's", got)
			}
			if s := c.Stats(); s.WaitTimeouts == 0 || s.UnleasedLoads != uint64(g.count()) {
				e.Errorf("Stats: %d wait timeouts, %d unleased loads; want some, and %d", s.WaitTimeouts, s.UnleasedLoads, g.count())
			}
		},
	},
	{
		name: "G2WaitBoundEndsNoLoad", cache: true,
		rule: "WaitBound must not end the wait of the read whose loader runs: its load is cached, while those who joined it load without a lease.",
		run: func(e *env) {
			o := cacheOptions
			o.WaitBound = 100 * time.Millisecond
			c := e.cache(o)
			g := newGate()
			leader := e.goRead(c, "k", g.loader("v"))
			await(e, "the load begins", g.began)
			e.goRead(c, "k", loaderOf("unleased", nil)).want(e, "unleased", leasecache.Loaded, leasecache.WaitedTooLong)
			e.wantNotStored("k")
			g.open()
			leader.want(e, "v", leasecache.Loaded, "")
			e.wantStored("k", "v")
		},
	},
	{
		name: "G2UnleasedLoadsAreLimited", cache: true,
		rule: "Over MaxUnleasedLoads, a read that has waited for WaitBound must get ErrOverloaded instead of loading.",
		run: func(e *env) {
			o := cacheOptions
			o.WaitBound, o.MaxUnleasedLoads = 100*time.Millisecond, 1
			c := e.cache(o)
			for _, key := range []string{"a", "b"} {
				e.do("SET", e.lease(key), "another's", "PX", "600000")
			}
			g := newGate()
			a := e.goRead(c, "a", g.loader("v"))
			await(e, "the load without a lease begins", g.began)
			var none counter
			if _, err := c.Get(e.ctx, "b", loaderOf("wrong", &none)); !errors.Is(err, leasecache.ErrOverloaded) {
				e.Errorf("Get over the limit returned %v; want ErrOverloaded", err)
			}
			if none.count() > 0 {
				e.Error("a load ran over the limit")
			}
			g.open()
			a.want(e, "v", leasecache.Loaded, leasecache.WaitedTooLong)
			// The place is free again.
			e.goRead(c, "b", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, leasecache.WaitedTooLong)
			e.wantNotStored("a")
			e.wantNotStored("b")
			if s := c.Stats(); s.Overloads != 1 {
				e.Errorf("Stats: %d overloads; want one", s.Overloads)
			}
		},
	},
	{
		name: "G2MaxLoads", cache: true,
		rule: "With MaxLoads, no more loads of a cache must run at a time; others queue before they take a lease, and get a value that appears meanwhile.",
		run: func(e *env) {
			o := cacheOptions
			o.MaxLoads = 2
			c := e.cache(o)
			g := newGate()
			reads := map[string]*read{}
			for i := range 6 {
				key := fmt.Sprint("k", i)
				reads[key] = e.goRead(c, key, g.loader("v"))
			}
			e.misses(c, 6)
			e.eventually("two loads run", func() bool { return g.count() == 2 })
			leases := 0
			var queued []string
			for key := range reads {
				if e.exists(e.lease(key)) {
					leases++
				} else {
					queued = append(queued, key)
				}
			}
			if leases != 2 || len(queued) != 4 {
				e.Fatalf("%d leases are held while two loads run; want two", leases)
			}
			e.do("SET", e.value(queued[0]), "appeared", "PX", "60000")
			reads[queued[0]].want(e, "appeared", leasecache.Hit, "")
			g.open()
			for key, r := range reads {
				await(e, "a read ends", r.done)
				if r.err != nil || !r.res.Cached() {
					e.Errorf("Read returned %+v, %v", r.res, r.err)
				}
				e.wantStored(key, r.res.Value)
			}
			if n := g.most(); n != 2 {
				e.Errorf("%d loads ran at a time; want two", n)
			}
		},
	},
	{
		name: "G2UnavailableLoadsAreLimited", cache: true,
		rule: "With UnavailableLoad, loads while the server is down must be limited by MaxUnleasedLoads, and cache nothing.",
		run: func(e *env) {
			p := e.proxy()
			o := cacheOptions
			o.OnUnavailable, o.MaxUnleasedLoads = leasecache.UnavailableLoad, 1
			c := e.cacheOn(e.store(e.driverOn(p), 2*time.Second), o)
			p.Down()
			g := newGate()
			a := e.goRead(c, "a", g.loader("v"))
			await(e, "the load begins", g.began)
			if _, err := c.Get(e.ctx, "b", loaderOf("wrong", nil)); !errors.Is(err, leasecache.ErrOverloaded) || !errors.Is(err, leasecache.ErrUnavailable) {
				e.Errorf("Get over the limit returned %v; want ErrOverloaded and ErrUnavailable", err)
			}
			g.open()
			a.want(e, "v", leasecache.Loaded, leasecache.ServerDown)
			e.wantNotStored("a")
		},
	},
	{
		name: "G2ThirdReaderWhileTheServerIsDown", cache: true,
		rule: "With UnavailableLoad, a reader that finds two loads of its key under way must wait for its turn, and then share the next load.",
		run: func(e *env) {
			p := e.proxy()
			o := cacheOptions
			o.OnUnavailable = leasecache.UnavailableLoad
			c := e.cacheOn(e.store(e.driverOn(p), 2*time.Second), o)
			p.Down()
			g := newGate()
			reads := []*read{e.goRead(c, "k", g.loader("v"))}
			e.eventually("the first load runs", func() bool { return g.count() == 1 })
			reads = append(reads, e.goRead(c, "k", g.loader("v")))
			e.eventually("the second load runs", func() bool { return g.count() == 2 })
			reads = append(reads, e.goRead(c, "k", g.loader("v")), e.goRead(c, "k", g.loader("v")))
			e.misses(c, 4)
			g.open()
			for _, r := range reads {
				await(e, "a read ends", r.done)
				if r.err != nil || r.res.Value != "v" || r.res.Uncached != leasecache.ServerDown {
					e.Errorf("Read returned %+v, %v; want the value, uncached", r.res, r.err)
				}
			}
			if n := g.most(); n != 2 {
				e.Errorf("%d loads ran at a time; want two", n)
			}
			if n := g.count(); n != 3 {
				e.Errorf("%d loads ran; want three, the last one shared", n)
			}
			e.wantNotStored("k")
		},
	},
	{
		name: "G2MaxLoadsCountsUnleasedLoads", cache: true,
		rule: "A load without a lease must count under MaxLoads as well.",
		run: func(e *env) {
			o := cacheOptions
			o.WaitBound, o.MaxLoads = 100*time.Millisecond, 1
			c := e.cache(o)
			g := newGate()
			a := e.goRead(c, "a", g.loader("v"))
			await(e, "a load begins", g.began)
			e.do("SET", e.lease("b"), "another's", "PX", "600000")
			var none counter
			if _, err := c.Get(e.ctx, "b", loaderOf("wrong", &none)); !errors.Is(err, leasecache.ErrOverloaded) || none.count() > 0 {
				e.Errorf("Get over the limit returned %v, and ran %d loads; want ErrOverloaded", err, none.count())
			}
			g.open()
			a.want(e, "v", leasecache.Loaded, "")
			e.wantStored("a", "v")
			e.wantNotStored("b")
		},
	},
	{
		name: "RefreshLoadsBesideThePresentValue", cache: true,
		rule: "Refresh must load now under a lease and cache the result, while readers get the present value; calls that came before the load began share it.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.mustRead(c, "k", loaderOf("v1", nil))
			g := newGate()
			type result struct {
				res leasecache.Result[string]
				err error
			}
			done := make(chan result, 1)
			go func() {
				res, err := c.Refresh(e.ctx, "k", g.loader("v2"))
				done <- result{res, err}
			}()
			await(e, "the load begins", g.began)
			if res := e.mustRead(c, "k", loaderOf("wrong", nil)); res.Value != "v1" || res.Source != leasecache.Hit {
				e.Errorf("Read during a refresh returned %+v; want the present value", res)
			}
			e.wantStored("k", "v1")
			g.open()
			if r := await(e, "Refresh ends", done); r.err != nil || r.res.Value != "v2" || !r.res.Cached() || r.res.Source != leasecache.Loaded {
				e.Errorf("Refresh returned %+v, %v", r.res, r.err)
			}
			e.wantStored("k", "v2")
		},
	},
	{
		name: "RefreshOvertakenByAnInvalidation", cache: true,
		rule: "A refresh that began before an invalidation must not be cached after it.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			res, err := here.Refresh(e.ctx, "k", func(context.Context) (string, error) {
				e.mustInvalidate(there, "k")
				return "old", nil
			})
			if err != nil || res.Uncached != leasecache.LeaseLost {
				e.Errorf("Refresh returned %+v, %v; want the value, uncached", res, err)
			}
			e.wantNotStored("k")
		},
	},
	{
		name: "RefreshIsNotServedStale", cache: true,
		rule: "Refresh must load after it was called: it takes no stale copy, also while another process loads.",
		run: func(e *env) {
			c := e.cache(staleOptions)
			e.do("SET", e.stale("k"), "old", "PX", "60000")
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			r := &read{done: make(chan struct{})}
			go func() {
				defer close(r.done)
				r.res, r.err = c.Refresh(e.ctx, "k", loaderOf("new", nil))
			}()
			e.eventually("Refresh waits for the lease", func() bool { return c.Stats().Waits == 1 })
			e.do("DEL", e.lease("k"))
			r.want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "RefreshDoesNotJoinAnOlderLoad", cache: true,
		rule: "Refresh must load after it was called: a load that began before, in this process or another, is waited for and not taken.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			g, g2 := newGate(), newGate()
			elsewhere := e.goRead(there, "k", g.loader("v1"))
			await(e, "the load elsewhere begins", g.began)
			done := make(chan leasecache.Result[string], 2)
			refresh := func(load leasecache.Loader[string]) {
				res, err := here.Refresh(e.ctx, "k", load)
				if err != nil {
					e.Errorf("Refresh: %v", err)
				}
				done <- res
			}
			go refresh(g2.loader("v2"))
			e.eventually("Refresh waits for the lease", func() bool { return here.Stats().Waits == 1 })
			g.open()
			elsewhere.want(e, "v1", leasecache.Loaded, "")
			await(e, "the refresh begins to load", g2.began)
			go refresh(loaderOf("v3", nil))
			e.eventually("the second refresh waits", func() bool { return here.Stats().Refreshes == 2 })
			g2.open()
			await(e, "the first refresh ends", done)
			await(e, "the second refresh ends", done)
			e.wantStored("k", "v3") // the second did not take the first one's load
		},
	},
}
