package leasecache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// Load is what a loader may decide beside the value. It is safe for concurrent
// use. All its methods do nothing on a nil *Load, so that a function which is
// sometimes called outside of a cache need not care.
type Load struct {
	mu         sync.Mutex
	ttl        time.Duration
	ttlSet     bool
	doNotStore bool
	keys       map[string]*Load // of a load of several keys; nil for that of one
	notFound   map[string]bool
}

type loadKey struct{}

// LoadFrom returns the Load of the loader that ctx was given to, or nil. It is
// how a loader that decides more than the value reaches it, from however deep:
//
//	func(ctx context.Context) (Token, error) {
//		t, err := issuer.Token(ctx)
//		leasecache.LoadFrom(ctx).SetTTL(time.Until(t.Expiry))
//		return t, err
//	}
func LoadFrom(ctx context.Context) *Load {
	l, _ := ctx.Value(loadKey{}).(*Load)
	return l
}

// SetTTL sets for how long this value, or this [ErrNotFound], is cached, instead
// of [Options.TTL] or [Options.NotFoundTTL]. It is cut to whole milliseconds and
// shortened by [Options.Jitter]. Below a millisecond the read returns [ErrTTL];
// use DoNotStore for a value that must not be cached.
func (l *Load) SetTTL(ttl time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ttl, l.ttlSet = ttl, true
}

// DoNotStore makes the value go to those who wait for it, and not be cached.
func (l *Load) DoNotStore() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doNotStore = true
}

// load is one call of a loader. What it returned may be read after done is
// closed.
type load[V any] struct {
	ctx   loadContext
	began time.Time
	done  chan struct{}

	own      Load
	decided  *Load // own, or that of the load of several keys
	counted  bool  // what it came to is counted with another of these keys
	value    V
	err      error
	cut      error // why ctx had ended when the loader returned
	panicked *PanicError
	goexit   bool
}

// startLoad calls w's loader in a goroutine of its own, because it may outlive
// the caller, and the flight must not wait for one that ignores its context.
// The reservation, and what free gives back, are held until it has returned.
func (f *flight[V]) startLoad(w *waiter[V], free func()) *load[V] {
	c := f.c
	l := c.newLoad(w.ctx)
	go l.run(
		func() { l.value, l.err = w.load(&l.ctx) },
		func() {
			f.unreserve()
			if free != nil {
				free()
			}
		})
	return l
}

func (c *Cache[V]) newLoad(ctx context.Context) *load[V] {
	c.stats.loads.Add(1)
	began := time.Now()
	l := &load[V]{began: began, done: make(chan struct{}), ctx: loadContext{
		parent:   context.WithoutCancel(ctx),
		deadline: began.Add(c.opts.LoadTimeout),
		closing:  c.loadsCtx,
	}}
	l.decided = &l.own
	l.ctx.decided = l.decided
	return l
}

// run calls the loader, which call does, and then ended, however it ends.
func (l *load[V]) run(call, ended func()) {
	returned := false
	defer func() {
		if !returned {
			if p := recover(); p != nil {
				l.panicked = &PanicError{p, debug.Stack()}
			} else {
				l.goexit = true
			}
		}
		ended()
		close(l.done)
		l.ctx.end() // last, or it would look like a passed timeout
	}()
	call()
	l.cut = l.ctx.Err()
	returned = true
}

// awaitLoad waits until the loader has returned or its time is over, and is
// false if ctx ends before. Others who joined the load of leader wait for it
// until their own bound passes.
func (f *flight[V]) awaitLoad(ctx context.Context, l *load[V], leader *waiter[V]) bool {
	return f.c.awaitLoads(ctx, l, ledBy[V]{f, leader})
}

// ledBy is a flight whose load runs, and the waiter whose loader it is.
type ledBy[V any] struct {
	f      *flight[V]
	leader *waiter[V]
}

// awaitLoads is awaitLoad for a load that is that of several flights.
func (c *Cache[V]) awaitLoads(ctx context.Context, l *load[V], led ...ledBy[V]) bool {
	leased := led[0].f.leased
	for !l.finished() {
		d := time.Until(l.ctx.deadline)
		if d <= 0 {
			return true
		}
		if leased {
			d = min(d, c.opts.WaitBound) // no later than that of anyone who joins from now on
			for _, one := range led {
				d = min(d, one.f.soonest(one.leader))
			}
		}
		t := time.NewTimer(max(d, 0))
		select {
		case <-l.done:
		case <-c.loadsCtx.Done():
			t.Stop()
			return true
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
			if leased {
				for _, one := range led {
					one.f.overdue(one.leader)
				}
			}
		}
		t.Stop()
	}
	return true
}

// soonest returns when the bound of the first waiter passes, other than leader.
func (f *flight[V]) soonest(leader *waiter[V]) time.Duration {
	d := time.Duration(math.MaxInt64)
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	for _, w := range f.waiters {
		if w != leader {
			d = min(d, time.Until(w.deadline))
		}
	}
	return d
}

// finished reports whether the loader has returned.
func (l *load[V]) finished() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// loaded turns what the loader did into an outcome, and counts it.
func (f *flight[V]) loaded(l *load[V]) outcome[V] {
	stats := &f.c.stats
	if l.counted && (!l.finished() || !errors.Is(l.err, ErrNotLoaded)) {
		stats = &counters{}
	}
	switch {
	case !l.finished(), l.cut != nil && errors.Is(l.err, l.cut):
		// The same for a loader that heeds its context and one that does not.
		if f.c.loadsCtx.Err() != nil {
			return outcome[V]{err: fmt.Errorf("%w while the load ran: %w", ErrClosed, context.Canceled)}
		}
		stats.failed(ErrorLoadTimeout)
		return outcome[V]{err: ErrLoadTimeout}
	case l.panicked != nil:
		stats.failed(ErrorLoaderPanic)
		return outcome[V]{err: l.panicked, panicked: l.panicked}
	case l.goexit:
		stats.failed(ErrorLoaderPanic)
		return outcome[V]{err: errGoexit, goexit: true}
	case errors.Is(l.err, ErrNotFound):
		return outcome[V]{err: l.err, notFound: true, value: l.value}
	case l.err != nil:
		stats.failed(ErrorLoader)
		return outcome[V]{err: l.err}
	}
	return outcome[V]{value: l.value}
}

// leader returns the waiter whose loader runs: the one who waits longest.
func (f *flight[V]) leader() *waiter[V] {
	f.shard.mu.Lock()
	defer f.shard.mu.Unlock()
	return f.first()
}

func (f *flight[V]) first() *waiter[V] {
	var first *waiter[V]
	for _, w := range f.waiters {
		if first == nil || w.arrived < first.arrived {
			first = w
		}
	}
	return first
}

// deliverLoad hands the outcome of leader's load to ws. The leader gets what its
// loader returned; the others decode a value of their own, so that no caller can
// change another's, or share it if the codec cannot encode it.
func (f *flight[V]) deliverLoad(ws []*waiter[V], leader *waiter[V], o outcome[V], encoded bool) {
	shared := o
	shared.source, shared.panicked, shared.goexit = Joined, nil, false
	failed := o.err != nil // nothing to encode
	if !failed && !encoded && (len(ws) > 1 || len(ws) == 1 && ws[0] != leader) {
		payload, err := f.c.coder.encode(o.value)
		shared.payload, encoded = payload, err == nil
	}
	if encoded {
		var none V
		shared.value = none
	}
	shared.decoded = !encoded
	for _, w := range ws {
		mine := shared
		if w == leader {
			mine = o
			mine.source, mine.decoded = Loaded, true
		}
		if w.reason != "" {
			mine.uncached = w.reason
		}
		w.done <- mine
	}
}
