package glide

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Bound implements [driver.Bounder].
func (e evaler) Bound(d time.Duration) driver.Evaler { return e.bounded(d) }

func (e evaler) bounded(d time.Duration) evaler {
	e.bound = d
	return e
}

// call is one call: what the caller said, and when it ends.
type call struct {
	ctx      context.Context
	bound    time.Duration // above 0 if it is the bound that ends the call
	deadline time.Time     // zero if the client's own timeout ends it
	longest  time.Duration // for one command
}

func (e evaler) call(ctx context.Context) call {
	c := call{ctx: ctx, longest: unbounded}
	deadline, ok := ctx.Deadline()
	if ok {
		c.deadline = deadline
	}
	if e.bound > 0 {
		c.longest = longest
		if end := time.Now().Add(e.bound); !ok || end.Before(deadline) {
			c.bound, c.deadline = e.bound, end
		}
	}
	return c
}

const (
	// A batch's timeout takes the place of the client's own, also of a shorter
	// one. So a context with a far deadline must not make glide try for as long.
	unbounded = 5 * time.Second
	// This is above every bound that makes sense, and within what glide takes.
	longest = 24 * time.Hour
)

// timeout returns how long the call may still take, and 0 for as long as the
// client likes. It is an error when the context is done, or no time is left.
func (c call) timeout() (time.Duration, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	if c.deadline.IsZero() {
		return 0, nil
	}
	left := time.Until(c.deadline)
	if left <= 0 {
		return 0, c.over(context.DeadlineExceeded)
	}
	// glide counts in milliseconds. Rounded up, lest it runs ahead of the context.
	return min(left.Truncate(time.Millisecond)+time.Millisecond, c.longest), nil
}

// over returns the error of a call that has run out of time.
func (c call) over(err error) error {
	switch {
	case c.bound > 0:
		// Lest the caller takes it for a deadline of his own.
		return fmt.Errorf("glide: no reply within the bound of %v: %w", c.bound, err)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}
