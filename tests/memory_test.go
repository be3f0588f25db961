package tests

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// scripted is a server that is always there and keeps nothing: one key in ten is
// not cached, and every fill of those is accepted. What is tested here is the
// memory of this process, and a million round trips would only make it wait.
type scripted struct{}

func (scripted) Get(_ context.Context, key string) (string, bool, error) {
	return "v", key[len(key)-2] != '0', nil // the last digit of prefix:v:{number}
}

func (scripted) Eval(_ context.Context, s *driver.Script, _, _ []string) (driver.Reply, error) {
	switch s.Name() {
	case "read":
		return driver.List(driver.Int(2), driver.Str("1700000000000000")), nil // leased, with a nonce
	case "fill":
		return driver.List(driver.Int(1), driver.Int(60_000)), nil // accepted, with its TTL
	}
	return driver.Reply{}, fmt.Errorf("the test's server knows no script %q", s.Name())
}

func (s scripted) Bound(time.Duration) driver.Evaler { return s }

func TestKeysThatWereReadLeaveNothingBehind(t *testing.T) {
	const (
		keys  = 1_000_000
		loads = keys / 10 // the others are hits
		// What the runtime may keep for itself. One word for each key that was
		// loaded would be three times as much.
		most = 256 << 10
	)
	c := newCache(t, scripted{}, leasecache.Options{Prefix: "p:"})
	readAll := func(from, n int) {
		t.Helper()
		var next atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					if v, err := c.Get(t.Context(), strconv.Itoa(from+i), constant("v")); v != "v" || err != nil {
						t.Errorf("key %d: %q, %v", from+i, v, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	heap := func() int64 {
		// What pools hold survives one collection.
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}

	readAll(keys, 10_000) // other keys, so that what is made once is there
	goroutines := runtime.NumGoroutine()
	before := heap()
	began := time.Now()
	readAll(0, keys)
	took := time.Since(began)
	eventually(t, "the goroutines of the loads are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
	grew := heap() - before
	t.Logf("%d keys in %v: the heap grew by %d bytes", keys, took.Round(time.Millisecond), grew)
	if grew > most {
		t.Errorf("the heap grew by %d bytes after %d keys were read; want %d at the most", grew, keys, most)
	}
	if s := c.Stats(); s.Hits < keys-loads || s.FillsAccepted < loads {
		t.Errorf("Stats: %d hits, %d fills accepted; want %d and %d", s.Hits, s.FillsAccepted, keys-loads, loads)
	}
}
