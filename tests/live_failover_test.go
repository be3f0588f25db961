package tests

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// outageReplies are what servers may answer while a primary is replaced.
var outageReplies = []string{"CLUSTERDOWN", "MOVED", "READONLY", "LOADING", "MASTERDOWN", "TRYAGAIN"}

// The contract excuses one thing: replication is asynchronous, so what the old
// primary has confirmed in its last moments may not have reached the replica
// that takes its place. An invalidation that is lost this way brings back an old
// value. So from the kill until the replica is a primary, and for what was
// confirmed before that, versions are not compared. All else is: errors, unknown
// values, and everything that is confirmed from then on.
//
// It excuses a deposed primary that is still reachable, too. Under a sentinel the
// old one is that from its return until it is told to be a replica: it takes
// itself for the primary, and a client that comes to its old address believes it.
// It goes on to answer reads with its own data until it has that of the new one.
// So that span is left out as well. In a cluster it waits to be told before it
// serves, so there nothing more is excused.
func TestPrimaryThatIsKilledUnderTraffic(t *testing.T) {
	t.Parallel()
	settle(t)
	for _, name := range liveServers {
		t.Run(name+", replaced by the cluster", func(t *testing.T) {
			t.Parallel()
			cluster := servertest.StartCluster(t, servertest.Named(t, name), 3, 1, servertest.Args("--cluster-node-timeout", "1000"))
			f := startFleet(t, live("killed:"), func(l liveClient) driver.Evaler {
				if l.cluster == nil {
					return nil
				}
				return l.cluster(t, cluster.Addrs())
			})
			admin := clusterClient(t, cluster.Addrs())
			victim := slotOwner(trafficSlots(t, admin)[0], 3)
			replaced(t, f, cluster.Nodes[victim], cluster.Nodes[3+victim:4+victim], false)
			f.stop(t, admin)
			f.onlyReplies(t, outageReplies...)
		})

		t.Run(name+", replaced by the sentinel", func(t *testing.T) {
			t.Parallel()
			s := servertest.StartSentinel(t, servertest.Named(t, name))
			f := startFleet(t, live("killed:"), func(l liveClient) driver.Evaler {
				if l.sentinel == nil {
					return nil
				}
				return l.sentinel(t, s)
			})
			replaced(t, f, s.Primary, s.Replicas, true)
			admin := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.PrimaryName, SentinelAddrs: []string{s.Sentinel.Addr}})
			t.Cleanup(func() { admin.Close() })
			f.stop(t, admin)
			f.onlyReplies(t, outageReplies...)
		})
	}
}

// replaced kills the primary under traffic, waits until one of the replicas has
// taken its place, and later brings it back, to be made a replica. deposed says
// that it takes itself for a primary until then.
func replaced(t *testing.T, f fleet, primary *servertest.Server, replicas []*servertest.Server, deposed bool) {
	t.Helper()
	var candidates []*redis.Client
	for _, s := range replicas {
		candidates = append(candidates, redisClient(t, s.Addr))
	}
	f.flows(t, 16)
	end := f.excuse()
	primary.Kill()
	killed := time.Now()
	f.fails(t)
	eventually(t, "a replica is the primary", func() bool {
		return slices.ContainsFunc(candidates, func(c *redis.Client) bool { return role(t, c) == "master" })
	})
	t.Logf("a replica was the primary after %v", time.Since(killed).Round(time.Millisecond))
	end()
	f.serves(t, "after the kill", killed)
	// Every row has been invalidated again, so reads are compared again.
	f.each(func(name string, tr *traffic) {
		for n := range tr.rows {
			if tr.rows[n].confirmed.Load() == 0 {
				t.Errorf("%s: no invalidation of %s was confirmed", name, trafficKey(n))
			}
		}
	})

	if deposed {
		end = f.excuse()
	}
	primary.Restart()
	back := time.Now()
	old := redisClient(t, primary.Addr)
	eventually(t, "the old primary is a replica, with the data of the new one", func() bool {
		return role(t, old) == "slave" && linkIsUp(t, old)
	})
	if deposed {
		end()
	}
	f.serves(t, "with the old primary back", back)
	f.flows(t, 16)
}

// A cluster that has lost slots and is told to serve reads all the same runs
// scripts, and refuses what they write.
func TestClusterThatIsDown(t *testing.T) {
	t.Parallel()
	settle(t)
	for _, name := range liveServers {
		for _, mode := range []struct{ name, reads string }{{"refuses all", "no"}, {"serves reads", "yes"}} {
			t.Run(name+" "+mode.name, func(t *testing.T) {
				t.Parallel()
				cluster := servertest.StartCluster(t, servertest.Named(t, name), 3, 0,
					servertest.Args("--cluster-node-timeout", "1000", "--cluster-allow-reads-when-down", mode.reads))
				admin := clusterClient(t, cluster.Addrs())
				// A key of the first node, which stays.
				slot, err := admin.ClusterKeySlot(t.Context(), "k").Result()
				if err != nil {
					t.Fatal(err)
				}
				owner := slotOwner(slot, 3)
				lost := cluster.Nodes[(owner+1)%3]

				type pair struct{ fails, loads *leasecache.Cache[string] }
				caches := map[string]pair{}
				for _, l := range liveClients {
					if l.cluster == nil {
						continue
					}
					cache := func(policy leasecache.OnUnavailable) *leasecache.Cache[string] {
						return newCache(t, newStore(t, l.cluster(t, cluster.Addrs()), time.Second),
							leasecache.Options{Prefix: "down:" + l.name + ":", OnUnavailable: policy})
					}
					p := pair{cache(leasecache.UnavailableFail), cache(leasecache.UnavailableLoad)}
					for _, key := range []string{"k}hit", "k}invalidated"} {
						if _, err := p.fails.Get(t.Context(), key, constant("v")); err != nil {
							t.Fatal(err)
						}
					}
					caches[l.name] = p
				}
				lost.Kill()
				node := redisClient(t, cluster.Nodes[owner].Addr)
				eventually(t, "the cluster is down", func() bool {
					info, err := node.ClusterInfo(t.Context()).Result()
					return err == nil && strings.Contains(info, "cluster_state:fail")
				})

				for name, p := range caches {
					for who, c := range map[string]*leasecache.Cache[string]{"with Fail": p.fails, "with Load": p.loads} {
						if mode.reads == "yes" {
							goRead(t, c, "k}hit", noLoad(t)).want(t, name+": a hit "+who, "v", leasecache.Hit, "")
						}
					}
					_, err := p.fails.Get(t.Context(), "k}miss", noLoad(t))
					t.Logf("%s: a miss: %v", name, err)
					if !errors.Is(err, leasecache.ErrUnavailable) {
						t.Errorf("%s: a miss: %v; want ErrUnavailable", name, err)
					}
					goRead(t, p.loads, "k}miss", constant("v")).want(t, name+": a miss with Load", "v", leasecache.Loaded, leasecache.ServerDown)
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					err = p.fails.Invalidate(ctx, "k}invalidated")
					t.Logf("%s: an invalidation: %v", name, err)
					if !errors.Is(err, leasecache.ErrUnavailable) || !strings.Contains(errText(err), `"k}invalidated"`) {
						t.Errorf("%s: an invalidation: %v; want ErrUnavailable, and the key", name, err)
					}
					if mode.reads == "yes" {
						goRead(t, p.fails, "k}invalidated", noLoad(t)).want(t, name+": a value whose invalidation was refused", "v", leasecache.Hit, "")
					}
				}
				confirmed := map[string]chan error{}
				for name, p := range caches {
					c := make(chan error, 1)
					confirmed[name] = c
					go func() { c <- p.fails.Invalidate(context.WithoutCancel(t.Context()), "k}invalidated") }()
				}
				lost.Restart()
				for name, p := range caches {
					if err := await(t, name+": an invalidation with time left ends", confirmed[name]); err != nil {
						t.Errorf("%s: an invalidation with time left: %v", name, err)
					}
					eventually(t, name+" serves again", func() bool {
						v, err := p.fails.Get(t.Context(), "k}invalidated", constant("new"))
						return v == "new" && err == nil
					})
					goRead(t, p.loads, "k}invalidated", noLoad(t)).want(t, name+": a read when the cluster is back", "new", leasecache.Hit, "")
				}
			})
		}
	}
}
