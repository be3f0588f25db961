package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

var errSource = errors.New("the source is down")

// Every load here has a lease that is far longer than the test's patience, so
// whoever waited for it to expire would fail the test.
func TestLoadsThatEndWithoutAFill(t *testing.T) {
	t.Parallel()
	for _, spec := range servertest.Servers() {
		t.Run(spec.Name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, spec)
			admin := redisClient(t, server.Addr)
			for _, end := range []struct {
				name     string
				load     leasecache.Loader[string]
				value    string // what the reader whose load it is gets
				uncached leasecache.Reason
				err      error
			}{
				{name: "error", load: func(context.Context) (string, error) { return "", errSource }, err: errSource},
				{name: "do not store", load: func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).DoNotStore()
					return "just now", nil
				}, value: "just now", uncached: leasecache.NotStored},
				{name: "too large", load: constant(strings.Repeat("x", 1001)), value: strings.Repeat("x", 1001), uncached: leasecache.TooLarge},
			} {
				t.Run(end.name, func(t *testing.T) {
					t.Parallel()
					prefix := end.name + ":"
					o := leasecache.Options{Prefix: prefix, Lease: longLease, WaitBound: longLease, MaxValueSize: 1000, FailureBackoff: -1}
					c := newCache(t, goredis.New(redisClient(t, server.Addr)), o)
					elsewhere := newCache(t, goredis.New(redisClient(t, server.Addr)), o)

					g, next := newGate(), newGate()
					first := goRead(t, c, "k", g.then(end.load))
					await(t, "the load begins", g.began)
					// These come while it runs, so they may not have what it returns
					// without having it cached. They share the next load.
					var late []*read
					for range 3 {
						late = append(late, goRead(t, c, "k", next.then(constant("v"))))
					}
					misses(t, c, 1+len(late))
					away := goRead(t, elsewhere, "k", next.then(constant("v")))
					eventually(t, "another process waits", func() bool { return elsewhere.Stats().Waits == 1 })

					g.open()
					if end.err != nil {
						await(t, "the first read ends", first.done)
						if !errors.Is(first.err, end.err) {
							t.Errorf("the first read returned %v; want %v", first.err, end.err)
						}
					} else {
						first.want(t, "the first read", end.value, leasecache.Loaded, end.uncached)
					}
					await(t, "the next load begins, since nobody waits for the lease to expire", next.began)
					wantStored(t, admin, prefix, "k", "")
					next.open()
					var loaded int
					for _, r := range append(late, away) {
						await(t, "a read ends", r.done)
						if r.err != nil || r.res.Value != "v" || !r.res.Cached() {
							t.Errorf("a late read got %q, uncached %q, %v; want v, cached", r.res.Value, r.res.Uncached, r.err)
						}
						if r.res.Source == leasecache.Loaded {
							loaded++
						}
					}
					if n := next.calls.Load(); n != 1 || loaded != 1 {
						t.Errorf("the late reads ran %d loads, and %d say so; want one", n, loaded)
					}
					wantStored(t, admin, prefix, "k", "v")
					leaseGone(t, admin, prefix, "k")

					// The same again with nobody else there: who frees the lease now
					// is the reader that leaves.
					r := goRead(t, c, "alone", end.load)
					await(t, "the read ends", r.done)
					leaseGone(t, admin, prefix, "alone")
					wantStored(t, admin, prefix, "alone", "")
				})
			}
		})
	}
}

func TestServerWithoutMemory(t *testing.T) {
	t.Parallel()
	for _, spec := range servertest.Servers() {
		t.Run(spec.Name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, spec, servertest.Args("--maxmemory-policy", "noeviction"))
			admin := redisClient(t, server.Addr)
			cache := func(o leasecache.Options) *leasecache.Cache[string] {
				o.Prefix, o.Lease, o.WaitBound = "oom:", longLease, longLease
				return newCache(t, goredis.New(redisClient(t, server.Addr)), o)
			}
			c, elsewhere, stale := cache(leasecache.Options{}), cache(leasecache.Options{}), cache(leasecache.Options{Stale: time.Minute})
			for _, key := range []string{"hit", "gone", "stale"} {
				if _, err := c.Get(t.Context(), key, constant("cached")); err != nil {
					t.Fatal(err)
				}
			}
			// A load begins while there is memory, with one reader more here and
			// one in another process.
			g := newGate()
			first := goRead(t, c, "k", g.then(constant("v")))
			await(t, "the load begins", g.began)
			late := goRead(t, c, "k", noLoad(t))
			misses(t, c, 5)
			away := goRead(t, elsewhere, "k", noLoad(t))
			eventually(t, "another process waits", func() bool { return elsewhere.Stats().Waits == 1 })
			// Less than the server has in use, so it is full from here on, whatever
			// its buffers do.
			if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}

			// The fill is refused: the reader has its value, and the others find
			// that they cannot take the lease that it freed.
			g.open()
			first.want(t, "the read whose fill is refused", "v", leasecache.Loaded, leasecache.Refused)
			leaseGone(t, admin, "oom:", "k")
			wantStored(t, admin, "oom:", "k", "")
			for _, r := range []*read{late, away} {
				await(t, "a read that waited ends", r.done)
				wantOOM(t, r.err)
			}
			_, err := c.Get(t.Context(), "another", noLoad(t))
			wantOOM(t, err)

			// Who wants to load all the same can.
			anyway := cache(leasecache.Options{OnUnavailable: leasecache.UnavailableLoad})
			goRead(t, anyway, "k", constant("v")).want(t, "a read under UnavailableLoad", "v", leasecache.Loaded, leasecache.Refused)

			goRead(t, c, "hit", noLoad(t)).want(t, "a hit", "cached", leasecache.Hit, "")
			if v, err := c.Get(t.Context(), "hit", noLoad(t)); v != "cached" || err != nil {
				t.Errorf("a hit got %q, %v", v, err)
			}

			// Invalidations need no memory, with a stale copy or without.
			if err := c.Invalidate(t.Context(), "gone", "never cached"); err != nil {
				t.Errorf("Invalidate: %v", err)
			}
			wantStored(t, admin, "oom:", "gone", "")
			if err := stale.Invalidate(t.Context(), "stale", "never cached"); err != nil {
				t.Errorf("Invalidate with a stale window: %v", err)
			}
			wantStored(t, admin, "oom:", "stale", "")
			if v := admin.Get(t.Context(), staleKey("oom:", "stale")).Val(); v != "cached" {
				t.Errorf("the stale copy is %q; want %q", v, "cached")
			}
		})
	}
}

func wantOOM(t *testing.T, err error) {
	t.Helper()
	var se *driver.ServerError
	if !errors.As(err, &se) || se.Code != "OOM" || !strings.Contains(err.Error(), "raise the server's maxmemory") {
		t.Errorf("got %v; want the server's OOM error, and what to do", err)
	}
	if errors.Is(err, leasecache.ErrUnavailable) {
		t.Errorf("%v is an ErrUnavailable, but the server is there and will refuse again", err)
	}
}

func TestEvictedLease(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server, admin := startOne(t, servertest.Args("--maxmemory", "4mb", "--maxmemory-policy", policy))
			// The lease is what expires first of all.
			o := leasecache.Options{Prefix: "evicted:", TTL: time.Hour, Lease: longLease, WaitBound: longLease}
			c := newCache(t, goredis.New(redisClient(t, server.Addr)), o)
			elsewhere := newCache(t, goredis.New(redisClient(t, server.Addr)), o)
			evictLease := func() {
				t.Helper()
				n := 0
				eventually(t, "the lease is evicted", func() bool {
					_, err := admin.Pipelined(t.Context(), func(p redis.Pipeliner) error {
						for range 50 {
							n++
							p.Set(t.Context(), fmt.Sprint("filler:", n), strings.Repeat("x", 4<<10), time.Hour)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					return !exists(t, admin, leaseKey("evicted:", "k"))
				})
				// Room again, lest what is cached next is evicted as well.
				for i := range n {
					admin.Del(t.Context(), fmt.Sprint("filler:", i+1))
				}
			}

			// A change while the first load runs, and its lease is lost: the load
			// must not be cached, whatever became of the lease.
			g := newGate()
			old := goRead(t, c, "k", g.then(constant("old")))
			await(t, "the load begins", g.began)
			evictLease()
			second := newGate()
			duplicate := goRead(t, elsewhere, "k", second.then(constant("new")))
			await(t, "the duplicate load begins, since nobody holds the lease", second.began)
			g.open()
			old.want(t, "the read whose lease was evicted", "old", leasecache.Loaded, leasecache.LeaseLost)
			wantStored(t, admin, "evicted:", "k", "")
			second.open()
			duplicate.want(t, "the duplicate load", "new", leasecache.Loaded, "")
			wantStored(t, admin, "evicted:", "k", "new")
			if s := c.Stats(); s.FillsRejected != 1 {
				t.Errorf("%d fills were rejected; want one", s.FillsRejected)
			}

			// The same with an invalidation that finds no lease to delete.
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			g = newGate()
			old = goRead(t, c, "k", g.then(constant("old")))
			await(t, "the load begins", g.began)
			evictLease()
			if err := elsewhere.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			g.open()
			old.want(t, "the read that was overtaken", "old", leasecache.Loaded, leasecache.LeaseLost)
			wantStored(t, admin, "evicted:", "k", "")
			goRead(t, c, "k", constant("newer")).want(t, "a read after the invalidation", "newer", leasecache.Loaded, "")
			wantStored(t, admin, "evicted:", "k", "newer")
		})
	}
}
