package faults

import (
	"context"
	"slices"

	"github.com/leasecache/leasecache/servertest"
)

// A primary that is stopped is cut off from clients and replicas alike, and does not know it: when it goes on, it takes
// itself for the primary until it hears of the new one.
var partitions = []Fault{
	{
		Name: "sentinel-primary-isolated", Topologies: []Topology{Sentinel}, Excuses: true,
		Promise: "Reads fail as unavailable until a replica is the primary, and then go on without a restart.",
		Loses:   lostByFailover + " Until the old primary has been told, clients that reach it get what it has.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, err := s.sentinelPrimary(ctx)
			if err != nil {
				return nil, err
			}
			return isolated(ctx, primary, func(ctx context.Context) bool { return s.replaced(ctx, primary) })
		},
	},
	{
		Name: "cluster-primary-isolated", Topologies: []Topology{Cluster}, Excuses: true,
		Promise: "Reads of its slots fail as unavailable until its replica has taken its place; others go on.",
		Loses:   lostByFailover + " Until the old primary has been told, clients that reach it get what it has.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			primary, replica, err := s.shard(ctx)
			if err != nil {
				return nil, err
			}
			return isolated(ctx, primary, func(ctx context.Context) bool { return role(ctx, replica) == "master" })
		},
	},
	{
		Name: "replication-stops", Topologies: []Topology{Sentinel, Cluster},
		Promise: "Nothing changes for clients: replicas are neither read nor waited for.",
		Loses:   "Nothing, unless the primary fails before its replica has caught up.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			var replica *servertest.Server
			all := s.Servers()
			order := s.Rand.Perm(len(all)) // once, or a seed would not choose the same
			err := until(ctx, "a replica follows its primary", func(ctx context.Context) bool {
				return slices.ContainsFunc(order, func(i int) bool {
					replica = all[i]
					return role(ctx, replica) == "slave" && follows(ctx, replica)
				})
			})
			if err != nil {
				return nil, err
			}
			replica.Pause()
			return func(ctx context.Context) error {
				replica.Resume()
				return until(ctx, "the replica follows its primary again", func(ctx context.Context) bool { return follows(ctx, replica) })
			}, nil
		},
	},
}

// isolated stops a primary until another has taken its place.
func isolated(ctx context.Context, primary *servertest.Server, replaced func(context.Context) bool) (func(context.Context) error, error) {
	primary.Pause()
	if err := until(ctx, "another is the primary", replaced); err != nil {
		primary.Resume()
		return nil, err
	}
	return func(ctx context.Context) error {
		primary.Resume()
		return deposed(ctx, primary)
	}, nil
}
