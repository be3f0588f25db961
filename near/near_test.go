package near

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// cached is a server on which every key has the same value. What is tested here is
// the memory of this process.
type cached struct{ value string }

func (s cached) Eval(context.Context, *driver.Script, []string, []string) (driver.Reply, error) {
	return driver.List(driver.Int(1), driver.Str(strings.Clone(s.value)), driver.Int(600_000)), nil
}

func (s cached) Bound(time.Duration) driver.Evaler { return s }

func (cached) Track(context.Context, string, func([]string), func()) (io.Closer, error) {
	return io.NopCloser(nil), nil
}

func newCache(t testing.TB, value string, n leasecache.Near) *leasecache.Cache[string] {
	t.Helper()
	c, err := leasecache.New[string](cached{value}, leasecache.Options{Prefix: "p:", TTL: time.Hour, Near: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

func read(t testing.TB, c *leasecache.Cache[string], key string) leasecache.Source {
	t.Helper()
	res, err := c.Read(t.Context(), key, func(context.Context) (string, error) { return "", errors.New("no load is needed") })
	if err != nil {
		t.Fatal(err)
	}
	return res.Source
}

// tracked waits until what is read may be kept.
func tracked(t testing.TB, c *leasecache.Cache[string], n leasecache.Near, keeps bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if read(t, c, "tracked") == leasecache.NearHit {
			return
		}
		if !keeps && c.Stats().Hits > 1000 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is kept")
		}
	}
}

func TestWhatIsKeptTakesNoMoreThanItsBound(t *testing.T) {
	const most = 2 << 20
	for _, size := range []int{0, 10, 500, 20_000} {
		t.Run(strconv.Itoa(size)+" bytes", func(t *testing.T) {
			n := New(most)
			c := newCache(t, strings.Repeat("v", size), n)
			tracked(t, c, n, true)
			before := inUse(n)
			for i := range 4 * most / (size + 100) {
				read(t, c, "key:"+strconv.Itoa(i))
			}
			grown := int64(inUse(n) - before)
			t.Logf("%d KiB of %d", grown>>10, most>>10)
			if grown > most+most/8 { // what the runtime and the sketch of otter keep
				t.Errorf("%d values of %d bytes take %d bytes; want at most %d", 4*most/(size+100), size, grown, most)
			}
			if grown < most/3 {
				t.Errorf("values of %d bytes take %d bytes of %d: what is counted is far from what is taken", size, grown, most)
			}
		})
	}
}

// inUse returns how many bytes are reachable.
func inUse(n leasecache.Near) uint64 {
	var m runtime.MemStats
	n.(kept).cache.CleanUp() // otter evicts in a goroutine
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAValueLargerThanTheBoundIsNotKept(t *testing.T) {
	n := New(1000)
	small, large := newCache(t, "v", n), newCache(t, strings.Repeat("v", 2000), n)
	tracked(t, small, n, true)
	tracked(t, large, n, false)
	n.(kept).cache.CleanUp()
	if w := n.(kept).cache.WeightedSize(); w > 1000 {
		t.Errorf("%d bytes are kept of 1000", w)
	}
	if src := read(t, large, "tracked"); src != leasecache.Hit {
		t.Errorf("a value of 2000 bytes came from %v", src)
	}
}

func TestWithoutRoomNothingIsKept(t *testing.T) {
	for _, most := range []int64{0, -1} {
		n := New(most)
		c := newCache(t, "v", n)
		tracked(t, c, n, false)
		if hits := c.Stats().NearHits; hits != 0 {
			t.Errorf("with %d bytes there are %d near hits", most, hits)
		}
	}
}

func TestDeleteAndClearForgetAtOnce(t *testing.T) {
	n := New(1 << 20)
	e := new(leasecache.NearEntry)
	keys := []leasecache.NearKey{{Generation: 1, Key: "k"}, {Generation: 2, Key: "k"}, {Generation: 1, Key: "l"}}
	for range 1000 {
		for _, k := range keys {
			n.Set(k, e)
			if got, ok := n.Get(k); got != e || !ok {
				t.Fatalf("Get(%v) after Set: %v, %v", k, got, ok)
			}
		}
		n.Delete(keys[0])
		if _, ok := n.Get(keys[0]); ok {
			t.Fatal("found after Delete")
		}
		if _, ok := n.Get(keys[1]); !ok {
			t.Fatal("Delete has deleted the key of another generation")
		}
		n.Clear()
		for _, k := range keys {
			if _, ok := n.Get(k); ok {
				t.Fatal("found after Clear")
			}
		}
	}
}

// BenchmarkHit is what a hit costs: module tests compares it with a client's own
// cache.
func BenchmarkHit(b *testing.B) {
	n := New(1 << 20)
	c := newCache(b, strings.Repeat("v", 512), n)
	tracked(b, c, n, true)
	read(b, c, "k")
	load := func(context.Context) (string, error) { return "", errors.New("no load is needed") }
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(ctx, "k", load); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOtterAlone(b *testing.B) {
	n := New(1 << 20)
	k := leasecache.NearKey{Generation: 1, Key: "k"}
	n.Set(k, new(leasecache.NearEntry))
	for b.Loop() {
		n.Get(k)
	}
}
