package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rueidisclient "github.com/redis/rueidis"
	glideclient "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/models"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/glide"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"

	"github.com/redis/go-redis/v9"
)

// Replicas know the leases only later, so none may answer a read, wherever the
// client sends those of others. That it sends them to replicas is checked too:
// a client that never does would prove nothing.
func TestClientsThatReadFromReplicas(t *testing.T) {
	t.Parallel()
	settle(t)

	// A reader is a client that is set up to read from replicas: the driver over
	// it, and a GET by the service itself.
	type reader struct {
		name string
		open func(t *testing.T) (driver.Evaler, func(key string) error)
	}
	viaRueidis := func(name string, o rueidisclient.ClientOption) reader {
		return reader{"rueidis " + name, func(t *testing.T) (driver.Evaler, func(string) error) {
			c := rueidisOf(t, o)
			return rueidis.New(c), func(key string) error {
				return ignoreNil(c.Do(t.Context(), c.B().Get().Key(key).Build()).Error(), rueidisclient.Nil)
			}
		}}
	}
	viaValkey := func(name string, o valkey.ClientOption) reader {
		return reader{"valkeygo " + name, func(t *testing.T) (driver.Evaler, func(string) error) {
			c := valkeyOf(t, o)
			return valkeygo.New(c), func(key string) error {
				return ignoreNil(c.Do(t.Context(), c.B().Get().Key(key).Build()).Error(), valkey.Nil)
			}
		}}
	}
	rueidisReads := func(cmd rueidisclient.Completed) bool { return cmd.IsReadOnly() }
	valkeyReads := func(cmd valkey.Completed) bool { return cmd.IsReadOnly() }
	// As the READMEs of both clients have it.
	byName := func(words []string) bool { return len(words) > 0 && words[0] == "GET" }

	check := func(t *testing.T, readers []reader, replicas ...*servertest.Server) {
		t.Helper()
		var stats []*redis.Client
		for _, s := range replicas {
			stats = append(stats, redisClient(t, s.Addr))
		}
		asked := func(t *testing.T) (commands string) {
			t.Helper()
			for _, c := range stats {
				info, err := c.Info(t.Context(), "commandstats").Result()
				if err != nil {
					t.Fatal(err)
				}
				for _, command := range []string{"get", "eval", "evalsha", "mget", "eval_ro", "evalsha_ro"} {
					if strings.Contains(info, "cmdstat_"+command+":") {
						commands += " " + command
					}
				}
			}
			return commands
		}
		for _, r := range readers {
			t.Run(r.name, func(t *testing.T) {
				e, get := r.open(t)
				for _, c := range stats {
					do(t, c, "CONFIG", "RESETSTAT")
				}
				c := newCache(t, e, leasecache.Options{Prefix: "replicas:", Stale: time.Minute})
				for i := range 50 {
					key := fmt.Sprint("key", i%10)
					for range 2 { // the second is a hit
						if _, err := c.Get(t.Context(), key, constant("v")); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := c.Read(t.Context(), key, noLoad(t)); err != nil {
						t.Fatal(err)
					}
					if _, _, err := c.Peek(t.Context(), key); err != nil {
						t.Fatal(err)
					}
					if i%7 == 0 {
						if err := c.Invalidate(t.Context(), key); err != nil {
							t.Fatal(err)
						}
					}
				}
				if commands := asked(t); commands != "" {
					t.Errorf("replicas were asked by%s", commands)
				}
				n := 0
				eventually(t, "the client reads from replicas, or it would prove nothing", func() bool {
					n++
					if err := get(fmt.Sprint("another", n)); err != nil {
						t.Fatal(err)
					}
					return asked(t) != ""
				})
				t.Logf("after %d GETs of the service one was answered by a replica", n)
			})
		}
	}

	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := servertest.StartCluster(t, servertest.Named(t, "valkey-9"), 1, 1)
		addrs := cluster.Addrs()
		// A server lists a replica, and so clients know it, once something was
		// replicated.
		primary := redisClient(t, cluster.Nodes[0].Addr)
		do(t, primary, "SET", "any", "thing")
		for _, s := range cluster.Nodes {
			c := redisClient(t, s.Addr)
			eventually(t, "the replica is listed", func() bool {
				slots, err := c.Do(t.Context(), "CLUSTER", "SLOTS").Slice()        // what clients go by
				return err == nil && len(slots) == 1 && len(slots[0].([]any)) == 4 // first and last slot, primary, replica
			})
		}
		overGoredis := func(name string, o redis.ClusterOptions) reader {
			return reader{"goredis " + name, func(t *testing.T) (driver.Evaler, func(string) error) {
				o.Addrs, o.ContextTimeoutEnabled = addrs, true
				c := redis.NewClusterClient(&o)
				t.Cleanup(func() { c.Close() })
				return goredis.New(c), func(key string) error { return ignoreNil(c.Get(t.Context(), key).Err(), redis.Nil) }
			}}
		}
		check(t, []reader{
			{"glide PreferReplica", func(t *testing.T) (driver.Evaler, func(string) error) {
				o := config.NewClusterClientConfiguration().WithRequestTimeout(patience).WithReadFrom(config.PreferReplica)
				for _, a := range glideNodes(t, addrs) {
					o.WithAddress(&a)
				}
				c, err := glideclient.NewClusterClient(o)
				if err != nil {
					t.Fatal(err)
				}
				return glide.New(c), glideGet(t, c)
			}},
			overGoredis("ReadOnly", redis.ClusterOptions{ReadOnly: true}),
			// With a tolerance that takes all for near, or it might choose the primary alone.
			overGoredis("RouteByLatency", redis.ClusterOptions{RouteByLatency: true, RouteByLatencyTolerance: time.Hour}),
			overGoredis("RouteRandomly", redis.ClusterOptions{RouteRandomly: true}),
			viaRueidis("SendToReplicas", rueidisclient.ClientOption{InitAddress: addrs, SendToReplicas: rueidisReads}),
			viaValkey("SendToReplicas", valkey.ClientOption{InitAddress: addrs, SendToReplicas: valkeyReads}),
			viaRueidis("SendToReplicas by name", rueidisclient.ClientOption{InitAddress: addrs, SendToReplicas: func(cmd rueidisclient.Completed) bool { return byName(cmd.Commands()) }}),
			viaValkey("SendToReplicas by name", valkey.ClientOption{InitAddress: addrs, SendToReplicas: func(cmd valkey.Completed) bool { return byName(cmd.Commands()) }}),
			viaRueidis("ReadNodeSelector", rueidisclient.ClientOption{InitAddress: addrs, SendToReplicas: rueidisReads, ReadNodeSelector: rueidisclient.PreferReplicaNodeSelector()}),
			viaValkey("ReadNodeSelector", valkey.ClientOption{InitAddress: addrs, SendToReplicas: valkeyReads, ReadNodeSelector: valkey.PreferReplicaNodeSelector()}),
		}, cluster.Nodes[1])
	})

	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := servertest.StartSentinel(t, servertest.Named(t, "redis-7"))
		addrs := []string{s.Sentinel.Addr}
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinel.Addr})
		t.Cleanup(func() { sentinel.Close() })
		eventually(t, "the sentinel sees that the replicas follow", func() bool {
			replicas, err := sentinel.Replicas(t.Context(), s.PrimaryName).Result()
			return err == nil && len(replicas) == len(s.Replicas) &&
				!slices.ContainsFunc(replicas, func(r map[string]string) bool { return r["master-link-status"] != "ok" || r["flags"] != "slave" })
		})
		check(t, []reader{
			// glide does not ask sentinels, but knows replicas that it is told of.
			{"glide PreferReplica", func(t *testing.T) (driver.Evaler, func(string) error) {
				o := config.NewClientConfiguration().WithRequestTimeout(patience).WithReadFrom(config.PreferReplica)
				for _, a := range glideNodes(t, []string{s.Primary.Addr, s.Replicas[0].Addr}) {
					o.WithAddress(&a)
				}
				c, err := glideclient.NewClient(o)
				if err != nil {
					t.Fatal(err)
				}
				return glide.New(c), glideGet(t, c)
			}},
			// Not goredis: redis.NewFailoverClusterClient, the only one that would,
			// leaves its subscription to the sentinel behind when it is closed.
			viaRueidis("SendToReplicas", rueidisclient.ClientOption{InitAddress: addrs, Sentinel: rueidisclient.SentinelOption{MasterSet: s.PrimaryName}, SendToReplicas: rueidisReads}),
			viaValkey("SendToReplicas", valkey.ClientOption{InitAddress: addrs, Sentinel: valkey.SentinelOption{MasterSet: s.PrimaryName}, SendToReplicas: valkeyReads}),
			// The same servers, without asking the sentinel.
			viaRueidis("ReplicaAddress", rueidisclient.ClientOption{
				InitAddress: []string{s.Primary.Addr}, SendToReplicas: rueidisReads,
				Standalone: rueidisclient.StandaloneOption{ReplicaAddress: []string{s.Replicas[0].Addr}},
			}),
			viaValkey("ReplicaAddress", valkey.ClientOption{
				InitAddress: []string{s.Primary.Addr}, SendToReplicas: valkeyReads,
				Standalone: valkey.StandaloneOption{ReplicaAddress: []string{s.Replicas[0].Addr}},
			}),
		}, s.Replicas...)
	})
}

func glideNodes(t *testing.T, addrs []string) []config.NodeAddress {
	t.Helper()
	nodes, err := glideAddrs(target{addrs: addrs})
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func ignoreNil(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
}

// Valkey can answer a client of a replica with the address of the primary, for
// clients that ask for it.
func TestReplicaThatRedirects(t *testing.T) {
	t.Parallel()
	settle(t)
	for name, open := range map[string]func(t *testing.T, addr string) driver.Evaler{
		"rueidis": func(t *testing.T, addr string) driver.Evaler {
			return rueidis.New(rueidisOf(t, rueidisclient.ClientOption{InitAddress: []string{addr}, Standalone: rueidisclient.StandaloneOption{EnableRedirect: true}}))
		},
		"valkeygo": func(t *testing.T, addr string) driver.Evaler {
			return valkeygo.New(valkeyOf(t, valkey.ClientOption{InitAddress: []string{addr}, Standalone: valkey.StandaloneOption{EnableRedirect: true}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, servertest.Named(t, "valkey-9"))
			admin := redisClient(t, server.Addr)
			cache := func(policy leasecache.OnUnavailable) *leasecache.Cache[string] {
				return newCache(t, newStore(t, open(t, server.Addr), time.Second), leasecache.Options{Prefix: "redirect:", OnUnavailable: policy})
			}
			c, loads := cache(leasecache.UnavailableFail), cache(leasecache.UnavailableLoad)
			goRead(t, c, "k", constant("v")).want(t, "the first read", "v", leasecache.Loaded, "")

			do(t, admin, "REPLICAOF", "127.0.0.1", "1") // where nobody is
			_, err := c.Get(t.Context(), "k", noLoad(t))
			t.Logf("a read: %v", err)
			if !errors.Is(err, leasecache.ErrUnavailable) {
				t.Errorf("a read: %v; want ErrUnavailable", err)
			}
			goRead(t, loads, "miss", constant("source")).want(t, "a miss with Load", "source", leasecache.Loaded, leasecache.ServerDown)
			if v, err := loads.Get(t.Context(), "k", constant("source")); v != "source" || err != nil {
				t.Errorf("a redirected GET with Load got %q, %v", v, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err = c.Invalidate(ctx, "k")
			t.Logf("an invalidation: %v", err)
			if !errors.Is(err, leasecache.ErrUnavailable) || !strings.Contains(errText(err), `"k"`) {
				t.Errorf("an invalidation: %v; want ErrUnavailable, and the key", err)
			}

			do(t, admin, "REPLICAOF", "NO", "ONE")
			eventually(t, "an invalidation succeeds", func() bool { return c.Invalidate(t.Context(), "k") == nil })
			goRead(t, c, "k", constant("new")).want(t, "a read when it is a primary again", "new", leasecache.Loaded, "")
			goRead(t, loads, "k", noLoad(t)).want(t, "a read by another", "new", leasecache.Hit, "")
		})
	}
}

// glideGet returns how to read with a client of glide itself, which it closes in the
// end.
func glideGet(t *testing.T, c interface {
	Get(ctx context.Context, key string) (models.Result[string], error)
	Close()
},
) func(key string) error {
	t.Helper()
	t.Cleanup(c.Close)
	return func(key string) error {
		_, err := c.Get(t.Context(), key)
		return err
	}
}
