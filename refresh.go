package leasecache

import "context"

// Refresh loads the value of key now, under a lease, and caches it. Meanwhile
// other reads get the present value, if there is one. Calls of Refresh for one
// key in one process share a load that began after all of them.
//
// While another process loads the key, Refresh waits for its lease and then
// loads again, since that load began earlier. It loads also if another's load has
// just failed. The errors are those of [Cache.Get], but for [ErrHolderFailed].
func (c *Cache[V]) Refresh(ctx context.Context, key string, load func(context.Context) (V, error)) (Result[V], error) {
	if err := c.check(key, load); err != nil {
		return Result[V]{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result[V]{}, contextError(ctx, key, err)
	}
	// The server tells of the new value, but maybe after Refresh has returned it.
	defer c.store.nears.drop(c.opts.Prefix, []string{key})
	return c.await(ctx, refreshFlight, &waiter[V]{key: key, load: load})
}
