package miniredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

var (
	errClosed  = errors.New("miniredis: the server was closed: open a new one")
	errStopped = errors.New("miniredis: the server has stopped: its Miniredis.Close was called, and Restart starts it again")
)

// maxIdle is how many connections are kept. Each costs the server two
// goroutines, and a new one costs microseconds.
const maxIdle = 8

// client is a client of m: a list of free connections.
type client struct {
	m    *miniredis.Miniredis
	dial func(*miniredis.Miniredis) (*conn, error) // tests put faults in its way

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// conn is one end of a pipe to srv. It is used by one call at a time.
type conn struct {
	net.Conn
	resp *resp.Conn
	srv  *server.Server
}

// do runs a call on a connection, within the bound and ctx.
func (e *evaler) do(ctx context.Context, call func(*conn) (driver.Reply, error)) (driver.Reply, error) {
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(err)
	}
	deadline, ok := ctx.Deadline()
	if e.bound > 0 {
		if end := time.Now().Add(e.bound); !ok || end.Before(deadline) {
			deadline = end
		}
	}
	c, err := e.client.get()
	if err != nil {
		return driver.Reply{}, driver.NotSent(err)
	}

	c.SetDeadline(deadline) // none if it is zero
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	reply, err := call(c)
	undisturbed := stop()
	_, replied := errors.AsType[*driver.ServerError](err)
	if undisturbed && (err == nil || replied) {
		e.client.put(c)
	} else {
		c.Close()
	}
	if err != nil && !replied {
		return driver.Reply{}, driver.CallError(ctx, err)
	}
	return reply, err
}

// get takes a free connection, or makes one. Its error means that nothing can
// have been sent.
func (cl *client) get() (*conn, error) {
	for {
		cl.mu.Lock()
		if cl.closed {
			cl.mu.Unlock()
			return nil, errClosed
		}
		n := len(cl.idle) - 1
		if n < 0 {
			cl.mu.Unlock()
			return cl.dial(cl.m)
		}
		c := cl.idle[n]
		cl.idle = slices.Delete(cl.idle, n, n+1)
		cl.mu.Unlock()
		if c.srv == current(cl.m) {
			return c, nil
		}
		c.Close() // its server was closed, and perhaps another was started since
	}
}

// put takes a connection back on which nothing is outstanding.
func (cl *client) put(c *conn) {
	cl.mu.Lock()
	keep := !cl.closed && len(cl.idle) < maxIdle
	if keep {
		c.SetDeadline(time.Time{}) // no timer outlives its call
		cl.idle = append(cl.idle, c)
	}
	cl.mu.Unlock()
	if !keep {
		c.Close()
	}
}

func (cl *client) close() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.closed = true
	for _, c := range cl.idle {
		c.Close()
	}
	cl.idle = nil
}

func (cl *client) isClosed() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.closed
}

func dial(m *miniredis.Miniredis) (*conn, error) {
	near, far := net.Pipe()
	srv := attach(m, far)
	if srv == nil {
		return nil, errStopped
	}
	return &conn{near, resp.NewConn(near), srv}, nil
}

// attach gives a connection to the server of m and returns that server, or nil
// if m is closed. Miniredis.Dial would start a closed one again. It also leaves
// a moment in which Close does not see the connection and never ends its
// goroutines; here m's lock, which Close takes, is held meanwhile.
func attach(m *miniredis.Miniredis, c net.Conn) *server.Server {
	m.Lock()
	defer m.Unlock()
	srv := m.Server()
	if srv != nil {
		srv.ServeConn(c)
	}
	return srv
}

// current returns the server of m, which is nil after m.Close, and another one
// after m.Restart.
func current(m *miniredis.Miniredis) *server.Server {
	m.Lock()
	defer m.Unlock()
	return m.Server()
}

// start starts an m that never ran, without a listener.
func start(m *miniredis.Miniredis) error {
	// Close cancels m's context, so this one was not closed.
	if current(m) == nil && m.Ctx.Err() == nil {
		c, err := m.Dial()
		if err != nil {
			return fmt.Errorf("miniredis: start: %w", err)
		}
		c.Close()
	}
	return nil
}

// do sends a command and returns the reply. An error reply, also one within a
// list, becomes a *driver.ServerError.
func (c *conn) do(args ...string) (driver.Reply, error) {
	v, err := c.resp.Do(args...)
	if e, ok := errors.AsType[resp.Error](err); ok {
		return driver.Reply{}, serverError(e)
	}
	if err != nil {
		return driver.Reply{}, err
	}
	return convert(v)
}

func convert(v resp.Value) (driver.Reply, error) {
	if v.Null {
		return driver.Nil(), nil
	}
	switch v.Kind {
	case resp.Integer:
		return driver.Int(v.Int), nil
	case resp.SimpleString, resp.BulkString:
		return driver.Str(v.Str), nil
	case resp.SimpleError:
		return driver.Reply{}, serverError(resp.Error(v.Str))
	case resp.Array:
		list := make([]driver.Reply, len(v.List))
		for i, elem := range v.List {
			r, err := convert(elem)
			if err != nil {
				return driver.Reply{}, err
			}
			list[i] = r
		}
		return driver.List(list...), nil
	}
	return driver.Reply{}, fmt.Errorf("miniredis: the reply holds a value of type %q: a script must return integers, strings and lists of them", v.Kind)
}

// serverError sorts an error reply. A real server passes the code of a command
// that failed in a script on; miniredis hides it in the text of a Lua error:
//
//	ERR Error compiling script (new function): :3: WRONGTYPE Operation against ... stack traceback:  [G]: in function 'call' ...
func serverError(e resp.Error) *driver.ServerError {
	text := string(e)
	if failed, ok := strings.CutPrefix(text, "ERR Error compiling script (new function): :"); ok {
		failed, trace, _ := strings.Cut(failed, " stack traceback: ")
		line, failed, ok := strings.Cut(failed, ": ")
		_, err := strconv.Atoi(line)
		if ok && err == nil && strings.HasPrefix(strings.TrimSpace(trace), "[G]: in function 'call'") {
			text = failed
		}
	}
	return driver.ParseServerError(text, e)
}

// evalCommand returns EVAL or EVALSHA. It leaves keys and args alone.
func evalCommand(name, script string, keys, args []string) []string {
	return slices.Concat([]string{name, script, strconv.Itoa(len(keys))}, keys, args)
}
