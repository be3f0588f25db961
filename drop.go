package leasecache

import (
	"context"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// undecodable answers a read that found a value which it cannot decode, because
// a deploy changed the type for example. The value is dropped and loaded afresh,
// but once per DropBackoff for each key: another version of the service may
// still be running that reads and writes the other format. Until then the value
// is loaded without caching.
func (c *Cache[V]) undecodable(ctx context.Context, key, stored string, load Loader[V]) (Result[V], error) {
	keys := c.keys(key)
	again, err := c.drop(ctx, key, keys, stored)
	if ctx.Err() != nil {
		return Result[V]{}, contextError(ctx, key, err)
	}
	w := &waiter[V]{key: key, load: load}
	if again {
		return c.await(ctx, readFlight, w)
	}
	w.reason, w.cause = CannotDecode, err
	return c.await(ctx, unleasedFlight, w)
}

// drop runs the drop script, and reports whether to read the key again.
func (c *Cache[V]) drop(ctx context.Context, key string, keys protocol.Keys, stored string) (again bool, err error) {
	c.stats.undecodable.Add(1)
	reply, err := c.store.call(ctx, key, protocol.DropCall(keys, stored, c.opts.DropBackoff))
	return c.dropReply(reply, err)
}

// dropReply sorts out the reply to a drop.
func (c *Cache[V]) dropReply(reply driver.Reply, err error) (again bool, _ error) {
	if err == nil {
		again, err = protocol.ParseDrop(reply)
	}
	if err != nil {
		c.stats.failed(ErrorDrop)
	}
	return again, err
}
