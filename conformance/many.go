package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of GetMany: that each of its keys is read as Get reads it.

// batchLoader loads "<tag> <key>" for every key, and notes what it was called with.
type batchLoader struct {
	tag    string
	began  chan struct{} // gets one for each call, unless it is nil
	opened chan struct{} // it returns when this is closed, unless it is nil

	mu    sync.Mutex
	calls [][]string
}

// gatedLoader returns a batchLoader that waits to be opened.
func gatedLoader(tag string) *batchLoader {
	return &batchLoader{tag: tag, began: make(chan struct{}, 100), opened: make(chan struct{})}
}

func (l *batchLoader) load(ctx context.Context, keys []string) (map[string]string, error) {
	l.mu.Lock()
	l.calls = append(l.calls, slices.Sorted(slices.Values(keys)))
	l.mu.Unlock()
	if l.began != nil {
		l.began <- struct{}{}
	}
	if l.opened != nil {
		select {
		case <-l.opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	values := map[string]string{}
	for _, key := range keys {
		values[key] = l.tag + " " + key
	}
	return values, nil
}

// loaded returns how often each key was loaded.
func (l *batchLoader) loaded() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, keys := range l.calls {
		for _, key := range keys {
			n[key]++
		}
	}
	return n
}

func (l *batchLoader) wantCalls(e *env, want ...[]string) {
	e.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.EqualFunc(l.calls, want, slices.Equal[[]string]) {
		e.Errorf("the loader was called with %q; want %q", l.calls, want)
	}
}

// manyRead is a GetMany that runs in the background.
type manyRead struct {
	done   chan struct{}
	values map[string]string
	err    error
}

func (e *env) goGetMany(ctx context.Context, c *leasecache.Cache[string], keys []string, load leasecache.BatchLoader[string]) *manyRead {
	r := &manyRead{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.values, r.err = c.GetMany(ctx, keys, load)
	}()
	return r
}

// want waits for the GetMany, and checks that it has these values, tag by key, and
// no error.
func (r *manyRead) want(e *env, tags map[string]string) {
	e.Helper()
	await(e, "GetMany ends", r.done)
	if r.err != nil {
		e.Fatalf("GetMany returned the error %v", r.err)
	}
	r.wantValues(e, tags)
}

func (r *manyRead) wantValues(e *env, tags map[string]string) {
	e.Helper()
	want := map[string]string{}
	for key, tag := range tags {
		want[key] = tag + " " + key
	}
	if !maps.Equal(r.values, want) {
		e.Fatalf("GetMany returned %q; want %q", r.values, want)
	}
}

// wantErrors checks that GetMany has an error for these keys and no others.
func (r *manyRead) wantErrors(e *env, want map[string]error) {
	e.Helper()
	await(e, "GetMany ends", r.done)
	be, ok := errors.AsType[*leasecache.BatchError](r.err)
	if !ok {
		e.Fatalf("GetMany returned the error %v; want a BatchError", r.err)
	}
	if len(be.Keys) != len(want) || len(be.Errs) != len(want) {
		e.Errorf("the error is for %q; want it for %d keys", be.Keys, len(want))
	}
	for key, err := range want {
		if !errors.Is(be.Errs[key], err) || !errors.Is(r.err, err) {
			e.Errorf("the error of %q is %v; want %v", key, be.Errs[key], err)
		}
	}
}

func (e *env) wantAllStored(tags map[string]string) {
	e.Helper()
	for key, tag := range tags {
		e.wantStored(key, tag+" "+key)
	}
}

// all returns the tag for each key.
func all(keys []string, tag string) map[string]string {
	tags := map[string]string{}
	for _, key := range keys {
		tags[key] = tag
	}
	return tags
}

// batches returns h with the ability Batch, if the driver that it stands before has
// it.
func (h *holder) batches() driver.Evaler {
	if b, ok := h.d.(driver.Batcher); ok {
		return struct {
			driver.Evaler
			driver.Batcher
		}{h, holderBatcher{h, b}}
	}
	return h
}

type holderBatcher struct {
	h *holder
	b driver.Batcher
}

// EvalBatch implements [driver.Batcher].
func (hb holderBatcher) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	caught := false
	for _, c := range calls {
		caught = caught || hb.h.catch(c.Script, c.Keys, c.Args)
	}
	results := hb.b.EvalBatch(ctx, calls)
	if caught {
		if err := hb.h.wait(ctx); err != nil {
			for i := range results {
				results[i] = driver.Result{Err: err}
			}
		}
	}
	return results
}

var manyCases = []testCase{
	{
		name: "ManyReadsEachKeyOnce", cache: true,
		rule: "GetMany must return what is cached for each key, load those that are not by one call of the loader, each once, and cache them.",
		run: func(e *env) {
			c, other := e.cache(cacheOptions), e.cache(cacheOptions)
			first := &batchLoader{tag: "v1"}
			r := e.goGetMany(e.ctx, c, []string{"a", "b", "a"}, first.load)
			r.want(e, all([]string{"a", "b"}, "v1"))
			first.wantCalls(e, []string{"a", "b"})
			second := &batchLoader{tag: "v2"}
			r = e.goGetMany(e.ctx, other, []string{"d", "c", "b", "a", "d", "a"}, second.load)
			want := map[string]string{"a": "v1", "b": "v1", "c": "v2", "d": "v2"}
			r.want(e, want)
			second.wantCalls(e, []string{"c", "d"})
			e.wantAllStored(want)
			r = e.goGetMany(e.ctx, c, []string{"a", "b", "c", "d"}, second.load)
			r.want(e, want)
			second.wantCalls(e, []string{"c", "d"})
			if got, err := c.GetMany(e.ctx, nil, second.load); len(got) != 0 || err != nil {
				e.Errorf("GetMany of no keys returned %v, %v", got, err)
			}
			for _, key := range []string{"a", "b", "c", "d"} {
				if e.exists(e.lease(key)) {
					e.Errorf("the lease of %q is left", key)
				}
			}
		},
	},
	{
		name: "ManyKeys", cache: true,
		rule: "GetMany and Invalidate must take more keys than go in one batch.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			keys := make([]string, 505)
			for i := range keys {
				keys[i] = fmt.Sprint("k", i)
			}
			l := &batchLoader{tag: "v"}
			for _, load := range []leasecache.BatchLoader[string]{l.load, neverMany} {
				r := &manyRead{}
				if r.values, r.err = c.GetMany(e.ctx, keys, load); r.err != nil {
					e.Fatalf("GetMany: %v", r.err)
				}
				r.wantValues(e, all(keys, "v"))
			}
			l.wantCalls(e, slices.Sorted(slices.Values(keys)))
			if s := c.Stats(); s.Loads != 1 || s.FillsAccepted != uint64(len(keys)) || s.Hits != uint64(len(keys)) {
				e.Errorf("Stats: %+v; want one load, and a fill and a hit for each key", s)
			}
			e.mustInvalidate(c, keys...)
			for _, key := range []string{"k0", "k499", "k500", "k504"} {
				e.wantNotStored(key)
			}
		},
	},
	{
		name: "ManyKeysThatTheLoaderDoesNotReturn", cache: true,
		rule: "A key that the loader of a batch does not return must be an error for that key alone, and must not be cached as not found.",
		run: func(e *env) {
			c := e.cache(repeatOptions)
			r := e.goGetMany(e.ctx, c, []string{"a", "lost", "gone", "b"}, func(ctx context.Context, keys []string) (map[string]string, error) {
				leasecache.LoadFrom(ctx).NotFound("gone", "b", "never asked for")
				return map[string]string{"a": "v a", "b": "v b", "unasked": "x"}, nil
			})
			r.wantErrors(e, map[string]error{"lost": leasecache.ErrNotLoaded})
			r.wantValues(e, all([]string{"a", "b"}, "v"))
			e.wantNotStored("lost")
			e.wantNotStored("unasked")
			e.wantStored("gone", "\x00\x02\x00")
			e.eventually("the lease of lost is released", func() bool { return !e.exists(e.lease("lost")) })
			if _, err := c.Get(e.ctx, "gone", loaderOf("x", nil)); !errors.Is(err, leasecache.ErrNotFound) {
				e.Errorf("Get of what is not found returned %v", err)
			}
			l := &batchLoader{tag: "v"}
			e.goGetMany(e.ctx, c, []string{"gone", "lost", "a"}, l.load).want(e, all([]string{"lost", "a"}, "v"))
			l.wantCalls(e, []string{"lost"})
		},
	},
	{
		name: "ManyKeysOfALoaderThatFails", cache: true,
		rule: "When the loader of a batch fails, every key that it was called with must have its error, also ErrNotFound, no lease may stay, and nothing may be cached.",
		run: func(e *env) {
			c := e.cache(repeatOptions)
			e.goGetMany(e.ctx, c, []string{"cached"}, (&batchLoader{tag: "v"}).load).want(e, all([]string{"cached"}, "v"))
			for fail, want := range map[error]error{
				errBoom: errBoom,
				fmt.Errorf("row 7: %w", leasecache.ErrNotFound): leasecache.ErrNotLoaded,
			} {
				r := e.goGetMany(e.ctx, c, []string{"a", "cached", "b"}, func(context.Context, []string) (map[string]string, error) {
					return map[string]string{"a": "v a"}, fail
				})
				r.wantErrors(e, map[string]error{"a": want, "b": want})
				r.wantValues(e, all([]string{"cached"}, "v"))
				if errors.Is(r.err, leasecache.ErrNotFound) {
					e.Errorf("the error is %v; want none that is ErrNotFound", r.err)
				}
				for _, key := range []string{"a", "b"} {
					e.wantNotStored(key)
					e.eventually("the lease is released", func() bool { return !e.exists(e.lease(key)) })
				}
			}
		},
	},
	{
		name: "ManyDecisionsOfALoader", cache: true,
		rule: "What the loader of a batch decides must hold for all of its keys, and what it decides for one of them for that one.",
		run: func(e *env) {
			c := e.cache(repeatOptions)
			r := e.goGetMany(e.ctx, c, []string{"a", "b", "c"}, func(ctx context.Context, keys []string) (map[string]string, error) {
				l := leasecache.LoadFrom(ctx)
				l.SetTTL(time.Hour)
				l.For("b").SetTTL(2 * time.Hour)
				l.For("c").DoNotStore()
				return map[string]string{"a": "v a", "b": "v b", "c": "v c"}, nil
			})
			r.want(e, all([]string{"a", "b", "c"}, "v"))
			for key, want := range map[string]time.Duration{"a": time.Hour, "b": 2 * time.Hour} {
				if left := time.Duration(e.do("PTTL", e.value(key)).Int) * time.Millisecond; left > want || left < want-2*patience {
					e.Errorf("%q is cached for %v; want %v", key, left, want)
				}
			}
			e.wantNotStored("c")
			e.eventually("the lease is released", func() bool { return !e.exists(e.lease("c")) })
		},
	},
	{
		name: "ManyInvalidKeys", cache: true,
		rule: "What cannot be a key must be an error for that key alone.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			l := &batchLoader{tag: "v"}
			r := e.goGetMany(e.ctx, c, []string{"a", "", "}x", "b", ""}, l.load)
			r.wantErrors(e, map[string]error{"": leasecache.ErrKey, "}x": leasecache.ErrKey})
			r.wantValues(e, all([]string{"a", "b"}, "v"))
			l.wantCalls(e, []string{"a", "b"})
		},
	},
	{
		name: "ManyUndecodableValues", cache: true,
		rule: "Values that cannot be decoded must be loaded afresh, once per back-off, and only those.",
		run: func(e *env) {
			c := newCache[int](e, e.driver(), leasecache.Options{DropBackoff: 10 * time.Minute})
			e.do("SET", e.value("good"), "7")
			for i := 1; i < 3; i++ {
				for _, key := range []string{"bad", "worse"} {
					e.do("SET", e.value(key), "no number")
				}
				got, err := c.GetMany(e.ctx, []string{"bad", "good", "worse"}, func(_ context.Context, keys []string) (map[string]int, error) {
					return map[string]int{"bad": i, "worse": i, "good": i}, nil
				})
				if want := map[string]int{"bad": i, "worse": i, "good": 7}; err != nil || !maps.Equal(got, want) {
					e.Errorf("GetMany returned %v, %v; want %v", got, err, want)
				}
				if n := c.Stats().Loads; n != uint64(i) {
					e.Errorf("%d loads; want %d", n, i)
				}
			}
			if n := c.Stats().UnleasedLoads; n != 1 {
				e.Errorf("%d loads without a lease; want the second one", n)
			}
			e.wantStored("bad", "no number")
		},
	},
	{
		name: "G1ManyInvalidatedInTheMiddle", cache: true,
		rule: "When one key is invalidated while a batch loads, the load must not be cached for that key, and must be for the others.",
		run: func(e *env) {
			c, other := e.cache(cacheOptions), e.cache(cacheOptions)
			l := gatedLoader("old")
			keys := []string{"a", "b", "c"}
			r := e.goGetMany(e.ctx, c, keys, l.load)
			await(e, "the load begins", l.began)
			e.mustInvalidate(other, "b")
			close(l.opened)
			r.want(e, all(keys, "old")) // they were there before the load began
			e.wantStored("a", "old a")
			e.wantNotStored("b")
			e.wantStored("c", "old c")
			if s := c.Stats(); s.FillsAccepted != 2 || s.FillsRejected != 1 {
				e.Errorf("Stats: %d fills accepted, %d rejected; want 2 and 1", s.FillsAccepted, s.FillsRejected)
			}
			e.goGetMany(e.ctx, c, keys, (&batchLoader{tag: "new"}).load).want(e, map[string]string{"a": "old", "b": "new", "c": "old"})
		},
	},
	{
		name: "G2ManyInOppositeOrder", cache: true,
		rule: "Two processes that read the same keys in opposite order must not block each other, and load each key once.",
		run: func(e *env) {
			keys := make([]string, 60)
			for i := range keys {
				keys[i] = fmt.Sprint("k", i)
			}
			back := slices.Clone(keys)
			slices.Reverse(back)
			l := &batchLoader{tag: "v"}
			var reads []*manyRead
			for range 2 {
				reads = append(reads,
					e.goGetMany(e.ctx, e.cache(cacheOptions), keys[:50], l.load),
					e.goGetMany(e.ctx, e.cache(cacheOptions), back[:50], l.load))
			}
			for i, r := range reads {
				want := all(keys[:50], "v")
				if i%2 == 1 {
					want = all(back[:50], "v")
				}
				r.want(e, want)
			}
			for key, n := range l.loaded() {
				if n != 1 {
					e.Errorf("%q was loaded %d times", key, n)
				}
			}
		},
	},
	{
		name: "G2ManyHoldsNothingWhileItWaits", cache: true,
		rule: "A batch must fill what it has leased without waiting for a lease that another holds. When that ends without a value, the loader must be called with those keys again.",
		run: func(e *env) {
			d := e.driver()
			c := e.cache(cacheOptions)
			held := []string{"a", "c", "e"}
			leases := map[string]protocol.Lease{}
			for _, key := range held {
				leases[key] = e.acquire(d, key)
			}
			l := &batchLoader{tag: "v"}
			r := e.goGetMany(e.ctx, c, []string{"a", "b", "c", "d", "e"}, l.load)
			e.eventually("the keys that are free are cached", func() bool {
				_, b := e.stored("b")
				_, d := e.stored("d")
				return b && d && !e.exists(e.lease("b")) && !e.exists(e.lease("d"))
			})
			l.wantCalls(e, []string{"b", "d"})
			e.wantFill(d, "a", leases["a"], "other a", protocol.Accepted)
			e.call(d, protocol.ReleaseCall(e.keys("c"), leases["c"], protocol.NoMark, 0))
			e.eventually("c is loaded", func() bool { return l.loaded()["c"] == 1 })
			select {
			case <-r.done:
				e.Fatal("GetMany returned, and another holds the lease of e")
			default:
			}
			e.wantFill(d, "e", leases["e"], "other e", protocol.Accepted)
			r.want(e, map[string]string{"a": "other", "b": "v", "c": "v", "d": "v", "e": "other"})
			l.wantCalls(e, []string{"b", "d"}, []string{"c"})
		},
	},
	{
		name: "G2ManyJoinsAndIsJoined", cache: true,
		rule: "A batch must join the loads of its process, and other reads the load of a batch: one load of each key serves them all.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			g := newGate()
			first := e.goRead(c, "a", g.loader("one a"))
			await(e, "the load of a begins", g.began)
			l := gatedLoader("v")
			many := e.goGetMany(e.ctx, c, []string{"a", "b", "c"}, l.load)
			await(e, "the load of the batch begins", l.began)
			single := e.goRead(c, "b", loaderOf("x", nil))
			second := &batchLoader{tag: "x"}
			more := e.goGetMany(e.ctx, c, []string{"c", "a"}, second.load)
			e.misses(c, 1+3+1+2)
			close(l.opened)
			single.want(e, "v b", leasecache.Joined, "")
			g.open()
			first.want(e, "one a", leasecache.Loaded, "")
			many.want(e, map[string]string{"a": "one", "b": "v", "c": "v"})
			more.want(e, map[string]string{"a": "one", "c": "v"})
			l.wantCalls(e, []string{"b", "c"})
			second.wantCalls(e)
		},
	},
	{
		name: "G2ManyIsOneLoad", cache: true,
		rule: "A batch must be one load for MaxLoads, and without leases one for MaxUnleasedLoads, however many keys it has.",
		run: func(e *env) {
			c := e.cache(leasecache.Options{MaxLoads: 1, MaxUnleasedLoads: 1, WaitBound: 300 * time.Millisecond})
			keys := []string{"a", "b", "c", "d"}
			l := gatedLoader("v")
			r := e.goGetMany(e.ctx, c, keys, l.load)
			await(e, "the load begins", l.began)
			queued := &batchLoader{tag: "q"}
			second := e.goGetMany(e.ctx, c, []string{"e", "f"}, queued.load)
			second.wantErrors(e, map[string]error{"e": leasecache.ErrOverloaded, "f": leasecache.ErrOverloaded})
			queued.wantCalls(e)
			close(l.opened)
			r.want(e, all(keys, "v"))
			e.wantAllStored(all(keys, "v"))
			d := e.driver()
			for _, key := range []string{"g", "h", "i"} {
				e.acquire(d, key)
			}
			u := &batchLoader{tag: "u"}
			e.goGetMany(e.ctx, c, []string{"g", "h", "i"}, u.load).want(e, all([]string{"g", "h", "i"}, "u"))
			u.wantCalls(e, []string{"g", "h", "i"})
			e.wantNotStored("g")
			if s := c.Stats(); s.UnleasedLoads != 1 || s.WaitTimeouts < 3 {
				e.Errorf("Stats: %d loads without a lease, %d wait timeouts; want 1, and one for each read", s.UnleasedLoads, s.WaitTimeouts)
			}
			// Nothing is left of the places.
			e.goGetMany(e.ctx, c, []string{"j", "k"}, u.load).want(e, all([]string{"j", "k"}, "u"))
		},
	},
	{
		name: "G2ManyProcessRunsTwoLoadsOfAKeyAtMost", cache: true,
		rule: "A process must not run more than two loads of a key at a time, also when batches load it and invalidations come between.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			loaders := make([]*batchLoader, 3)
			reads := make([]*manyRead, 3)
			for i := range loaders {
				loaders[i] = gatedLoader(fmt.Sprint("v", i))
				reads[i] = e.goGetMany(e.ctx, c, []string{"a"}, loaders[i].load)
				if i < 2 {
					await(e, "the load begins", loaders[i].began)
					e.mustInvalidate(c, "a")
				}
			}
			e.misses(c, 3)
			// It looks a few times, and leaves the lease free.
			for range 5 {
				time.Sleep(20 * time.Millisecond)
				if len(loaders[2].loaded()) > 0 || e.exists(e.lease("a")) {
					e.Fatal("a third load runs, or is about to")
				}
			}
			close(loaders[0].opened)
			await(e, "the third load begins", loaders[2].began)
			close(loaders[1].opened)
			close(loaders[2].opened)
			for i, r := range reads {
				r.want(e, all([]string{"a"}, fmt.Sprint("v", i)))
			}
		},
	},
	{
		name: "G2ManyWhileTheServerIsDown", cache: true,
		rule: "With UnavailableLoad, a batch must be loaded by one call of the loader while the server is down, and the error must name the keys with UnavailableFail.",
		run: func(e *env) {
			p := e.proxy()
			d := e.store(e.driverOn(p), time.Second)
			c := e.cacheOn(d, leasecache.Options{OnUnavailable: leasecache.UnavailableLoad, MaxUnleasedLoads: 1})
			strict := e.cacheOn(d, cacheOptions)
			e.mustRead(c, "warm", loaderOf("v", nil))
			p.Down()
			l := &batchLoader{tag: "v"}
			keys := []string{"a", "b", "c"}
			e.goGetMany(e.ctx, c, keys, l.load).want(e, all(keys, "v"))
			l.wantCalls(e, keys)
			r := e.goGetMany(e.ctx, strict, keys, l.load)
			r.wantErrors(e, map[string]error{"a": leasecache.ErrUnavailable, "b": leasecache.ErrUnavailable, "c": leasecache.ErrUnavailable})
			l.wantCalls(e, keys)
			e.wantNotStored("a")
		},
	},
	{
		name: "G3ManyReaderAfterInvalidationWhileABatchLoads", cache: true,
		rule: "A read that starts after Invalidate must not get what a batch of its process loaded before it, and a batch must not get what such a read did.",
		run: func(e *env) {
			c, other := e.cache(cacheOptions), e.cache(cacheOptions)
			l := gatedLoader("old")
			many := e.goGetMany(e.ctx, c, []string{"a", "b"}, l.load)
			await(e, "the load of the batch begins", l.began)
			g := newGate()
			single := e.goRead(c, "s", g.loader("old s"))
			await(e, "the load of s begins", g.began)
			e.mustInvalidate(other, "a", "s")
			fresh := &batchLoader{tag: "new"}
			after := e.goRead(c, "a", loaderOf("new a", nil))
			afterMany := e.goGetMany(e.ctx, c, []string{"b", "a", "s"}, fresh.load)
			e.misses(c, 2+1+1+3)
			close(l.opened)
			g.open()
			many.want(e, all([]string{"a", "b"}, "old"))
			single.want(e, "old s", leasecache.Loaded, leasecache.LeaseLost)
			await(e, "the read ends", after.done)
			if after.err != nil || after.res.Value != "new a" {
				e.Errorf("the read after the invalidation returned %q, %v", after.res.Value, after.err)
			}
			afterMany.want(e, map[string]string{"a": "new", "b": "old", "s": "new"})
		},
	},
	{
		name: "G3ManyReaderAfterInvalidationWhileAFillsReplyIsOnItsWay", cache: true,
		rule: "A read that starts when the fills of a batch were sent must not get what they cached: an invalidation may have come between.",
		run: func(e *env) {
			h := e.holder()
			c, other := e.cacheOn(h.batches(), cacheOptions), e.cache(cacheOptions)
			h.hold(isFill)
			many := e.goGetMany(e.ctx, c, []string{"a", "b"}, (&batchLoader{tag: "old"}).load)
			await(e, "a fill is executed", h.caught)
			e.eventually("both are cached", func() bool {
				_, a := e.stored("a")
				_, b := e.stored("b")
				return a && b
			})
			e.mustInvalidate(other, "a", "b")
			one, two := e.goRead(c, "a", loaderOf("new a", nil)), e.goRead(c, "b", loaderOf("new b", nil))
			e.misses(c, 4)
			h.release()
			many.want(e, all([]string{"a", "b"}, "old"))
			one.want(e, "new a", leasecache.Loaded, "")
			two.want(e, "new b", leasecache.Loaded, "")
		},
	},
	{
		name: "G4ManyRejectedKeyFails", cache: true,
		rule: "With LostFail, a key that was invalidated while a batch loads must be an error, that key alone; with LostReread it must be loaded again.",
		run: func(e *env) {
			other := e.cache(cacheOptions)
			for _, lost := range []leasecache.OnLeaseLost{leasecache.LostFail, leasecache.LostReread} {
				e.mustInvalidate(other, "a", "b", "c")
				c := e.cache(leasecache.Options{OnLeaseLost: lost})
				l := gatedLoader("v")
				r := e.goGetMany(e.ctx, c, []string{"a", "b", "c"}, l.load)
				await(e, "the load begins", l.began)
				e.mustInvalidate(other, "b")
				close(l.opened)
				if lost == leasecache.LostFail {
					r.wantErrors(e, map[string]error{"b": leasecache.ErrLeaseLost})
					r.wantValues(e, all([]string{"a", "c"}, "v"))
					e.wantNotStored("b")
				} else {
					r.want(e, all([]string{"a", "b", "c"}, "v"))
					l.wantCalls(e, []string{"a", "b", "c"}, []string{"b"})
					e.wantStored("b", "v b")
				}
			}
		},
	},
	{
		name: "G5ManyStaleCopies", cache: true,
		rule: "A batch must get the stale copies of keys that it would have to wait for, and load the others.",
		run: func(e *env) {
			o := leasecache.Options{Stale: time.Minute}
			c, other := e.cache(o), e.cache(o)
			e.goGetMany(e.ctx, c, []string{"a", "b"}, (&batchLoader{tag: "old"}).load).want(e, all([]string{"a", "b"}, "old"))
			e.mustInvalidate(other, "a", "b")
			g := newGate()
			loading := e.goRead(other, "a", g.loader("new a"))
			await(e, "another process loads", g.began)
			l := gatedLoader("new")
			here := e.goGetMany(e.ctx, c, []string{"a", "b"}, l.load)
			await(e, "the batch loads b", l.began)
			if got, err := c.GetMany(e.ctx, []string{"a", "b"}, neverMany); err != nil || got["a"] != "old a" || got["b"] != "old b" {
				e.Errorf("GetMany while both load returned %q, %v; want the stale copies", got, err)
			}
			close(l.opened)
			here.want(e, map[string]string{"a": "old", "b": "new"})
			g.open()
			loading.want(e, "new a", leasecache.Loaded, "")
		},
	},
	{
		name: "G8ManyPanicInALoader", cache: true,
		rule: "A panic in the loader of a batch must reach its caller, release every lease, and strand nobody who waited.",
		run: func(e *env) {
			c := e.cache(repeatOptions)
			l := gatedLoader("")
			panicked := make(chan any, 1)
			go func() {
				defer func() { panicked <- recover() }()
				_, _ = c.GetMany(e.ctx, []string{"a", "b"}, func(ctx context.Context, keys []string) (map[string]string, error) {
					if _, err := l.load(ctx, keys); err != nil {
						return nil, err
					}
					panic("boom")
				})
			}()
			await(e, "the load begins", l.began)
			joined := e.goRead(c, "b", loaderOf("v b", nil))
			e.misses(c, 3)
			close(l.opened)
			if p, ok := await(e, "GetMany panics", panicked).(*leasecache.PanicError); !ok || p.Value != "boom" {
				e.Errorf("GetMany panicked with %v", p)
			}
			joined.want(e, "v b", leasecache.Loaded, "")
			e.eventually("the leases are released", func() bool { return !e.exists(e.lease("a")) && !e.exists(e.lease("b")) })
			e.wantNotStored("a")
		},
	},
	{
		name: "ManyKeysWhoseHolderFails", cache: true,
		rule: "When the load of another process fails, a batch that waits for it must get its failure for those keys, and not repeat it; when it is not stored, a batch must load those keys at once, by one call of the loader.",
		run: func(e *env) {
			holder := e.cache(leasecache.Options{FailureBackoff: time.Minute})
			c := e.cache(leasecache.Options{FailureBackoff: time.Minute, MaxUnleasedLoads: 1})
			l := gatedLoader("held")
			held := e.goGetMany(e.ctx, holder, []string{"bad", "worse", "n1", "n2", "n3"}, func(ctx context.Context, keys []string) (map[string]string, error) {
				values, err := l.load(ctx, keys)
				for _, key := range []string{"n1", "n2", "n3"} {
					leasecache.LoadFrom(ctx).For(key).DoNotStore()
				}
				delete(values, "bad")
				delete(values, "worse")
				return values, err
			})
			await(e, "the load begins", l.began)
			mine := &batchLoader{tag: "mine"}
			r := e.goGetMany(e.ctx, c, []string{"bad", "free", "n1", "n2", "n3", "worse"}, mine.load)
			e.eventually("what is free is cached", func() bool {
				_, ok := e.stored("free")
				return ok
			})
			close(l.opened)
			held.wantErrors(e, map[string]error{"bad": leasecache.ErrNotLoaded, "worse": leasecache.ErrNotLoaded})
			r.wantErrors(e, map[string]error{"bad": leasecache.ErrHolderFailed, "worse": leasecache.ErrHolderFailed})
			r.wantValues(e, all([]string{"free", "n1", "n2", "n3"}, "mine"))
			for _, key := range []string{"bad", "worse"} {
				e.wantNotStored(key)
			}
			for key, n := range mine.loaded() {
				if n != 1 {
					e.Errorf("%q was loaded %d times", key, n)
				}
			}
			if n := mine.loaded()["bad"]; n > 0 {
				e.Error("a load that had just failed was repeated")
			}
		},
	},
	{
		name: "G9ManyCallerLeavesAtOnce", cache: true,
		rule: "When its context ends, GetMany must return at once, with what it has, and with the context's error for the rest, and its load must go on and be cached.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.goGetMany(e.ctx, c, []string{"cached"}, (&batchLoader{tag: "v"}).load).want(e, all([]string{"cached"}, "v"))
			lease := e.acquire(e.driver(), "held")
			ctx, cancel := context.WithCancel(e.ctx)
			l := gatedLoader("v")
			r := e.goGetMany(ctx, c, []string{"a", "cached", "held", "b"}, l.load)
			await(e, "the load begins", l.began)
			cancel()
			r.wantErrors(e, map[string]error{"a": context.Canceled, "b": context.Canceled, "held": context.Canceled})
			r.wantValues(e, all([]string{"cached"}, "v"))
			close(l.opened)
			e.eventually("the load is cached", func() bool {
				_, a := e.stored("a")
				_, b := e.stored("b")
				return a && b
			})
			if got := e.do("GET", e.lease("held")).Str; got != string(lease) {
				e.Errorf("the lease that another holds is %q", got)
			}
		},
	},
	{
		name: "G9ManyOnAHungServer", cache: true,
		rule: "GetMany must end by its context's deadline when the server hangs, with the context's error for every key.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			e.mustRead(c, "warm", loaderOf("v", nil))
			p.On(func([]string) bool { return true }, -1, Hang)
			start := time.Now()
			r := e.goGetMany(e.deadline(300*time.Millisecond), c, []string{"a", "b"}, neverMany)
			r.wantErrors(e, map[string]error{"a": context.DeadlineExceeded, "b": context.DeadlineExceeded})
			if took := time.Since(start); took > patience/2 {
				e.Errorf("GetMany took %v, with a deadline of 300ms", took)
			}
		},
	},
	{
		name: "G8ManyUnknownAcquisitionsAreReleased", cache: true,
		rule: "When the reply to the acquisition of a batch is lost, the leases that it may have taken must be released, or be its own when it tries again.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), leasecache.Options{PollInterval: 10 * time.Millisecond})
			e.mustRead(c, "warm", loaderOf("v", nil))
			p.On(e.isRead("b"), 1, DropReply)
			l := &batchLoader{tag: "v"}
			keys := []string{"a", "b", "c"}
			e.goGetMany(e.ctx, c, keys, l.load).want(e, all(keys, "v"))
			e.wantAllStored(all(keys, "v"))
			p.On(e.isRead("e"), -1, DropReply)
			r := e.goGetMany(e.ctx, c, []string{"d", "e", "f"}, l.load)
			await(e, "GetMany ends", r.done)
			be, ok := errors.AsType[*leasecache.BatchError](r.err)
			if !ok || !errors.Is(be.Errs["e"], leasecache.ErrUnavailable) {
				e.Errorf("GetMany returned %v; want ErrUnavailable for e", r.err)
			}
			for _, key := range []string{"d", "e", "f"} {
				e.eventually("no lease stays", func() bool { return !e.exists(e.lease(key)) })
			}
		},
	},
	{
		name: "CloseWaitsForABatch", cache: true,
		rule: "Close must wait for the load of a batch, which is cached, and end what waits for other processes with ErrClosed.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.acquire(e.driver(), "held")
			l := gatedLoader("v")
			r := e.goGetMany(e.ctx, c, []string{"a", "held", "b"}, l.load)
			await(e, "the load begins", l.began)
			closed := make(chan error, 1)
			go func() { closed <- c.Close(e.ctx) }()
			e.eventually("reads are refused", func() bool {
				_, _, err := c.Peek(e.ctx, "a")
				return errors.Is(err, leasecache.ErrClosed)
			})
			close(l.opened)
			if err := await(e, "Close returns", closed); err != nil {
				e.Errorf("Close: %v", err)
			}
			r.wantErrors(e, map[string]error{"held": leasecache.ErrClosed})
			r.wantValues(e, all([]string{"a", "b"}, "v"))
			e.wantAllStored(all([]string{"a", "b"}, "v"))
			if _, err := c.GetMany(e.ctx, []string{"a"}, l.load); !errors.Is(err, leasecache.ErrClosed) {
				e.Errorf("GetMany of a closed cache returned %v", err)
			}
		},
	},
}

// neverMany is a loader that must not be called.
func neverMany(_ context.Context, keys []string) (map[string]string, error) {
	return nil, fmt.Errorf("conformance: the loader was called with %q", keys)
}
