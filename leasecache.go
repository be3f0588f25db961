// Package leasecache is a read-through cache on Valkey or Redis that runs one
// load per key across all processes, and in which a load that began before an
// invalidation can never be cached after it.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // the client you have
//	products, err := leasecache.New[Product](goredis.New(rdb), leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//	})
//	...
//	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
//		return db.Product(ctx, 42)
//	})
//	...
//	err = tx.Commit() // then, never before:
//	err = products.Invalidate(ctx, "42")
//
// # How it works
//
// Leases, as in memcache at Facebook (Nishtala et al., NSDI 2013, section
// 3.2.1). A read that finds no value takes the key's lease, unless another read
// holds it. Its holder loads the value and caches it only if the lease is still
// its own, in the same step. Others wait. [Cache.Invalidate] deletes the value
// and the lease together, so a load under way can no longer be cached.
//
// # What it guarantees
//
// Once Invalidate has returned nil, no load that started before it is ever
// cached for that key, and no read that starts after it gets a value loaded
// before it, in this process or another. At most one load per key holds the
// lease, and a process runs at most two loads of a key at a time. Every read
// ends: by its context, or by [Options.WaitBound]. See docs/protocol.md for the
// proof.
//
// # What it does not
//
// It is not a lock, and not for payments or access decisions. It is not fresher
// than its source: a loader that reads a lagging replica can cache old data. A
// change that is never followed by Invalidate stays cached until its TTL ends.
// Between commit and Invalidate, reads are not monotonic. The guarantees do not
// hold across an asynchronous failover, a deposed primary that is still
// reachable, a restart from a snapshot that is older than the invalidation, or
// between regions. Side effects of loaders are not fenced. If there is one
// process, or the source is cheap, you may not need it.
//
// There is no Set: a value that is written without a lease is what the late
// write of an old load looks like, and could not be told from one.
package leasecache

import (
	"context"
	"errors"
	"hash/maphash"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Loader loads the value of a key from the source. It should heed its context,
// which ends after [Options.LoadTimeout] but not with the caller's: a load goes
// on when its callers have left, so that a slow source still gets cached. The
// context carries the values of the caller's.
//
// A loader returns [ErrNotFound], as it is or wrapped, for a key that the source
// does not have. Any other error is returned to the readers and not cached; for
// what others get meanwhile see [Options.FailureBackoff]. What else it may decide
// is in [LoadFrom]. For many keys there is [BatchLoader].
type Loader[V any] func(ctx context.Context) (V, error)

// Cache is a read-through cache of values of type V. It is safe for concurrent
// use by multiple goroutines.
type Cache[V any] struct {
	store    *Store
	ownStore bool
	opts     Options
	coder    coder[V]
	hits     hitPath[V]
	stats    counters
	near     *nearTier // nil without Options.Near

	seed   maphash.Seed
	shards [64]shard[V]

	loads    chan struct{} // a place for each of MaxLoads; nil without a limit
	unleased chan struct{} // a place for each of MaxUnleasedLoads

	work      work               // flights, loads and releases that run
	closing   chan struct{}      // closed by Close: waiters end
	loadsCtx  context.Context    // done when running loads have to end
	stopLoads context.CancelFunc // ends it
}

// New returns a cache of values of type V on the server that e talks to. e is
// what an adapter's constructor returned, a [*Store] that several caches share,
// or any other [driver.Evaler]. The client behind it stays the caller's to
// close.
//
// New does not talk to the server.
func New[V any](e driver.Evaler, opts Options) (*Cache[V], error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	store, shared := e.(*Store)
	if shared && store == nil {
		return nil, errNilStore
	}
	if !shared {
		if store, err = NewStore(e, StoreOptions{}); err != nil {
			return nil, err
		}
	}
	c := &Cache[V]{
		store:    store,
		ownStore: !shared,
		opts:     opts,
		coder:    newCoder[V](opts.Codec),
		seed:     maphash.MakeSeed(),
		unleased: make(chan struct{}, opts.MaxUnleasedLoads),
		work:     work{idle: make(chan struct{})},
		closing:  make(chan struct{}),
	}
	c.hits = c.hitPath()
	if opts.MaxLoads > 0 {
		c.loads = make(chan struct{}, opts.MaxLoads)
	}
	if opts.Near != nil {
		if err := c.keepNear(); err != nil {
			return nil, err
		}
	}
	c.loadsCtx, c.stopLoads = context.WithCancel(context.Background())
	store.register(&c.stats)
	return c, nil
}

// Stats returns the counts since the cache was made.
func (c *Cache[V]) Stats() Stats { return c.stats.snapshot() }

// Close ends the cache: reads and invalidations that start from now on return
// [ErrClosed], and so do reads that wait for another process. Close waits for
// the loads that run, so that they are cached; when ctx ends first, it cancels
// them and returns ctx's error. Every lease is released, so that a deploy does
// not look like a row of crashed holders. The client is left open, unless it was
// made by [Open] and the Store is closed as well.
//
// A second Close waits as the first one does.
func (c *Cache[V]) Close(ctx context.Context) error {
	if c.work.close() {
		close(c.closing)
	}
	defer c.store.retire(&c.stats)
	c.closeNear()
	select {
	case <-c.work.idle:
		c.stopLoads()
		return nil
	case <-ctx.Done():
	}
	c.stopLoads()
	// What is left now are releases, which are bounded by CallTimeout.
	<-c.work.idle
	return ctx.Err()
}

// check reports what is wrong with the arguments of a read.
func (c *Cache[V]) check(key string, load Loader[V]) error {
	if load == nil {
		return errors.New("leasecache: loader is nil: pass a function that loads the value, or use Peek")
	}
	return c.checkKey(key)
}

func (c *Cache[V]) checkKey(key string) error {
	if c.work.closed.Load() {
		return ErrClosed
	}
	return protocol.CheckKey(key)
}

// keys returns the names for key on the server.
func (c *Cache[V]) keys(key string) protocol.Keys {
	k := protocol.NewKeys(c.opts.Prefix, key)
	if c.store.silent {
		k.Wake = ""
	}
	return k
}

// shardOf returns the shard that key belongs to.
func (c *Cache[V]) shardOf(key string) *shard[V] {
	return &c.shards[maphash.String(c.seed, key)%uint64(len(c.shards))]
}
