package faults

import (
	"context"
	"slices"
	"time"

	"github.com/leasecache/leasecache/servertest"
)

const lostByFailover = "What the old primary had confirmed in its last moments, invalidations too: replication is asynchronous."

var failovers = []Fault{
	{
		Name: "sentinel-primary-sigkill", Topologies: []Topology{Sentinel}, Excuses: true,
		Promise: "Reads fail as unavailable until a replica is the primary, and then go on without a restart.",
		Loses:   lostByFailover,
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, err := s.sentinelPrimary(ctx)
			if err != nil {
				return nil, err
			}
			primary.Kill()
			err = until(ctx, "the sentinel has promoted a replica", func(ctx context.Context) bool { return s.replaced(ctx, primary) })
			if err != nil {
				primary.Restart()
				return nil, err
			}
			return func(ctx context.Context) error {
				primary.Restart()
				return deposed(ctx, primary)
			}, nil
		},
	},
	{
		Name: "sentinel-failover", Topologies: []Topology{Sentinel}, Excuses: true,
		Promise: "The same, ordered by an operator.",
		Loses:   lostByFailover,
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, err := s.sentinelPrimary(ctx)
			if err != nil {
				return nil, err
			}
			// A sentinel that has just done one refuses the next for a while.
			err = until(ctx, "the sentinel takes the order", func(ctx context.Context) bool {
				return send(ctx, s.Sentinel.Sentinel, "SENTINEL", "FAILOVER", s.Sentinel.PrimaryName) == nil
			})
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return deposed(ctx, primary) }, nil
		},
	},
	{
		Name: "cluster-primary-sigkill", Topologies: []Topology{Cluster}, Excuses: true,
		Promise: "Reads of its slots fail as unavailable until its replica has taken its place; others go on.",
		Loses:   lostByFailover,
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, replica, err := s.shard(ctx)
			if err != nil {
				return nil, err
			}
			primary.Kill()
			if err := until(ctx, "its replica has taken its place", func(ctx context.Context) bool { return role(ctx, replica) == "master" }); err != nil {
				primary.Restart()
				return nil, err
			}
			return func(ctx context.Context) error {
				primary.Restart()
				return deposed(ctx, primary)
			}, nil
		},
	},
	{
		Name: "cluster-failover", Topologies: []Topology{Cluster},
		Promise: "The primary stops before its replica takes over with all that it had: nothing that was confirmed is lost.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, replica, err := s.shard(ctx)
			if err != nil {
				return nil, err
			}
			if err := send(ctx, replica, "CLUSTER", "FAILOVER"); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				return until(ctx, "the two have changed places", func(ctx context.Context) bool {
					return role(ctx, replica) == "master" && follows(ctx, primary)
				})
			}, nil
		},
	},
	{
		Name: "cluster-primary-sigstop", Topologies: []Topology{Cluster}, Lasts: 600 * time.Millisecond, // below the node timeout
		Promise: "Reads of its slots fail as unavailable after CallTimeout; others go on.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, _, err := s.shard(ctx)
			if err != nil {
				return nil, err
			}
			primary.Pause()
			return func(context.Context) error { primary.Resume(); return nil }, nil
		},
	},
}

// replaced reports whether another server has become the primary.
func (s *Site) replaced(ctx context.Context, primary *servertest.Server) bool {
	return slices.ContainsFunc(s.Servers(), func(r *servertest.Server) bool { return r != primary && role(ctx, r) == "master" })
}

// deposed waits until an old primary follows the new one.
func deposed(ctx context.Context, primary *servertest.Server) error {
	return until(ctx, "the old primary follows the new one", func(ctx context.Context) bool { return follows(ctx, primary) })
}

// sentinelPrimary returns the present primary, when both others follow it.
func (s *Site) sentinelPrimary(ctx context.Context) (primary *servertest.Server, err error) {
	err = until(ctx, "there is one primary, and replicas that follow", func(ctx context.Context) bool {
		primary = nil
		n := 0
		for _, r := range s.Servers() {
			switch {
			case role(ctx, r) == "master":
				primary = r
				n++
			case !follows(ctx, r):
				return false
			}
		}
		return n == 1
	})
	return primary, err
}

// shard returns a primary of the cluster, and its replica, which follows it.
func (s *Site) shard(ctx context.Context) (primary, replica *servertest.Server, err error) {
	n := s.Rand.IntN(3)
	pair := []*servertest.Server{s.Cluster.Nodes[n], s.Cluster.Nodes[3+n]}
	err = until(ctx, "the replica follows its primary", func(ctx context.Context) bool {
		for i, node := range pair {
			if role(ctx, node) == "master" && follows(ctx, pair[1-i]) {
				primary, replica = node, pair[1-i]
				return true
			}
		}
		return false
	})
	return primary, replica, err
}
