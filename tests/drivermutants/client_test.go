//go:build mutants

// Package drivermutants shows that the conformance suite can fail: it is a
// catalogue of broken drivers, each of which the suite has to fail by the case of
// the rule that it breaks. They derive from one driver, which has to pass.
package drivermutants

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

// client is an honest driver over a pool of connections, with the abilities Get,
// Bound, Ping, Subscribe, Track and those for batches. Its steps are fields, so that a mutant is a client with a step
// replaced.
type client struct {
	addr  string
	pool  *pool
	bound time.Duration // 0 for none
	*steps
	ears ears // of its subscriptions

	// For mutants.
	replica string // the address of one
	closes  bool   // is to be a driver.Closer
}

// steps are what a call consists of. Each field has the default of its name,
// such as client.doEval for eval.
type steps struct {
	eval func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error)
	get  func(c *client, ctx context.Context, key string) (string, bool, error)
	ping func(c *client, ctx context.Context) error
	// As the others, of GetBytes.
	getBytes func(c *client, ctx context.Context, key string) ([]byte, bool, error)
	limit    func(c *client, d time.Duration) driver.Evaler
	command  func(name, script string, keys, args []string) []string
	unknown  func(err error) bool // tells whether the server does not know the script
	send     func(c *client, ctx context.Context, command ...string) (resp.Value, error)
	trip     func(cn *conn, ctx context.Context, command []string) (v resp.Value, reusable bool, err error)
	reply    func(v resp.Value) (driver.Reply, error)
	track    func(c *client, ctx context.Context, t *tracked) (io.Closer, error)

	evalBatch func(c *client, ctx context.Context, calls []driver.Call) []driver.Result
	getBatch  func(c *client, ctx context.Context, keys []string) []driver.GetResult
	pipeline  func(c *client, ctx context.Context, commands [][]string) ([]resp.Value, []error)
}

func newClient(addr string) *client {
	return &client{addr: addr, pool: newPool(addr, 16), ears: newEars(), steps: &steps{
		eval: (*client).doEval, get: (*client).doGet, getBytes: (*client).doGetBytes, ping: (*client).doPing, limit: (*client).doLimit,
		command: command, unknown: isNoScript, send: (*client).doSend, trip: (*conn).roundTrip, reply: reply,
		track: (*client).doTrack, evalBatch: (*client).doEvalBatch, getBatch: (*client).doGetBatch, pipeline: (*client).doPipeline,
	}}
}

// Eval implements [driver.Evaler].
func (c *client) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	return c.eval(c, ctx, s, keys, args)
}

// Get implements [driver.Getter].
func (c *client) Get(ctx context.Context, key string) (string, bool, error) {
	return c.get(c, ctx, key)
}

// GetBytes implements [driver.BytesGetter].
func (c *client) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	return c.getBytes(c, ctx, key)
}

// Ping implements [driver.Pinger].
func (c *client) Ping(ctx context.Context) error { return c.ping(c, ctx) }

// Bound implements [driver.Bounder].
func (c *client) Bound(d time.Duration) driver.Evaler { return c.limit(c, d) }

func (c *client) doLimit(d time.Duration) driver.Evaler {
	bounded := *c
	bounded.bound = d
	return &bounded
}

// within returns the context of a call that begins now.
func (c *client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.bound > 0 {
		return context.WithTimeout(ctx, c.bound)
	}
	return context.WithCancel(ctx)
}

func (c *client) doEval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	call, cancel := c.within(ctx) // one bound for both attempts
	defer cancel()
	r, err := c.run(call, c.command("EVALSHA", s.SHA1(), keys, args))
	if c.unknown(err) {
		r, err = c.run(call, c.command("EVAL", s.Source(), keys, args))
	}
	return r, err
}

// run sends a command and converts its reply.
func (c *client) run(ctx context.Context, command []string) (driver.Reply, error) {
	v, err := c.send(c, ctx, command...)
	if err != nil {
		return driver.Reply{}, err
	}
	return c.reply(v)
}

func (c *client) doGet(ctx context.Context, key string) (string, bool, error) {
	call, cancel := c.within(ctx)
	defer cancel()
	r, err := c.run(call, []string{"GET", key})
	value, ok := r.Str()
	return value, ok, err
}

func (c *client) doGetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	value, ok, err := c.get(c, ctx, key)
	return []byte(value), ok, err
}

func (c *client) doPing(ctx context.Context) error {
	call, cancel := c.within(ctx)
	defer cancel()
	_, err := c.run(call, []string{"PING"})
	return err
}

// doSend sends a command, once, and returns its reply, which may be an error.
func (c *client) doSend(ctx context.Context, command ...string) (resp.Value, error) {
	if err := ctx.Err(); err != nil {
		return resp.Value{}, driver.NotSent(err)
	}
	cn, err := c.pool.take(ctx)
	if err != nil {
		return resp.Value{}, driver.NotSent(driver.CallError(ctx, err))
	}
	v, reusable, err := c.trip(cn, ctx, command)
	c.pool.give(cn, reusable)
	return v, driver.CallError(ctx, err)
}

// command returns a command that runs a script.
func command(name, script string, keys, args []string) []string {
	return slices.Concat([]string{name, script, strconv.Itoa(len(keys))}, keys, args)
}

func isNoScript(err error) bool {
	se, ok := errors.AsType[*driver.ServerError](err)
	return ok && se.Code == "NOSCRIPT"
}

// reply converts a reply of the server.
func reply(v resp.Value) (driver.Reply, error) { return convert(v, reply) }

// convert converts a reply, and the elements of a list by elem.
func convert(v resp.Value, elem func(resp.Value) (driver.Reply, error)) (driver.Reply, error) {
	switch {
	case v.Err() != nil:
		return driver.Reply{}, driver.ParseServerError(v.Str, v.Err())
	case v.Null:
		return driver.Nil(), nil
	case v.Kind == resp.Integer:
		return driver.Int(v.Int), nil
	case v.Kind == resp.Array:
		list := make([]driver.Reply, len(v.List))
		for i, e := range v.List {
			var err error
			if list[i], err = elem(e); err != nil {
				return driver.Reply{}, err
			}
		}
		return driver.List(list...), nil
	}
	return driver.Str(v.Str), nil
}

// pool holds connections to one server, a number of them at most.
type pool struct {
	dial   func(ctx context.Context) (net.Conn, error)
	places chan struct{} // one element for each connection that is in use

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

func newPool(addr string, size int) *pool {
	return &pool{
		dial:   func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) },
		places: make(chan struct{}, size),
	}
}

// take returns a connection for one call, which ends with give.
func (p *pool) take(ctx context.Context) (*conn, error) {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	cn, err := p.pick(ctx)
	if err != nil {
		<-p.places
	}
	return cn, err
}

func (p *pool) pick(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil { // it ended at the moment when a place was free
		return nil, err
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		defer p.mu.Unlock()
		cn := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return cn, nil
	}
	p.mu.Unlock()
	nc, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, r: bufio.NewReader(nc)}, nil
}

func (p *pool) give(cn *conn, reusable bool) {
	p.mu.Lock()
	if reusable && !p.closed {
		p.idle = append(p.idle, cn)
	} else {
		cn.nc.Close()
	}
	p.mu.Unlock()
	<-p.places
}

// close closes the connections: those in use when they are given back.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, cn := range p.idle {
		cn.nc.Close()
	}
	p.idle = nil
}

// conn is a connection. Only one call at a time may use it.
type conn struct {
	nc  net.Conn
	r   *bufio.Reader
	buf []byte
}

// roundTrip writes a command and reads its reply. The connection is not reusable
// when the reply may come later.
func (cn *conn) roundTrip(ctx context.Context, command []string) (v resp.Value, reusable bool, err error) {
	stop := context.AfterFunc(ctx, func() { cn.nc.SetDeadline(time.Unix(1, 0)) })
	cn.buf = resp.AppendCommand(cn.buf[:0], command...)
	if _, err = cn.nc.Write(cn.buf); err == nil {
		v, err = resp.ReadValue(cn.r)
	}
	// When ctx has ended, the deadline is on the connection, or soon will be.
	return v, stop() && err == nil, err
}

// closer is a client that whoever has the driver may close.
type closer struct{ *client }

// Close implements [driver.Closer].
func (c closer) Close() error {
	c.pool.close()
	return nil
}
