package leasecache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// hitPath is how Get gets what is stored, and makes a value of it.
type hitPath[V any] struct {
	getter driver.Getter // nil: by script
	decode func(payload string) (V, error)
}

func (c *Cache[V]) hitPath() hitPath[V] {
	// What several reads share, or the process keeps, is copied for each.
	if c.coder.take != nil && c.store.ownGetter != nil && !c.opts.ShareReads && c.opts.Near == nil {
		return hitPath[V]{c.store.ownGetter, c.coder.take}
	}
	return hitPath[V]{c.store.getter, c.coder.decode}
}

// Get returns the value of key: the one that is cached, or else the one that
// load returns, which is cached for the next reader. One load per key runs
// across all processes; other reads wait for it.
//
// It returns [ErrNotFound] for a key that the source does not have, the
// loader's own error if it failed, [ErrHolderFailed] if another's load of the key
// failed a moment ago, an error that wraps [ErrUnavailable] if the server did not
// answer, [ErrOverloaded], [ErrLeaseLost], [ErrKey] or [ErrClosed]. When ctx ends
// while Get waits or its load runs, Get returns at once with ctx's error, and the
// load goes on. A call that is on the wire then ends by its reply, by ctx's
// deadline or after CallTimeout, whichever comes first.
func (c *Cache[V]) Get(ctx context.Context, key string, load func(context.Context) (V, error)) (V, error) {
	if err := c.check(key, load); err != nil {
		var none V
		return none, err
	}
	if res, ok, err := c.nearHit(key); ok {
		return res.Value, err
	}
	var (
		stored string
		ok     bool
		err    error
	)
	if c.opts.ShareReads {
		stored, ok, err = c.getShared(ctx, key)
	} else {
		stored, ok, err = c.getStored(ctx, key)
	}
	if err == nil && ok {
		v, notFound, derr := decode(stored, c.opts.MaxValueSize, c.hits.decode)
		switch {
		case derr != nil:
			res, err := c.undecodable(ctx, key, stored, load)
			return res.Value, err
		case notFound:
			c.stats.hits.Add(1)
			return v, ErrNotFound
		}
		c.stats.hits.Add(1)
		return v, nil
	}
	res, err := c.miss(ctx, key, load, err)
	return res.Value, err
}

// Read is [Cache.Get] that also tells where the value came from and for how
// long the server still caches it, for those who keep it in a tier in front.
// With [ErrNotFound], the Result tells the same about the not-found record.
func (c *Cache[V]) Read(ctx context.Context, key string, load func(context.Context) (V, error)) (Result[V], error) {
	if err := c.check(key, load); err != nil {
		return Result[V]{}, err
	}
	if res, ok, err := c.nearHit(key); ok {
		return res, err
	}
	res, stored, err := c.look(ctx, key)
	switch {
	case err == nil && res.Source == Hit:
		c.stats.hits.Add(1)
		return res, nil
	case errors.Is(err, ErrNotFound):
		c.stats.hits.Add(1)
		return res, err
	case stored != nil:
		return c.undecodable(ctx, key, *stored, load)
	}
	return c.miss(ctx, key, load, err)
}

// Peek returns the value of key if it is cached, and never loads. ok is false
// when it is not, or cannot be decoded. A cached [ErrNotFound] is returned as
// the error, with ok true.
func (c *Cache[V]) Peek(ctx context.Context, key string) (res Result[V], ok bool, err error) {
	if err := c.checkKey(key); err != nil {
		return Result[V]{}, false, err
	}
	if res, ok, err := c.nearHit(key); ok {
		return res, true, err
	}
	res, stored, err := c.look(ctx, key)
	switch {
	case err == nil && res.Source == Hit, errors.Is(err, ErrNotFound):
		c.stats.hits.Add(1)
		return res, true, err
	case stored != nil:
		c.stats.undecodable.Add(1)
	case err != nil:
		if ctx.Err() == nil {
			c.stats.failed(ErrorRead)
		}
		return Result[V]{}, false, contextError(ctx, key, err)
	}
	c.stats.misses.Add(1)
	return Result[V]{}, false, nil
}

// look reads the value and its remaining TTL in one step. A value that cannot
// be decoded comes back as it is stored, with the error.
func (c *Cache[V]) look(ctx context.Context, key string) (res Result[V], stored *string, err error) {
	sent := time.Now()
	keys := c.keys(key)
	near := c.near.begin(key)
	r, err := c.read(ctx, key, keys, "", protocol.ReadOptions{})
	near.end(r, err, sent)
	if err != nil && isMigrating(err) && c.store.getter != nil {
		// Hits go on by GET. It tells no TTL, so nobody may keep what it returns.
		var ok bool
		if r.Value, ok, err = c.store.get(ctx, key, keys.Value); ok {
			r.State = protocol.StateValue
		}
	}
	if err != nil || r.State != protocol.StateValue {
		return Result[V]{}, nil, err
	}
	v, notFound, err := c.decode(r.Value)
	if err != nil {
		return Result[V]{}, &r.Value, err
	}
	res = Result[V]{Value: v, Source: Hit, TTL: remaining(sent, r.TTL)}
	if notFound {
		return res, nil, ErrNotFound
	}
	return res, nil, nil
}

// read runs the read script. With the zero token it takes no lease.
func (c *Cache[V]) read(ctx context.Context, key string, keys protocol.Keys, token protocol.Token, o protocol.ReadOptions) (protocol.ReadReply, error) {
	reply, err := c.store.call(ctx, key, protocol.ReadCall(keys, token, o))
	return readReply(key, token, reply, err)
}

// readReply sorts out the reply to a read.
func readReply(key string, token protocol.Token, reply driver.Reply, err error) (protocol.ReadReply, error) {
	if err != nil {
		return protocol.ReadReply{}, err
	}
	r, err := protocol.ParseRead(reply, token)
	if err != nil {
		return r, &stepError{step: "read", key: key, err: err, unknown: true}
	}
	return r, nil
}

// decode returns the value of what is stored.
func (c *Cache[V]) decode(stored string) (v V, notFound bool, err error) {
	return decode(stored, c.opts.MaxValueSize, c.coder.decode)
}

var errTooLarge = errors.New("leasecache: the stored value is larger than MaxValueSize")

// decode refuses what is larger than most: no cache with this limit has written it,
// and what a codec makes of it is larger still.
func decode[V any](stored string, most int, decode func(payload string) (V, error)) (v V, notFound bool, err error) {
	if len(stored) > most {
		return v, false, errTooLarge
	}
	payload, notFound, err := protocol.Unwrap(stored)
	if err != nil || notFound {
		return v, notFound, err
	}
	v, err = decode(payload)
	return v, false, err
}

// miss answers a read that found no value, or failed with err.
func (c *Cache[V]) miss(ctx context.Context, key string, load Loader[V], err error) (Result[V], error) {
	if err != nil {
		if ctx.Err() != nil {
			c.stats.misses.Add(1)
			return Result[V]{}, contextError(ctx, key, err)
		}
		c.stats.failed(ErrorRead)
		if c.opts.OnUnavailable == UnavailableFail || c.store.closed.Load() {
			c.stats.misses.Add(1)
			return Result[V]{}, err
		}
		return c.await(ctx, unleasedFlight, &waiter[V]{key: key, load: load, reason: reasonOf(err), cause: err})
	}
	if c.opts.Stale > 0 && c.isLoading(key) {
		// A load runs in this process, so this read would wait: it may have the
		// stale copy. It has to ask, because the copy that the load's own read
		// returned may be older than a value cached since.
		if res, ok := c.stale(ctx, key); ok {
			c.stats.misses.Add(1)
			return res, nil
		}
	}
	return c.await(ctx, readFlight, &waiter[V]{key: key, load: load})
}

// stale returns the stale copy, or the value if there is one by now.
func (c *Cache[V]) stale(ctx context.Context, key string) (res Result[V], ok bool) {
	sent := time.Now()
	r, err := c.read(ctx, key, c.keys(key), "", protocol.ReadOptions{Stale: true})
	if err != nil {
		return res, false // the flight reports it
	}
	return c.staleResult(r, sent)
}

func (c *Cache[V]) staleResult(r protocol.ReadReply, sent time.Time) (res Result[V], ok bool) {
	switch r.State {
	case protocol.StateValue:
		res = Result[V]{Source: Hit, TTL: remaining(sent, r.TTL)}
	case protocol.StateStale:
		res = Result[V]{Source: Stale, Uncached: StaleCopy}
	default:
		return res, false
	}
	v, notFound, err := c.decode(r.Value)
	if err != nil || notFound {
		return res, false
	}
	if res.Source == Stale {
		c.stats.staleServed.Add(1)
	}
	res.Value = v
	return res, true
}

// remaining is what is left of ttl, counted from before the request was sent.
func remaining(sent time.Time, ttl time.Duration) time.Duration {
	return max(ttl-time.Since(sent), 0)
}

// contextError returns err, or ctx's error if it has ended: then that is why.
func contextError(ctx context.Context, key string, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("leasecache: read %s: %w", protocol.Quote(key), cause)
	}
	return err
}
