package leasecache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

const (
	// maxBatch is how many calls share a round trip: enough that the round trip
	// is no matter, and few enough that neither the server's replies nor ours pile
	// up.
	maxBatch = 500
	// maxBatchBytes is about how many bytes of arguments do.
	maxBatchBytes = 1 << 20
	// batchParts is in how many parts a batch that failed is sent again.
	batchParts = 8
	// batchWorkers is how many calls are on the wire at a time when the driver
	// cannot send them together.
	batchWorkers = 16
)

// callMany runs n steps on the server, each as call does, and those that the
// driver can send together in one round trip. step returns the key of step i and
// its call, just before it is first sent. took gets what came of it, in this
// goroutine.
func (s *Store) callMany(ctx context.Context, n int, step func(i int) (key string, c protocol.Call), took func(i int, r driver.Reply, err error)) {
	var (
		keys  []string
		calls []driver.Call
		hung  error // a whole batch ran out of time
	)
	for i := 0; i < n; {
		first, bytes := i, 0
		keys, calls = keys[:0], calls[:0]
		for ; i < n && len(calls) < maxBatch && bytes < maxBatchBytes; i++ {
			key, c := step(i)
			keys, calls = append(keys, key), append(calls, driver.Call(c))
			for _, arg := range c.Args {
				bytes += len(arg)
			}
		}
		if hung != nil {
			for j, key := range keys {
				took(first+j, driver.Reply{}, &stepError{step: calls[j].Script.Name(), key: key, err: driver.NotSent(hung)})
			}
			continue
		}
		results := s.callBatch(ctx, keys, calls)
		hung = ranOut(results, resultError)
		for j, r := range results {
			took(first+j, r.Reply, r.Err)
		}
	}
}

func (s *Store) callBatch(ctx context.Context, keys []string, calls []driver.Call) []driver.Result {
	if s.batcher == nil || len(calls) == 1 {
		results := make([]driver.Result, len(calls))
		each(len(calls), func(i int) {
			results[i].Reply, results[i].Err = s.call(ctx, keys[i], protocol.Call(calls[i]))
		})
		return results
	}
	return attemptMany(ctx, s, calls, s.batcher.EvalBatch, resultError,
		func(i int) (step, key string) { return calls[i].Script.Name(), keys[i] })
}

// getMany reads the stored values of keys with plain GETs that share a round
// trip. valueKeys are their names on the server.
func (s *Store) getMany(ctx context.Context, keys, valueKeys []string) []driver.GetResult {
	return attemptMany(ctx, s, valueKeys, s.batchGetter.GetBatch, getError,
		func(i int) (step, key string) { return "get", keys[i] })
}

func resultError(r *driver.Result) *error { return &r.Err }
func getError(r *driver.GetResult) *error { return &r.Err }

// ranOut returns the error of the first result if every one of them ran out of
// time: then the next batch would only take as long.
func ranOut[R any](results []R, errOf func(*R) *error) error {
	for i := range results {
		if err := *errOf(&results[i]); err == nil || serverCode(err) != "" || !errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
	}
	if len(results) == 0 {
		return nil
	}
	err := *errOf(&results[0])
	if se, ok := errors.AsType[*stepError](err); ok {
		err = se.err
	}
	return err
}

// attemptMany sends items together, and those that failed again when that can
// help, within CallTimeout. It is Store.attempt for many. When the connection breaks
// at one of them, it breaks for all that are on it, and perhaps does so each time:
// so the second attempt is in parts, and in the third each goes by itself.
func attemptMany[C, R any](ctx context.Context, s *Store, items []C, send func(context.Context, []C) []R, errOf func(*R) *error, label func(i int) (step, key string)) []R {
	start := time.Now()
	results := sendMany(ctx, s, items, send, errOf)
	var failed []int
	for i := range results {
		if *errOf(&results[i]) != nil {
			failed = append(failed, i)
		}
	}
	if failed == nil {
		return results
	}
	bounded, cancel := context.WithDeadline(ctx, start.Add(s.callTimeout))
	defer cancel()
	tried := make(map[int]*tries, len(failed))
	for _, i := range failed {
		tried[i] = &tries{}
	}
	for n := 1; ; n++ {
		var again []int
		var rest []C
		for _, i := range failed {
			t := tried[i]
			t.failed(*errOf(&results[i]))
			if canRetry(t.err) {
				again, rest = append(again, i), append(rest, items[i])
			}
		}
		if n == maxAttempts || len(again) == 0 || !pause(bounded, n) {
			break
		}
		size := 1
		if n < maxAttempts-1 {
			size = (len(rest) + batchParts - 1) / batchParts
		}
		got := make([]R, len(rest))
		parts := slices.Collect(slices.Chunk(rest, size))
		each(len(parts), func(p int) {
			copy(got[p*size:], sendMany(bounded, s, parts[p], send, errOf))
		})
		failed = failed[:0]
		for j, i := range again {
			if results[i] = got[j]; *errOf(&got[j]) != nil {
				failed = append(failed, i)
			} else {
				delete(tried, i)
			}
		}
	}
	for i, t := range tried {
		step, key := label(i)
		*errOf(&results[i]) = s.gaveUp(step, key, *t)
	}
	return results
}

// sendMany is one attempt.
func sendMany[C, R any](ctx context.Context, s *Store, items []C, send func(context.Context, []C) []R, errOf func(*R) *error) (results []R) {
	var err error
	if s.closed.Load() {
		err = driver.NotSent(ErrClosed)
	} else {
		func() {
			defer recovered("driver", &err)
			if results = send(ctx, items); len(results) != len(items) {
				err = fmt.Errorf("%w: %d results for a batch of %d calls; check the driver with the conformance suite", protocol.ErrReply, len(results), len(items))
			}
		}()
	}
	if err != nil {
		results = failAll(len(items), errOf, err)
	}
	return results
}

func failAll[R any](n int, errOf func(*R) *error, err error) []R {
	results := make([]R, n)
	for i := range results {
		*errOf(&results[i]) = err
	}
	return results
}

// each calls do with every number below n, a few at a time.
func each(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, batchWorkers) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// boundBatches returns the abilities for batches that bounded, which bound made
// of e, has or is given by a guard.
func boundBatches(e, bounded driver.Evaler, d time.Duration) (driver.Batcher, driver.BatchGetter) {
	if _, ok := e.(driver.Bounder); ok {
		b, _ := bounded.(driver.Batcher)
		g, _ := bounded.(driver.BatchGetter)
		return b, g
	}
	var batcher driver.Batcher
	if b, ok := e.(driver.Batcher); ok {
		batcher = guardBatcher{b, d}
	}
	var getter driver.BatchGetter
	if g, ok := e.(driver.BatchGetter); ok {
		getter = guardBatchGetter{g, d}
	}
	return batcher, getter
}

// guardBatcher is a guard over a driver's batches.
type guardBatcher struct {
	driver.Batcher
	d time.Duration
}

func (g guardBatcher) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	calls = slices.Clone(calls) // whose keys and args are the batch's own
	results, err := guarded(ctx, g.d, func(ctx context.Context) ([]driver.Result, error) {
		return g.Batcher.EvalBatch(ctx, calls), nil
	})
	if err != nil {
		return failAll(len(calls), resultError, err)
	}
	return results
}

// guardBatchGetter is a guard over a driver's batches of GETs.
type guardBatchGetter struct {
	driver.BatchGetter
	d time.Duration
}

func (g guardBatchGetter) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	keys = slices.Clone(keys)
	results, err := guarded(ctx, g.d, func(ctx context.Context) ([]driver.GetResult, error) {
		return g.BatchGetter.GetBatch(ctx, keys), nil
	})
	if err != nil {
		return failAll(len(keys), getError, err)
	}
	return results
}
