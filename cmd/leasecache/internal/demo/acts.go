package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// act is a situation in which caches go wrong.
type act struct {
	name string
	// lease is how long leases last, and locks.
	lease time.Duration
	// locks is set where the naive side has a lock.
	locks bool
	play  func(context.Context, *stage) error
}

const (
	// longLease is for acts in which no lease is meant to run out.
	longLease = 30 * time.Second
	// shortLease is for those that wait for it. It is much longer than a load, on
	// a busy machine too, so that it is a pause or a crash that it runs out in.
	shortLease = time.Second
)

func acts() []act {
	return []act{
		{"stampede", longLease, false, stampede},
		{"late_fill", longLease, false, lateFill},
		{"expired_lease", shortLease, true, expiredLease},
		{"crashed_holder", shortLease, true, crashedHolder},
	}
}

func actNamed(name string) (act, error) {
	for _, a := range acts() {
		if a.name == name {
			return a, nil
		}
	}
	return act{}, fmt.Errorf("unknown act %q", name)
}

// keyOf returns the key that an act plays with. Each side has its own.
func keyOf(act, side string) string { return act + "-" + side }

// stampede: all readers miss a cold key at once.
func stampede(ctx context.Context, s *stage) error {
	all, err := s.start(ctx, s.workers)
	if err != nil {
		return err
	}
	return s.finish(ctx, all)
}

// lateFill: a load that began before an update and its invalidation ends after
// them.
func lateFill(ctx context.Context, s *stage) error {
	old, err := s.startPaused(ctx)
	if err != nil {
		return err
	}
	if err := s.update(ctx); err != nil {
		return err
	}
	if err := s.side.invalidate(ctx, s.key); err != nil {
		return err
	}
	s.wanted = s.version

	// Readers in the process of the paused load may join it, and are there first.
	joined, err := s.start(ctx, s.workers[:1])
	if err != nil {
		return err
	}
	others, err := s.start(ctx, s.workers[1:])
	if err != nil {
		return err
	}
	if err := s.finish(ctx, others); err != nil {
		return err
	}
	if err := s.resume(ctx, old); err != nil {
		return err
	}
	if err := s.finish(ctx, joined); err != nil {
		return err
	}
	return s.readAgain(ctx)
}

// expiredLease: OLD pauses past the end of its lease, CURRENT loads a newer
// value and caches it, and OLD goes on.
func expiredLease(ctx context.Context, s *stage) error {
	old, err := s.startPaused(ctx)
	if err != nil {
		return err
	}
	if err := s.update(ctx); err != nil {
		return err
	}
	current, err := s.start(ctx, s.workers[1:])
	if err != nil {
		return err
	}
	if err := s.finish(ctx, current); err != nil { // when the lease has run out
		return err
	}
	s.wanted = s.version
	if err := s.resume(ctx, old); err != nil {
		return err
	}
	return s.readAgain(ctx)
}

// crashedHolder: the holder is killed in the middle of its load, while others
// wait for it.
func crashedHolder(ctx context.Context, s *stage) error {
	if _, err := s.startPaused(ctx); err != nil {
		return err
	}
	others, err := s.start(ctx, s.workers[1:])
	if err != nil {
		return err
	}
	if err := s.workers[0].kill(); err != nil {
		return err
	}
	return s.finish(ctx, others)
}

// stage is where an act is played on one side.
type stage struct {
	act     act
	name    string // of the side
	key     string
	readers int // in each worker
	workers []*process
	source  *source
	side    side // of this process, which is the one that changes the source

	version int // of the product in the source
	wanted  int // the version below which a read that starts now is stale
	outcome outcome
}

// update changes the source.
func (s *stage) update(ctx context.Context) (err error) {
	s.version, err = s.source.update(ctx, s.key)
	return err
}

// command returns the command for a round of reads.
func (s *stage) command() command {
	return command{Act: s.act.name, Side: s.name, Readers: s.readers}
}

// start has all readers of those workers read, at once, when all are ready.
func (s *stage) start(ctx context.Context, workers []*process) ([]*round, error) {
	rounds := make([]*round, len(workers))
	for i, w := range workers {
		r, err := w.read(ctx, s.command())
		if err != nil {
			return nil, err
		}
		rounds[i] = r
	}
	for _, r := range rounds {
		if err := r.tell(command{Do: doStart}); err != nil {
			return nil, err
		}
	}
	return rounds, nil
}

// finish waits until all have read, and counts.
func (s *stage) finish(ctx context.Context, rounds []*round) error {
	for _, r := range rounds {
		e, err := r.await(ctx, isDone)
		if err != nil {
			return err
		}
		for version, n := range e.Versions {
			if version < s.wanted {
				s.outcome.StaleReads += n
			}
		}
		s.outcome.SlowestMS = max(s.outcome.SlowestMS, e.Slowest.Milliseconds())
	}
	return nil
}

// readAgain has all readers read once more.
func (s *stage) readAgain(ctx context.Context) error {
	all, err := s.start(ctx, s.workers)
	if err != nil {
		return err
	}
	return s.finish(ctx, all)
}

// startPaused has one reader of the first worker read, whose load pauses when it
// has read the row. The reader is not one of those that are counted.
func (s *stage) startPaused(ctx context.Context) (*round, error) {
	c := s.command()
	c.Readers, c.Pause = 1, true
	r, err := s.workers[0].read(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := r.tell(command{Do: doStart}); err != nil {
		return nil, err
	}
	_, err = r.await(ctx, isPaused)
	return r, err
}

// resume lets the paused load go on, and waits until its value was cached or not.
func (s *stage) resume(ctx context.Context, r *round) error {
	if err := r.tell(command{Do: doResume}); err != nil {
		return err
	}
	e, err := r.await(ctx, isDone)
	s.outcome.rejected = e.Rejected
	return err
}

// run plays the act, and takes what is to be known at its end.
func (s *stage) run(ctx context.Context) (err error) {
	defer func() {
		// Also after a Ctrl-C.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if e := errors.Join(s.side.clear(ctx, s.key), s.side.close(ctx)); err == nil {
			err = e
		}
	}()
	if s.version, err = s.source.version(ctx, s.key); err != nil {
		return err
	}
	if err := s.act.play(ctx, s); err != nil {
		return err
	}
	if s.outcome.Loads, err = s.source.loads(ctx, s.key); err != nil {
		return err
	}
	p, ok, err := s.side.cached(ctx, s.key)
	s.outcome.CachedStale = ok && p.Version < s.version
	return err
}
