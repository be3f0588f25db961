package rueidis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// Bound implements [driver.Bounder].
func (e full) Bound(d time.Duration) driver.Evaler { return full{e.bounded(d)} }

// bounded returns an evaler over the same client whose calls end within d.
func (e evaler) bounded(d time.Duration) evaler {
	return evaler{client: e.client, bound: &bound{d: d, made: time.Now()}}
}

// bound ends calls d after they began. A context.WithTimeout per call costs a
// hit a tenth more time and 6 allocations, so calls that begin in the same
// sixteenth of d share one timer: it ends them, up to a sixteenth early, while
// they wait for their turn or for a reply that comes through a pipeline. A call
// that has a connection for itself ends by its own deadline, which the client
// sets on the connection.
type bound struct {
	d       time.Duration
	current atomic.Pointer[tick]

	direct atomic.Int32 // calls under way, without those that are guarded
	made   time.Time    // when the bound was made
	until  atomic.Int64 // guard all calls until this time after made
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
// dropped: a second channel would need a goroutine.
type callContext struct {
	context.Context
	deadline time.Time
	tick     *tick
	bound    time.Duration
}

// Deadline implements [context.Context].
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context]. The client looks at it, not at the
// deadline, while a call waits for a reply that comes through a pipeline.
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

// A queue of the client holds 1,024 commands by default, and who finds it full
// waits for room whatever the context says. Calls that are left behind stay in
// there until the client gives the connection up.
const (
	maxDirect  = 128
	guardAfter = time.Minute
)

// do has c send cmd, in a goroutine that can be left behind when the client's
// queue may be full. A nil bound leaves it to the client.
func (b *bound) do(call context.Context, c Client, cmd rueidis.Completed) rueidis.RedisResult {
	if b == nil {
		return c.Do(call, cmd)
	}
	if until := b.until.Load(); until == 0 || int64(time.Since(b.made)) >= until {
		if b.direct.Add(1) <= maxDirect {
			defer b.direct.Add(-1)
			r := c.Do(call, cmd)
			if r.NonRedisError() != nil && call.Err() != nil {
				b.until.Store(int64(time.Since(b.made) + guardAfter))
			}
			return r
		}
		b.direct.Add(-1)
	}
	result := make(chan rueidis.RedisResult, 1)
	go func() {
		defer func() {
			// A panic here would end the process instead of reaching the caller.
			if p := recover(); p != nil {
				result <- rueidis.NewErrorResult(fmt.Errorf("rueidis: the client panicked: %v", p))
			}
		}()
		result <- c.Do(call, cmd)
	}()
	select {
	case r := <-result:
		return r
	case <-call.Done():
		b.until.Store(int64(time.Since(b.made) + guardAfter))
		return rueidis.NewErrorResult(call.Err())
	}
}
