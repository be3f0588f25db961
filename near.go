package leasecache

import (
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Near keeps values in the process, bounded in bytes: see [Options.Near]. Package
// near has one; a Near of your own need only keep what it is given. It may drop
// anything at any time. Several caches may share it, also on different servers.
//
// A Near must be safe for concurrent use. Once Delete or Clear has returned, Get
// must not find what was set before.
type Near interface {
	// Get returns what was set last for k. It is on the path of every hit.
	Get(k NearKey) (*NearEntry, bool)
	// Set keeps e for k, or not. It may be forgotten after e.TTL.
	Set(k NearKey, e *NearEntry)
	// Delete forgets k.
	Delete(k NearKey)
	// Clear forgets everything.
	Clear()
}

// NearKey is a key of a cache, in a [Near] that several share.
type NearKey struct {
	// Generation differs for each cache, and is a new one after each loss of the
	// server's messages, so that what was kept before is not found any more.
	Generation uint64
	// Key is the user's.
	Key string
}

// NearEntry is a value that is kept in the process: as it is stored on the
// server, and so never changed. Callers decode it each for themselves.
type NearEntry struct {
	stored string
	until  time.Time // counts from before the read was sent; monotonic
}

// Size is how many bytes the value has. What its key and the bookkeeping take
// comes on top.
func (e *NearEntry) Size() int { return len(e.stored) }

// TTL is for how long the value may still be served.
func (e *NearEntry) TTL() time.Duration { return time.Until(e.until) }

// nearGenerations counts the generations that were given out in this process.
var nearGenerations atomic.Uint64

// nearTier is what a cache with a [Near] has beside it. Methods work on nil, for
// a cache without.
//
// Two rules keep it right. An entry is found only in the generation that it was
// read in, and a generation ends when messages may have been missed. And a read is kept only
// if its key has not changed since before the read was sent: not by a message, and
// not by an invalidation of this process.
type nearTier struct {
	kept       Near
	generation atomic.Uint64 // where entries are found; 0 while the server does not track

	tracking tracking

	seed   maphash.Seed
	shards [64]nearShard
}

// nearShard is a part of the table of reads that are on the wire.
type nearShard struct {
	mu    sync.Mutex
	reads map[string]*nearRead
}

// nearRead are the reads of a key that are on the wire.
type nearRead struct {
	n       int    // how many
	changes uint64 // since the first of them
}

func newNearTier(kept Near, tracker driver.Tracker, prefix string, timeout time.Duration, stats *counters) *nearTier {
	n := &nearTier{kept: kept, seed: maphash.MakeSeed()}
	n.tracking = tracking{
		tier: n, tracker: tracker, prefix: protocol.ValuePrefix(prefix), timeout: timeout, stats: stats,
	}
	return n
}

// get returns what is kept of key, if it may be served.
func (n *nearTier) get(key string) (e *NearEntry, ttl time.Duration) {
	if n == nil {
		return nil, 0
	}
	generation := n.generation.Load()
	if generation == 0 {
		return nil, 0
	}
	e, ok := n.kept.Get(NearKey{generation, key})
	if !ok {
		return nil, 0
	}
	if ttl = e.TTL(); ttl <= 0 {
		return nil, 0
	}
	return e, ttl
}

// nearLook is a read that may be kept.
type nearLook struct {
	tier       *nearTier
	key        string
	generation uint64
	read       *nearRead
	seen       uint64 // changes
}

// begin notes a read before it is sent. It is nil while the server does not track.
// Otherwise end has to follow.
func (n *nearTier) begin(key string) *nearLook {
	if n == nil {
		return nil
	}
	generation := n.generation.Load()
	if generation == 0 {
		n.tracking.start()
		return nil
	}
	s := n.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reads[key]
	if r == nil {
		r = &nearRead{}
		if s.reads == nil {
			s.reads = map[string]*nearRead{}
		}
		s.reads[key] = r
	}
	r.n++
	return &nearLook{tier: n, key: key, generation: generation, read: r, seen: r.changes}
}

// end keeps what the read has found, if that may be. sent is a time before it was
// sent, from which its TTL counts.
func (l *nearLook) end(r protocol.ReadReply, err error, sent time.Time) {
	if l == nil {
		return
	}
	s := l.tier.shardOf(l.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.read.n--; l.read.n == 0 {
		delete(s.reads, l.key)
	}
	if err != nil || r.State != protocol.StateValue || r.TTL <= 0 {
		return
	}
	if l.read.changes != l.seen {
		return // it may be older than the change
	}
	// The caller's key may be a part of something larger.
	l.tier.kept.Set(NearKey{l.generation, strings.Clone(l.key)}, &NearEntry{r.Value, sent.Add(r.TTL)})
}

// drop forgets a key, and what reads that are on the wire will find of it.
func (n *nearTier) drop(key string) {
	if n == nil {
		return
	}
	s := n.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.reads[key]; r != nil {
		r.changes++
	}
	if generation := n.generation.Load(); generation != 0 {
		n.kept.Delete(NearKey{generation, key})
	}
}

func (n *nearTier) shardOf(key string) *nearShard {
	return &n.shards[maphash.String(n.seed, key)%uint64(len(n.shards))]
}

// nears are the near tiers of the caches of a Store.
type nears struct {
	mu    sync.RWMutex
	tiers map[*nearTier]string // their caches' prefixes
}

func (s *nears) add(n *nearTier, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tiers == nil {
		s.tiers = map[*nearTier]string{}
	}
	s.tiers[n] = prefix
}

func (s *nears) remove(n *nearTier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tiers, n)
}

// drop forgets keys in all caches with a prefix.
func (s *nears) drop(prefix string, keys []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for n, p := range s.tiers {
		if p != prefix {
			continue
		}
		for _, key := range keys {
			n.drop(key)
		}
	}
}

// stop ends the tracking of all.
func (s *nears) stop() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for n := range s.tiers {
		n.tracking.stop()
	}
}

var errNoTracker = errors.New("leasecache: Options.Near is set, but the driver cannot have the server tell what changes: leave it out, or use a driver that is a driver.Tracker")

// keepNear gives the cache its near tier.
func (c *Cache[V]) keepNear() error {
	t, ok := c.store.given.(driver.Tracker)
	if !ok {
		return errNoTracker
	}
	c.near = newNearTier(c.opts.Near, t, c.opts.Prefix, c.store.callTimeout, &c.stats)
	c.store.nears.add(c.near, c.opts.Prefix)
	return nil
}

func (c *Cache[V]) closeNear() {
	if c.near != nil {
		c.store.nears.remove(c.near)
		c.near.tracking.stop()
	}
}

// nearHit returns what is kept of key in the process, with ErrNotFound if that is
// a not-found record. A value that cannot be decoded is none: the server's own is
// tried.
func (c *Cache[V]) nearHit(key string) (res Result[V], ok bool, err error) {
	e, ttl := c.near.get(key)
	if e == nil {
		return res, false, nil
	}
	v, notFound, err := c.decode(e.stored)
	if err != nil {
		return res, false, nil //nolint:nilerr // see above
	}
	c.stats.nearHits.Add(1)
	if notFound {
		err = ErrNotFound
	}
	return Result[V]{Value: v, Source: NearHit, TTL: ttl}, true, err
}
