package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

const slots = 16384

// A Cluster is a cluster of servers in cluster mode, all slots assigned.
type Cluster struct {
	// Nodes holds the primaries in the order of their slots, then the replicas: replica j of primary i is at
	// index primaries + i*replicas + j.
	Nodes []*Server
}

// Addrs returns the addresses of all nodes, in the order of Nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// StartCluster starts a cluster of that many primaries, at least one, and that many replicas of each, and returns when all
// nodes agree that it is complete: StartCluster(t, spec, 1, 0) is one node that has all slots. The nodes announce
// addresses that the test can dial. The options apply to every node. The cluster's node timeout is 5 s unless Args change
// it; a failover takes about twice that.
func StartCluster(t testing.TB, spec Spec, primaries, replicas int, opts ...Option) *Cluster {
	t.Helper()
	if primaries < 1 || replicas < 0 {
		t.Fatalf("servertest: a cluster of %d primaries with %d replicas each: there must be at least 1 and 0", primaries, replicas)
	}
	c := severalConfig(t, opts)
	n := primaries * (1 + replicas)
	servers := startAll(t, spec, mustOrigin(t, spec), n, n, func(g group, ports []int) []node {
		var nodes []node
		for _, port := range ports {
			nodes = append(nodes, c.node(spec, g, port,
				"--cluster-enabled", "yes", "--cluster-node-timeout", "5000",
				"--cluster-announce-ip", g.addr(), "--cluster-announce-port", strconv.Itoa(port),
				"--cluster-announce-bus-port", strconv.Itoa(port+busOffset)))
		}
		return nodes
	})
	ctx, cancel := context.WithTimeout(t.Context(), clusterTimeout)
	defer cancel()
	if err := form(ctx, servers, primaries, replicas); err != nil {
		t.Fatalf("servertest: forming a cluster of %s: %v", spec.Name, err)
	}
	for _, s := range servers {
		s.ready = func(ctx context.Context) error { return clusterReady(ctx, s.Addr, n, n-primaries) }
	}
	return &Cluster{Nodes: servers}
}

// form makes a cluster of the servers.
func form(ctx context.Context, servers []*Server, primaries, replicas int) error {
	first := servers[0].Addr
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		return err
	}
	ids := make([]string, primaries)
	for i, s := range servers {
		// Different epochs from the start: otherwise the nodes have to resolve a conflict first.
		if err := command(ctx, s.Addr, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < primaries {
			from, to := i*slots/primaries, (i+1)*slots/primaries-1
			if err := command(ctx, s.Addr, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
				return err
			}
			id, err := do(ctx, s.Addr, "CLUSTER", "MYID")
			if err != nil {
				return err
			}
			ids[i] = fmt.Sprint(id)
		}
		if i > 0 {
			if err := command(ctx, s.Addr, "CLUSTER", "MEET", host, port); err != nil {
				return err
			}
		}
	}
	for i, s := range servers[primaries:] {
		err := until(ctx, "making "+s.Addr+" a replica", func() error {
			// Refused until the replica has heard of its primary.
			return command(ctx, s.Addr, "CLUSTER", "REPLICATE", ids[i/replicas])
		})
		if err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := clusterReady(ctx, s.Addr, len(servers), len(servers)-primaries); err != nil {
			return err
		}
	}
	return nil
}

// clusterReady returns when the node sees a whole cluster of that many nodes and replicas and, if it is a replica itself,
// follows its primary.
func clusterReady(ctx context.Context, addr string, nodes, replicas int) error {
	return until(ctx, "waiting for the cluster as "+addr+" sees it", func() error {
		info, err := fields(ctx, addr, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(slots) || info["cluster_known_nodes"] != strconv.Itoa(nodes) {
			return fmt.Errorf("state %s, %s of %d slots, %s of %d nodes",
				info["cluster_state"], info["cluster_slots_ok"], slots, info["cluster_known_nodes"], nodes)
		}
		reply, err := do(ctx, addr, "CLUSTER", "NODES")
		if err != nil {
			return err
		}
		list := fmt.Sprint(reply)
		if n := strings.Count(list, "slave "); n != replicas || strings.Contains(list, "handshake") || strings.Contains(list, "fail") {
			return fmt.Errorf("%d of %d replicas in:\n%s", n, replicas, list)
		}
		return following(ctx, addr)
	})
}

// following returns nil if the server is a primary, or a replica whose link is up.
func following(ctx context.Context, addr string) error {
	info, err := fields(ctx, addr, "INFO", "replication")
	if err != nil {
		return err
	}
	if info["role"] == "slave" && info["master_link_status"] != "up" {
		return errors.New("the link to the primary is " + info["master_link_status"])
	}
	return nil
}

// command sends a command whose reply does not matter.
func command(ctx context.Context, addr string, args ...string) error {
	if _, err := do(ctx, addr, args...); err != nil {
		return fmt.Errorf("%s at %s: %w", strings.Join(args, " "), addr, err)
	}
	return nil
}
