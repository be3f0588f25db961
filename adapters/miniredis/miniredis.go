// Package miniredis runs leasecache on a server inside the process: for
// development without a server, for demos, and for the tests of services that
// use leasecache, also in bubbles of [testing/synctest].
//
// [New] starts such a server, and [Wrap] takes a miniredis that a test already
// runs. A blank import makes both available by name and by type:
//
//	import _ "github.com/leasecache/leasecache/adapters/miniredis"
//
//	e, err := driver.Open("miniredis", "miniredis:")       // a server of its own
//	e, err := driver.Open("miniredis", "miniredis://demo") // one that all who open "demo" share
//	e, err := driver.Adopt(m)                              // m is a *miniredis.Miniredis
//
// The server is github.com/alicebob/miniredis/v2, reached in memory: no port is
// opened unless [Server.Listen] asks for one. Keys expire by the clock. In a
// bubble that is the bubble's clock, so a test of an hour takes no time. All
// that talk to one server must be in the same bubble as it, and the server must
// be closed before the bubble's function returns:
//
//	synctest.Test(t, func(t *testing.T) {
//		s := miniredis.New()
//		defer s.Close()
//		// ... use s, and then
//		time.Sleep(time.Hour) // what was cached has expired
//	})
//
// # What it is not
//
// It is not Valkey or Redis. Everything is lost when the process ends, nothing
// is evicted, there is no cluster and no failover, and numbers that overflow
// are not refused. Its clock moves on while a script runs, so a key that the
// script has read may be gone by its next line. Texts of errors differ; their
// codes are the same. What leasecache's scripts rely on is the same, and a test
// of this package states it piece by piece. Whether a service works with a real
// server only a real server can tell.
package miniredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasecache/leasecache/driver"
)

func init() { driver.Register("miniredis", opener{}) }

type opener struct{}

func (opener) Open(dsn string) (driver.Evaler, error) {
	name, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	n, err := join(name)
	if err != nil {
		return nil, err
	}
	return newServer(n), nil
}

func (opener) Adopt(client any) (driver.Evaler, bool, error) {
	m, ok := client.(*miniredis.Miniredis)
	if !ok {
		return nil, false, nil
	}
	if m == nil {
		return nil, true, errNil
	}
	return Wrap(m), true, nil
}

var errNil = errors.New("miniredis: the *miniredis.Miniredis is nil: hand over one that runs, such as miniredis.RunT(t)")

// Wrap returns an Evaler over a miniredis that already runs. It has the
// abilities [driver.Getter], [driver.BytesGetter], [driver.Bounder],
// [driver.Batcher], [driver.BatchGetter] and [driver.Pinger], but no
// [driver.Closer]: whoever started m closes it. If m was not started yet, Wrap
// starts it without a listener, as its Dial method does. If m is nil, every
// call fails, and says so.
//
// Wrap leaves m as it is. Its keys expire by m.FastForward only, unless
// m.ClockTTL(true) was called. Its database 0 is used. After m.Close calls fail
// with [driver.ErrNotSent], and after m.Restart they work again. An m that
// requires a password answers every call with a [*driver.ServerError] with the
// code NOAUTH.
func Wrap(m *miniredis.Miniredis) driver.Evaler {
	if m == nil {
		return driver.Invalid(errNil)
	}
	if err := start(m); err != nil {
		return driver.Invalid(err)
	}
	return &evaler{client: &client{m: m, dial: dial}}
}

// Server is an embedded server and a client of it. It implements
// [driver.Evaler], [driver.Getter], [driver.BytesGetter], [driver.Bounder],
// [driver.Batcher], [driver.BatchGetter], [driver.Pinger] and [driver.Closer], and
// is safe for concurrent use.
type Server struct {
	evaler
	node  *node
	close func() error // once, also for those that Bound returned
}

// New starts an empty server in this process. It must be closed.
func New() *Server {
	n, err := join("")
	if err != nil {
		panic(err) // it takes no port, no file and no setting
	}
	return newServer(n)
}

func newServer(n *node) *Server {
	s := &Server{evaler: evaler{client: &client{m: n.m, dial: dial}}, node: n}
	s.close = sync.OnceValue(func() error {
		s.client.close()
		return n.leave()
	})
	return s
}

// Close closes the server: it cuts off those that are connected, stops
// listening, waits for the commands that run, and drops all data. Calls that
// begin later fail with [driver.ErrNotSent]. A server that was opened by name
// goes on for the others who opened it, until the last of them closes. Closing
// again does nothing.
func (s *Server) Close() error { return s.close() }

// Miniredis returns the server itself, for what a test wants to do to it:
// look at its keys, let its clock jump with FastForward, make it answer with
// an error. It must be closed by [Server.Close], not by its own method.
func (s *Server) Miniredis() *miniredis.Miniredis { return s.node.m }

// Listen makes the server reachable by TCP as well, so that other processes
// and any client can use it. It returns the address on which it listens, until
// it is closed. An addr such as "127.0.0.1:0" picks a free port, and so does "".
// There is no password: an address that others reach lets them read and write
// everything. Don't use it inside a bubble of [testing/synctest].
func (s *Server) Listen(addr string) (string, error) {
	if s.client.isClosed() {
		return "", errClosed
	}
	return s.node.listen(addr)
}

// Bound returns s with the bound that [driver.Bounder] describes. It is closed
// together with s.
func (s *Server) Bound(d time.Duration) driver.Evaler {
	return &Server{evaler: evaler{client: s.client, bound: d}, node: s.node, close: s.close}
}

// node is an embedded server, which may be shared by name.
type node struct {
	name string
	refs int // guarded by nodes
	m    *miniredis.Miniredis

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	accepting sync.WaitGroup
}

// nodes are the running servers that have a name.
var nodes = struct {
	sync.Mutex
	byName map[string]*node
}{byName: map[string]*node{}}

// join returns the server of that name, and starts it if there is none. The
// empty name stands for a server that nobody shares.
func join(name string) (*node, error) {
	nodes.Lock()
	defer nodes.Unlock()
	n := nodes.byName[name]
	if n == nil {
		n = &node{name: name, m: miniredis.NewMiniRedis()}
		n.m.ClockTTL(true)
		if err := start(n.m); err != nil {
			return nil, err
		}
		if name != "" {
			nodes.byName[name] = n
		}
	}
	n.refs++
	return n, nil
}

// leave is called once for each join. The last one closes the server.
func (n *node) leave() error {
	nodes.Lock()
	n.refs--
	last := n.refs == 0
	if last {
		delete(nodes.byName, n.name)
	}
	nodes.Unlock()
	if !last {
		return nil
	}

	n.mu.Lock()
	n.closed = true
	var errs []error
	for _, l := range n.listeners {
		errs = append(errs, l.Close())
	}
	n.mu.Unlock()
	n.accepting.Wait()
	n.m.Close()
	return errors.Join(errs...)
}

// listen accepts connections by itself. Miniredis.Start would replace the
// server that runs by a second one, and never close the first.
func (n *node) listen(addr string) (string, error) {
	if addr == "" {
		addr = "127.0.0.1:0" // and not every interface, as net.Listen has it
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("miniredis: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		l.Close()
		return "", errClosed
	}
	n.listeners = append(n.listeners, l)
	n.accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			if attach(n.m, conn) == nil {
				conn.Close()
			}
		}
	})
	return l.Addr().String(), nil
}

var (
	_ driver.Adopter = opener{}

	_ driver.Getter  = (*Server)(nil)
	_ driver.Bounder = (*Server)(nil)
	_ driver.Pinger  = (*Server)(nil)
	_ driver.Closer  = (*Server)(nil)

	_ driver.Getter  = (*evaler)(nil)
	_ driver.Bounder = (*evaler)(nil)
	_ driver.Pinger  = (*evaler)(nil)
)

// evaler runs each command on a connection of client.
type evaler struct {
	client *client
	bound  time.Duration // 0 is none
}

// Eval implements [driver.Evaler].
func (e *evaler) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	return e.do(ctx, func(c *conn) (driver.Reply, error) { return c.eval(s, keys, args) })
}

func (c *conn) eval(s *driver.Script, keys, args []string) (driver.Reply, error) {
	reply, err := c.do(evalCommand("EVALSHA", s.SHA1(), keys, args)...)
	if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "NOSCRIPT" {
		reply, err = c.do(evalCommand("EVAL", s.Source(), keys, args)...)
	}
	return reply, err
}

// Get implements [driver.Getter].
func (e *evaler) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	reply, err := e.do(ctx, func(c *conn) (driver.Reply, error) {
		return c.do("GET", key)
	})
	if err != nil {
		return "", false, err
	}
	return got(reply)
}

// got returns what GET replied.
func got(reply driver.Reply) (value string, ok bool, err error) {
	if reply.Kind() == driver.KindNil {
		return "", false, nil
	}
	value, ok = reply.Str()
	if !ok {
		return "", false, fmt.Errorf("miniredis: GET replied with an unexpected %v", reply.Kind())
	}
	return value, true, nil
}

// GetBytes implements [driver.BytesGetter].
func (e *evaler) GetBytes(ctx context.Context, key string) (value []byte, ok bool, err error) {
	v, ok, err := e.Get(ctx, key)
	return []byte(v), ok, err
}

// Ping implements [driver.Pinger].
func (e *evaler) Ping(ctx context.Context) error {
	_, err := e.do(ctx, func(c *conn) (driver.Reply, error) {
		return c.do("PING")
	})
	return err
}

// Bound implements [driver.Bounder].
func (e *evaler) Bound(d time.Duration) driver.Evaler {
	return &evaler{client: e.client, bound: d}
}
