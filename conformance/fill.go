package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of G1, G4 and G6: which loads are cached, and what is said of those that
// are not.

var fillCases = []testCase{
	{
		name: "G1LoadBeforeAnInvalidationIsNotCached", cache: true,
		rule: "Once Invalidate has returned nil, no load that started before it must ever be cached; its own reader is told so.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			g := newGate()
			r := e.goRead(here, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			e.mustInvalidate(there, "k")
			g.open()
			r.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			e.wantNotStored("k")
			if s := here.Stats(); s.FillsRejected != 1 || s.FillsAccepted != 0 {
				e.Errorf("Stats: %d fills rejected, %d accepted; want one rejected", s.FillsRejected, s.FillsAccepted)
			}
		},
	},
	{
		name: "G1OldLoadIsNotCachedOverANewOne", cache: true,
		rule: "An old load must not be cached while a newer load holds the lease, nor after that has filled.",
		run: func(e *env) {
			here, there := e.cache(cacheOptions), e.cache(cacheOptions)
			g, g2 := newGate(), newGate()
			old := e.goRead(here, "k", g.loader("old"))
			await(e, "the old load begins", g.began)
			e.mustInvalidate(there, "k")
			current := e.goRead(there, "k", g2.loader("new"))
			await(e, "the new load begins", g2.began)
			g.open()
			old.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			e.wantNotStored("k")
			g2.open()
			current.want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G1InvalidationByDEL", cache: true,
		rule: "DEL of lease and value by any other client must be a valid invalidation.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			r := e.goRead(c, "k", g.loader("old"))
			await(e, "the load begins", g.began)
			e.do("DEL", e.lease("k"), e.value("k"))
			g.open()
			r.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			e.wantNotStored("k")
		},
	},
	{
		name: "G1LateCopyOfAnAcquisition", cache: true,
		rule: "When a copy of the acquisition arrives after an invalidation, the load that the acquisition began must still not be cached.",
		run: func(e *env) {
			p := e.proxy()
			here, there := e.cacheOn(e.driverOn(p), cacheOptions), e.cache(cacheOptions)
			late := p.On(e.isRead("k"), 1, LateCopy)
			g := newGate()
			r := e.goRead(here, "k", g.loader("old"))
			await(e, "the acquisition is sent again, and the load begins", g.began)
			e.mustInvalidate(there, "k")
			if _, err := late.Release(e.ctx); err != nil {
				e.Fatalf("the late copy: %v", err)
			}
			if !e.exists(e.lease("k")) {
				e.Fatal("the late copy took no lease: the case does not reach the dangerous interleaving")
			}
			g.open()
			r.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			e.wantNotStored("k")
		},
	},
	{
		name: "G1LateCopyOfAFill", cache: true,
		rule: "When a copy of a fill arrives after an invalidation, it must write nothing.",
		run: func(e *env) {
			p := e.proxy()
			here, there := e.cacheOn(e.driverOn(p), cacheOptions), e.cache(cacheOptions)
			late := p.On(isFill, 1, LateCopy)
			e.goRead(here, "k", loaderOf("old", nil)).want(e, "old", leasecache.Loaded, "")
			e.wantStored("k", "old")
			e.mustInvalidate(there, "k")
			l := e.acquire(e.driver(), "k") // another load is under way
			if _, err := late.Release(e.ctx); err != nil {
				e.Fatalf("the late copy: %v", err)
			}
			e.wantNotStored("k")
			if got := e.do("GET", e.lease("k")).Str; got != string(l) {
				e.Errorf("the lease is %q after the late copy; want %q", got, l)
			}
		},
	},
	{
		name: "G1PausedWriter", cache: true,
		rule: "A writer that was paused beyond its lease must be rejected, and not replace the newer value (the first seed's race).",
		run: func(e *env) {
			o := cacheOptions
			o.Lease, o.LoadTimeout, o.WaitBound = 100*time.Millisecond, patience, patience
			old := e.cache(o)
			o.Lease = 0 // the default, so that a slow machine does not lose this one too
			current := e.cache(o)
			g := newGate()
			paused := e.goRead(old, "k", g.loader("old"))
			await(e, "the old load begins", g.began)
			// Waits for the lease of the paused writer, and takes over.
			e.goRead(current, "k", loaderOf("current", nil)).want(e, "current", leasecache.Loaded, "")
			g.open()
			paused.want(e, "old", leasecache.Loaded, leasecache.LeaseLost)
			e.wantStored("k", "current")
		},
	},
	{
		name: "G4RejectedLoadIsReread", cache: true,
		rule: "With LostReread, a rejected load must be read again, and never returned.",
		run: func(e *env) {
			o := cacheOptions
			o.OnLeaseLost = leasecache.LostReread
			here, there := e.cache(o), e.cache(cacheOptions)
			g := newGate()
			n := 0
			r := e.goRead(here, "k", func(ctx context.Context) (string, error) {
				if n++; n == 1 {
					return g.loader("old")(ctx)
				}
				return "new", nil
			})
			await(e, "the load begins", g.began)
			e.mustInvalidate(there, "k")
			g.open()
			r.want(e, "new", leasecache.Loaded, "")
			e.wantStored("k", "new")
		},
	},
	{
		name: "G4RereadIsBounded", cache: true,
		rule: "With LostReread, a read whose loads are rejected again and again must end with ErrLeaseLost.",
		run: func(e *env) {
			o := cacheOptions
			o.OnLeaseLost = leasecache.LostReread
			here, there := e.cache(o), e.cache(cacheOptions)
			var loads counter
			_, err := here.Get(e.ctx, "k", func(context.Context) (string, error) {
				loads.add()
				if err := there.Invalidate(e.ctx, "k"); err != nil {
					e.Error(err)
				}
				return "old", nil
			})
			if !errors.Is(err, leasecache.ErrLeaseLost) {
				e.Errorf("Get returned %v; want ErrLeaseLost", err)
			}
			if n := loads.count(); n < 2 || n > 10 {
				e.Errorf("%d loads ran; want a few", n)
			}
			e.wantNotStored("k")
		},
	},
	{
		name: "G4RejectedLoadFails", cache: true,
		rule: "With LostFail, a rejected load must be returned as ErrLeaseLost.",
		run: func(e *env) {
			o := cacheOptions
			o.OnLeaseLost = leasecache.LostFail
			c := e.cache(o)
			_, err := c.Get(e.ctx, "k", func(context.Context) (string, error) {
				e.do("DEL", e.lease("k"))
				return "old", nil
			})
			if !errors.Is(err, leasecache.ErrLeaseLost) {
				e.Errorf("Get returned %v; want ErrLeaseLost", err)
			}
			e.wantNotStored("k")
		},
	},
	{
		name: "G6TTLCountsFromBeforeTheRequest", cache: true,
		rule: "The TTL that Read reports must count from before its request was sent: however slow the reply, it never says more than is left.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			e.do("SET", e.value("k"), "v", "PX", "60000")
			held := p.On(MatchScript(protocol.Read.SHA1(), protocol.Read.Source()), 1, HoldReply)
			r := e.goRead(c, "k", loaderOf("wrong", nil))
			await(e, "the read is executed", held.Caught())
			e.do("PEXPIRE", e.value("k"), "59000") // nothing that the reply can know
			executed := time.Now()
			e.eventually("half a second has passed", func() bool { return time.Since(executed) > 500*time.Millisecond })
			if _, err := held.Release(e.ctx); err != nil {
				e.Fatal(err)
			}
			r.want(e, "v", leasecache.Hit, "")
			if r.res.TTL > 60*time.Second-500*time.Millisecond {
				e.Errorf("Read reports a TTL of %v, half a second after the server said 60s at most", r.res.TTL)
			}
			e.wantStored("k", "v")
		},
	},
	{
		name: "G6TTLOfALoadCountsFromBeforeTheFill", cache: true,
		rule: "The TTL that Read reports for a load must count from before its fill was sent.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			held := p.On(isFill, 1, HoldReply)
			r := e.goRead(c, "k", loaderOf("v", nil))
			await(e, "the fill is executed", held.Caught())
			executed := time.Now()
			e.eventually("half a second has passed", func() bool { return time.Since(executed) > 500*time.Millisecond })
			if _, err := held.Release(e.ctx); err != nil {
				e.Fatal(err)
			}
			r.want(e, "v", leasecache.Loaded, "")
			if r.res.TTL > 10*time.Minute-500*time.Millisecond {
				e.Errorf("Read reports a TTL of %v, half a second after the fill was executed with 10m", r.res.TTL)
			}
			e.wantStored("k", "v")
		},
	},
}
