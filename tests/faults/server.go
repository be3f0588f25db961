package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var servers = []Fault{
	{
		Name: "server-sigkill", Topologies: []Topology{Standalone}, Lasts: 300 * time.Millisecond,
		Promise: "Reads fail as unavailable until it is back, with the data that it had confirmed.",
		Inject:  killed(false),
	},
	{
		Name: "server-sigkill-empty", Topologies: []Topology{Standalone}, Lasts: 300 * time.Millisecond,
		Promise: "Reads fail as unavailable until it is back; loads that began before are not cached.",
		Loses:   "All values, leases and marks.",
		Inject:  killed(true),
	},
	{
		Name: "server-sigstop", Topologies: []Topology{Standalone}, Lasts: 1200 * time.Millisecond,
		Promise: "Each call ends after CallTimeout; what the server executes when it goes on is as good as a late copy.",
		Inject: func(_ context.Context, s *Site) (func(context.Context) error, error) {
			s.Standalone.Pause()
			return func(context.Context) error { s.Standalone.Resume(); return nil }, nil
		},
	},
	{
		Name: "script-flush", Topologies: []Topology{Standalone},
		Promise: "Nothing fails: a script that the server does not know is sent by its source.",
		Inject:  command("SCRIPT", "FLUSH"),
	},
	{
		Name: "client-kill", Topologies: []Topology{Standalone},
		Promise: "As when links are cut.",
		Inject:  disconnected("normal"),
	},
	{
		Name: "client-kill-pubsub", Topologies: []Topology{Standalone},
		Promise: "Waiting reads poll until the subscription is open again.",
		Inject:  disconnected("pubsub"),
	},
	{
		Name: "flushall", Topologies: []Topology{Standalone},
		Promise: "Loads that began before are not cached; each key is loaded afresh.",
		Loses:   "All values, leases and marks.",
		Inject:  command("FLUSHALL"),
	},
	{
		Name: "debug-sleep", Topologies: []Topology{Standalone},
		Promise: "Each call ends after CallTimeout.",
		Inject:  command("DEBUG", "SLEEP", "0.7"),
	},
	{
		Name: "maxclients", Topologies: []Topology{Standalone}, Lasts: 700 * time.Millisecond,
		Promise: "Connections that are open go on; calls that need a new one fail as unavailable.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			// One connection that may always mend it.
			c := redis.NewClient(&redis.Options{Addr: s.Standalone.Addr, MaxRetries: -1, PoolSize: 1})
			was, err := c.ConfigGet(ctx, "maxclients").Result()
			if err == nil {
				err = c.ConfigSet(ctx, "maxclients", "1").Err()
			}
			if err != nil {
				c.Close()
				return nil, fmt.Errorf("faults: maxclients: %w", err)
			}
			if send(ctx, s.Standalone, "PING") == nil {
				c.Close()
				return nil, errors.New("faults: maxclients: a new connection was taken")
			}
			return func(ctx context.Context) error {
				defer c.Close()
				return c.ConfigSet(ctx, "maxclients", was["maxclients"]).Err()
			}, nil
		},
	},
}

// disconnected ends the connections of a type, of which there has to be one.
func disconnected(kind string) func(context.Context, *Site) (func(context.Context) error, error) {
	return func(ctx context.Context, s *Site) (func(context.Context) error, error) {
		return nil, admin(ctx, s.Standalone, func(c *redis.Client) error {
			return until(ctx, "there is a connection of type "+kind, func(ctx context.Context) bool {
				n, err := c.Do(ctx, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Int()
				return err == nil && n > 0
			})
		})
	}
}

// killed ends the server by SIGKILL, after it was emptied or not.
func killed(empty bool) func(context.Context, *Site) (func(context.Context) error, error) {
	return func(ctx context.Context, s *Site) (func(context.Context) error, error) {
		if empty {
			// Nothing may be written between the two, or it would be there again after the restart.
			err := admin(ctx, s.Standalone, func(c *redis.Client) error {
				_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.FlushAll(ctx)
					p.Do(ctx, "CLIENT", "PAUSE", "60000", "WRITE")
					return nil
				})
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("faults: emptying the server: %w", err)
			}
		}
		s.Standalone.Kill()
		return func(context.Context) error { s.Standalone.Restart(); return nil }, nil
	}
}

// The policies of a server that has no more memory.
var evictions = []string{
	"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
}

// memory returns a fault for each policy.
func memory() (all []Fault) {
	for _, policy := range evictions {
		f := Fault{
			Name: "maxmemory-" + policy, Topologies: []Topology{Standalone}, Lasts: 500 * time.Millisecond,
			Promise: "An evicted value is a miss, and an evicted lease ends like one that has run out.",
			Loses:   "Values, leases and marks that the server evicts.",
			Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
				return full(ctx, s, policy)
			},
		}
		if policy == "noeviction" {
			f.Promise = "Hits and invalidations go on; a load is returned without being cached."
			f.Loses = ""
		}
		all = append(all, f)
	}
	return all
}

// ballast is what fills the server. It expires, for the policies that evict nothing else.
const ballast = "ballast:"

// full leaves the server no memory: its limit is just above what it uses now, and then there is more.
func full(ctx context.Context, s *Site, policy string) (func(context.Context) error, error) {
	configure := func(ctx context.Context, limit int64, policy string) error {
		return admin(ctx, s.Standalone, func(c *redis.Client) error {
			if err := c.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
				return err
			}
			return c.ConfigSet(ctx, "maxmemory", fmt.Sprint(limit)).Err()
		})
	}
	err := admin(ctx, s.Standalone, func(c *redis.Client) error {
		var used int64
		if _, err := fmt.Sscan(c.InfoMap(ctx, "memory").Item("Memory", "used_memory"), &used); err != nil {
			return err
		}
		if err := configure(ctx, used+1<<19, policy); err != nil {
			return err
		}
		evicted := c.InfoMap(ctx, "stats").Item("Stats", "evicted_keys")
		refused := 0
		for i := range 64 {
			err := c.Set(ctx, fmt.Sprint(ballast, i), strings.Repeat("x", 1<<15), time.Minute).Err()
			switch {
			case err == nil:
			case strings.HasPrefix(err.Error(), "OOM "):
				refused++
			default:
				return err
			}
		}
		if refused == 0 && evicted == c.InfoMap(ctx, "stats").Item("Stats", "evicted_keys") {
			return errors.New("nothing was refused and nothing evicted")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("faults: maxmemory with %s: %w", policy, err)
	}
	return func(ctx context.Context) error {
		if err := configure(ctx, 0, "noeviction"); err != nil {
			return err
		}
		return admin(ctx, s.Standalone, func(c *redis.Client) error {
			for i := range 64 {
				if err := c.Del(ctx, fmt.Sprint(ballast, i)).Err(); err != nil {
					return err
				}
			}
			return nil
		})
	}, nil
}
