package glide

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestMain(m *testing.M) {
	// See Limits in the documentation of the package.
	signal.Ignore(syscall.SIGPIPE)
	goleak.VerifyTestMain(m)
}

// What the tests of all adapters share.
const (
	cut  = adaptertest.Cut
	hang = adaptertest.Hang
)

var (
	script    = adaptertest.Script
	eval      = adaptertest.Eval
	get       = adaptertest.Get
	calls     = adaptertest.Calls
	abilities = adaptertest.Abilities
	answer    = adaptertest.Answer
)

// fakeServer is a server as the tests of all adapters use it.
type fakeServer struct {
	*adaptertest.Server

	mu    sync.Mutex
	slots string // the reply to CLUSTER SLOTS, empty for a server without
	role  string // as INFO says it
}

// serve starts a fake server. reply is asked about every command except those by
// which the client sets up a connection.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	s := &fakeServer{Server: &adaptertest.Server{Reply: reply}, role: "master"}
	s.Setup = func(args []string) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch strings.ToLower(args[0]) {
		case "hello":
			return "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
		case "cluster":
			return cmp.Or(s.slots, "-ERR This instance has cluster support disabled\r\n")
		case "ping": // the client sends it for itself when it connects
			return "+PONG\r\n"
		case "info":
			info := "role:" + s.role + "\r\nredis_version:7.0.0\r\n"
			return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		case "client", "readonly", "asking":
			return "+OK\r\n"
		}
		return ""
	}
	s.Start(t)
	return s
}

// address returns the address as the client's configuration wants it.
func (s *fakeServer) address(t *testing.T) *config.NodeAddress {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return &config.NodeAddress{Host: host, Port: n}
}

// client returns a client of the server. Its requests time out late, unless o
// says otherwise.
func (s *fakeServer) client(t *testing.T, o ...func(*config.ClientConfiguration)) *glide.Client {
	t.Helper()
	conf := config.NewClientConfiguration().WithAddress(s.address(t)).WithRequestTimeout(tooLong)
	for _, set := range o {
		set(conf)
	}
	c, err := glide.NewClient(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// clusterClient returns a client of the cluster that the server is part of.
func (s *fakeServer) clusterClient(t *testing.T, o ...func(*config.ClusterClientConfiguration)) *glide.ClusterClient {
	t.Helper()
	conf := config.NewClusterClientConfiguration().WithAddress(s.address(t)).WithRequestTimeout(tooLong)
	for _, set := range o {
		set(conf)
	}
	c, err := glide.NewClusterClient(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// replica makes the server say that it is one.
func (s *fakeServer) replica() *fakeServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role = "slave"
	return s
}

// cluster makes the server the primary of all slots, with these replicas.
func (s *fakeServer) cluster(replicas ...*fakeServer) *fakeServer {
	var addrs []string
	for _, r := range replicas {
		addrs = append(addrs, r.Addr)
	}
	for _, n := range append(replicas, s) {
		n.mu.Lock()
		n.slots = adaptertest.Slots(s.Addr, addrs...)
		n.mu.Unlock()
	}
	return s
}

// both returns an Evaler over a client of each kind, over servers that reply so.
func both(t *testing.T, reply func([]string) string) map[string]struct {
	s *fakeServer
	e driver.Evaler
} {
	t.Helper()
	one, many := serve(t, reply), serve(t, reply).cluster()
	return map[string]struct {
		s *fakeServer
		e driver.Evaler
	}{
		"standalone": {one, New(one.client(t))},
		"cluster":    {many, New(many.clusterClient(t))},
	}
}

// checkBoth runs a check of all adapters with a client of each kind.
func checkBoth(t *testing.T, check func(*testing.T, adaptertest.Connect)) {
	t.Run("standalone", func(t *testing.T) {
		check(t, func(t *testing.T, reply func([]string) string) (driver.Evaler, *adaptertest.Server) {
			s := serve(t, reply)
			return New(s.client(t)), s.Server
		})
	})
	t.Run("cluster", func(t *testing.T) {
		check(t, func(t *testing.T, reply func([]string) string) (driver.Evaler, *adaptertest.Server) {
			s := serve(t, reply).cluster()
			return New(s.clusterClient(t)), s.Server
		})
	})
}

// mock is a Client of an unknown type.
type mock struct {
	do func(ctx context.Context, o pipeline.StandaloneBatchOptions) ([]any, error)
}

func (m *mock) ExecWithOptions(ctx context.Context, _ pipeline.StandaloneBatch, _ bool, o pipeline.StandaloneBatchOptions) ([]any, error) {
	return m.do(ctx, o)
}

// failing returns a Client whose commands fail.
func failing(err error) *mock {
	return &mock{do: func(context.Context, pipeline.StandaloneBatchOptions) ([]any, error) { return nil, err }}
}

// tooLong is far above the times that these tests wait for.
const tooLong = 20 * time.Second
