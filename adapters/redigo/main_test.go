package redigo

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

	"github.com/gomodule/redigo/redis"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
)

func TestMain(m *testing.M) {
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

	mu       sync.Mutex
	received [][]string
}

// serve starts a fake server. reply is asked about every command.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{addr: l.Addr().String(), reply: reply}
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
		s.mu.Lock()
		s.received = append(s.received, args)
		s.mu.Unlock()
		out := s.reply(args)
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

// pool returns a pool of connections to the server.
func (s *fakeServer) pool(t *testing.T) *redis.Pool {
	p := &redis.Pool{
		MaxIdle: 8,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", s.addr)
		},
	}
	t.Cleanup(func() { p.Close() })
	return p
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

// clientFunc is a Client of an unknown type.
type clientFunc func(ctx context.Context) (redis.Conn, error)

func (f clientFunc) GetContext(ctx context.Context) (redis.Conn, error) { return f(ctx) }

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

// calls are the kinds of calls of an Evaler over a pool.
func calls(t *testing.T, e driver.Evaler) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"EVALSHA": func(ctx context.Context) error { _, err := eval(ctx, e); return err },
		"GET":     func(ctx context.Context) error { _, _, err := get(ctx, t, e); return err },
		"PING":    func(ctx context.Context) error { return e.(driver.Pinger).Ping(ctx) },
	}
}
