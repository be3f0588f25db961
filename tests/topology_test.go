package tests

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// topology is a set of servers as a client sees it.
type topology struct {
	// client is over a new client; every call is another process.
	client func(t testing.TB) goredis.Client
	// admin looks at what is stored.
	admin redis.Cmdable
	// sizes returns how many keys each server has that may have any.
	sizes func(t testing.TB) map[string]int64
	dsn   string
}

// topologies start servers of a kind. All are the clients of go-redis.
var topologies = map[string]func(t *testing.T, spec servertest.Spec) topology{
	"single": func(t *testing.T, spec servertest.Spec) topology {
		s := servertest.Start(t, spec)
		return topology{
			client: func(t testing.TB) goredis.Client { return redisClient(t, s.Addr) },
			admin:  redisClient(t, s.Addr),
			sizes:  sizes(s.Addr),
			dsn:    "redis://" + s.Addr,
		}
	},
	"cluster": func(t *testing.T, spec servertest.Spec) topology {
		c := servertest.StartCluster(t, spec, 3, 0)
		client := func(t testing.TB) goredis.Client {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()[:1], ContextTimeoutEnabled: true})
			t.Cleanup(func() { rdb.Close() })
			return rdb
		}
		return topology{
			client: client,
			admin:  client(t).(*redis.ClusterClient),
			sizes:  sizes(c.Addrs()...),
			dsn:    "redis+cluster://" + c.Addrs()[0] + "?" + url.Values{"addr": c.Addrs()[1:]}.Encode(),
		}
	},
	"sentinel": func(t *testing.T, spec servertest.Spec) topology {
		s := servertest.StartSentinel(t, spec)
		client := func(t testing.TB) goredis.Client {
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.PrimaryName, SentinelAddrs: []string{s.Sentinel.Addr}})
			t.Cleanup(func() { rdb.Close() })
			return rdb
		}
		return topology{
			client: client,
			admin:  client(t).(*redis.Client),
			sizes:  sizes(s.Primary.Addr),
			dsn:    "redis+sentinel://" + s.Sentinel.Addr + "/0?master_name=" + s.PrimaryName,
		}
	},
	"ring": func(t *testing.T, spec servertest.Spec) topology {
		a, b := servertest.Start(t, spec), servertest.Start(t, spec)
		client := func(t testing.TB) goredis.Client {
			// Named as the driver names the shards of a DSN, so that both find the
			// same keys on the same server.
			rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{a.Addr: a.Addr, b.Addr: b.Addr}})
			t.Cleanup(func() { rdb.Close() })
			return rdb
		}
		return topology{
			client: client,
			admin:  client(t).(*redis.Ring),
			sizes:  sizes(a.Addr, b.Addr),
			dsn:    "redis+ring://" + a.Addr + "/0?addr=" + url.QueryEscape(b.Addr),
		}
	},
}

func sizes(addrs ...string) func(t testing.TB) map[string]int64 {
	return func(t testing.TB) map[string]int64 {
		t.Helper()
		n := map[string]int64{}
		for _, addr := range addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			size, err := rdb.DBSize(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			n[addr] = size
			rdb.Close()
		}
		return n
	}
}

// bracedKeys are keys that a cluster could take apart.
var bracedKeys = []string{
	"{", "{}", "{a}", "{a}b", "a{b}c", "a}", "a}{b", "{{a}}", "a{", "{}{a}", "a\x00b", "\xff\xfe", " ", "a:v:{b}", strings.Repeat("{", 1000),
}

func TestTopologies(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"valkey-9", "redis-7"} {
		for kind, start := range topologies {
			t.Run(server+" "+kind, func(t *testing.T) {
				t.Parallel()
				top := start(t, servertest.Named(t, server))
				c := newCache(t, goredis.New(top.client(t)), leasecache.Options{Prefix: "top:", Stale: time.Minute})
				elsewhere := newCache(t, goredis.New(top.client(t)), leasecache.Options{Prefix: "top:"})

				keys := append([]string(nil), bracedKeys...)
				for i := range 100 {
					keys = append(keys, fmt.Sprint("key", i))
				}
				for _, key := range keys {
					value := "value of " + key
					goRead(t, c, key, constant(value)).want(t, "the first read", value, leasecache.Loaded, "")
					goRead(t, elsewhere, key, noLoad(t)).want(t, "a read in another process", value, leasecache.Hit, "")
					wantStored(t, top.admin, "top:", key, value)
				}
				for addr, n := range top.sizes(t) {
					if n == 0 {
						t.Errorf("the server at %s has none of %d keys", addr, len(keys))
					}
				}
				for _, key := range keys[:20] {
					res, err := elsewhere.Refresh(t.Context(), key, constant("refreshed"))
					if res.Value != "refreshed" || err != nil || !res.Cached() {
						t.Errorf("Refresh of %.20q got %q, uncached %q, %v", key, res.Value, res.Uncached, err)
					}
					goRead(t, c, key, noLoad(t)).want(t, "a read after Refresh", "refreshed", leasecache.Hit, "")
				}
				if err := c.Invalidate(t.Context(), keys...); err != nil {
					t.Fatal(err)
				}
				for _, key := range keys {
					wantStored(t, top.admin, "top:", key, "")
					if !exists(t, top.admin, staleKey("top:", key)) {
						t.Errorf("there is no stale copy of %.20q", key)
					}
				}
				// A load that began before an invalidation, by another process.
				g := newGate()
				old := goRead(t, c, "key1", g.then(constant("old")))
				await(t, "the load begins", g.began)
				if err := elsewhere.Invalidate(t.Context(), "key1"); err != nil {
					t.Fatal(err)
				}
				g.open()
				old.want(t, "the read that was overtaken", "old", leasecache.Loaded, leasecache.LeaseLost)
				wantStored(t, top.admin, "top:", "key1", "")

				for _, key := range []string{"", "}", "}a"} {
					if _, err := c.Get(t.Context(), key, noLoad(t)); !errors.Is(err, leasecache.ErrKey) {
						t.Errorf("Get of %q: %v; want ErrKey", key, err)
					}
				}

				t.Run("by DSN", func(t *testing.T) {
					store, err := leasecache.Open("goredis", top.dsn, leasecache.StoreOptions{})
					if err != nil {
						t.Fatal(err)
					}
					defer store.Close()
					sameAs(t, store, top, "dsn:")
				})
				t.Run("by adoption", func(t *testing.T) {
					client := top.client(t)
					store, err := leasecache.Adopt(client, leasecache.StoreOptions{})
					if err != nil {
						t.Fatal(err)
					}
					sameAs(t, store, top, "adopted:")
					if err := store.Close(); err != nil {
						t.Fatal(err)
					}
					if _, _, err := goredis.New(client).(driver.Getter).Get(t.Context(), "any"); err != nil {
						t.Errorf("the client that was handed over does not work after Close: %v", err)
					}
				})
			})
		}
	}
}

// sameAs checks that a cache on store and one on a client of the topology find
// each other's values.
func sameAs(t *testing.T, store *leasecache.Store, top topology, prefix string) {
	t.Helper()
	if err := store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := newCache(t, store, leasecache.Options{Prefix: prefix})
	b := newCache(t, goredis.New(top.client(t)), leasecache.Options{Prefix: prefix})
	for i := range 20 {
		key := fmt.Sprint("key", i)
		goRead(t, a, key, constant("v")).want(t, "the first read", "v", leasecache.Loaded, "")
		goRead(t, b, key, noLoad(t)).want(t, "a read by a client of the same servers", "v", leasecache.Hit, "")
		if err := b.Invalidate(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		goRead(t, a, key, constant("w")).want(t, "a read after the invalidation", "w", leasecache.Loaded, "")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
}
