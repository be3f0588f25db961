package leasecache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// lead loads the value under the lease that r brought, and fills. caller is the
// read in whose goroutine it runs, or nil.
func (f *flight[V]) lead(r protocol.ReadReply, caller *waiter[V]) {
	c := f.c
	if caller != nil && caller.ctx.Err() != nil {
		c.leave(f.shard, caller) // as it would have, had it not been here
	}
	leader := f.assume(r, nil)
	if leader == nil {
		f.abandon(true, r.Lease)
		return
	}

	l := f.startLoad(leader, nil)
	if caller != nil && (!f.awaitLoad(caller.ctx, l, leader) || !c.hasTime(caller.ctx)) {
		// The caller leaves, or could not wait for the fill. The load goes on.
		c.work.extend()
		go func() {
			defer c.work.end()
			f.fillFrom(l, leader, r.Lease)
		}()
		return
	}
	f.fillFrom(l, leader, r.Lease)
}

// assume makes the flight one whose load is about to begin, under the lease that
// r brought. It returns whose loader to call: that of preferred, unless it is nil.
// It returns nil when none is to be called, and the flight has ended.
func (f *flight[V]) assume(r protocol.ReadReply, preferred *waiter[V]) (leader *waiter[V]) {
	c := f.c
	stale, staleErr := outcome[V]{}, errors.New("none")
	if r.HasStale {
		stale, staleErr = f.staleOutcome(r)
	}
	if c.work.closed.Load() { // no new loads
		f.end(everyone, outcome[V]{err: ErrClosed})
		return nil
	}
	f.shard.mu.Lock()
	if leader = f.first(); leader != nil && preferred != nil {
		leader = preferred
	}
	if leader == nil { // all have left while the lease was on its way
		f.detach()
		f.shard.mu.Unlock()
		return nil
	}
	// Who came after the read was sent may not have the stale copy that it found:
	// a newer value may have been cached since.
	var spared []*waiter[V]
	if staleErr == nil {
		spared = f.take(func(w *waiter[V]) bool { return w != leader && f.before(w) })
	}
	f.step = f.shard.next()
	f.leased = true
	f.shard.entries[f.key].passOn(f)
	f.shard.mu.Unlock()
	c.stats.staleServed.Add(uint64(len(spared)))
	deliverDecoded(spared, stale)
	return leader
}

// fillFrom waits for the load, and fills.
func (f *flight[V]) fillFrom(l *load[V], leader *waiter[V], lease protocol.Lease) {
	c := f.c
	f.awaitLoad(context.Background(), l, leader)
	e := f.ended(l, leader, lease)
	if !e.p.store {
		c.releaseMarked(f.key, f.keys, lease, f.mark(e.o))
		e.unfilled()
		return
	}
	e.sending()
	did, ttl, err := c.fill(context.WithoutCancel(leader.ctx), f.key, f.keys, lease, e.p)
	if err != nil {
		c.releaseMarked(f.key, f.keys, lease, markAfter(err))
	}
	e.filled(did, ttl, err)
}

// endedLoad is a load under a lease that is over: what it came to, and who has to
// be told.
type endedLoad[V any] struct {
	f      *flight[V]
	leader *waiter[V]
	lease  protocol.Lease
	o      outcome[V]
	p      fillable
	ev     LoadEvent
}

// ended sorts out what a load came to that has returned, or whose time is over.
func (f *flight[V]) ended(l *load[V], leader *waiter[V], lease protocol.Lease) *endedLoad[V] {
	e := &endedLoad[V]{f: f, leader: leader, lease: lease}
	e.ev = LoadEvent{Key: f.key, Leased: true, Refresh: f.kind == refreshFlight, Began: l.began, Loaded: time.Now()}
	e.o = f.loaded(l)
	e.p = f.prepare(l, &e.o)
	return e
}

// unfilled ends a load of which nothing is to be cached. Its lease is released.
func (e *endedLoad[V]) unfilled() {
	f, o, ev := e.f, e.o, e.ev
	f.finish(f.before, e.leader, o, e.p.encoded)
	ev.Err, ev.Outcome = o.err, LoadFailed
	if o.err == nil || o.notFound {
		ev.Outcome = LoadNotStored
	}
	f.report(ev)
}

// sending comes before the fill is first sent. Who came until here may take the
// value if the fill is accepted. From here on nobody may join: the fill may be
// done before its reply arrives, and an invalidation may come between.
func (e *endedLoad[V]) sending() {
	f := e.f
	f.shard.mu.Lock()
	f.detach()
	f.shard.mu.Unlock()

	e.o.sent = time.Now()
	e.ev.FillSent = e.o.sent
}

// filled ends a load whose fill did that.
func (e *endedLoad[V]) filled(did protocol.Outcome, ttl time.Duration, err error) {
	f, leader, o, p, ev := e.f, e.leader, e.o, e.p, e.ev
	c := f.c
	o.ttl = ttl
	cached := everyone[V]
	if f.kind == refreshFlight {
		cached = f.before // Refresh asks for a load that begins after it
	}
	switch {
	case err != nil:
		c.stats.failed(ErrorFill)
		o.uncached = reasonOf(err)
		ev.Outcome, ev.Err = LoadFillFailed, err
		f.finish(f.before, leader, o, p.encoded)
	case did == protocol.Accepted:
		c.stats.fillsAccepted.Add(1)
		ev.Outcome = LoadAccepted
		f.finish(cached, leader, o, p.encoded)
	case did == protocol.Present:
		// Not this load's doing, but as good as a read that was sent when the
		// fill was: everyone here came before that.
		c.stats.fillsPresent.Add(1)
		ev.Outcome = LoadPresent
		f.finish(cached, leader, o, p.encoded)
	default:
		c.stats.fillsRejected.Add(1)
		ev.Outcome = LoadRejected
		f.lost(leader, o, p.encoded)
	}
	f.report(ev)
}

// fillable is what a load wants cached.
type fillable struct {
	store   bool
	encoded bool // the outcome holds the payload
	stored  string
	ttl     time.Duration
}

// prepare turns the outcome of a load into what is cached. It notes in o why
// there is nothing to cache.
func (f *flight[V]) prepare(l *load[V], o *outcome[V]) (p fillable) {
	c := f.c
	if o.err != nil && !o.notFound {
		return p
	}
	doNotStore, ttl, ttlSet := l.decided.of(f.key)
	if doNotStore {
		o.uncached = NotStored
		return p
	}
	switch {
	case ttlSet && (ttl < time.Millisecond || ttl > mostDuration):
		c.stats.failed(ErrorTTL)
		err := fmt.Errorf("%w: the loader of %s chose %v: it must be at least 1ms, and at most 100 years; use DoNotStore for a value that must not be cached",
			ErrTTL, protocol.Quote(f.key), ttl)
		*o = outcome[V]{err: err}
		return p
	case ttlSet:
		p.ttl = ttl
	case o.notFound:
		p.ttl = c.opts.NotFoundTTL
	default:
		p.ttl = c.opts.TTL
	}
	p.ttl = jitter(p.ttl, c.opts.Jitter)
	if o.notFound {
		p.store, p.stored = true, protocol.NotFound()
		return p
	}
	payload, err := c.coder.encode(o.value)
	if err != nil {
		c.stats.failed(ErrorEncode)
		o.uncached = EncodeFailed
		return p
	}
	o.payload, p.encoded = payload, true
	p.stored = protocol.WrapValue(payload)
	if len(p.stored) > c.opts.MaxValueSize {
		c.stats.failed(ErrorTooLarge)
		o.uncached = TooLarge
		return p
	}
	p.store = true
	return p
}

// jitter shortens ttl by a random part of it up to fraction, but not below the
// millisecond that a server can count.
func jitter(ttl time.Duration, fraction float64) time.Duration {
	if fraction == 0 {
		return ttl
	}
	return max(ttl-time.Duration(rand.Float64()*fraction*float64(ttl)), time.Millisecond)
}

// fill runs the fill script.
func (c *Cache[V]) fill(ctx context.Context, key string, keys protocol.Keys, lease protocol.Lease, p fillable) (protocol.Outcome, time.Duration, error) {
	reply, err := c.store.call(ctx, key, protocol.FillCall(keys, lease, p.stored, p.ttl))
	return fillReply(key, reply, err)
}

// fillReply sorts out the reply to a fill.
func fillReply(key string, reply driver.Reply, err error) (protocol.Outcome, time.Duration, error) {
	if err != nil {
		return protocol.Rejected, 0, err
	}
	did, ttl, err := protocol.ParseFill(reply)
	if err != nil {
		return did, 0, &stepError{step: "fill", key: key, err: err, unknown: true}
	}
	return did, ttl, nil
}

// finish ends a load: those that ok selects get its outcome, the others move on
// to the next flight.
func (f *flight[V]) finish(ok func(*waiter[V]) bool, leader *waiter[V], o outcome[V], encoded bool) {
	f.shard.mu.Lock()
	f.detach()
	taken := f.take(ok)
	f.c.moveOn(f.shard, f.kind, f.take(everyone))
	if e := f.shard.entries[f.key]; e != nil {
		for _, other := range e.flights {
			if other != nil {
				other.nudge() // the lease that it may wait for is gone
			}
		}
	}
	f.shard.mu.Unlock()
	f.deliverLoad(taken, leader, o, encoded)
}

// lost ends a load whose fill was rejected.
func (f *flight[V]) lost(leader *waiter[V], o outcome[V], encoded bool) {
	switch f.c.opts.OnLeaseLost {
	case LostFail:
		f.finish(f.before, leader, outcome[V]{err: ErrLeaseLost}, false)
	case LostReread:
		f.finish(func(w *waiter[V]) bool {
			if !f.before(w) {
				return false // it has lost nothing
			}
			w.rereads++
			return w.rereads > maxRereads
		}, leader, outcome[V]{err: ErrLeaseLost}, false)
	default:
		o.uncached = LeaseLost
		f.finish(f.before, leader, o, encoded)
	}
}
