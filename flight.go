package leasecache

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

// Reads of one key in one process that found no value share a flight: one read
// or lease at a time, one poller while another process holds the lease, one
// load. What a read may take from a flight is decided by order alone. Every
// arrival of a waiter, every sending of a read and every beginning of a load
// gets the next number of its shard, and then:
//
//   - a waiter may take what a cache read returns if it arrived before the read
//     was sent;
//   - it may take a load whose fill was accepted if it arrived before the fill
//     was sent, because an accepted fill proves that no invalidation came since
//     the load began; a flight therefore leaves the table before its fill is
//     sent, and nobody finds it any more;
//   - it may take any other load only if it arrived before the load began.
//
// Who may not take a result moves on to the key's next flight, together with
// all others like him. Whatever is sent or begun there comes after his arrival,
// so he can take it.

// flightKind says how a flight comes to a value.
type flightKind uint8

const (
	readFlight     flightKind = iota // by read or lease
	refreshFlight                    // by a lease, leaving the value aside
	unleasedFlight                   // by a load without a lease; it asks the server nothing
	flightKinds
)

// shard is a part of the table of flights.
type shard[V any] struct {
	mu      sync.Mutex
	order   uint64 // the last number given
	entries map[string]*entry[V]
	hot     map[string]*hotKey // with ShareReads
}

func (s *shard[V]) next() uint64 {
	s.order++
	return s.order
}

// entry is what a key has under way in this process. It is in the table only
// while there is something.
type entry[V any] struct {
	flights [flightKinds]*flight[V] // those that can be joined
	loads   int                     // loaders that run, and reads that may start one
	poller  *flight[V]              // the one of them that polls for all
}

// flight is guarded by its shard's mutex, except for what never changes.
type flight[V any] struct {
	c     *Cache[V]
	shard *shard[V]
	key   string
	keys  protocol.Keys
	kind  flightKind

	waiters []*waiter[V]
	step    uint64        // when what runs now was sent or began
	leased  bool          // a load under a lease runs
	starved bool          // it waits for one of the key's slots
	wake    chan struct{} // something changed: look again

	overMark bool // its next read takes the lease in place of a mark; of who reads
}

// waiter is a read that waits.
type waiter[V any] struct {
	ctx      context.Context
	key      string
	load     Loader[V]
	arrived  uint64
	deadline time.Time // when its wait bound passes
	reason   Reason    // why an unleased load is not cached
	cause    error     // the server's error, for reason ServerDown
	rereads  int
	waited   bool            // it has met a lease held elsewhere
	done     chan outcome[V] // has room for the outcome

	// Guarded by the shard's mutex.
	flight *flight[V] // nil while it moves, and once it has its outcome
	gone   bool       // its context ended
}

// outcome is what a flight hands to a waiter.
type outcome[V any] struct {
	source   Source
	err      error
	notFound bool
	// The value, decoded for this waiter alone or shared because it cannot be
	// encoded; or else the payload, to be decoded by each.
	value   V
	decoded bool
	payload string

	uncached Reason
	sent     time.Time // from when ttl counts
	ttl      time.Duration

	panicked *PanicError // the waiter's own loader did
	goexit   bool
}

// await joins the key's flight of that kind, and waits for w's outcome.
func (c *Cache[V]) await(ctx context.Context, kind flightKind, w *waiter[V]) (Result[V], error) {
	w.ctx = ctx
	w.deadline = time.Now().Add(c.opts.WaitBound)
	s := c.shardOf(w.key)
	f, isNew := c.arrive(s, kind, w, nil)
	switch {
	case f == nil:
		return Result[V]{}, ErrClosed
	case isNew && kind != unleasedFlight && c.hasTime(ctx):
		f.begin(w)
	case isNew:
		f.start()
	}
	select {
	case o := <-w.done:
		return c.settle(o)
	case <-ctx.Done():
		c.leave(s, w)
		return Result[V]{}, contextError(ctx, w.key, nil)
	}
}

// arrive joins w to the key's flight of that kind. One that is new wakes by wake,
// unless that is nil.
func (c *Cache[V]) arrive(s *shard[V], kind flightKind, w *waiter[V], wake chan struct{}) (f *flight[V], isNew bool) {
	w.done = make(chan outcome[V], 1)
	s.mu.Lock()
	w.arrived = s.next()
	f, isNew = c.join(s, kind, w)
	if isNew && wake != nil {
		f.wake = wake
	}
	s.mu.Unlock()
	// Counted after it has joined, so that who sees the count knows that it has.
	if kind == refreshFlight {
		c.stats.refreshes.Add(1)
	} else {
		c.stats.misses.Add(1)
	}
	return f, isNew
}

// settle turns an outcome into what the caller gets, in the caller's goroutine.
func (c *Cache[V]) settle(o outcome[V]) (Result[V], error) {
	switch {
	case o.panicked != nil:
		panic(o.panicked)
	case o.goexit:
		runtime.Goexit()
	case o.err != nil && !o.notFound:
		return Result[V]{}, o.err
	}
	res := Result[V]{Value: o.value, Source: o.source, Uncached: o.uncached}
	if o.uncached == "" {
		res.TTL = remaining(o.sent, o.ttl)
	}
	if o.source == Joined {
		c.stats.joined.Add(1)
	}
	if o.notFound {
		if o.err == nil {
			o.err = ErrNotFound
		}
		return res, o.err
	}
	if !o.decoded {
		v, err := c.coder.decode(o.payload)
		if err != nil {
			return Result[V]{}, err
		}
		res.Value = v
	}
	return res, nil
}

// join adds waiters to the key's flight of that kind. If there is none it makes
// one, which the caller has to start, or to begin. It is nil when the cache is
// closed and no flight runs. The shard is locked.
func (c *Cache[V]) join(s *shard[V], kind flightKind, ws ...*waiter[V]) (f *flight[V], isNew bool) {
	key := ws[0].key
	e := s.entry(key)
	f = e.flights[kind]
	if f == nil {
		if !c.work.begin() {
			s.tidy(key, e)
			return nil, false
		}
		isNew = true
		f = &flight[V]{
			c: c, shard: s, key: key, kind: kind,
			keys: c.keys(key),
			wake: make(chan struct{}, 1),
		}
		e.flights[kind] = f
	}
	for _, w := range ws {
		if !w.gone {
			w.flight = f
			f.waiters = append(f.waiters, w)
		}
	}
	return f, isNew
}

// start runs the flight in a goroutine of its own.
func (f *flight[V]) start() {
	if f.kind == unleasedFlight {
		go f.runUnleased()
	} else {
		go f.run(f.newPace())
	}
}

// isLoading reports whether a load of key runs here that can be joined.
func (c *Cache[V]) isLoading(key string) bool {
	s := c.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	return e != nil && e.flights[readFlight] != nil && e.flights[readFlight].leased
}

// moveOn moves waiters that were taken from a flight on to the next one of that
// kind. The shard has been locked since they were taken, so that no other flight
// comes and goes in between.
func (c *Cache[V]) moveOn(s *shard[V], kind flightKind, ws []*waiter[V]) {
	if len(ws) == 0 {
		return
	}
	switch f, isNew := c.join(s, kind, ws...); {
	case f == nil:
		deliver(ws, outcome[V]{err: ErrClosed})
	case isNew:
		f.start()
	}
}

// leave takes a waiter out of its flight, because its context ended.
func (c *Cache[V]) leave(s *shard[V], w *waiter[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.gone = true
	f := w.flight
	if f == nil {
		return
	}
	for i, other := range f.waiters {
		if other == w {
			last := len(f.waiters) - 1
			f.waiters[i] = f.waiters[last]
			f.waiters[last] = nil
			f.waiters = f.waiters[:last]
			break
		}
	}
	w.flight = nil
	if len(f.waiters) == 0 {
		f.nudge()
	}
}

// nudge makes the flight look again.
func (f *flight[V]) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take removes the waiters that ok selects, and returns them. The shard is
// locked. What take returns must be delivered to, or move on.
func (f *flight[V]) take(ok func(*waiter[V]) bool) []*waiter[V] {
	var taken []*waiter[V]
	kept := f.waiters[:0]
	for _, w := range f.waiters {
		if ok(w) {
			w.flight = nil
			taken = append(taken, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(f.waiters[len(kept):])
	f.waiters = kept
	return taken
}

// before selects those who were there when what runs now was sent or began.
func (f *flight[V]) before(w *waiter[V]) bool { return w.arrived < f.step }

func everyone[V any](*waiter[V]) bool { return true }

// polls reports whether f is the flight of its key that asks the server again
// while another process holds the lease. The others sleep until it passes on.
func (f *flight[V]) polls() bool {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	e := f.shard.entries[f.key]
	if e.poller == nil {
		e.poller = f
	}
	return e.poller == f
}

// passOn ends f's turn to poll, because it has seen a change, or leaves: the
// others of the key look for themselves. The shard is locked.
func (e *entry[V]) passOn(f *flight[V]) {
	if e.poller != f {
		return
	}
	e.poller = nil
	for _, other := range e.flights {
		if other != nil && other != f {
			other.nudge()
		}
	}
}

// detach takes the flight out of the table, so that nobody joins it any more.
// The shard is locked.
func (f *flight[V]) detach() {
	e := f.shard.entries[f.key]
	if e == nil || e.flights[f.kind] != f {
		return
	}
	e.flights[f.kind] = nil
	e.passOn(f)
	f.shard.tidy(f.key, e)
}

// entry returns the entry of key, which may be new: then tidy has to follow if
// nothing came of it. The shard is locked.
func (s *shard[V]) entry(key string) *entry[V] {
	e := s.entries[key]
	if e == nil {
		e = &entry[V]{}
		if s.entries == nil {
			s.entries = map[string]*entry[V]{}
		}
		s.entries[key] = e
	}
	return e
}

// tidy forgets a key that has nothing under way. The shard is locked.
func (s *shard[V]) tidy(key string, e *entry[V]) {
	if e.loads == 0 && e.flights == ([flightKinds]*flight[V]{}) {
		delete(s.entries, key)
	}
}

// end detaches the flight, hands o to the waiters that ok selects, and moves
// the others on to the next one.
func (f *flight[V]) end(ok func(*waiter[V]) bool, o outcome[V]) {
	f.shard.mu.Lock()
	f.detach()
	taken := f.take(ok)
	f.c.moveOn(f.shard, f.kind, f.take(everyone))
	f.shard.mu.Unlock()
	deliver(taken, o)
}

// deliver hands o to each waiter.
func deliver[V any](ws []*waiter[V], o outcome[V]) {
	for _, w := range ws {
		w.done <- o
	}
}

// deliverDecoded hands o to each waiter. The first gets the value that was
// decoded to see whether it can be; the others decode their own, so that no
// caller can change another's.
func deliverDecoded[V any](ws []*waiter[V], o outcome[V]) {
	for i, w := range ws {
		mine := o
		if mine.decoded = i == 0; !mine.decoded {
			var none V
			mine.value = none
		}
		w.done <- mine
	}
}
