package leasecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Store is a handle to one server, or one cluster, that several caches share.
// It is safe for concurrent use and meant to live as long as the process, as
// [database/sql.DB] is. A program with one cache needs no Store: [New] takes a
// driver as well.
//
// A Store is itself a [driver.Evaler], whose calls are bounded by CallTimeout.
type Store struct {
	evaler driver.Evaler // bounded by callTimeout
	getter driver.Getter // the same one, nil if it has no plain GET
	// The same one by GetBytes. What it returns may be changed. Nil if there is none.
	ownGetter driver.Getter
	// The same one for batches, or a guard over the given one; nil if there is none.
	batcher     driver.Batcher
	batchGetter driver.BatchGetter

	given  driver.Evaler // as it was handed over
	owned  bool          // close the driver with the Store
	silent bool          // no wake-ups

	callTimeout time.Duration
	closed      atomic.Bool
	wakeups     wakeups
	nears       nears

	mu      sync.Mutex
	caches  map[*counters]struct{}
	retired Stats // of the caches that are closed
}

// StoreOptions configure a [Store]. The zero value works.
type StoreOptions struct {
	// CallTimeout bounds each step on the server, with its retries, whatever the
	// client does with contexts. A server that hangs costs a read no more than
	// that. Default: 1s. At least 1ms.
	CallTimeout time.Duration

	// NoWakeUps makes waiting reads poll, though the driver could subscribe them
	// to messages, and the caches of this Store send none to other processes. It
	// is for users of the server that may not publish: each attempt is refused
	// without harm, but counted in its log of refusals.
	NoWakeUps bool
}

var errNilStore = errors.New("leasecache: Store is nil: check the error of Open, Adopt or NewStore")

const defaultCallTimeout = time.Second

// Open returns a Store over a new client, made by the driver that is registered
// under name from dsn, whose form is the driver's own. Import the driver's
// package for its side effect of registering. [Store.Close] closes the client.
//
// Open need not connect: call [Store.Ping] to see whether the server answers.
func Open(name, dsn string, opts StoreOptions) (*Store, error) {
	e, err := driver.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	s, err := NewStore(e, opts)
	if err != nil {
		if c, ok := e.(driver.Closer); ok {
			err = errors.Join(err, c.Close())
		}
		return nil, err
	}
	s.owned = true
	return s, nil
}

// Adopt returns a Store over the client that the service already has, by the
// registered driver that takes clients of its type. The client stays the
// caller's to close.
func Adopt(client any, opts StoreOptions) (*Store, error) {
	e, err := driver.Adopt(client)
	if err != nil {
		return nil, err
	}
	return NewStore(e, opts)
}

// NewStore returns a Store over e: what an adapter's constructor returned, or
// any other implementation of [driver.Evaler]. It never closes e's client.
func NewStore(e driver.Evaler, opts StoreOptions) (*Store, error) {
	if e == nil {
		return nil, errors.New("leasecache: driver is nil: pass what an adapter's New returns")
	}
	if s, ok := e.(*Store); ok {
		if s == nil {
			return nil, errNilStore
		}
		e = s.given // whose bound is this Store's to choose
	}
	if v, ok := e.(driver.Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	setDefault(&opts.CallTimeout, defaultCallTimeout)
	if err := checkDuration("StoreOptions.CallTimeout", opts.CallTimeout); err != nil {
		return nil, err
	}
	s := &Store{
		given:       e,
		evaler:      bound(e, opts.CallTimeout),
		callTimeout: opts.CallTimeout,
		caches:      map[*counters]struct{}{},
	}
	s.getter, _ = s.evaler.(driver.Getter)
	if g, ok := s.evaler.(driver.BytesGetter); ok && s.getter != nil {
		s.ownGetter = ownGetter{g}
	}
	s.batcher, s.batchGetter = boundBatches(e, s.evaler, opts.CallTimeout)
	s.wakeups.timeout = opts.CallTimeout
	if s.silent = opts.NoWakeUps; !s.silent {
		// Of e itself: what bounds its calls hides other abilities.
		s.wakeups.subscriber, _ = e.(driver.Subscriber)
	}
	return s, nil
}

var _ driver.Evaler = (*Store)(nil)

// Eval runs a script, bounded by CallTimeout. It makes a Store a
// [driver.Evaler], so that [New] takes either.
func (s *Store) Eval(ctx context.Context, script *driver.Script, keys, args []string) (driver.Reply, error) {
	if s.closed.Load() {
		return driver.Reply{}, driver.NotSent(ErrClosed)
	}
	return s.evaler.Eval(ctx, script, keys, args)
}

// pingScript is what a driver runs that has no [driver.Pinger].
var pingScript = driver.NewScript("ping", "return 1")

// Ping reports whether the server answers, within CallTimeout.
func (s *Store) Ping(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	var err error
	if p, ok := s.evaler.(driver.Pinger); ok {
		err = p.Ping(ctx)
	} else if p, ok := s.given.(driver.Pinger); ok {
		// What bounds its calls hides other abilities.
		_, err = guarded(ctx, s.callTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.Ping(ctx)
		})
	} else {
		_, err = s.evaler.Eval(ctx, pingScript, []string{"leasecache:{ping}"}, nil)
	}
	if err != nil {
		return fmt.Errorf("leasecache: ping: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// Stats returns the sums of the statistics of all caches on this Store, closed
// ones included.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.retired.clone()
	for c := range s.caches {
		sum.add(c.snapshot())
	}
	return sum
}

func (s *Store) register(c *counters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caches[c] = struct{}{}
}

func (s *Store) retire(c *counters) {
	s.mu.Lock()
	if _, ok := s.caches[c]; ok {
		delete(s.caches, c)
		s.retired.add(c.snapshot())
	}
	last := len(s.caches) == 0
	s.mu.Unlock()
	if last {
		s.wakeups.close()
	}
}

// Close closes the client, if [Open] made it. Close the caches first: see
// [Cache.Close]. Calls on a closed Store, and reads of its caches, return
// [ErrClosed].
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.nears.stop()
	s.wakeups.close()
	if !s.owned {
		return nil
	}
	if c, ok := s.given.(driver.Closer); ok {
		return c.Close()
	}
	return nil
}
