package tests

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// An ear is a client that has subscribed to channels.
type ear struct {
	name  string
	mu    sync.Mutex
	heard map[string]int // by channel
}

// listenAll subscribes every client that open returns one for, and that has
// wake-ups. The matrix has the reason of those that have none.
func listenAll(t *testing.T, channels []string, open func(liveClient) driver.Evaler) (ears []*ear) {
	t.Helper()
	for _, l := range liveClients {
		i := slices.IndexFunc(clients, func(c client) bool { return c.name == l.name })
		if why := clients[i].lacks.Wake; why != "" {
			t.Logf("%s hears nothing: %s", l.name, why)
		} else if d := open(l); d != nil {
			ears = append(ears, listen(t, l.name, d, channels))
		}
	}
	return ears
}

// listen subscribes a client to all channels.
func listen(t *testing.T, name string, d driver.Evaler, channels []string) *ear {
	t.Helper()
	e := &ear{name: name, heard: map[string]int{}}
	sub, err := d.(driver.Subscriber).Subscribe(func(channel string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard[channel]++
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	for _, channel := range channels {
		if err := sub.Add(t.Context(), channel); err != nil {
			t.Fatalf("%s: Add: %v", name, err)
		}
	}
	return e
}

func (e *ear) count(channel string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[channel]
}

// hear waits until all hear what is published, two times each: the first time
// may be that a client was told that it has missed some.
func hear(t *testing.T, when string, ears []*ear, channels []string, publish func(channel string) error) {
	t.Helper()
	for range 2 {
		for _, e := range ears {
			for _, channel := range channels {
				before := e.count(channel)
				eventually(t, fmt.Sprintf("%s hears of %s %s", e.name, channel, when), func() bool {
					return publish(channel) == nil && e.count(channel) > before
				})
			}
		}
	}
}

// toAny returns a function that publishes by the primary that takes it.
func toAny(t *testing.T, servers []*servertest.Server) func(channel string) error {
	var clients []*redis.Client
	for _, s := range servers {
		clients = append(clients, redisClient(t, s.Addr))
	}
	return func(channel string) (err error) {
		for _, c := range clients {
			if role(t, c) == "master" {
				if err = c.SPublish(t.Context(), channel, "x").Err(); err == nil {
					return nil
				}
			}
		}
		return err
	}
}

// Wake-ups go on where the slots go, and where the primary goes.
func TestWakeUpsFollowTheTopology(t *testing.T) {
	t.Parallel()
	settle(t)
	for _, name := range liveServers {
		t.Run(name+", in a cluster", func(t *testing.T) {
			t.Parallel()
			cluster := servertest.StartCluster(t, servertest.Named(t, name), 3, 1, servertest.Args("--cluster-node-timeout", "1000"))
			admin := clusterClient(t, cluster.Addrs())
			publish := toAny(t, cluster.Nodes)
			var channels []string
			for i := range 12 { // on all primaries
				channels = append(channels, fmt.Sprintf("wake:w:{%d}", i))
			}
			ears := listenAll(t, channels, func(l liveClient) driver.Evaler {
				if l.cluster == nil {
					return nil
				}
				return l.cluster(t, cluster.Addrs())
			})
			hear(t, "at first", ears, channels, publish)

			slot, err := admin.ClusterKeySlot(t.Context(), channels[0]).Result()
			if err != nil {
				t.Fatal(err)
			}
			owner := slotOwner(slot, 3)
			beginMove(t, cluster.Nodes[:3], slot, owner, (owner+1)%3).finish()
			hear(t, "after a slot has moved", ears, channels, publish)

			victim := (owner + 2) % 3
			cluster.Nodes[victim].Kill()
			publish = toAny(t, slices.Delete(slices.Clone(cluster.Nodes), victim, victim+1))
			replica := redisClient(t, cluster.Nodes[3+victim].Addr)
			eventually(t, "the replica is the primary", func() bool { return role(t, replica) == "master" })
			hear(t, "after a failover", ears, channels, publish)
		})

		t.Run(name+", under a sentinel", func(t *testing.T) {
			t.Parallel()
			s := servertest.StartSentinel(t, servertest.Named(t, name))
			publish := toAny(t, append([]*servertest.Server{s.Primary}, s.Replicas...))
			channels := []string{"wake:w:{1}", "wake:w:{2}"}
			ears := listenAll(t, channels, func(l liveClient) driver.Evaler {
				if l.sentinel == nil {
					return nil
				}
				return l.sentinel(t, s)
			})
			hear(t, "at first", ears, channels, publish)
			s.Primary.Kill()
			publish = toAny(t, s.Replicas)
			hear(t, "after a failover", ears, channels, publish)
		})
	}
}
