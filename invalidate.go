package leasecache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// invalidateTimeouts is for how long Invalidate tries when its context has no
// deadline, in call timeouts.
const invalidateTimeouts = 10

// Invalidate deletes what is cached for keys, and sees to it that no load which
// has begun by then is cached. Call it after the change is committed, never
// before: a load that starts between the two caches the old data.
//
// It returns nil only if the server did it for every key. Otherwise it returns
// an [*InvalidateError] with the keys that may still be cached: invalidate them
// again. It tries until ctx ends, or for ten times CallTimeout if ctx has no
// deadline. Many keys share round trips, 500 each, if the driver can send them
// together ([driver.Batcher]); those that fail are tried again by themselves.
//
// It is not limited by any of the options for loads, needs no memory on the
// server, and works whatever is stored under the key.
func (c *Cache[V]) Invalidate(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := c.checkKey(key); err != nil {
			return &InvalidateError{Keys: keys, Err: err}
		}
	}
	// Before, so that nobody is served what is about to be invalidated; and after,
	// for what was read in between. Also when the outcome is unknown.
	c.store.nears.drop(c.opts.Prefix, keys)
	defer c.store.nears.drop(c.opts.Prefix, keys)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, invalidateTimeouts*c.store.callTimeout)
		defer cancel()
	}
	all := make([]*invalidation, 0, len(keys))
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			all = append(all, &invalidation{key: key})
		}
	}
	c.invalidate(ctx, all)

	failed := &InvalidateError{}
	for _, in := range all {
		if in.err == nil {
			c.stats.invalidated.Add(1)
			continue
		}
		c.stats.failed(ErrorInvalidate)
		failed.Keys = append(failed.Keys, in.key)
		if failed.Err == nil {
			failed.Err = in.err
		}
	}
	if failed.Err != nil {
		return failed
	}
	return nil
}

// invalidation is a key to invalidate.
type invalidation struct {
	key     string
	err     error // of the last attempt
	before  error // of the attempt before
	refusal error // the server's last word
}

// invalidate tries until ctx ends: all keys together, and those that failed
// again. A slot that migrates key by key refuses scripts with several keys for as
// long as it takes; then the keys are deleted one by one.
func (c *Cache[V]) invalidate(ctx context.Context, pending []*invalidation) {
	var failed []*invalidation
	for n := 0; ; n++ {
		var again []*invalidation
		c.store.callMany(ctx, len(pending), func(i int) (string, protocol.Call) {
			key := pending[i].key
			return key, protocol.InvalidateCall(c.keys(key), c.opts.Stale)
		}, func(i int, reply driver.Reply, err error) {
			in := pending[i]
			if err == nil {
				err = protocol.ParseOne(protocol.Invalidate, reply)
			}
			if se, ok := errors.AsType[*stepError](err); ok && se.refusal != nil {
				in.refusal = se.refusal
			}
			in.before, in.err = in.err, err
			switch {
			case err == nil:
				c.overtake(in.key)
			case isPermanent(err) || c.store.closed.Load():
				failed = append(failed, in)
			default:
				again = append(again, in)
			}
		})
		if pending = again; len(pending) == 0 {
			break
		}
		if !sleep(ctx, min(time.Duration(n+1)*10*time.Millisecond, 200*time.Millisecond)) {
			failed = append(failed, pending...)
			break
		}
	}
	var migrating []*invalidation
	for _, in := range failed {
		switch cause := ctx.Err(); {
		case isMigrating(in.refusal):
			migrating = append(migrating, in)
		case cause == nil:
		case !errors.Is(in.err, cause):
			in.err = fmt.Errorf("%w: %w", cause, in.err)
		default:
			in.err = since(in.err, in.before)
		}
	}
	// ctx may have ended while an attempt was on the wire.
	c.deleteEach(context.WithoutCancel(ctx), migrating)
	for _, in := range failed {
		c.overtake(in.key) // its outcome may be unknown
	}
}

// deleteEach deletes the leases and then the values, each by a script of its own.
// In between, no load that began before can be accepted any more; the other way
// round it could.
func (c *Cache[V]) deleteEach(ctx context.Context, ins []*invalidation) {
	for step := range 2 {
		var done []*invalidation
		c.store.callMany(ctx, len(ins), func(i int) (string, protocol.Call) {
			key := ins[i].key
			return key, protocol.DeleteCalls(c.keys(key))[step]
		}, func(i int, reply driver.Reply, err error) {
			if err == nil {
				err = protocol.ParseOne(protocol.Delete, reply)
			}
			if ins[i].err = err; err == nil {
				done = append(done, ins[i])
			}
		})
		ins = done
	}
}

// overtake detaches the loads of key that an invalidation has just overtaken, or
// may have, so that the next reader leases and loads at once. Joining would be
// right without it, but would make him wait for a load that cannot be cached.
// Those who joined one of them after it began move on with him.
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
