package leasecache

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// constantReply is a driver that always returns the same reply. What is counted
// here is the memory of the core; what a client needs comes on top.
type constantReply struct {
	stored string
	ok     bool
}

func (r constantReply) Bound(time.Duration) driver.Evaler { return r }

func (r constantReply) Get(context.Context, string) (string, bool, error) {
	return r.stored, r.ok, nil
}

func (r constantReply) Eval(_ context.Context, s *driver.Script, _, _ []string) (driver.Reply, error) {
	switch {
	case s.Name() == "read" && r.ok:
		return driver.List(driver.Int(1), driver.Str(r.stored), driver.Int(60_000)), nil
	case s.Name() == "read":
		return driver.List(driver.Int(2), driver.Str("1700000000000000")), nil // leased, with a nonce
	}
	return driver.List(driver.Int(1), driver.Int(60_000)), nil // accepted, with its TTL
}

// leastBytes returns the bytes that one call of f allocates, of several the
// least: what the runtime and other goroutines allocate comes and goes.
func leastBytes(f func()) int {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // or pools would be emptied
	least := ^uint64(0)
	for range 5 {
		var before, after runtime.MemStats
		runtime.GC()
		f() // fills pools
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return int(least)
}

func largeCache[V any](t *testing.T, e driver.Evaler, codec Codec) *Cache[V] {
	t.Helper()
	c, err := New[V](e, Options{TTL: time.Minute, Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantCopies runs a read of a value of that size, and checks how many times its
// size is allocated.
func wantCopies(t *testing.T, what string, size, copies int, read func() (int, error)) {
	t.Helper()
	got := leastBytes(func() {
		if n, err := read(); n != size || err != nil {
			t.Fatalf("%s: %d bytes, error %v; want %d", what, n, err, size)
		}
	})
	// Small things are far below a quarter of a value, and a copy is never less.
	if most := copies*size + size/4; got < copies*size || got > most {
		t.Errorf("%s allocates %d bytes, which is %.2f times the value; want %d", what, got, float64(got)/float64(size), copies)
	}
}

type constantCodec struct{ data []byte }

func (c constantCodec) Marshal(any) ([]byte, error)     { return c.data, nil }
func (c constantCodec) Unmarshal(d []byte, v any) error { *v.(*int) = len(d); return nil }

func TestLargeValuesAreNotCopiedMoreThanTheyMustBe(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{1 << 20, 16 << 20} {
		t.Run(fmt.Sprint(size>>20, " MiB"), func(t *testing.T) {
			value := strings.Repeat("0123456789abcdef", size/16)
			raw := []byte(value)
			hit, miss := constantReply{value, true}, constantReply{}

			// A string cannot be changed, so the client's own is handed on.
			strs := largeCache[string](t, hit, nil)
			wantCopies(t, "a hit of a string by Get", size, 0, func() (int, error) {
				v, err := strs.Get(ctx, "k", never)
				return len(v), err
			})
			wantCopies(t, "a hit of a string by Read", size, 0, func() (int, error) {
				r, err := strs.Read(ctx, "k", never)
				return len(r.Value), err
			})
			strs = largeCache[string](t, miss, nil)
			wantCopies(t, "a fill of a string", size, 0, func() (int, error) {
				v, err := strs.Get(ctx, "k", func(context.Context) (string, error) { return value, nil })
				return len(v), err
			})

			// Bytes can, so a reader gets its own, and a client its own.
			bytes := largeCache[[]byte](t, hit, nil)
			wantCopies(t, "a hit of bytes by Get", size, 1, func() (int, error) {
				v, err := bytes.Get(ctx, "k", func(context.Context) ([]byte, error) { return nil, nil })
				return len(v), err
			})
			wantCopies(t, "a hit of bytes by Read", size, 1, func() (int, error) {
				r, err := bytes.Read(ctx, "k", func(context.Context) ([]byte, error) { return nil, nil })
				return len(r.Value), err
			})
			bytes = largeCache[[]byte](t, miss, nil)
			wantCopies(t, "a fill of bytes", size, 1, func() (int, error) {
				v, err := bytes.Get(ctx, "k", func(context.Context) ([]byte, error) { return raw, nil })
				return len(v), err
			})

			// A codec reads the client's own string in place, and may use what it
			// wrote again, so that is copied.
			coded := largeCache[int](t, hit, constantCodec{})
			wantCopies(t, "a hit by a codec", size, 0, func() (int, error) {
				return coded.Get(ctx, "k", func(context.Context) (int, error) { return 0, nil })
			})
			coded = largeCache[int](t, miss, constantCodec{raw})
			wantCopies(t, "a fill by a codec", size, 1, func() (int, error) {
				return coded.Get(ctx, "k", func(context.Context) (int, error) { return size, nil })
			})
			// encoding/json returns a slice of its own, which needs no second copy.
			quoted := newCoder[string](JSON)
			wantCopies(t, "JSON", size+2, 1, func() (int, error) {
				p, err := quoted.encode(value)
				return len(p), err
			})
		})
	}
}

// oversized is a driver on whose server every key has a value of so many bytes, and
// which may not drop it.
type oversized int

func (n oversized) Get(context.Context, string) (string, bool, error) {
	return strings.Repeat("x", int(n)), true, nil
}

func (n oversized) Eval(_ context.Context, s *driver.Script, _, _ []string) (driver.Reply, error) {
	if s.Name() == "read" {
		return driver.List(driver.Int(1), driver.Str(strings.Repeat("x", int(n))), driver.Int(60000)), nil
	}
	return driver.Int(2), nil // one was dropped a moment ago
}

func TestAStoredValueAboveMaxValueSizeIsNotDecoded(t *testing.T) {
	for size, decoded := range map[int]bool{9: true, 10: true, 11: false, 1 << 20: false} {
		c := mustCache(t, oversized(size), Options{MaxValueSize: 10})
		load := func(context.Context) (string, error) { return "loaded", nil }
		res, err := c.Read(t.Context(), "k", load)
		if err != nil || (res.Source == Hit) != decoded || (res.Value == "loaded") == decoded {
			t.Errorf("%d bytes: Read = %+v, %v; want a hit: %v", size, res.Source, err, decoded)
		}
		if v, err := c.Get(t.Context(), "k", load); err != nil || (v == "loaded") == decoded {
			t.Errorf("%d bytes: Get = %.20q, %v; want a hit: %v", size, v, err, decoded)
		}
		if _, ok, err := c.Peek(t.Context(), "k"); err != nil || ok != decoded {
			t.Errorf("%d bytes: Peek = %v, %v; want a hit: %v", size, ok, err, decoded)
		}
		if n := c.Stats().Undecodable; (n == 0) != decoded {
			t.Errorf("%d bytes: %d values count as undecodable", size, n)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
