package tests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/glide"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
)

const poolReaders = 500

// smallPool is a client with two connections. rueidis and valkey-go have a pool only
// when told not to share connections. glide has no pool, but one connection for all.
type smallPool struct {
	name string
	open func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) // and a ping by the client itself
	// exhausted is the client's error when no connection is free, if it does not wait.
	exhausted error
}

var smallPools = []smallPool{
	{name: "goredis", open: func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) {
		c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2, PoolTimeout: patience})
		t.Cleanup(func() { c.Close() })
		return goredis.New(c), func(ctx context.Context) error { return c.Ping(ctx).Err() }
	}},
	{name: "redigo that waits", open: func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) {
		return openSmallRedigo(t, addr, true)
	}},
	{name: "redigo that does not wait", open: func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) {
		return openSmallRedigo(t, addr, false)
	}, exhausted: redigopool.ErrPoolExhausted},
	{name: "rueidis", open: func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) {
		c, err := rueidisclient.NewClient(rueidisclient.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, DisableAutoPipelining: true, BlockingPoolSize: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return rueidis.New(c), func(ctx context.Context) error { return c.Do(ctx, c.B().Ping().Build()).Error() }
	}},
	{name: "valkeygo", open: func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) {
		c, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, DisableAutoPipelining: true, BlockingPoolSize: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return valkeygo.New(c), func(ctx context.Context) error { return c.Do(ctx, c.B().Ping().Build()).Error() }
	}},
	{name: "glide", open: func(t testing.TB, addr string) (driver.Evaler, func(context.Context) error) {
		c, err := dialGlide(target{topology: standalone, addrs: []string{addr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return glide.New(c), func(ctx context.Context) error {
			_, err := c.Ping(ctx)
			return err
		}
	}},
}

func openSmallRedigo(t testing.TB, addr string, wait bool) (driver.Evaler, func(context.Context) error) {
	p := &redigopool.Pool{
		DialContext: func(ctx context.Context) (redigopool.Conn, error) { return redigopool.DialContext(ctx, "tcp", addr) },
		MaxActive:   2, MaxIdle: 2, Wait: wait,
	}
	t.Cleanup(func() { p.Close() })
	return redigo.New(p), func(ctx context.Context) error {
		c, err := p.GetContext(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = redigopool.DoContext(c, ctx, "PING")
		return err
	}
}

// reads runs that many reads at once and returns their errors when all have ended.
func reads(t testing.TB, c *leasecache.Cache[string], n int, key func(i int) string, load leasecache.Loader[string]) []error {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			v, err := c.Get(t.Context(), key(i), load)
			if err == nil && v != "v" {
				err = fmt.Errorf("got %q", v)
			}
			errs[i] = err
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	await(t, "all reads end", done)
	return errs
}

func TestManyReadersEndWithAPoolOfTwoConnections(t *testing.T) {
	server, _ := startOne(t)
	for _, pool := range smallPools {
		t.Run(pool.name, func(t *testing.T) {
			e, ping := pool.open(t, server.Addr)
			// Loaders use the service's own client too. Were a connection held during a
			// load, two of them would be all that there is.
			load := func(ctx context.Context) (string, error) {
				if err := ping(ctx); err != nil && (pool.exhausted == nil || !errors.Is(err, pool.exhausted)) {
					return "", err
				}
				return "v", nil
			}
			check := func(what string, errs []error) {
				t.Helper()
				failed := 0
				for _, err := range errs {
					if err == nil {
						continue
					}
					if failed++; pool.exhausted == nil || !errors.Is(err, leasecache.ErrUnavailable) || !errors.Is(err, pool.exhausted) {
						t.Fatalf("%s: %v; want success, or ErrUnavailable and the pool's own error where it does not wait", what, err)
					}
				}
				if pool.exhausted != nil {
					t.Logf("%s: %d of %d reads failed, as this pool does not wait", what, failed, len(errs))
				}
			}
			o := leasecache.Options{Prefix: pool.name + ":"}
			if pool.exhausted == nil {
				// Nothing is lost, so nobody waits for a lease to end. Without a connection
				// a load is not cached, and its lease may not be released either.
				o.Lease, o.LoadTimeout, o.WaitBound = longLease, longLease/2, longLease
			}
			c := newCache(t, e, o)
			check("one hot key", reads(t, c, poolReaders, func(int) string { return "hot" }, load))
			check("a key for each", reads(t, c, poolReaders, func(i int) string { return fmt.Sprint("k", i) }, load))

			// The pool is as good as before. (Leases are released in the background, and
			// a pool that does not wait may have no connection left meanwhile.)
			check("afterwards", reads(t, c, 1, func(int) string { return "afterwards" }, load))
			eventually(t, "reads work again", func() bool {
				_, err := c.Get(t.Context(), "afterwards", load)
				return err == nil
			})
		})
	}
}

func TestNoConnectionIsHeldWhileReadersWaitForALease(t *testing.T) {
	server, admin := startOne(t)
	for _, pool := range smallPools {
		if pool.exhausted != nil {
			continue // its readers fail instead: see the test above
		}
		t.Run(pool.name, func(t *testing.T) {
			prefix := pool.name + ":"
			set := func(name func(prefix, key string) string) {
				p := admin.Pipeline()
				for i := range poolReaders {
					p.Set(t.Context(), name(prefix, fmt.Sprint("k", i)), "v", longLease)
				}
				if _, err := p.Exec(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			set(leaseKey) // another process loads them all
			e, ping := pool.open(t, server.Addr)
			c := newCache(t, e, leasecache.Options{Prefix: prefix, Lease: longLease, LoadTimeout: longLease / 2, WaitBound: longLease})
			var errs []error
			done := make(chan struct{})
			go func() {
				defer close(done)
				errs = reads(t, c, poolReaders, func(i int) string { return fmt.Sprint("k", i) }, noLoad(t))
			}()
			// Each of them has asked the server, through two connections.
			eventually(t, "all readers wait", func() bool { return c.Stats().Waits >= poolReaders })
			if err := ends(t, "a ping of the service", ping); err != nil {
				t.Errorf("meanwhile: %v", err)
			}
			set(valueKey)
			await(t, "all reads end", done)
			for _, err := range errs {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
