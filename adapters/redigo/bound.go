package redigo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

// Bound implements [driver.Bounder].
func (e full) Bound(d time.Duration) driver.Evaler { return full{e.bounded(d)} }

// bounded returns an evaler over the same pool whose calls end within d.
func (e evaler) bounded(d time.Duration) evaler {
	return evaler{client: e.client, bound: &bound{d: d}}
}

// bound ends calls d after they began. A context.WithTimeout per call costs a
// hit 6 allocations, so calls that begin in the same sixteenth of d share one
// timer: it ends them, up to a sixteenth early, while they wait for a
// connection. On the wire a call ends by its own deadline.
type bound struct {
	d         time.Duration
	current   atomic.Pointer[tick]
	borrowing atomic.Int32 // calls that get a connection without a guard
}

// tick is a timer and those who may share it.
type tick struct {
	done    chan struct{} // closed when the timer fires
	expires time.Time     // calls that begin before it may use this tick
}

// context returns the context to make a call with: ctx itself when it ends soon
// enough, else one that ends by the bound. A nil bound returns ctx.
func (b *bound) context(ctx context.Context) context.Context {
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
	return &callContext{ctx, deadline, t, b.d}
}

// callContext is the context of one bounded call. It has the values of the
// caller's context and ends by the bound. That the caller may cancel it is
// dropped: redigo does not heed that on the wire either.
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

// conn gets a connection. A pool may dial, and test what it has, by functions
// that know no context. So unless it only has to hand over an idle connection
// this is done in a goroutine, which gives back what it gets too late. A nil
// bound leaves it to the pool.
func (b *bound) conn(call context.Context, c Client) (redis.Conn, error) {
	if b == nil {
		return c.GetContext(call)
	}
	if p, ok := c.(*redis.Pool); ok && p.TestOnBorrow == nil {
		n := b.borrowing.Add(1)
		defer b.borrowing.Add(-1)
		if int(n) <= p.IdleCount() {
			return c.GetContext(call)
		}
	}
	type result struct {
		conn redis.Conn
		err  error
	}
	got := make(chan result, 1)
	go func() {
		defer func() {
			// A panic here would end the process instead of reaching the caller.
			if p := recover(); p != nil {
				got <- result{err: fmt.Errorf("redigo: the pool panicked: %v", p)}
			}
		}()
		conn, err := c.GetContext(call)
		got <- result{conn, err}
	}()
	select {
	case r := <-got:
		return r.conn, r.err
	case <-call.Done():
		go func() {
			if r := <-got; r.err == nil {
				r.conn.Close()
			}
		}()
		return nil, call.Err()
	}
}
