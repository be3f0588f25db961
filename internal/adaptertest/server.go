// Package adaptertest holds what the tests of several adapters share: a server
// that answers as the test says, the abilities and the calls of an Evaler, checks
// of what holds for each of them, and those of the errors for a DSN. Only tests may
// import it.
package adaptertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasecache/leasecache/internal/resp"
)

// Replies of a [Server] that are no replies.
const (
	Cut  = "cut"  // close the connection without a reply
	Hang = "hang" // never reply
)

// Server speaks enough of the protocol for a client to connect. It is no authority
// on what a server does: tests that use it are about the client. Fill it in, call
// Start, and leave the fields alone from the first connection on.
type Server struct {
	// Setup, if set, is asked first about every command. It returns the reply to
	// those by which the client sets up a connection, which are not recorded, and
	// "" for others.
	Setup func(args []string) string
	// Reply returns the reply to a command as it is on the wire, or Cut, or Hang.
	Reply func(args []string) string
	// Once closes each connection after a reply that Setup did not give.
	Once bool
	// Addr is where the server listens once it has started.
	Addr string

	conns    atomic.Int32
	mu       sync.Mutex
	received [][]string
}

// Start starts the server, which ends with the test.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = l.Addr().String()
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
}

// Pipe returns a connection to a server that is not started, in memory: who makes
// thousands of them, as a fuzzer does, would use up the ports. It ends with the test.
func (s *Server) Pipe(t testing.TB) net.Conn {
	near, far := net.Pipe()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.handle(far, stop)
	}()
	t.Cleanup(func() {
		close(stop)
		near.Close()
		far.Close()
		<-done
	})
	return near
}

func (s *Server) handle(conn net.Conn, stop <-chan struct{}) {
	s.conns.Add(1)
	defer s.conns.Add(-1)
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		args, _, err := resp.ReadCommand(r)
		if err != nil {
			return
		}
		var out string
		if s.Setup != nil {
			out = s.Setup(args)
		}
		setup := out != ""
		if !setup {
			s.mu.Lock()
			s.received = append(s.received, args)
			s.mu.Unlock()
			out = s.Reply(args)
		}
		switch out {
		case Cut:
			return
		case Hang:
			<-stop
			return
		}
		if _, err := io.WriteString(conn, out); err != nil || s.Once && !setup {
			return
		}
	}
}

// Commands returns what the server has received, in the order in which it did.
func (s *Server) Commands() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// Count returns how many commands of that name the server has received, in capital
// letters or not.
func (s *Server) Count(name string) int {
	n := 0
	for _, args := range s.Commands() {
		if strings.EqualFold(args[0], name) {
			n++
		}
	}
	return n
}

// Conns returns how many connections clients have open.
func (s *Server) Conns() int { return int(s.conns.Load()) }

// Slots returns the reply to CLUSTER SLOTS: all on one primary, with replicas.
func Slots(primary string, replicas ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*1\r\n*%d\r\n:0\r\n:16383\r\n", 3+len(replicas))
	for _, addr := range append([]string{primary}, replicas...) {
		host, port, _ := net.SplitHostPort(addr)
		fmt.Fprintf(&b, "*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nx\r\n", len(host), host, port)
	}
	return b.String()
}

// Answer returns a reply function that always says the same.
func Answer(reply string) func([]string) string {
	return func([]string) string { return reply }
}
