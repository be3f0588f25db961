package leasecache

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// maxWatched is how many keys of a group the server wakes. A larger group polls:
// one look is one round trip for all of them.
const maxWatched = 16

// group is the flights that a call of GetMany has begun. One goroutine looks for
// all of them, with the steps that a flight takes by itself. They stay flights like
// others: they are in the table, whoever reads one of the keys joins its flight,
// and the order numbers decide what he gets. A flight leaves the group when it
// ends, and when only others wait in it: then it goes on by itself.
//
// What the group has leased is loaded and filled by a goroutine that waits for
// nothing but the loader and the server. So no lease that a group holds waits for
// one that another holds.
type group[V any] struct {
	c       *Cache[V]
	ctx     context.Context // for its values; it does not end
	load    BatchLoader[V]
	wake    chan struct{} // that of its flights
	members []*member[V]
}

// member is a flight of a group.
type member[V any] struct {
	f *flight[V]
	w *waiter[V] // the group's own read

	reserved bool // it has one of the key's slots
	token    protocol.Token
	sent     time.Time
	lease    protocol.Lease
	l        *load[V]
}

// heldLease is a lease to release.
type heldLease struct {
	key   string
	keys  protocol.Keys
	lease protocol.Lease
	mark  protocol.Mark
}

// start runs the group in a goroutine of its own.
func (g *group[V]) start(run func()) {
	g.c.work.extend() // beside its flights: their releases may come after them
	go func() {
		defer g.c.work.end()
		run()
	}()
}

// with returns a group like g of other members.
func (g *group[V]) with(ms []*member[V]) *group[V] {
	return &group[V]{c: g.c, ctx: g.ctx, load: g.load, members: ms}
}

// run looks until every flight has ended or left.
func (g *group[V]) run() {
	p := pace{poll: min(firstPoll, g.c.opts.PollInterval)}
	defer func() {
		if p.unwatch != nil {
			p.unwatch()
		}
	}()
	for {
		// Who begins to watch looks at once: the lease may have ended before.
		if p.sleep > 0 && !g.watch(&p) {
			p.place = g.sleep(p.sleep, p.full)
		}
		if !g.stay() { // a closed cache begins no loads, not for those who are overdue either
			break
		}
		if g.overdue(); !g.stay() {
			break
		}
		g.look(&p)
	}
	if p.place {
		g.c.unplace()
	}
}

// stay reports whether any flight stays in the group. It leaves bounds to
// [group.overdue], which sees to them together.
func (g *group[V]) stay() bool {
	g.members = slices.DeleteFunc(g.members, func(m *member[V]) bool {
		switch {
		case m.f.closes(), !m.f.isWaitedFor():
			g.c.work.end()
			return true
		case !m.waits():
			m.part()
			return true
		}
		return false
	})
	return len(g.members) > 0
}

// waits reports whether the group's own read waits in the flight.
func (m *member[V]) waits() bool {
	m.f.shard.mu.Lock()
	defer m.f.shard.mu.Unlock()
	return m.w.flight == m.f
}

// part lets the flight go on by itself, for those who wait in it.
func (m *member[V]) part() {
	f := m.f
	f.shard.mu.Lock()
	f.shard.entries[f.key].passOn(f)
	f.wake = make(chan struct{}, 1)
	empty := len(f.waiters) == 0
	if empty {
		f.detach()
	}
	f.shard.mu.Unlock()
	if empty {
		f.c.work.end()
	} else {
		f.start()
	}
}

// look asks the server for all members, and takes the leases that are free. It
// notes for how long to sleep before the next look.
func (g *group[V]) look(p *pace) {
	c := g.c
	place := c.place(p.place)
	p.place, p.full = false, !place
	var (
		leased, waiting []*member[V]
		unlinked        []*member[V] // to load without a lease
		unstored        []*member[V] // to do so at once
		over            []heldLease  // of no use
		wait            = time.Duration(math.MaxInt64)
	)
	c.store.callMany(g.ctx, len(g.members), func(i int) (string, protocol.Call) {
		m := g.members[i]
		return m.f.key, m.ask(place)
	}, func(i int, reply driver.Reply, err error) {
		m := g.members[i]
		f := m.f
		r, err := readReply(f.key, m.token, reply, err)
		if err == nil && r.State == protocol.StateLeased {
			m.lease = r.Lease
			if f.assume(r, m.w) != nil {
				leased = append(leased, m)
				return
			}
			m.unslot()
			over = append(over, m.held(r.Lease, protocol.NoMark))
			c.work.end()
			return
		}
		if err == nil && r.State == protocol.StateUnstored {
			unstored = append(unstored, m) // with its slot
			return
		}
		m.unslot()
		if err != nil {
			c.stats.failed(ErrorRead)
			if lease := unknownLease(m.token, err); lease != "" {
				over = append(over, m.held(lease, protocol.NoMark))
			}
			if c.opts.OnUnavailable == UnavailableFail || c.store.closed.Load() {
				f.end(everyone, outcome[V]{err: err})
			} else if u := m.unlink(reasonOf(err), err); u != nil {
				unlinked = append(unlinked, u)
			}
			c.work.end()
			return
		}
		left, ended := f.found(r, m.sent, m.reserved)
		switch {
		case ended:
			c.work.end()
		case left == 0 && !m.waits():
			m.part() // for those who came too late for this read
		default:
			f.polls()
			waiting, wait = append(waiting, m), min(wait, left)
		}
	})
	c.releaseMany(over)
	if len(unlinked) > 0 {
		u := g.with(unlinked)
		g.start(u.runUnleased)
	}
	if len(leased) > 0 { // the load has the place
		l := g.with(leased)
		g.start(l.lead)
	} else if place {
		c.unplace()
	}
	if queued := g.loadUnstored(unstored); len(queued) > 0 {
		waiting, wait = append(waiting, queued...), 0
	}
	g.members = waiting
	p.rest(wait, c.opts.PollInterval)
}

// loadUnstored is flight.unstoredElsewhere for members that have their slots, by one
// call of the loader. It returns those that queue for the lease.
func (g *group[V]) loadUnstored(ms []*member[V]) (queued []*member[V]) {
	c := g.c
	if len(ms) == 0 {
		return nil
	}
	closed := c.work.closed.Load() // no new loads
	if closed || !c.admit() {
		for _, m := range ms {
			m.unslot()
			m.f.overMark = true
			if closed {
				m.f.end(everyone, outcome[V]{err: ErrClosed})
				c.work.end()
			}
		}
		if closed {
			return nil
		}
		return ms
	}
	var us []*member[V]
	for _, m := range ms {
		f := m.f
		f.shard.mu.Lock()
		f.detach()
		us = append(us, &member[V]{f: f.split(nil, HolderNotStored), w: m.w, reserved: true})
		f.shard.mu.Unlock()
	}
	g.loadUnleased(us, true) // which goes on with the counts of their flights
	return nil
}

// ask returns the call of the next look. With a place of MaxLoads, it takes the
// lease if the key has a slot free.
func (m *member[V]) ask(place bool) protocol.Call {
	f := m.f
	f.shard.mu.Lock()
	m.reserved = place && f.slot()
	f.step = f.shard.next()
	f.shard.mu.Unlock()
	m.token = ""
	if m.reserved {
		m.token = protocol.NewToken()
	}
	m.sent = time.Now()
	return f.readCall(m.token)
}

// unslot gives back the key's slot.
func (m *member[V]) unslot() {
	if m.reserved {
		m.f.shard.mu.Lock()
		m.f.unslot()
		m.f.shard.mu.Unlock()
	}
}

func (m *member[V]) held(lease protocol.Lease, mark protocol.Mark) heldLease {
	return heldLease{m.f.key, m.f.keys, lease, mark}
}

// unlink moves the waiters on to the flight that loads without a lease, and
// returns that if it is new.
func (m *member[V]) unlink(reason Reason, cause error) *member[V] {
	f := m.f
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	ws := f.unlink(reason, cause)
	if len(ws) == 0 {
		return nil
	}
	switch u, isNew := f.c.join(f.shard, unleasedFlight, ws...); {
	case u == nil:
		deliver(ws, outcome[V]{err: ErrClosed})
		return nil
	case isNew:
		return &member[V]{f: u, w: m.w}
	}
	return nil
}

// watch makes the server wake the group. It is true when that has just begun.
func (g *group[V]) watch(p *pace) bool {
	if p.unwatch != nil || p.full || len(g.members) > maxWatched ||
		slices.ContainsFunc(g.members, func(m *member[V]) bool { return !m.f.canSubscribe() }) {
		return false
	}
	nudge := func() {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
	stops := make([]func(), len(g.members))
	each(len(g.members), func(i int) {
		var err error
		stops[i], err = g.c.store.wakeups.watch(context.Background(), g.members[i].f.keys.Wake, nudge)
		if err != nil {
			g.c.stats.failed(ErrorWatch)
		}
	})
	all := true
	for _, stop := range stops {
		all = all && stop != nil
	}
	unwatch := func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}
	if !all {
		unwatch()
		return false
	}
	p.unwatch = unwatch
	return true
}

// sleep is that of a flight.
func (g *group[V]) sleep(d time.Duration, full bool) (place bool) {
	for _, m := range g.members {
		d = min(d, m.f.soonest(nil))
	}
	return g.c.sleep(d, g.wake, full)
}

// overdue is that of a flight: waiters whose bound has passed load without a lease,
// by one call of the loader.
func (g *group[V]) overdue() {
	c := g.c
	now := time.Now() // one for all, or a bound that passes meanwhile would part them
	var placed, asked bool
	var admitted []*member[V]
	for _, m := range g.members {
		f := m.f
		f.shard.mu.Lock()
		due, n := f.due(nil, now)
		if n == 0 {
			f.shard.mu.Unlock()
			continue
		}
		c.stats.waitTimeouts.Add(uint64(n))
		if !asked {
			placed, asked = c.admit(), true
		}
		if !placed || !f.admitIf(anyway) {
			ws := f.take(due)
			f.shard.mu.Unlock()
			f.overloaded(ws)
			continue
		}
		admitted = append(admitted, &member[V]{f: f.split(nil, WaitedTooLong), w: m.w, reserved: true})
		f.shard.mu.Unlock()
		c.work.extend()
	}
	g.loadUnleased(admitted, placed)
}

func anyway() bool { return true }

// runUnleased is the goroutine of flights that load without a lease.
func (g *group[V]) runUnleased() {
	c := g.c
	if !g.stay() {
		return
	}
	placed := c.admit()
	var admitted []*member[V]
	for _, m := range g.members {
		f := m.f
		f.shard.mu.Lock()
		switch {
		case f.shard.entries[f.key].loads >= maxKeyLoads:
			f.shard.mu.Unlock()
			m.part() // it waits for a load of its own
		case !placed || !f.admitIf(anyway):
			f.detach()
			ws := f.take(everyone)
			f.shard.mu.Unlock()
			f.overloaded(ws)
			c.work.end()
		default:
			f.detach()
			f.step = f.shard.next()
			f.shard.mu.Unlock()
			m.reserved = true
			admitted = append(admitted, m)
		}
	}
	g.loadUnleased(admitted, placed)
}

// loadUnleased starts the load of the flights that were admitted, if any. placed
// tells whether it has its places.
func (g *group[V]) loadUnleased(ms []*member[V], placed bool) {
	c := g.c
	switch {
	case len(ms) > 0:
	case placed:
		<-c.unleased
		c.unplace()
		return
	default:
		return
	}
	u := g.with(ms)
	g.start(func() {
		c.stats.unleasedLoads.Add(1)
		u.awaitLoad(func() { <-c.unleased })
		for _, m := range u.members {
			m.f.endUnleased(m.l, m.w)
			c.work.end()
		}
	})
}

// lead loads the values of the keys that the group has leased, and fills.
func (g *group[V]) lead() {
	c := g.c
	g.awaitLoad(func() {})
	for ms := range slices.Chunk(g.members, maxBatch) {
		var fills, none []*endedLoad[V]
		var over []heldLease
		for _, m := range ms {
			if e := m.f.ended(m.l, m.w, m.lease); e.p.store {
				fills = append(fills, e)
			} else {
				none, over = append(none, e), append(over, m.held(m.lease, m.f.mark(e.o)))
			}
		}
		c.releaseMany(over)
		for _, e := range none {
			e.unfilled()
		}
		g.fill(fills)
		for range ms {
			c.work.end()
		}
	}
}

// fill fills what was loaded.
func (g *group[V]) fill(loads []*endedLoad[V]) {
	c := g.c
	type filled struct {
		did protocol.Outcome
		ttl time.Duration
		err error
	}
	results := make([]filled, len(loads))
	var over []heldLease
	c.store.callMany(g.ctx, len(loads), func(i int) (string, protocol.Call) {
		e := loads[i]
		e.sending()
		return e.f.key, protocol.FillCall(e.f.keys, e.lease, e.p.stored, e.p.ttl)
	}, func(i int, reply driver.Reply, err error) {
		e, r := loads[i], &results[i]
		r.did, r.ttl, r.err = fillReply(e.f.key, reply, err)
		if r.err != nil {
			over = append(over, heldLease{e.f.key, e.f.keys, e.lease, markAfter(r.err)})
		}
	})
	c.releaseMany(over)
	for i, e := range loads {
		e.filled(results[i].did, results[i].ttl, results[i].err)
	}
}

// awaitLoad calls the loader for all members, and waits until it has returned or
// its time is over. The reservations, a place of MaxLoads, and what free gives back
// are held until it has returned.
func (g *group[V]) awaitLoad(free func()) {
	c, ms := g.c, g.members
	all := c.newLoad(g.ctx)
	all.own.several()
	keys := make([]string, len(ms))
	led := make([]ledBy[V], len(ms))
	for i, m := range ms {
		keys[i], led[i] = m.f.key, ledBy[V]{m.f, m.w}
		m.l = &load[V]{began: all.began, done: all.done, decided: all.decided, counted: i > 0}
		m.l.ctx.deadline = all.ctx.deadline
	}
	var b batch[V]
	go all.run(
		func() { b.values, b.err = g.load(&all.ctx, keys) },
		func() {
			for _, m := range ms {
				l := m.l
				l.cut, l.panicked, l.goexit = all.cut, all.panicked, all.goexit
				if l.panicked == nil && !l.goexit {
					l.value, l.err = b.value(m.f.key, all.decided)
				}
				m.unslot()
			}
			c.unplace()
			free()
		})
	c.awaitLoads(context.Background(), all, led...)
}

// releaseMany is release for many leases.
func (c *Cache[V]) releaseMany(over []heldLease) {
	if len(over) == 0 {
		return
	}
	c.work.extend()
	go func() {
		defer c.work.end()
		c.store.callMany(context.Background(), len(over), func(i int) (string, protocol.Call) {
			return over[i].key, c.releaseCall(over[i].keys, over[i].lease, over[i].mark)
		}, func(_ int, reply driver.Reply, err error) {
			if err == nil {
				_, err = protocol.ParseRelease(reply)
			}
			if err != nil {
				c.stats.failed(ErrorRelease)
			}
		})
	}()
}
