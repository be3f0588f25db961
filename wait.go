package leasecache

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

// pace is what a flight remembers from one look at the server to the next.
type pace struct {
	poll  time.Duration // until the next one at the most, while another process loads
	sleep time.Duration // before the next one
	full  bool          // queue for a place of MaxLoads meanwhile
	place bool          // got one

	unwatch func() // set while the server wakes this flight
}

func (f *flight[V]) newPace() pace {
	return pace{poll: min(firstPoll, f.c.opts.PollInterval)}
}

// begin is the first look of a flight, in the goroutine of the read that began
// it: on an idle machine, to wake another goroutine takes as long as the look.
// What the read would have to wait for goes on in a goroutine of the flight.
func (f *flight[V]) begin(caller *waiter[V]) {
	defer f.c.work.end()
	p := f.newPace()
	if f.look(&p, caller) || !f.stay() {
		return
	}
	f.c.work.extend()
	go f.run(p)
}

// hasTime reports whether a caller with ctx can wait for a step on the server,
// which ends within CallTimeout but not with ctx.
func (c *Cache[V]) hasTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return (!ok || time.Until(deadline) >= c.store.callTimeout) && ctx.Err() == nil
}

// run is the goroutine of a flight that reads or leases: it asks the server,
// until every waiter has a result or has left.
func (f *flight[V]) run(p pace) {
	defer f.c.work.end()
	defer func() {
		if p.unwatch != nil {
			p.unwatch()
		}
	}()
	for {
		// Who begins to watch looks at once: the lease may have ended before.
		if p.sleep > 0 && !f.watch(&p) {
			p.place = f.sleep(p.sleep, p.full)
		}
		if !f.stay() {
			break
		}
		if ended := f.look(&p, nil); ended {
			return
		}
	}
	if p.place {
		<-f.c.loads
	}
}

// look asks the server once, and notes for how long to sleep before the next
// look. It reports whether the flight has ended. caller is the read in whose
// goroutine it runs.
func (f *flight[V]) look(p *pace, caller *waiter[V]) (ended bool) {
	reserved, full := f.reserve(p.place)
	p.place, p.full = false, full
	wait, ended := f.readOrLease(reserved, caller)
	switch {
	case ended:
		return true
	case wait == 0:
		// Some came too late for this read: at once the next.
		f.shard.mu.Lock()
		f.shard.entries[f.key].passOn(f)
		f.shard.mu.Unlock()
		p.sleep = 0
	case !f.polls():
		p.sleep = math.MaxInt64
	default:
		p.rest(wait, f.c.opts.PollInterval)
	}
	return false
}

// rest sets how long to sleep before the next look: at most wait.
func (p *pace) rest(wait, interval time.Duration) {
	switch {
	case p.full:
		// It waits for its turn, not for another process, and may not be alone:
		// a FLUSHALL makes every key a load.
		p.sleep = queuedPolls * min(interval, time.Minute)
	case p.unwatch != nil:
		p.sleep = wokenPolls * min(interval, time.Minute)
	default:
		p.sleep = p.poll
		p.poll = min(2*p.poll, interval)
	}
	// With jitter, so that processes do not poll in step.
	p.sleep = min(wait, p.sleep/2+rand.N(p.sleep/2))
}

// watch makes the server wake the flight, if it polls. It is true when that has
// just begun.
func (f *flight[V]) watch(p *pace) bool {
	if p.unwatch != nil || p.full || p.sleep == math.MaxInt64 || !f.canSubscribe() {
		return false
	}
	var err error
	p.unwatch, err = f.c.store.wakeups.watch(context.Background(), f.keys.Wake, f.nudge)
	if err != nil {
		f.c.stats.failed(ErrorWatch)
	}
	return p.unwatch != nil
}

// canSubscribe reports whether no wait bound passes while the server is asked for
// messages, for up to CallTimeout: the flight looks after nobody meanwhile.
func (f *flight[V]) canSubscribe() bool {
	end := time.Now().Add(f.c.store.callTimeout)
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	return !slices.ContainsFunc(f.waiters, func(w *waiter[V]) bool { return w.deadline.Before(end) })
}

// stay reports whether the flight goes on. When nobody waits or the cache is
// closed it is detached. Waiters whose bound has passed are seen to.
func (f *flight[V]) stay() bool {
	if f.closes() {
		return false
	}
	f.overdue(nil)
	return f.isWaitedFor()
}

// closes reports whether the cache is closed. Then the flight has ended.
func (f *flight[V]) closes() bool {
	select {
	case <-f.c.closing:
		f.end(everyone, outcome[V]{err: ErrClosed})
		return true
	default:
		return false
	}
}

// isWaitedFor reports whether anybody waits. If not, the flight is detached.
func (f *flight[V]) isWaitedFor() bool {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	if len(f.waiters) == 0 {
		f.detach()
		return false
	}
	return true
}

// reserve takes what a load needs before its lease is taken: one of the key's
// slots and a place of MaxLoads, which the caller may have got already. full is
// true when it is MaxLoads that was reached.
func (f *flight[V]) reserve(place bool) (ok, full bool) {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	c := f.c
	switch {
	case !f.slot():
		if place {
			<-c.loads
		}
		return false, false
	case !c.place(place):
		f.unslot()
		return false, true
	}
	return true, false
}

// slot takes one of the key's slots. The shard is locked.
func (f *flight[V]) slot() bool {
	e := f.shard.entries[f.key]
	if f.starved = e.loads >= maxKeyLoads; f.starved {
		return false
	}
	e.loads++
	return true
}

// place takes a place of MaxLoads, unless the caller has one.
func (c *Cache[V]) place(has bool) bool {
	if c.loads != nil && !has {
		select {
		case c.loads <- struct{}{}:
		default:
			return false
		}
	}
	return true
}

// unplace gives it back.
func (c *Cache[V]) unplace() {
	if c.loads != nil {
		<-c.loads
	}
}

// unreserve gives back what reserve took, when no load came of it or when its
// loader has returned.
func (f *flight[V]) unreserve() {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	f.unslot()
	f.c.unplace()
}

// unslot gives back the key's slot. The shard is locked.
func (f *flight[V]) unslot() {
	e := f.shard.entries[f.key]
	e.loads--
	for _, other := range e.flights {
		if other != nil && other.starved {
			other.nudge()
		}
	}
	f.shard.tidy(f.key, e)
}

// readOrLease asks the server once. With reserved, it takes the lease if it is
// free, and then leads. It returns how long to wait before asking again at the
// most, or that the flight has ended.
func (f *flight[V]) readOrLease(reserved bool, caller *waiter[V]) (wait time.Duration, ended bool) {
	c := f.c
	var token protocol.Token
	if reserved {
		token = protocol.NewToken()
	}
	f.shard.mu.Lock()
	if len(f.waiters) == 0 {
		f.shard.mu.Unlock()
		f.abandon(reserved, "")
		return 0, false
	}
	ctx := context.WithoutCancel(f.waiters[0].ctx)
	f.step = f.shard.next()
	f.shard.mu.Unlock()

	sent := time.Now()
	reply, err := c.store.call(ctx, f.key, f.readCall(token))
	r, err := readReply(f.key, token, reply, err)
	if err != nil {
		c.stats.failed(ErrorRead)
		f.abandon(reserved, unknownLease(token, err))
		f.unavailable(err)
		return 0, true
	}
	switch r.State {
	case protocol.StateLeased:
		f.lead(r, caller)
		return 0, true
	case protocol.StateUnstored:
		return f.unstoredElsewhere()
	}
	f.abandon(reserved, "")
	return f.found(r, sent, reserved)
}

// readCall returns the call of the next look at the server.
func (f *flight[V]) readCall(token protocol.Token) protocol.Call {
	c := f.c
	overMark := f.overMark || c.opts.FailureBackoff < 0
	f.overMark = false
	return protocol.ReadCall(f.keys, token, protocol.ReadOptions{
		Lease:    c.opts.Lease,
		Stale:    c.opts.Stale > 0 && f.kind != refreshFlight,
		Refresh:  f.kind == refreshFlight,
		OverMark: overMark,
	})
}

// found deals with what a read found that got no lease.
func (f *flight[V]) found(r protocol.ReadReply, sent time.Time, reserved bool) (wait time.Duration, ended bool) {
	switch r.State {
	case protocol.StateValue:
		return f.hit(r, sent)
	case protocol.StateFailed:
		return f.failedElsewhere(r.Text)
	case protocol.StateStale:
		f.serveStale(r)
	}
	return f.waitFor(r.Left, reserved), false
}

// abandon gives back the reservation of a read that got no lease to load under,
// and releases the lease that it may have.
func (f *flight[V]) abandon(reserved bool, lease protocol.Lease) {
	if reserved {
		f.unreserve()
	}
	if lease != "" {
		f.c.release(f.key, f.keys, lease)
	}
}

// unknownLease returns the lease that a failed acquisition may have set.
func unknownLease(token protocol.Token, err error) protocol.Lease {
	if se, ok := errors.AsType[*stepError](err); token != "" && ok && se.unknown {
		return token.Unknown()
	}
	return ""
}

// hit hands out a value that was found. Those who came after the read was sent
// get the next one.
func (f *flight[V]) hit(r protocol.ReadReply, sent time.Time) (wait time.Duration, ended bool) {
	o := outcome[V]{source: Hit, sent: sent, ttl: r.TTL}
	var err error
	if o.value, o.notFound, err = f.c.decode(r.Value); err != nil {
		return f.dropped(r.Value, err)
	}
	if !o.notFound {
		o.payload, _, _ = protocol.Unwrap(r.Value)
	}
	f.shard.mu.Lock()
	ws := f.take(f.before)
	f.shard.mu.Unlock()
	deliverDecoded(ws, o)
	return 0, false
}

// serveStale hands the stale copy to those who were there before the read.
func (f *flight[V]) serveStale(r protocol.ReadReply) {
	o, err := f.staleOutcome(r)
	if err != nil {
		return // they wait for the value
	}
	f.shard.mu.Lock()
	ws := f.take(f.before)
	f.shard.mu.Unlock()
	f.c.stats.staleServed.Add(uint64(len(ws)))
	deliverDecoded(ws, o)
}

func (f *flight[V]) staleOutcome(r protocol.ReadReply) (o outcome[V], err error) {
	o = outcome[V]{source: Stale, uncached: StaleCopy}
	if o.value, o.notFound, err = f.c.decode(r.Value); err != nil {
		return o, err
	}
	o.payload, _, err = protocol.Unwrap(r.Value)
	return o, err
}

// waitFor marks the waiters as waiting for another process, those of the flight
// that does not poll as well, and returns how long until the lease runs out.
// Without a reservation the lease would not be taken then, and there is nothing
// to wake up for.
func (f *flight[V]) waitFor(left time.Duration, reserved bool) time.Duration {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	for _, other := range f.shard.entries[f.key].flights[:unleasedFlight] {
		if !reserved || other == nil || other.leased {
			continue
		}
		for _, w := range other.waiters {
			if !w.waited {
				w.waited = true
				f.c.stats.waits.Add(1)
			}
		}
	}
	if len(f.waiters) == 0 {
		return 0
	}
	if !reserved || left == 0 {
		return math.MaxInt64 // the poll interval decides
	}
	return left + time.Millisecond // PTTL rounds
}

// sleep waits for d, for the bound of the first waiter, or for a change. With
// full, it also queues for a place of MaxLoads, and reports whether it got one.
func (f *flight[V]) sleep(d time.Duration, full bool) (place bool) {
	return f.c.sleep(min(d, f.soonest(nil)), f.wake, full)
}

func (c *Cache[V]) sleep(d time.Duration, wake <-chan struct{}, full bool) (place bool) {
	var places chan<- struct{} // nil: not to be had
	if full {
		places = c.loads
	}
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case places <- struct{}{}:
		return true
	case <-c.closing:
	}
	return false
}

// unavailable answers the waiters of a read that failed with err.
func (f *flight[V]) unavailable(err error) {
	c := f.c
	if c.opts.OnUnavailable == UnavailableFail || c.store.closed.Load() {
		// An error holds no data, so that those who came later may have it, and
		// a server that hangs costs them no second wait.
		f.end(everyone, outcome[V]{err: err})
		return
	}
	f.unlease(reasonOf(err), err)
}

// unlease moves all waiters on to the flight that loads without a lease.
func (f *flight[V]) unlease(reason Reason, cause error) {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	f.c.moveOn(f.shard, unleasedFlight, f.unlink(reason, cause))
}

// unlink detaches the flight and takes all waiters, for a load without a lease.
// The shard is locked.
func (f *flight[V]) unlink(reason Reason, cause error) []*waiter[V] {
	f.detach()
	ws := f.take(everyone)
	for _, w := range ws {
		w.reason, w.cause = reason, cause
	}
	return ws
}

// dropped deals with a value that cannot be decoded.
func (f *flight[V]) dropped(stored string, cause error) (wait time.Duration, ended bool) {
	c := f.c
	again, err := c.drop(context.Background(), f.key, f.keys, stored)
	if again {
		return 0, false // the next read leases
	}
	if err != nil {
		cause = err
	}
	f.unlease(CannotDecode, cause)
	return 0, true
}
