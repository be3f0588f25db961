package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/servertest"
)

var migrations = []Fault{
	{
		Name: "slot-migration", Topologies: []Topology{Cluster}, Lasts: 500 * time.Millisecond,
		Promise: "While the keys of a slot are on two nodes, hits go on; misses fail as unavailable, and an invalidation gets through key by key or says that it did not.",
		Inject:  migrate,
	},
	{
		Name: "slot-migration-atomic", Topologies: []Topology{Cluster},
		Promise: "The slots change their node at once, with all keys: reads go on, and an invalidation is sent again or says that it failed.",
		Inject:  migrateAtomically, // valkey 9
	},
}

// slots is how many slots move at a time, at most: those that have keys.
const slots = 200

// migrate leaves some keys of slots on one node and moves others to another. What it returns moves the rest.
func migrate(ctx context.Context, s *Site) (func(context.Context) error, error) {
	var primaries []*servertest.Server
	for _, n := range s.Cluster.Nodes {
		if role(ctx, n) == "master" {
			primaries = append(primaries, n)
		}
	}
	if len(primaries) != 3 {
		return nil, fmt.Errorf("faults: %d primaries; want 3", len(primaries))
	}
	a := s.Rand.IntN(3)
	from, to := primaries[a], primaries[(a+1)%3]
	var (
		ids   [2]string
		moved []int
	)
	for i, n := range []*servertest.Server{from, to} {
		err := admin(ctx, n, func(c *redis.Client) (err error) {
			ids[i], err = c.Do(ctx, "CLUSTER", "MYID").Text()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	owned, err := slotsOf(ctx, from)
	if err != nil {
		return nil, err
	}
	s.Rand.Shuffle(len(owned), func(i, j int) { owned[i], owned[j] = owned[j], owned[i] })
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return nil, err
	}
	source := redis.NewClient(&redis.Options{Addr: from.Addr, MaxRetries: -1})
	for _, slot := range owned {
		n, err := source.ClusterCountKeysInSlot(ctx, slot).Result()
		if err != nil {
			source.Close()
			return nil, err
		}
		if n > 0 && len(moved) < slots {
			moved = append(moved, slot)
		}
	}
	if len(moved) == 0 {
		source.Close()
		return nil, errors.New("faults: no slot has keys that could be moved")
	}
	// keys moves some or all keys of a slot.
	keys := func(ctx context.Context, slot int, all bool) error {
		for {
			names, err := source.ClusterGetKeysInSlot(ctx, slot, 100).Result()
			if err != nil || len(names) == 0 {
				return err
			}
			if !all {
				names = names[:(len(names)+1)/2]
			}
			for _, name := range names {
				if err := source.Do(ctx, "MIGRATE", host, port, name, 0, 5000, "REPLACE").Err(); err != nil {
					return err
				}
			}
			if !all {
				return nil
			}
		}
	}
	for _, slot := range moved {
		if err := send(ctx, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0]); err != nil {
			return nil, err
		}
		if err := send(ctx, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1]); err != nil {
			return nil, err
		}
		if err := keys(ctx, slot, false); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		defer source.Close()
		for _, slot := range moved {
			if err := keys(ctx, slot, true); err != nil {
				return err
			}
			// The new owner first: then no node sends a client back to one that does not have the slot any more.
			for _, n := range []*servertest.Server{to, from} {
				if err := send(ctx, n, "CLUSTER", "SETSLOT", slot, "NODE", ids[1]); err != nil {
					return err
				}
			}
		}
		return nil
	}, nil
}

// migrateAtomically lets the servers move some slots from one node to another.
func migrateAtomically(ctx context.Context, s *Site) (func(context.Context) error, error) {
	from, _, err := s.shard(ctx)
	if err != nil {
		return nil, err
	}
	to, _, err := s.shard(ctx)
	for err == nil && to == from {
		to, _, err = s.shard(ctx)
	}
	if err != nil {
		return nil, err
	}
	owned, err := slotsOf(ctx, from)
	if err != nil {
		return nil, err
	}
	var id string
	err = admin(ctx, to, func(c *redis.Client) (err error) {
		id, err = c.Do(ctx, "CLUSTER", "MYID").Text()
		return err
	})
	if err != nil {
		return nil, err
	}
	moved := owned[:min(slots, len(owned))]
	args := []any{"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"}
	for i := 0; i < len(moved); { // ranges of slots that follow each other
		j := i
		for j+1 < len(moved) && moved[j+1] == moved[j]+1 {
			j++
		}
		args = append(args, moved[i], moved[j])
		i = j + 1
	}
	if err := send(ctx, from, append(args, "NODE", id)...); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return until(ctx, "the slots have moved", func(ctx context.Context) bool {
			now, err := slotsOf(ctx, from)
			return err == nil && !slices.ContainsFunc(moved, func(slot int) bool { return slices.Contains(now, slot) })
		})
	}, nil
}

// slotsOf returns the slots that a node owns.
func slotsOf(ctx context.Context, n *servertest.Server) (slots []int, err error) {
	err = admin(ctx, n, func(c *redis.Client) error {
		shards, err := c.ClusterShards(ctx).Result()
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(n.Addr)
		if err != nil {
			return err
		}
		for _, s := range shards {
			if !slices.ContainsFunc(s.Nodes, func(n redis.Node) bool { return n.Role == "master" && strconv.FormatInt(n.Port, 10) == port }) {
				continue
			}
			for _, r := range s.Slots {
				for slot := r.Start; slot <= r.End; slot++ {
					slots = append(slots, int(slot))
				}
			}
		}
		if len(slots) == 0 {
			return fmt.Errorf("faults: the node at port %s owns no slot", strconv.Quote(port))
		}
		return nil
	})
	return slots, err
}
