package servertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// sentinelReplicas is how many replicas StartSentinel's primary has.
const sentinelReplicas = 2

// A Sentinel is a primary and its replicas, watched by one sentinel.
type Sentinel struct {
	// PrimaryName is the name under which the sentinel knows the primary.
	PrimaryName string
	// Sentinel is the sentinel itself: clients ask it for the primary's address.
	Sentinel *Server
	// Primary is the server that was started as the primary. After a failover another one is.
	Primary *Server
	// Replicas are the servers that were started as its replicas.
	Replicas []*Server
}

// StartSentinel starts a primary, two replicas and one sentinel that may fail over by itself, and returns when the
// sentinel knows them all. All addresses, and those that the sentinel tells, can be dialled from the test. A primary that
// does not answer for one second is failed over. The options apply to the primary and the replicas.
func StartSentinel(t testing.TB, spec Spec, opts ...Option) *Sentinel {
	t.Helper()
	const name = "primary"
	c := severalConfig(t, opts)
	servers := startAll(t, spec, mustOrigin(t, spec), 2+sentinelReplicas, 2+sentinelReplicas, func(g group, ports []int) []node {
		primary := strconv.Itoa(ports[0])
		nodes := []node{c.node(spec, g, ports[0])}
		for _, port := range ports[1 : 1+sentinelReplicas] {
			replica := c.node(spec, g, port, "--replicaof", g.addr()+" "+primary, "--repl-diskless-sync-delay", "0")
			replica.ready = func(ctx context.Context, addr string) error {
				return until(ctx, "waiting for replica "+addr, func() error { return following(ctx, addr) })
			}
			nodes = append(nodes, replica)
		}
		sentinel := ports[1+sentinelReplicas]
		// The sentinel writes what it learns into its configuration file, so it needs one.
		return append(nodes, node{
			binary: spec.Binary,
			port:   sentinel,
			args:   []string{"sentinel.conf", "--sentinel"},
			files: map[string]string{"sentinel.conf": strings.Join([]string{
				"port " + strconv.Itoa(sentinel),
				"bind " + g.bind(),
				"protected-mode no",
				"sentinel monitor " + name + " " + g.addr() + " " + primary + " 1",
				"sentinel down-after-milliseconds " + name + " 1000",
				"sentinel failover-timeout " + name + " 10000",
				"",
			}, "\n")},
			ready: func(ctx context.Context, addr string) error { return sentinelReady(ctx, addr, name) },
		})
	})
	return &Sentinel{
		PrimaryName: name,
		Sentinel:    servers[1+sentinelReplicas],
		Primary:     servers[0],
		Replicas:    servers[1 : 1+sentinelReplicas],
	}
}

// sentinelReady returns when the sentinel knows the replicas. It finds them in what the primary tells, so they must
// follow it by then: the next time it asks is ten seconds later.
func sentinelReady(ctx context.Context, addr, name string) error {
	return until(ctx, "waiting for the sentinel to know the replicas", func() error {
		reply, err := do(ctx, addr, "SENTINEL", "REPLICAS", name)
		if err != nil {
			return err
		}
		if list, _ := reply.([]any); len(list) != sentinelReplicas {
			return fmt.Errorf("it knows %d of %d", len(list), sentinelReplicas)
		}
		return nil
	})
}
