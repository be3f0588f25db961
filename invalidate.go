package leasecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

const (
	// invalidateWorkers is how many keys of one Invalidate are on the wire at a
	// time.
	invalidateWorkers = 16
	// invalidateTimeouts is for how long Invalidate tries when its context has
	// no deadline, in call timeouts.
	invalidateTimeouts = 10
)

// Invalidate deletes what is cached for keys, and sees to it that no load which
// has begun by then is cached. Call it after the change is committed, never
// before: a load that starts between the two caches the old data.
//
// It returns nil only if the server did it for every key. Otherwise it returns
// an [*InvalidateError] with the keys that may still be cached: invalidate them
// again. It tries until ctx ends, or for ten times CallTimeout if ctx has no
// deadline. It is not limited by any of the options for loads, needs no memory
// on the server, and works whatever is stored under the key.
func (c *Cache[V]) Invalidate(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := c.checkKey(key); err != nil {
			return &InvalidateError{Keys: keys, Err: err}
		}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, invalidateTimeouts*c.store.callTimeout)
		defer cancel()
	}
	errs := make([]error, len(keys))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(keys), invalidateWorkers) {
		wg.Go(func() {
			for i := range next {
				errs[i] = c.invalidate(ctx, keys[i])
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	wg.Wait()

	failed := &InvalidateError{}
	for i, err := range errs {
		if err == nil {
			c.stats.invalidated.Add(1)
			continue
		}
		c.stats.failed(ErrorInvalidate)
		failed.Keys = append(failed.Keys, keys[i])
		if failed.Err == nil {
			failed.Err = err
		}
	}
	if failed.Err != nil {
		return failed
	}
	return nil
}

// invalidate tries until ctx ends. A slot that migrates key by key refuses
// scripts with several keys for as long as it takes; then the keys are deleted
// one by one.
func (c *Cache[V]) invalidate(ctx context.Context, key string) error {
	keys := c.keys(key)
	// Joining is right without it, but those who come from now on should not have
	// to wait for a load that cannot be cached. Also when the outcome is unknown.
	defer c.overtake(key)
	var before error  // of the attempt before
	var refusal error // the server's last word
	for n := 0; ; n++ {
		reply, err := c.store.call(ctx, key, protocol.InvalidateCall(keys, c.opts.Stale))
		if err == nil {
			err = protocol.ParseOne(protocol.Invalidate, reply)
		}
		if err == nil {
			return nil
		}
		if se, ok := errors.AsType[*stepError](err); ok && se.refusal != nil {
			refusal = se.refusal
		}
		if isPermanent(err) || c.store.closed.Load() || !sleep(ctx, min(time.Duration(n+1)*10*time.Millisecond, 200*time.Millisecond)) {
			// ctx may have ended while an attempt was on the wire.
			if isMigrating(refusal) {
				return c.deleteEach(context.WithoutCancel(ctx), key, keys)
			}
			switch cause := ctx.Err(); {
			case cause == nil:
			case !errors.Is(err, cause):
				err = fmt.Errorf("%w: %w", cause, err)
			default:
				err = since(err, before)
			}
			return err
		}
		before = err
	}
}

// deleteEach deletes the lease and then the value, each by a script of its own.
// In between, no load that began before can be accepted any more; the other way
// round it could.
func (c *Cache[V]) deleteEach(ctx context.Context, key string, keys protocol.Keys) error {
	for _, call := range protocol.DeleteCalls(keys) {
		reply, err := c.store.call(ctx, key, call)
		if err == nil {
			err = protocol.ParseOne(protocol.Delete, reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// overtake detaches the loads of key that an invalidation has just overtaken, so
// that the next reader leases and loads at once. Those who joined one of them
// after it began move on with him.
func (c *Cache[V]) overtake(key string) {
	s := c.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		return
	}
	for _, f := range e.flights {
		switch {
		case f == nil:
		case f.leased:
			f.detach()
			c.moveOn(s, f.kind, f.take(func(w *waiter[V]) bool { return !f.before(w) }))
		default:
			f.nudge() // the lease that it may wait for is gone
		}
	}
}

// isPermanent reports whether another attempt would fail with err as well.
func isPermanent(err error) bool { return !isUnavailable(err) }
