package leasecache

import (
	"context"
	"sync"
	"time"
)

// loadContext is the context of a loader. It ends at its deadline, when a closed
// cache cancels its loads, and when the load has ended; what that takes (a
// channel and a timer) is made when the loader first asks for it, because a
// loader that has its value at hand never does.
type loadContext struct {
	parent   context.Context // for its values; it does not end
	deadline time.Time
	closing  context.Context // done when running loads have to end
	decided  *Load

	mu     sync.Mutex
	full   context.Context // nil until it is asked for
	cancel func()
	ended  bool
}

var _ context.Context = (*loadContext)(nil)

// Deadline implements [context.Context].
func (c *loadContext) Deadline() (deadline time.Time, ok bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *loadContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.make().Done()
}

// Err implements [context.Context].
func (c *loadContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil && !c.ended && c.closing.Err() == nil && time.Now().Before(c.deadline) {
		return nil
	}
	return c.make().Err()
}

// Value implements [context.Context].
func (c *loadContext) Value(key any) any {
	if _, ok := key.(loadKey); ok {
		return c.decided
	}
	c.mu.Lock()
	full := c.full
	c.mu.Unlock()
	if full != nil {
		return full.Value(key) // by which package context finds what it can cancel
	}
	return c.parent.Value(key)
}

// make returns the full context. c is locked.
func (c *loadContext) make() context.Context {
	if c.full != nil {
		return c.full
	}
	ctx, cancel := context.WithDeadline(c.parent, c.deadline)
	if c.ended || c.closing.Err() != nil {
		cancel()
	}
	stop := context.AfterFunc(c.closing, cancel)
	c.full, c.cancel = ctx, func() { stop(); cancel() }
	if c.ended {
		c.cancel()
	}
	return ctx
}

// end cancels it.
func (c *loadContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}
