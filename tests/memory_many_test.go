package tests

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// watchful is a server that has nothing, grants every lease and accepts every fill.
// It looks at what its clients take at a time: how many calls, how many bytes of
// arguments, how many goroutines and how much of the heap.
type watchful struct {
	scripted
	seen *seen
}

type seen struct {
	calls, bytes, goroutines int
	heap                     uint64
}

func (s *seen) look(calls, bytes int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.calls, s.bytes = max(s.calls, calls), max(s.bytes, bytes)
	s.goroutines, s.heap = max(s.goroutines, runtime.NumGoroutine()), max(s.heap, m.HeapAlloc)
}

func (w watchful) GetBatch(_ context.Context, keys []string) []driver.GetResult {
	w.seen.look(len(keys), 0)
	return make([]driver.GetResult, len(keys))
}

func (w watchful) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	bytes := 0
	results := make([]driver.Result, len(calls))
	for i, c := range calls {
		for _, arg := range c.Args {
			bytes += len(arg)
		}
		if c.Script.Name() == "invalidate" {
			results[i].Reply = driver.Int(1)
			continue
		}
		results[i].Reply, results[i].Err = w.Eval(ctx, c.Script, c.Keys, c.Args)
	}
	w.seen.look(len(calls), bytes)
	return results
}

func TestTenThousandKeysTakeBoundedMemory(t *testing.T) {
	const (
		keys = 10_000
		size = 4 << 10 // of a value, which the caller gets: 40 MB
		// What a key may take beside its value: its entry in the map of the caller and
		// in that of the loader, its flight, its waiter, its load.
		perKey = 3 << 10
	)
	s := &seen{}
	c := newCache(t, watchful{seen: s}, leasecache.Options{Prefix: "p:"})
	names := make([]string, keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	s.look(0, 0)
	goroutines, heap := s.goroutines, s.heap
	values, err := c.GetMany(t.Context(), names, func(_ context.Context, keys []string) (map[string]string, error) {
		values := make(map[string]string, len(keys))
		for _, key := range keys {
			values[key] = strings.Repeat("x", size)
		}
		return values, nil
	})
	if err != nil || len(values) != keys {
		t.Fatalf("GetMany returned %d values, %v", len(values), err)
	}
	if err := c.Invalidate(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	t.Logf("at a time: %d calls, %d bytes of arguments, %d goroutines more, %d bytes of heap more", s.calls, s.bytes, s.goroutines-goroutines, s.heap-heap)
	if s.calls > 500 || s.bytes > 1<<20+size+1000 {
		t.Errorf("%d calls and %d bytes of arguments went at a time; want 500, and about 1 MiB", s.calls, s.bytes)
	}
	if more := s.goroutines - goroutines; more > 10 {
		t.Errorf("%d goroutines ran more", more)
	}
	if more := s.heap - heap; more > keys*(size+perKey) {
		t.Errorf("the heap grew by %d bytes, which is %d for each key, with values of %d", more, more/keys, size)
	}
	if st := c.Stats(); st.Loads != 1 || st.FillsAccepted != keys || st.Invalidated != keys {
		t.Errorf("Stats: %+v; want one load, and a fill and an invalidation of each key", st)
	}
}

// Bound implements [driver.Bounder].
func (w watchful) Bound(time.Duration) driver.Evaler { return w }
