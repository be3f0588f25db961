package leasecache

import (
	"context"
	"fmt"
	"time"
)

// runUnleased is the goroutine of a flight that loads without a lease: because
// the server is down, or because what it has cached cannot be decoded.
func (f *flight[V]) runUnleased() {
	defer f.c.work.end()
	for f.stay() {
		f.shard.mu.Lock()
		if f.starved = f.shard.entries[f.key].loads >= maxKeyLoads; f.starved {
			// The next to join the one of them that ends first would get what was
			// loaded before he came. He waits for a load of his own.
			f.shard.mu.Unlock()
			f.sleep(f.c.opts.WaitBound, false)
			continue
		}
		if !f.admit() {
			f.detach()
			ws := f.take(everyone)
			f.shard.mu.Unlock()
			f.overloaded(ws)
			return
		}
		f.detach()
		f.step = f.shard.next()
		f.shard.mu.Unlock()
		f.loadUnleased()
		return
	}
}

// overdue sees to waiters whose bound has passed: they load without a lease,
// together with all others who wait here, except for the one whose loader runs
// already. Over the limit, those whose bound has passed get ErrOverloaded.
func (f *flight[V]) overdue(leader *waiter[V]) {
	f.shard.mu.Lock()
	due, n := f.due(leader, time.Now())
	if n == 0 {
		f.shard.mu.Unlock()
		return
	}
	f.c.stats.waitTimeouts.Add(uint64(n))
	if f.kind == unleasedFlight || !f.admit() {
		ws := f.take(due)
		f.shard.mu.Unlock()
		f.overloaded(ws)
		return
	}
	u := f.split(leader, WaitedTooLong)
	f.shard.mu.Unlock()
	f.c.work.extend()
	go func() {
		defer f.c.work.end()
		u.loadUnleased()
	}()
}

// due selects the waiters whose bound has passed by now, other than leader, and
// returns how many they are. The shard is locked.
func (f *flight[V]) due(leader *waiter[V], now time.Time) (ok func(*waiter[V]) bool, n int) {
	ok = func(w *waiter[V]) bool { return w != leader && !w.deadline.After(now) }
	for _, w := range f.waiters {
		if ok(w) {
			n++
		}
	}
	return ok, n
}

// split returns a flight, which is not in the table, with all waiters but leader:
// its load without a lease is about to begin. The shard is locked.
func (f *flight[V]) split(leader *waiter[V], reason Reason) *flight[V] {
	u := &flight[V]{c: f.c, shard: f.shard, key: f.key, keys: f.keys, kind: unleasedFlight, wake: make(chan struct{}, 1)}
	u.waiters = f.take(func(w *waiter[V]) bool { return w != leader })
	for _, w := range u.waiters {
		w.flight, w.reason = u, reason
	}
	u.step = f.shard.next()
	return u
}

// admit takes what a load without a lease needs: a slot of the key, a place of
// MaxUnleasedLoads, and one of MaxLoads. The shard is locked.
func (f *flight[V]) admit() bool { return f.admitIf(f.c.admit) }

// admitIf takes a slot of the key if places, which takes the rest, allows it.
func (f *flight[V]) admitIf(places func() bool) bool {
	// A flight that an invalidation has detached may find that its load, which has
	// just ended, was the last thing that the key had.
	e := f.shard.entry(f.key)
	defer f.shard.tidy(f.key, e)
	if e.loads >= maxKeyLoads {
		return false
	}
	if !places() {
		return false
	}
	e.loads++
	return true
}

// admit takes a place of MaxUnleasedLoads, and one of MaxLoads.
func (c *Cache[V]) admit() bool {
	select {
	case c.unleased <- struct{}{}:
	default:
		return false
	}
	if c.loads != nil {
		select {
		case c.loads <- struct{}{}:
		default:
			<-c.unleased
			return false
		}
	}
	return true
}

func (f *flight[V]) overloaded(ws []*waiter[V]) {
	f.c.stats.overloads.Add(uint64(len(ws)))
	for _, w := range ws {
		err := ErrOverloaded
		if w.cause != nil {
			err = fmt.Errorf("%w: %w", ErrOverloaded, w.cause)
		}
		w.done <- outcome[V]{err: err}
	}
}

// loadUnleased runs the load of a flight that admit let in, for those who were
// there before it began, and nobody else.
func (f *flight[V]) loadUnleased() {
	c := f.c
	leader := f.leader()
	if leader == nil {
		<-c.unleased
		f.unreserve()
		return
	}
	c.stats.unleasedLoads.Add(1)
	l := f.startLoad(leader, func() { <-c.unleased })
	f.awaitLoad(context.Background(), l, leader)
	f.endUnleased(l, leader)
}

// endUnleased hands out what a load without a lease came to.
func (f *flight[V]) endUnleased(l *load[V], leader *waiter[V]) {
	ev := LoadEvent{Key: f.key, Began: l.began, Loaded: time.Now()}
	o := f.loaded(l)
	ev.Err, ev.Outcome = leader.cause, LoadNotStored
	if o.err != nil && !o.notFound {
		ev.Err, ev.Outcome = o.err, LoadFailed
	}
	f.shard.mu.Lock()
	ws := f.take(everyone)
	f.shard.mu.Unlock()
	f.deliverLoad(ws, leader, o, false)
	f.report(ev)
}
