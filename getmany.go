package leasecache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// GetMany is [Cache.Get] for many keys, in few round trips: one for those that are
// cached, one each to lease and to fill the others, and one call of load for all
// that this call has leased. A driver that can send many calls together
// ([driver.Batcher], [driver.BatchGetter]) has them on their way at once, and a
// cluster client groups them by node. They are sent 500 at a time.
//
// It returns the values by key, each key once. A key that is not in the map and
// has no error is one that the source does not have, where Get returns
// [ErrNotFound]. When some keys could not be read, the error is a [*BatchError]
// that has the error of each, and the values of the others are returned beside it.
// Nothing that befalls one key, an invalidation in the middle of the load for
// example, affects another.
//
// Each key is read as Get does, with the same guarantees and errors, and
// [ErrNotLoaded]. Other reads join its load, and it joins theirs. It is answered by
// the near tier for what that keeps, and adds nothing to it: the plain GETs tell no
// TTL. Keys that other processes are loading are waited for while what this call has leased is loaded and filled, which waits for
// nobody: two calls with the same keys in another order do not block each other.
// When such a lease ends without a value, load is called again with those keys.
// A call of load is one load for [Options.MaxLoads], and one for
// [Options.MaxUnleasedLoads] if it has no lease, however many keys it has. When ctx
// ends, GetMany returns at once, with ctx's error for the keys that it still waits
// for, and load goes on. [Options.ShareReads] does not apply.
//
// There is no limit on the number of keys but that the values have to fit into
// memory, and that load gets all those at once that are not cached.
func (c *Cache[V]) GetMany(ctx context.Context, keys []string, load func(ctx context.Context, keys []string) (map[string]V, error)) (map[string]V, error) {
	if load == nil {
		return nil, errors.New("leasecache: loader is nil: pass a function that loads the values of the keys it is given")
	}
	if c.work.closed.Load() {
		return nil, ErrClosed
	}
	r := &manyRead[V]{c: c, ctx: ctx, load: load, values: make(map[string]V, len(keys))}
	keys = r.distinct(keys)
	var hung error // a whole batch ran out of time
	for chunk := range slices.Chunk(keys, maxBatch) {
		if hung != nil {
			for _, key := range chunk {
				r.failedToRead(key, &stepError{step: "get", key: key, err: driver.NotSent(hung)})
			}
			continue
		}
		hung = r.look(chunk)
	}
	r.join()
	defer r.leave() // also when the loader's panic goes through
	r.wait()
	return r.values, r.err(keys)
}

// manyRead is a call of GetMany.
type manyRead[V any] struct {
	c      *Cache[V]
	ctx    context.Context
	load   BatchLoader[V]
	values map[string]V
	errs   map[string]error

	missed  []*waiter[V] // to read or lease
	unread  []*waiter[V] // to load without a lease
	waiting []*waiter[V] // all of them, once they have joined; without those that got their outcome
}

// distinct returns the keys to read, each once. Those are in the map until they
// turn out to have no value.
func (r *manyRead[V]) distinct(keys []string) []string {
	var none V
	for i, key := range keys {
		err := protocol.CheckKey(key)
		if n := len(r.values); err == nil {
			if r.values[key] = none; len(r.values) > n {
				continue
			}
		}
		// The rest is copied, from the first that is left out.
		rest := slices.Clone(keys[:i])
		for _, key := range keys[i:] {
			if err := protocol.CheckKey(key); err != nil {
				if r.errs[key] == nil {
					r.fail(key, err)
					rest = append(rest, key)
				}
				continue
			}
			n := len(r.values)
			if r.values[key] = none; len(r.values) > n {
				rest = append(rest, key)
			}
		}
		return rest
	}
	return keys
}

func (r *manyRead[V]) fail(key string, err error) {
	delete(r.values, key)
	if r.errs == nil {
		r.errs = map[string]error{}
	}
	r.errs[key] = err
}

// err returns the error of the call.
func (r *manyRead[V]) err(keys []string) error {
	if len(r.errs) == 0 {
		return nil
	}
	e := &BatchError{Errs: r.errs}
	for _, key := range keys {
		if r.errs[key] != nil {
			e.Keys = append(e.Keys, key)
		}
	}
	return e
}

// look is the first look at some of the keys.
func (r *manyRead[V]) look(keys []string) (hung error) {
	c := r.c
	if r.errs != nil { // some may be no keys
		keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return r.errs[key] != nil })
	}
	if c.near != nil {
		keys = slices.DeleteFunc(slices.Clone(keys), r.lookNear)
	}
	results := c.getStoredMany(r.ctx, keys)
	var hits uint64
	var undecodable []undecoded
	for i, got := range results {
		key := keys[i]
		switch {
		case got.Err != nil:
			r.failedToRead(key, got.Err)
		case !got.OK:
			r.missed = append(r.missed, &waiter[V]{key: key})
		default:
			v, notFound, err := c.decode(got.Value)
			switch {
			case err != nil:
				undecodable = append(undecodable, undecoded{key, got.Value})
				continue
			case notFound:
				delete(r.values, key)
			default:
				r.values[key] = v
			}
			hits++
		}
	}
	c.stats.hits.Add(hits)
	r.drop(undecodable)
	return ranOut(results, getError)
}

// lookNear answers a key from the near tier, and reports whether it could.
func (r *manyRead[V]) lookNear(key string) bool {
	res, ok, err := r.c.nearHit(key)
	switch {
	case ok && err != nil:
		delete(r.values, key)
	case ok:
		r.values[key] = res.Value
	}
	return ok
}

// getStoredMany is getStored for the keys of a batch.
func (c *Cache[V]) getStoredMany(ctx context.Context, keys []string) []driver.GetResult {
	if c.store.batchGetter != nil {
		return c.store.getMany(ctx, keys, protocol.ValueKeys(c.opts.Prefix, keys))
	}
	results := make([]driver.GetResult, len(keys))
	if c.store.getter != nil && c.store.batcher == nil {
		each(len(keys), func(i int) {
			r := &results[i]
			defer recovered("driver", &r.Err)
			r.Value, r.OK, r.Err = c.store.get(ctx, keys[i], protocol.ValueKey(c.opts.Prefix, keys[i]))
		})
		return results
	}
	c.store.callMany(ctx, len(keys), func(i int) (string, protocol.Call) {
		return keys[i], protocol.ReadCall(c.keys(keys[i]), "", protocol.ReadOptions{})
	}, func(i int, reply driver.Reply, err error) {
		r, err := readReply(keys[i], "", reply, err)
		results[i] = driver.GetResult{Value: r.Value, OK: r.State == protocol.StateValue, Err: err}
	})
	return results
}

// failedToRead is miss for a read that failed with err.
func (r *manyRead[V]) failedToRead(key string, err error) {
	c := r.c
	if r.ctx.Err() == nil {
		c.stats.failed(ErrorRead)
		if c.opts.OnUnavailable != UnavailableFail && !c.store.closed.Load() {
			r.unread = append(r.unread, &waiter[V]{key: key, reason: reasonOf(err), cause: err})
			return
		}
	}
	c.stats.misses.Add(1)
	r.fail(key, contextError(r.ctx, key, err))
}

// undecoded is a key with the value that is stored there.
type undecoded struct{ key, stored string }

// drop is Cache.undecodable for some keys.
func (r *manyRead[V]) drop(found []undecoded) {
	c := r.c
	c.store.callMany(r.ctx, len(found), func(i int) (string, protocol.Call) {
		c.stats.undecodable.Add(1)
		u := found[i]
		return u.key, protocol.DropCall(c.keys(u.key), u.stored, c.opts.DropBackoff)
	}, func(i int, reply driver.Reply, err error) {
		key := found[i].key
		again, err := c.dropReply(reply, err)
		switch {
		case r.ctx.Err() != nil:
			r.fail(key, contextError(r.ctx, key, err))
		case again:
			r.missed = append(r.missed, &waiter[V]{key: key})
		default:
			r.unread = append(r.unread, &waiter[V]{key: key, reason: CannotDecode, cause: err})
		}
	})
}

// join joins the flights of the keys that have no value, and starts those that are
// new. From here on others take part.
func (r *manyRead[V]) join() {
	r.serveStale()
	if len(r.missed)+len(r.unread) == 0 {
		return
	}
	r.start(readFlight, r.missed)
	r.start(unleasedFlight, r.unread)
	r.missed, r.unread = nil, nil
}

// serveStale takes the stale copies of keys that this process loads.
func (r *manyRead[V]) serveStale() {
	c := r.c
	if c.opts.Stale == 0 {
		return
	}
	var loading []string
	for _, w := range r.missed {
		if c.isLoading(w.key) {
			loading = append(loading, w.key)
		}
	}
	served := map[string]bool{}
	c.store.callMany(r.ctx, len(loading), func(i int) (string, protocol.Call) {
		return loading[i], protocol.ReadCall(c.keys(loading[i]), "", protocol.ReadOptions{Stale: true})
	}, func(i int, reply driver.Reply, err error) {
		key := loading[i]
		rr, err := readReply(key, "", reply, err)
		if err != nil {
			return // the flight reports it
		}
		if res, ok := c.staleResult(rr, time.Time{}); ok {
			c.stats.misses.Add(1)
			r.values[key], served[key] = res.Value, true
		}
	})
	r.missed = slices.DeleteFunc(r.missed, func(w *waiter[V]) bool { return served[w.key] })
}

// start joins ws to flights of that kind. Those that are new fly as one group.
func (r *manyRead[V]) start(kind flightKind, ws []*waiter[V]) {
	c := r.c
	g := &group[V]{c: c, ctx: context.WithoutCancel(r.ctx), load: r.load, wake: make(chan struct{}, 1)}
	deadline := time.Now().Add(c.opts.WaitBound)
	for _, w := range ws {
		w.ctx = r.ctx //nolint:fatcontext // each has it, and none is derived from another
		w.deadline, w.load = deadline, r.load.loaderOf(w.key)
		switch f, isNew := c.arrive(c.shardOf(w.key), kind, w, g.wake); {
		case f == nil:
			r.fail(w.key, ErrClosed)
			continue
		case isNew:
			g.members = append(g.members, &member[V]{f: f, w: w})
		}
		r.waiting = append(r.waiting, w)
	}
	switch {
	case len(g.members) == 0:
	case kind == unleasedFlight:
		g.start(g.runUnleased)
	default:
		g.start(g.run)
	}
}

// wait takes the outcomes.
func (r *manyRead[V]) wait() {
	ended := r.ctx.Done()
	for len(r.waiting) > 0 {
		w := r.waiting[0]
		select {
		case o := <-w.done:
			r.take(w, o)
			continue
		case <-ended:
		}
		// What is there already is returned all the same.
		select {
		case o := <-w.done:
			r.take(w, o)
		default:
			r.waiting[0] = nil
			r.waiting = r.waiting[1:]
			r.c.leave(r.c.shardOf(w.key), w)
			r.fail(w.key, contextError(r.ctx, w.key, nil))
		}
	}
}

// take takes the outcome of the first that waits. It may panic.
func (r *manyRead[V]) take(w *waiter[V], o outcome[V]) {
	r.waiting[0] = nil
	r.waiting = r.waiting[1:]
	res, err := r.c.settle(o)
	switch {
	case err == nil:
		r.values[w.key] = res.Value
	case o.notFound:
		delete(r.values, w.key)
	default:
		r.fail(w.key, err)
	}
}

// leave leaves the flights that it still waits for.
func (r *manyRead[V]) leave() {
	for _, w := range r.waiting {
		r.c.leave(r.c.shardOf(w.key), w)
	}
}
