package rueidis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// A cluster client that was closed leaves this behind for up to a second.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
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
	slots string                     // the reply to CLUSTER SLOTS

	mu       sync.Mutex
	received [][]string
}

// serve starts a fake server. reply is asked about every command except those by
// which the client sets up a connection.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{addr: l.Addr().String(), reply: reply, slots: "-ERR This instance has cluster support disabled\r\n"}
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
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		var out string
		switch strings.ToLower(args[0]) {
		case "hello":
			out = "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
		case "cluster":
			out = s.slots
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

// client returns a client of the server.
func (s *fakeServer) client(t *testing.T, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	o.InitAddress, o.DisableCache = []string{s.addr}, true
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
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

// mock is a Client of an unknown type, which has another build its commands.
type mock struct {
	builder Client
	do      func(ctx context.Context) rueidis.RedisResult
}

func (m *mock) B() rueidis.Builder { return m.builder.B() }

func (m *mock) Do(ctx context.Context, _ rueidis.Completed) rueidis.RedisResult { return m.do(ctx) }

// failing returns a Client whose commands fail.
func failing(t *testing.T, err error) *mock {
	return &mock{
		builder: serve(t, answer("+OK\r\n")).client(t, rueidis.ClientOption{}),
		do:      func(context.Context) rueidis.RedisResult { return rueidis.NewErrorResult(err) },
	}
}

var script = driver.NewScript("test", "return ARGV[1]")

func eval(ctx context.Context, e driver.Evaler) (driver.Reply, error) {
	return e.Eval(ctx, script, []string{"{k}"}, []string{"a"})
}

func get(ctx context.Context, t *testing.T, e driver.Evaler) (string, bool, error) {
	t.Helper()
	g, ok := e.(driver.Getter)
	if !ok {
		t.Fatalf("%T has no Get", e)
	}
	return g.Get(ctx, "{k}")
}

// calls are the kinds of calls of an Evaler over a whole client.
func calls(t *testing.T, e driver.Evaler) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"EVALSHA": func(ctx context.Context) error { _, err := eval(ctx, e); return err },
		"GET":     func(ctx context.Context) error { _, _, err := get(ctx, t, e); return err },
		"PING":    func(ctx context.Context) error { return e.(driver.Pinger).Ping(ctx) },
	}
}
