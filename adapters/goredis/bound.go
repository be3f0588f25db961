package goredis

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// The types below give an evaler the abilities that its client allows. Package
// leasecache finds abilities by type assertion, so each combination is a type.
type (
	getter     struct{ evaler }
	bounder    struct{ evaler }
	getBounder struct{ evaler }
)

// Bound implements [driver.Bounder].
func (e bounder) Bound(d time.Duration) driver.Evaler { return bounder{e.bounded(d)} }

// Bound implements [driver.Bounder].
func (e getBounder) Bound(d time.Duration) driver.Evaler { return getBounder{e.bounded(d)} }

func (e evaler) bounded(d time.Duration) evaler {
	heedDeadlines(e.client)
	return evaler{client: e.client, bound: &bound{d: d}}
}

// endsByDeadline reports whether, after heedDeadlines(c), commands end by their
// context's deadline, wherever they are at that time.
func endsByDeadline(c Client) bool {
	switch c := c.(type) {
	case *redis.Client:
		o := c.Options()
		// A negative timeout means that go-redis leaves the connection's
		// deadline alone. One that our call set would end a later call of the
		// service's.
		return o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	case *redis.ClusterClient:
		o := c.Options()
		// With ReadOnly the client asks for command flags first, on a context
		// of its own of 5 s. A ClusterSlots function is anybody's code.
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 &&
			!o.ReadOnly && o.ClusterSlots == nil
	case *redis.Ring:
		o := c.Options()
		// A ring keeps the timeouts as they were given: -1 means none, which is
		// fine, -2 means to leave deadlines alone.
		return o.ContextTimeoutEnabled && o.ReadTimeout != -2 && o.WriteTimeout != -2
	}
	return false
}

// heedDeadlines makes c end commands of this package by the deadline of their
// context while they are on the wire.
//
// A *redis.Client does that only with ContextTimeoutEnabled, which is the
// service's to set. A clone over the same connections can have it, but a clone
// has no hooks, and tracing, metrics and mocks are hooks. So the client keeps
// the commands, and a hook of ours, behind those that it has by now, hands them
// to the clone. All other commands pass it unchanged.
func heedDeadlines(c Client) {
	rdb, ok := c.(*redis.Client)
	if !ok || rdb.Options().ContextTimeoutEnabled {
		return
	}
	id := weak.Make(rdb)
	hooked.Lock()
	defer hooked.Unlock()
	if hooked.clients[id] {
		return
	}
	hooked.clients[id] = true
	runtime.AddCleanup(rdb, func(id weak.Pointer[redis.Client]) {
		hooked.Lock()
		defer hooked.Unlock()
		delete(hooked.clients, id)
	}, id)

	// The clone's options are a copy of its own, which nobody else reads yet.
	// It keeps the client's timeouts: they may be shorter than a bound.
	clone := rdb.WithTimeout(rdb.Options().ReadTimeout)
	o := clone.Options()
	o.WriteTimeout = rdb.Options().WriteTimeout
	o.ContextTimeoutEnabled = true
	rdb.AddHook(toClone{clone})
}

// hooked are the clients that have our hook, which cannot be taken off again.
var hooked = struct {
	sync.Mutex
	clients map[weak.Pointer[redis.Client]]bool
}{clients: map[weak.Pointer[redis.Client]]bool{}}

// toClone is a hook that hands the commands of this package to a clone.
type toClone struct{ clone *redis.Client }

// ProcessHook implements [redis.Hook].
func (h toClone) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.(type) {
		case *onceCmd, *onceGet:
			return h.clone.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// DialHook implements [redis.Hook].
func (toClone) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (h toClone) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		switch cmds[0].(type) {
		case *onceCmd, *onceGet:
			return send(ctx, h.clone, cmds)
		}
		return next(ctx, cmds)
	}
}

// bound ends calls d after they began. A context.WithTimeout per call costs a
// hit 15 % more time and 6 allocations, so calls that begin in the same
// sixteenth of d share one timer: it ends them while they wait for a connection
// or for a dial, up to a sixteenth early. On the wire a call ends by its own
// deadline, which go-redis sets on the connection.
type bound struct {
	d       time.Duration
	current atomic.Pointer[tick]
}

// tick is a timer and those who may share it.
type tick struct {
	done    chan struct{} // closed when the timer fires
	expires time.Time     // calls that begin before it may use this tick
}

// context returns the context to make a call with: ctx itself when it ends soon
// enough, else call, filled in. A nil bound returns ctx.
func (b *bound) context(ctx context.Context, call *callContext) context.Context {
	if b == nil {
		return ctx
	}
	now := time.Now()
	deadline := now.Add(b.d)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		return ctx
	}
	t := b.current.Load()
	if t == nil || !now.Before(t.expires) {
		t = &tick{done: make(chan struct{}), expires: now.Add(b.d / 16)}
		time.AfterFunc(b.d, func() { close(t.done) })
		// Of two that get here at once the later one stays. Both work.
		b.current.Store(t)
	}
	call.Context, call.deadline, call.tick, call.bound = ctx, deadline, t, b.d
	return call
}

// callContext is the context of one bounded call. It has the values of the
// caller's context and ends by the bound. That the caller may cancel it is
// dropped: go-redis does not heed that on the wire either.
type callContext struct {
	context.Context
	deadline time.Time
	tick     *tick
	bound    time.Duration
}

// Deadline implements [context.Context].
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *callContext) Done() <-chan struct{} { return c.tick.done }

// Err implements [context.Context].
func (c *callContext) Err() error {
	select {
	case <-c.tick.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// ended reports whether the bound is over: on the wire, or before.
func (c *callContext) ended() bool {
	return c.Err() != nil || !time.Now().Before(c.deadline)
}
