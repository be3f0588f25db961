package glide

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
)

func TestMain(m *testing.M) {
	// See Limits in the documentation of the package.
	signal.Ignore(syscall.SIGPIPE)
	goleak.VerifyTestMain(m)
}

// Replies of the fake server that are no replies.
const (
	cut  = "cut"  // close the connection without a reply
	hang = "hang" // never reply
)

// fakeServer speaks enough of the protocol for the client to connect. It is no
// authority on what a server does: tests that use it are about the client.
type fakeServer struct {
	addr  string
	reply func(args []string) string // raw, or cut, or hang
	conns atomic.Int32               // that clients have open

	mu       sync.Mutex
	slots    string // the reply to CLUSTER SLOTS, empty for a server without
	role     string // as INFO says it
	received [][]string
}

// serve starts a fake server. reply is asked about every command except those by
// which the client sets up a connection, which are not received either.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{
		addr: l.Addr().String(), reply: reply, role: "master",
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { conn.Close() })
			wg.Go(func() { s.handle(conn, stop) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(stop)
		wg.Wait()
	})
	return s
}

func (s *fakeServer) handle(conn net.Conn, stop <-chan struct{}) {
	s.conns.Add(1)
	defer s.conns.Add(-1)
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		slots, role := s.slots, s.role
		s.mu.Unlock()
		var out string
		switch strings.ToLower(args[0]) {
		case "hello":
			out = "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
		case "cluster":
			out = slots
		case "ping": // the client sends it for itself when it connects
			out = "+PONG\r\n"
		case "info":
			info := "role:" + role + "\r\nredis_version:7.0.0\r\n"
			out = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		case "client", "readonly", "asking":
			out = "+OK\r\n"
		default:
			s.mu.Lock()
			s.received = append(s.received, args)
			s.mu.Unlock()
			out = s.reply(args)
		}
		switch out {
		case cut:
			return
		case hang:
			<-stop
			return
		}
		if _, err := io.WriteString(conn, out); err != nil {
			return
		}
	}
}

// commands returns what the server has received.
func (s *fakeServer) commands() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// count returns how many commands of that name the server has received.
func (s *fakeServer) count(name string) int {
	n := 0
	for _, args := range s.commands() {
		if strings.EqualFold(args[0], name) {
			n++
		}
	}
	return n
}

func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("got %q, want a line that starts with %q", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// answer returns a reply function that always says the same.
func answer(reply string) func([]string) string {
	return func([]string) string { return reply }
}

// address returns the address as the client's configuration wants it.
func (s *fakeServer) address(t *testing.T) *config.NodeAddress {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
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
	nodes := []string{s.addr}
	for _, r := range replicas {
		nodes = append(nodes, r.addr)
	}
	for _, n := range append(replicas, s) {
		n.mu.Lock()
		n.slots = slots(nodes...)
		n.mu.Unlock()
	}
	return s
}

// slots returns the reply to CLUSTER SLOTS: all on one primary, with replicas.
func slots(nodes ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*1\r\n*%d\r\n:0\r\n:16383\r\n", 2+len(nodes))
	for _, addr := range nodes {
		host, port, _ := net.SplitHostPort(addr)
		fmt.Fprintf(&b, "*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nx\r\n", len(host), host, port)
	}
	return b.String()
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

var script = driver.NewScript("test", "return ARGV[1]")

func eval(ctx context.Context, e driver.Evaler) (driver.Reply, error) {
	return e.Eval(ctx, script, []string{"{k}"}, []string{"a"})
}

func get(ctx context.Context, e driver.Evaler) (string, bool, error) {
	return e.(driver.Getter).Get(ctx, "{k}")
}

// calls are the kinds of calls of an Evaler.
func calls(e driver.Evaler) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"EVALSHA": func(ctx context.Context) error { _, err := eval(ctx, e); return err },
		"GET":     func(ctx context.Context) error { _, _, err := get(ctx, e); return err },
		"PING":    func(ctx context.Context) error { return e.(driver.Pinger).Ping(ctx) },
	}
}
