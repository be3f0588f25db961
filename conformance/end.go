package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
)

// Cases of G8 and G9: how loads and reads end, and what they leave.

// goGet runs a Get that may panic or exit its goroutine.
func goGet(e *env, c *leasecache.Cache[string], key string, load leasecache.Loader[string]) (done chan struct{}, panicked *any) {
	done, panicked = make(chan struct{}), new(any)
	go func() {
		defer close(done)
		defer func() { *panicked = recover() }()
		v, err := c.Get(e.ctx, key, load)
		e.Errorf("Get returned %q, %v; want a panic", v, err)
	}()
	return done, panicked
}

// explode has a name to find in a stack.
func explode() { panic("boom") }

// leaseGone waits until nobody holds the lease of key; with leases of minutes
// that means that it was released. The mark of a failed load may be there.
func (e *env) leaseGone(key string) {
	e.Helper()
	e.eventually("the lease is released", func() bool {
		held := e.do("GET", e.lease(key))
		return held.Null || strings.HasPrefix(held.Str, "!")
	})
}

var endCases = []testCase{
	{
		name: "G8PanicInALoader", cache: true,
		rule: "A panic in a loader must release the lease, reach its caller with its stack, and reach those who waited as an error.",
		run: func(e *env) {
			c := e.cache(repeatOptions)
			done, panicked := goGet(e, c, "k", func(context.Context) (string, error) {
				explode()
				return "", nil
			})
			await(e, "the caller panics", done)
			pe, ok := (*panicked).(*leasecache.PanicError)
			if !ok || pe.Value != "boom" || !strings.Contains(string(pe.Stack), "explode") {
				e.Errorf("the caller got %v; want its panic, with the stack of the loader", *panicked)
			}
			e.leaseGone("k")
			e.wantNotStored("k")
			e.goRead(c, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
		},
	},
	{
		name: "G8PanicReachesThoseWhoWaited", cache: true,
		rule: "Those who waited for a load that panicked must not be stranded: who was there before it began gets an error, who came later the next load.",
		run: func(e *env) {
			h := e.holder()
			c := e.cacheOn(h.driver(), repeatOptions)
			h.hold(e.isRead("k"))
			g := newGate()
			load := g.loaderOf(func(context.Context) (string, error) { panic("boom") })
			done, panicked := goGet(e, c, "k", load)
			await(e, "read or lease is executed", h.caught)
			before := e.goRead(c, "k", loaderOf("wrong", nil))
			e.misses(c, 2)
			h.release()
			await(e, "the load begins", g.began)
			late := e.goRead(c, "k", loaderOf("v", nil))
			e.misses(c, 3)
			g.open()
			await(e, "the caller panics", done)
			if *panicked == nil {
				e.Error("the caller did not panic")
			}
			await(e, "the reader who was there before ends", before.done)
			var pe *leasecache.PanicError
			if !errors.As(before.err, &pe) || pe.Value != "boom" {
				e.Errorf("the reader who was there before got %v; want the PanicError", before.err)
			}
			late.want(e, "v", leasecache.Loaded, "")
			e.wantStored("k", "v")
		},
	},
	{
		name: "G8GoexitInALoader", cache: true,
		rule: "A loader that ends by runtime.Goexit must release the lease, and its caller's goroutine must end too.",
		run: func(e *env) {
			c := e.cache(repeatOptions)
			done := make(chan struct{})
			go func() {
				defer close(done)
				v, err := c.Get(e.ctx, "k", goexit)
				e.Errorf("Get returned %q, %v after its loader called runtime.Goexit", v, err)
			}()
			await(e, "the caller's goroutine ends", done)
			e.leaseGone("k")
			e.wantNotStored("k")
			e.goRead(c, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
		},
	},
	{
		name: "G8LoadsWithoutAFillReleaseTheLease", cache: true,
		rule: "After a loader's error, do-not-store, an encode error, a value that is too large or a TTL out of range, each reader must get the right outcome, and the lease must be released.",
		run: func(e *env) {
			boom := errors.New("boom")
			for _, c := range []struct {
				name   string
				load   leasecache.Loader[string]
				value  string
				reason leasecache.Reason
				err    error
			}{
				{name: "error", err: boom, load: func(context.Context) (string, error) { return "", boom }},
				{name: "do not store", value: "v", reason: leasecache.NotStored, load: func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).DoNotStore()
					return "v", nil
				}},
				{name: "too large", value: "0123456789a", reason: leasecache.TooLarge, load: func(context.Context) (string, error) {
					return "0123456789a", nil
				}},
				{name: "encode error", value: "no", reason: leasecache.EncodeFailed, load: func(context.Context) (string, error) {
					return "no", nil
				}},
				{name: "TTL", err: leasecache.ErrTTL, load: func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).SetTTL(-time.Second)
					return "v", nil
				}},
			} {
				o := cacheOptions
				o.MaxValueSize = 10
				if c.reason == leasecache.EncodeFailed {
					o.Codec = fussyCodec{}
				}
				cache := e.cache(o)
				res, err := cache.Read(e.ctx, c.name, c.load)
				if !errors.Is(err, c.err) || res.Value != c.value || res.Uncached != c.reason || res.TTL != 0 {
					e.Errorf("%s: Read returned %+v, %v; want %q, %q, %v", c.name, res, err, c.value, c.reason, c.err)
				}
				e.leaseGone(c.name)
				e.wantNotStored(c.name)
			}
		},
	},
	{
		name: "G8UnknownAcquisitionIsReleased", cache: true,
		rule: "An acquisition whose outcome is unknown must be released: nobody should wait for a lease that nobody knows to hold.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			lost := p.On(e.isRead("k"), 3, DropReply)
			var none counter
			_, err := c.Get(e.ctx, "k", loaderOf("wrong", &none))
			if !errors.Is(err, leasecache.ErrUnavailable) || none.count() > 0 || lost.Hits() != 3 {
				e.Errorf("Get returned %v after %d lost replies, and ran %d loads", err, lost.Hits(), none.count())
			}
			e.leaseGone("k")

			// The first attempt took the lease; the second one failed for sure.
			lost.Remove()
			var once sync.Once
			p.On(func(command []string) bool {
				first := false
				if e.isRead("k2")(command) {
					once.Do(func() { first = true })
					if !first {
						e.do("RPUSH", e.value("k2"), "x")
					}
				}
				return first
			}, -1, DropReply)
			_, err = c.Get(e.ctx, "k2", loaderOf("wrong", &none))
			if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || none.count() > 0 {
				e.Errorf("Get returned %v, and ran %d loads; want the second attempt's WRONGTYPE", err, none.count())
			}
			e.leaseGone("k2")
		},
	},
	{
		name: "G8CallersThatLeftBeforeTheLoad", cache: true,
		rule: "When all callers have left while the lease was on its way, it must be released, and nothing loaded.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			held := p.On(e.isRead("k"), 1, HoldReply)
			// With less time than CallTimeout, the caller leaves in the middle of
			// a call.
			ctx, cancel := context.WithTimeout(e.ctx, patience/2)
			var none counter
			r := e.goReadContext(ctx, c, "k", loaderOf("wrong", &none))
			await(e, "read or lease is executed", held.Caught())
			cancel()
			await(e, "the caller leaves", r.done)
			if !errors.Is(r.err, context.Canceled) {
				e.Errorf("Read returned %v; want context.Canceled", r.err)
			}
			if !e.exists(e.lease("k")) {
				e.Fatal("the lease was not taken: the case does not reach what it is for")
			}
			if _, err := held.Release(e.ctx); err != nil {
				e.Fatal(err)
			}
			e.leaseGone("k")
			if n := c.Stats().Loads; n > 0 || none.count() > 0 {
				e.Errorf("%d loads ran that nobody waited for", n)
			}
			e.wantNotStored("k")

			// With more time, the caller is in the middle of the call itself.
			held = p.On(e.isRead("k2"), 1, HoldReply)
			ctx, cancel = context.WithCancel(e.ctx)
			r = e.goReadContext(ctx, c, "k2", loaderOf("wrong", &none))
			await(e, "read or lease is executed", held.Caught())
			cancel()
			if _, err := held.Release(e.ctx); err != nil {
				e.Fatal(err)
			}
			await(e, "the caller leaves", r.done)
			if !errors.Is(r.err, context.Canceled) {
				e.Errorf("Read returned %v; want context.Canceled", r.err)
			}
			e.leaseGone("k2")
			if n := c.Stats().Loads; n > 0 || none.count() > 0 {
				e.Errorf("%d loads ran that nobody waited for", n)
			}
			e.wantNotStored("k2")
		},
	},
	{
		name: "G9CallersLeaveAtOnce", cache: true,
		rule: "A caller whose context ends must leave at once with its error; the others stay, and the load goes on and is cached, also when all have left.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			ctx, cancel := context.WithCancel(e.ctx)
			leader := e.goReadContext(ctx, c, "k", g.loader("v"))
			await(e, "the load begins", g.began)
			follower := e.goRead(c, "k", loaderOf("wrong", nil))
			e.misses(c, 2)
			cancel()
			await(e, "the leader leaves", leader.done)
			if !errors.Is(leader.err, context.Canceled) {
				e.Errorf("the leader got %v; want context.Canceled", leader.err)
			}
			g.open()
			follower.want(e, "v", leasecache.Joined, "")
			e.wantStored("k", "v")

			g = newGate()
			ctx, cancel = context.WithCancel(e.ctx)
			last := e.goReadContext(ctx, c, "k2", g.loader("v2"))
			await(e, "the load begins", g.began)
			cancel()
			await(e, "the last caller leaves", last.done)
			g.open()
			e.eventually("the load is cached", func() bool { v, _ := e.stored("k2"); return v == "v2" })
			if n := c.Stats().Errors[leasecache.ErrorRead]; n > 0 {
				e.Errorf("Stats: %d failed reads; callers that leave are no failures", n)
			}
		},
	},
	{
		name: "G9WaiterLeavesAtOnce", cache: true,
		rule: "A caller that waits for another process must leave at once when its context ends, and the polling must end with the last one.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			polls := p.On(e.isRead("k"), -1, Delay(0))
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			ctx, cancel := context.WithCancel(e.ctx)
			r := e.goReadContext(ctx, c, "k", loaderOf("wrong", nil))
			e.eventually("the read waits", func() bool { return c.Stats().Waits == 1 })
			cancel()
			await(e, "the caller leaves", r.done)
			if !errors.Is(r.err, context.Canceled) {
				e.Errorf("Read returned %v; want context.Canceled", r.err)
			}
			if polls.Hits() == 0 {
				e.Error("the proxy saw no poll at all")
			}
			// Several times as long as between two polls, also of one who is woken.
			n, since := polls.Hits(), time.Now()
			e.eventually("a second without a poll", func() bool {
				if now := polls.Hits(); now != n {
					n, since = now, time.Now()
				}
				return time.Since(since) > time.Second
			})
			e.wantNotStored("k")
		},
	},
	{
		name: "G9HungServer", cache: true,
		rule: "A server that hangs must cost a read no more than CallTimeout, whatever its context and the client do, and then ErrUnavailable.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			warm := e.cacheOn(d, cacheOptions)
			e.mustRead(warm, "warm", loaderOf("v", nil))
			c := e.cacheOn(e.store(d, 300*time.Millisecond), cacheOptions)
			p.On(func([]string) bool { return true }, -1, Hang)
			start := time.Now()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if _, err := c.Get(context.Background(), "k", loaderOf("wrong", nil)); !errors.Is(err, leasecache.ErrUnavailable) {
						e.Errorf("Get returned %v; want ErrUnavailable", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(start); took > 3*time.Second { // clients have timeouts of 5s
				e.Errorf("10 reads took %v, with a CallTimeout of 300ms", took)
			}
			e.wantNotStored("k")
		},
	},
	{
		name: "G9HungServerDuringAFill", cache: true,
		rule: "When the server hangs while a load is filled, its readers must get the value after CallTimeout at the latest, marked as uncached.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.store(e.warm(e.driverOn(p), "k"), 3*time.Second), cacheOptions) // the release needs a connection
			hung := p.On(isFill, -1, Hang)
			e.goRead(c, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, leasecache.ServerDown)
			hung.Remove() // the release may be behind the fill, on the same connection
			e.leaseGone("k")
			e.wantNotStored("k")
			if e.exists(e.lease("k")) {
				e.Error("a load that may have been cached left a mark")
			}
		},
	},
	{
		name: "G9DeadlineDuringAFill", cache: true,
		rule: "A caller's deadline must end its read also while the fill is on the wire. The fill goes on.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.warm(e.driverOn(p), "k"), cacheOptions)
			held := p.On(isFill, 1, HoldReply)
			ctx, cancel := context.WithTimeout(e.ctx, time.Second)
			defer cancel()
			start := time.Now()
			r := e.goReadContext(ctx, c, "k", loaderOf("v", nil))
			await(e, "the fill is executed", held.Caught())
			await(e, "the read ends", r.done)
			if took := time.Since(start); !errors.Is(r.err, context.DeadlineExceeded) || took > patience/2 {
				e.Errorf("Read returned %v after %v; want context.DeadlineExceeded after a second", r.err, took)
			}
			if _, err := held.Release(e.ctx); err != nil {
				e.Fatal(err)
			}
			e.eventually("the fill is done", func() bool { return c.Stats().FillsAccepted == 1 })
			e.wantStored("k", "v")
		},
	},
	{
		name: "G9DeadlineDuringTheFillOfALongLoad", cache: true,
		rule: "A caller who had time for a call when its load began, and has none left for the fill, must leave at its deadline.",
		run: func(e *env) {
			p := e.proxy()
			const call = 2 * time.Second
			c := e.cacheOn(e.store(e.warm(e.driverOn(p), "k"), call), cacheOptions)
			p.On(isFill, -1, Hang)
			ctx, cancel := context.WithTimeout(e.ctx, call+call/2)
			defer cancel()
			deadline, _ := ctx.Deadline()
			r := e.goReadContext(ctx, c, "k", func(ctx context.Context) (string, error) {
				t := time.NewTimer(time.Until(deadline) - call/2)
				defer t.Stop()
				<-t.C
				return "v", nil
			})
			await(e, "the read ends", r.done)
			if n := c.Stats().Errors[leasecache.ErrorFill]; n > 0 || !errors.Is(r.err, context.DeadlineExceeded) {
				e.Errorf("Read returned %v, and %d fills had failed; want context.DeadlineExceeded, while the fill is on the wire", r.err, n)
			}
			e.eventually("the fill has failed", func() bool { return c.Stats().Errors[leasecache.ErrorFill] == 1 })
			e.wantNotStored("k")
		},
	},
	{
		name: "CloseWaitsForLoads", cache: true,
		rule: "Close must wait for the loads that run, so that they are cached, refuse new reads, and end those that wait for another process.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.do("SET", e.lease("waits"), "another's", "PX", "600000")
			waiting := e.goRead(c, "waits", loaderOf("wrong", nil))
			e.eventually("a read waits", func() bool { return c.Stats().Waits == 1 })
			g := newGate()
			loading := e.goRead(c, "k", g.loader("v"))
			await(e, "the load begins", g.began)
			fails := newGate()
			failed := e.goRead(c, "fails", fails.loaderOf(failing(errBoom)))
			await(e, "the load that fails begins", fails.began)
			late := e.goRead(c, "fails", loaderOf("wrong", nil))
			e.misses(c, 4)
			closed := make(chan error, 1)
			go func() { closed <- c.Close(e.ctx) }()
			await(e, "the read that waits ends", waiting.done)
			if !errors.Is(waiting.err, leasecache.ErrClosed) {
				e.Errorf("the read that waited got %v; want ErrClosed", waiting.err)
			}
			if _, err := c.Get(e.ctx, "k", loaderOf("wrong", nil)); !errors.Is(err, leasecache.ErrClosed) {
				e.Errorf("Get returned %v; want ErrClosed", err)
			}
			if err := c.Invalidate(e.ctx, "k"); !errors.Is(err, leasecache.ErrClosed) {
				e.Errorf("Invalidate returned %v; want ErrClosed", err)
			}
			select {
			case err := <-closed:
				e.Errorf("Close returned %v while a load runs", err)
			default:
			}
			fails.open()
			await(e, "the read whose load fails ends", failed.done)
			await(e, "the read that came too late for that load ends", late.done)
			if !errors.Is(failed.err, errBoom) || !errors.Is(late.err, leasecache.ErrClosed) {
				e.Errorf("the reads of a load that failed got %v and %v; want its error, and ErrClosed", failed.err, late.err)
			}
			g.open()
			if err := await(e, "Close returns", closed); err != nil {
				e.Errorf("Close: %v", err)
			}
			loading.want(e, "v", leasecache.Loaded, "")
			e.wantStored("k", "v")
		},
	},
	{
		name: "CloseReleasesEveryLease", cache: true,
		rule: "When its context ends, Close must cancel the loads that run and release every lease before it returns.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			loading := e.goRead(c, "k", g.loader("wrong"))
			await(e, "the load begins", g.began)
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			if err := c.Close(ctx); !errors.Is(err, context.Canceled) {
				e.Errorf("Close returned %v; want context.Canceled", err)
			}
			if e.exists(e.lease("k")) {
				e.Error("the lease is still held after Close")
			}
			await(e, "the read ends", loading.done)
			if loading.err == nil {
				e.Error("the read of a load that was cancelled returned no error")
			}
			e.wantNotStored("k")
		},
	},
}
