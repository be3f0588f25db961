package leasecache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// maxAttempts is how often a step is tried on the server within CallTimeout.
// Every script may run twice with the same arguments, and clients are told not
// to retry, so what is safe to retry is retried here.
const maxAttempts = 3

// call runs a step on the server for key: the script, once more when that can
// help, and all of it within CallTimeout.
func (s *Store) call(ctx context.Context, key string, c protocol.Call) (driver.Reply, error) {
	var reply driver.Reply
	err := s.attempt(ctx, key, c.Script.Name(), func(ctx context.Context) (err error) {
		defer recovered("driver", &err)
		reply, err = s.Eval(ctx, c.Script, c.Keys, c.Args)
		return err
	})
	return reply, err
}

// get reads the stored value of key with a plain GET.
func (s *Store) get(ctx context.Context, key, valueKey string) (stored string, ok bool, err error) {
	return s.getBy(ctx, s.getter, key, valueKey)
}

func (s *Store) getBy(ctx context.Context, g driver.Getter, key, valueKey string) (stored string, ok bool, err error) {
	if s.closed.Load() {
		return "", false, ErrClosed
	}
	// The first attempt is written out, because a closure costs a hit an
	// allocation.
	start := time.Now()
	stored, ok, err = g.Get(ctx, valueKey)
	if err == nil {
		return stored, ok, nil
	}
	err = s.retry(ctx, key, "get", start, err, func(ctx context.Context) (err error) {
		stored, ok, err = g.Get(ctx, valueKey)
		return err
	})
	return stored, ok, err
}

// ownGetter is a [driver.BytesGetter] as a Getter: its strings are the bytes, which
// nobody else has.
type ownGetter struct{ driver.BytesGetter }

func (g ownGetter) Get(ctx context.Context, key string) (string, bool, error) {
	b, ok, err := g.GetBytes(ctx, key)
	return unsafe.String(unsafe.SliceData(b), len(b)), ok, err
}

func (s *Store) attempt(ctx context.Context, key, step string, do func(context.Context) error) error {
	start := time.Now()
	if err := do(ctx); err != nil {
		return s.retry(ctx, key, step, start, err, do)
	}
	return nil
}

// retry goes on after a first attempt that failed with err.
func (s *Store) retry(ctx context.Context, key, step string, start time.Time, err error, do func(context.Context) error) error {
	bounded, cancel := context.WithDeadline(ctx, start.Add(s.callTimeout))
	defer cancel()
	var t tries
	t.failed(err)
	for n := 1; n < maxAttempts && canRetry(t.err) && pause(bounded, n); n++ {
		if err = do(bounded); err == nil {
			return nil
		}
		t.failed(err)
	}
	return s.gaveUp(step, key, t)
}

// tries is what became of the attempts at a step that has failed so far.
type tries struct {
	err     error // of the last one
	refusal error // the server's last word
	unknown bool  // one of them may have run
}

// failed notes an attempt that failed with err.
func (t *tries) failed(err error) {
	if isUnknown(err) {
		t.unknown = true
	}
	if serverCode(err) != "" {
		t.refusal = err
	}
	t.err = since(err, t.err)
}

// gaveUp returns the error of a step after its last attempt.
func (s *Store) gaveUp(step, key string, t tries) error {
	if s.closed.Load() && errors.Is(t.err, driver.ErrNotSent) {
		t.err = ErrClosed
	}
	return &stepError{step: step, key: key, err: t.err, unknown: t.unknown, refusal: t.refusal}
}

// since returns err, the error of an attempt, and when that says that its time was
// over, then also why the attempt before it failed: that is what took the time.
func since(err, before error) error {
	if before == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	if serverCode(before) != "" {
		// It is not the reply to the last attempt, whose outcome is unknown.
		return fmt.Errorf("%w; before that: %v", err, before) //nolint:errorlint // see above
	}
	return fmt.Errorf("%w; before that: %w", err, before)
}

// isUnknown reports whether a call that failed with err may have run.
func isUnknown(err error) bool {
	return serverCode(err) == "" && !errors.Is(err, driver.ErrNotSent)
}

// canRetry reports whether another attempt can help: when the server did
// nothing for now, or when a connection broke. A call that used up its time has
// none left for another.
func canRetry(err error) bool {
	if code := serverCode(err); code != "" {
		return transient[code]
	}
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, protocol.ErrReply) && !errors.Is(err, ErrClosed)
}

// pause waits before attempt n+1, and reports whether there is time for it.
func pause(ctx context.Context, n int) bool {
	// 1 to 2 ms after the first attempt, then ten times as long: the first
	// failure is most often a connection that was closed while it was idle.
	d := time.Millisecond
	for range n - 1 {
		d *= 10
	}
	return sleep(ctx, d+rand.N(d))
}

// sleep waits for d, and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// bound returns e with calls that end within d.
func bound(e driver.Evaler, d time.Duration) driver.Evaler {
	if b, ok := e.(driver.Bounder); ok {
		return b.Bound(d)
	}
	g := guard{e, d}
	if getter, ok := e.(driver.Getter); ok {
		return guardGetter{g, getter}
	}
	return g
}

// guard ends the calls of a driver that cannot end them itself, by leaving them
// behind. What they return later is dropped, and their goroutine ends with them.
type guard struct {
	driver.Evaler
	d time.Duration
}

func (g guard) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	// A call that is left behind may still read them, and they are the caller's.
	keys, args = slices.Clone(keys), slices.Clone(args)
	return guarded(ctx, g.d, func(ctx context.Context) (driver.Reply, error) {
		return g.Evaler.Eval(ctx, s, keys, args)
	})
}

// guardGetter is a guard over a driver with a plain GET.
type guardGetter struct {
	guard
	getter driver.Getter
}

func (g guardGetter) Get(ctx context.Context, key string) (string, bool, error) {
	type got struct {
		value string
		ok    bool
	}
	v, err := guarded(ctx, g.d, func(ctx context.Context) (v got, err error) {
		v.value, v.ok, err = g.getter.Get(ctx, key)
		return v, err
	})
	return v.value, v.ok, err
}

func guarded[T any](ctx context.Context, d time.Duration, call func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, driver.NotSent(err)
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() { done <- r }()
		defer recovered("driver", &r.err)
		r.value, r.err = call(ctx)
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once: the reply counts
		return r.value, r.err
	default:
		return none, ctx.Err()
	}
}
