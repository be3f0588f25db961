package leasecache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// together is a driver with batches, and nothing else that works. It notes what is
// sent.
type together struct {
	do func(ctx context.Context, calls []driver.Call) []driver.Result

	mu   sync.Mutex
	sent map[string]int // calls, by key
	size []int          // of the batches
}

func (*together) Eval(context.Context, *driver.Script, []string, []string) (driver.Reply, error) {
	return driver.Reply{}, driver.NotSent(errors.New("not by itself"))
}

func (d *together) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	d.mu.Lock()
	d.size = append(d.size, len(calls))
	for _, c := range calls {
		if d.sent == nil {
			d.sent = map[string]int{}
		}
		d.sent[c.Keys[0]]++
	}
	d.mu.Unlock()
	return d.do(ctx, calls)
}

// times returns how often the call of key was sent.
func (d *together) times(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent[key]
}

// oks are results without an error.
func oks(calls []driver.Call) []driver.Result {
	results := make([]driver.Result, len(calls))
	for i := range results {
		results[i].Reply = driver.Int(1)
	}
	return results
}

// callAll runs n steps, for the keys "0", "1" and so on, and returns their errors.
func callAll(ctx context.Context, s *Store, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = errors.New("nothing was told of it")
	}
	s.callMany(ctx, n, func(i int) (string, protocol.Call) {
		key := strconv.Itoa(i)
		return key, protocol.Call{Script: protocol.Delete, Keys: []string{key}, Args: []string{""}}
	}, func(i int, _ driver.Reply, err error) { errs[i] = err })
	return errs
}

func TestACallThatBreaksItsBatchEachTimeFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &together{}
		d.do = func(_ context.Context, calls []driver.Call) []driver.Result {
			for _, c := range calls {
				if c.Keys[0] == "17" {
					return failAll(len(calls), resultError, errBroken)
				}
			}
			return oks(calls)
		}
		for i, err := range callAll(t.Context(), mustStore(t, d, time.Second), 100) {
			se, _ := errors.AsType[*stepError](err)
			switch {
			case i != 17 && err != nil:
				t.Errorf("call %d: %v", i, err)
			case i == 17 && (!errors.Is(err, errBroken) || se == nil || !se.unknown || se.key != "17"):
				t.Errorf("call %d: %v, want an unknown outcome that names it", i, err)
			}
		}
		if n := d.sent["17"]; n > maxAttempts {
			t.Errorf("it was sent %d times", n)
		}
	})
}

func TestOnlyTheCallsOfABatchThatFailedAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &together{}
		d.do = func(_ context.Context, calls []driver.Call) []driver.Result {
			results := oks(calls)
			for i, c := range calls {
				switch n := d.times(c.Keys[0]); {
				case c.Keys[0] == "3":
					results[i] = driver.Result{Err: driver.ParseServerError("WRONGTYPE no", nil)}
				case c.Keys[0] == "4" && n < 2, c.Keys[0] == "5" && n < 3:
					results[i] = driver.Result{Err: driver.ParseServerError("LOADING for now", nil)}
				}
			}
			return results
		}
		for i, err := range callAll(t.Context(), mustStore(t, d, time.Second), 20) {
			if (i == 3) != (serverCode(err) == "WRONGTYPE") || i != 3 && err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			want := map[int]int{4: 2, 5: 3}[i]
			if n := d.sent[strconv.Itoa(i)]; n != max(want, 1) {
				t.Errorf("call %d was sent %d times, want %d", i, n, max(want, 1))
			}
		}
	})
}

func TestABatchIsCutWhereItIsLarge(t *testing.T) {
	d := &together{do: func(_ context.Context, calls []driver.Call) []driver.Result { return oks(calls) }}
	s := mustStore(t, d, time.Second)
	for i, err := range callAll(t.Context(), s, 1201) {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if got := fmt.Sprint(d.size); got != "[500 500 201]" {
		t.Errorf("1201 calls went in batches of %s", got)
	}
	d.size = nil
	long := string(make([]byte, 400<<10))
	s.callMany(t.Context(), 5, func(i int) (string, protocol.Call) {
		return "k", protocol.Call{Script: protocol.Delete, Keys: []string{strconv.Itoa(i)}, Args: []string{long}}
	}, func(_ int, _ driver.Reply, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if got := fmt.Sprint(d.size); got != "[3 2]" {
		t.Errorf("5 calls of 400 KiB went in batches of %s, want [3 2]", got)
	}
}

func TestADriverThatReturnsTooFewResultsOrPanicsFailsTheBatch(t *testing.T) {
	for name, do := range map[string]func(context.Context, []driver.Call) []driver.Result{
		"too few": func(_ context.Context, calls []driver.Call) []driver.Result { return oks(calls[1:]) },
		"panic":   func(context.Context, []driver.Call) []driver.Result { panic("a bug in the driver") },
	} {
		t.Run(name, func(t *testing.T) {
			for i, err := range callAll(t.Context(), mustStore(t, &together{do: do}, 10*time.Millisecond), 7) {
				if se, ok := errors.AsType[*stepError](err); !ok || !se.unknown {
					t.Errorf("call %d: %v, want an unknown outcome", i, err)
				}
			}
		})
	}
}

func TestABatchOnAServerThatHangsCostsOneCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &together{do: func(ctx context.Context, calls []driver.Call) []driver.Result {
			<-ctx.Done()
			return failAll(len(calls), resultError, ctx.Err())
		}}
		start := time.Now()
		errs := callAll(t.Context(), mustStore(t, d, time.Second), 5*maxBatch)
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for i, err := range errs {
			if notSent := errors.Is(err, driver.ErrNotSent); !errors.Is(err, context.DeadlineExceeded) || notSent != (i >= maxBatch) {
				t.Fatalf("call %d: %v", i, err)
			}
		}
	})
}

// raise sets most to n if that is more.
func raise(most *atomic.Int32, n int32) {
	for {
		m := most.Load()
		if n <= m || most.CompareAndSwap(m, n) {
			return
		}
	}
}

// alone is a driver without batches.
type alone struct{ running, most, calls atomic.Int32 }

func (d *alone) Bound(time.Duration) driver.Evaler { return d }

func (d *alone) Eval(context.Context, *driver.Script, []string, []string) (driver.Reply, error) {
	n := d.running.Add(1)
	defer d.running.Add(-1)
	raise(&d.most, n)
	d.calls.Add(1)
	time.Sleep(time.Millisecond)
	return driver.Int(1), nil
}

func TestWithoutBatchesCallsAreAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &alone{}
		for i, err := range callAll(t.Context(), mustStore(t, d, time.Second), 100) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if d.calls.Load() != 100 || d.most.Load() != batchWorkers {
			t.Errorf("%d calls, %d at a time; want 100, and %d", d.calls.Load(), d.most.Load(), batchWorkers)
		}
	})
}

// allPresent is present with batches.
type allPresent struct{ present }

func (p allPresent) Bound(time.Duration) driver.Evaler { return p }

func (allPresent) GetBatch(_ context.Context, keys []string) []driver.GetResult {
	results := make([]driver.GetResult, len(keys))
	for i := range results {
		results[i] = driver.GetResult{Value: "v", OK: true}
	}
	return results
}

func TestABatchOfHitsAllocatesNothingForEachKey(t *testing.T) {
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	c := mustCache(t, allPresent{}, Options{Prefix: "catalog:"})
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		if found, err := c.GetMany(ctx, keys, neverMany); err != nil || len(found) != len(keys) {
			t.Fatal(found, err)
		}
	})
	t.Log(got)
	// The map that is returned, the names on the server in two, and the test's
	// results.
	if got > 20 {
		t.Errorf("100 hits allocate %v times, want 20 at the most", got)
	}
}

// neverMany is a loader for keys that are cached.
func neverMany(context.Context, []string) (map[string]string, error) { panic("the loader was called") }
