package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/servertest"
)

// NewSite starts the servers of a topology, without processes. All that the primaries confirm is in a log, so that a server
// which is killed comes back with it, unless the fault has emptied it before.
func NewSite(t testing.TB, topology Topology, server string, r *rand.Rand) *Site {
	t.Helper()
	s := &Site{T: t, Topology: topology, Rand: r}
	spec := servertest.Named(t, server)
	switch topology {
	case Standalone:
		// Written before the reply, and not synced: what is written survives the end of the process.
		s.Standalone = servertest.Start(t, spec, servertest.Args("--appendonly", "yes", "--appendfsync", "no", "--enable-debug-command", "yes"))
	case Sentinel:
		s.Sentinel = servertest.StartSentinel(t, spec)
	case Cluster:
		s.Cluster = servertest.StartCluster(t, spec, 3, 1, servertest.Args("--cluster-node-timeout", "1000"))
	default:
		t.Fatalf("faults: there is no topology %q", topology)
	}
	return s
}

// NewProcess makes room for one more process, which uses a driver, and returns the DSN at which it reaches the servers: a
// single one over a link of its own, others directly, because they tell of each other.
func (s *Site) NewProcess(driver string) (dsn string) {
	s.T.Helper()
	switch s.Topology {
	case Standalone:
		p := conformance.NewProxy(quiet{s.T}, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", s.Standalone.Addr)
		})
		s.Links = append(s.Links, p)
		return "redis://" + p.Addr()
	case Sentinel:
		if driver == "goredis" {
			return fmt.Sprintf("redis+sentinel://%s/0?master_name=%s", s.Sentinel.Sentinel.Addr, s.Sentinel.PrimaryName)
		}
		return fmt.Sprintf("redis://%s?master_set=%s", s.Sentinel.Sentinel.Addr, s.Sentinel.PrimaryName)
	default:
		addrs := s.Cluster.Addrs()
		more := url.Values{"addr": addrs[1:]}
		scheme := "redis"
		switch driver {
		case "goredis":
			scheme = "redis+cluster"
		case "glide":
			more.Set("cluster", "true")
		}
		return scheme + "://" + addrs[0] + "?" + more.Encode()
	}
}

// quiet keeps a proxy from noting each connection that it cannot make to a server that was killed.
type quiet struct{ testing.TB }

// Logf implements [testing.TB].
func (quiet) Logf(string, ...any) {}

// Servers returns all servers that hold data.
func (s *Site) Servers() []*servertest.Server {
	switch s.Topology {
	case Standalone:
		return []*servertest.Server{s.Standalone}
	case Sentinel:
		return append([]*servertest.Server{s.Sentinel.Primary}, s.Sentinel.Replicas...)
	default:
		return s.Cluster.Nodes
	}
}

// admin calls do with a client of a server, past all links.
func admin(ctx context.Context, s *servertest.Server, do func(c *redis.Client) error) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer c.Close()
	return do(c)
}

// command returns an Inject that sends a command to the one server, and has nothing to heal.
func command(args ...any) func(context.Context, *Site) (func(context.Context) error, error) {
	return func(ctx context.Context, s *Site) (func(context.Context) error, error) {
		return nil, send(ctx, s.Standalone, args...)
	}
}

// send sends a command to a server.
func send(ctx context.Context, s *servertest.Server, args ...any) error {
	return admin(ctx, s, func(c *redis.Client) error {
		if err := c.Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("faults: %v: %w", args, err)
		}
		return nil
	})
}

// until waits for a condition.
func until(ctx context.Context, what string, ok func(ctx context.Context) bool) error {
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("faults: waiting until %s: %w", what, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// role is what a server says that it is: "master", "slave", or nothing if it does not answer.
func role(ctx context.Context, s *servertest.Server) (role string) {
	_ = admin(ctx, s, func(c *redis.Client) error {
		list, err := c.Do(ctx, "ROLE").Slice()
		if err == nil {
			role = fmt.Sprint(list[0])
		}
		return err
	})
	return role
}

// follows reports whether a server is a replica that has all data of its primary.
func follows(ctx context.Context, s *servertest.Server) (ok bool) {
	_ = admin(ctx, s, func(c *redis.Client) error {
		ok = c.InfoMap(ctx, "replication").Item("Replication", "master_link_status") == "up"
		return nil
	})
	return ok
}
