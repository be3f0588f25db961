package tests

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/near"
)

// keep reads a key that is cached until this process keeps it.
func keep(t testing.TB, c *leasecache.Cache[string], key, want string) {
	t.Helper()
	eventually(t, key+" is kept in the process", func() bool {
		res, ok, err := c.Peek(t.Context(), key)
		if !ok || err != nil || res.Value != want {
			t.Fatalf("Peek of %q: %+v, %v, %v; want %q", key, res, ok, err, want)
		}
		return res.Source == leasecache.NearHit
	})
}

// cacheAndKeep caches a value, and has this process keep it.
func cacheAndKeep(t testing.TB, c *leasecache.Cache[string], key, value string) {
	t.Helper()
	if v, err := c.Get(t.Context(), key, constant(value)); v != value || err != nil {
		t.Fatalf("Get of %q: %q, %v; want %q", key, v, err, value)
	}
	keep(t, c, key, value)
}

// The suite of conformance cannot flush a server.
func TestAFlushDropsWhatIsKept(t *testing.T) {
	t.Parallel()
	s, rdb := startOne(t)
	for _, client := range clients {
		if client.lacks.Near != "" {
			continue
		}
		t.Run(client.name, func(t *testing.T) {
			d := client.open(t, target{topology: standalone, protocol: client.protocols[0], addrs: []string{s.Addr}})
			c := newCache(t, d, leasecache.Options{Prefix: client.name + ":", Near: near.New(1 << 20)})
			for i, flush := range []func(context.Context) *redis.StatusCmd{rdb.FlushAll, rdb.FlushDB, rdb.FlushAllAsync} {
				old, current := "old"+strconv.Itoa(i), "new"+strconv.Itoa(i)
				cacheAndKeep(t, c, "k"+strconv.Itoa(i), old)
				if err := flush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the old value is gone", func() bool {
					v, err := c.Get(t.Context(), "k"+strconv.Itoa(i), constant(current))
					return v == current && err == nil
				})
			}
		})
	}
}

// A server that hangs on the connection for messages alone: nothing is served from
// the process for longer than the driver needs to notice.
func TestNothingIsKeptWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	for _, client := range clients {
		if client.lacks.Near != "" {
			continue
		}
		t.Run(client.name, func(t *testing.T) {
			s, _ := startOne(t)
			d := client.open(t, target{topology: standalone, protocol: client.protocols[0], addrs: []string{s.Addr}})
			c := newCache(t, newStore(t, d, time.Second), leasecache.Options{Prefix: client.name + ":", Near: near.New(1 << 20)})
			cacheAndKeep(t, c, "k", "v")
			s.Pause()
			defer s.Resume()
			began := time.Now()
			eventually(t, "it is not served any more", func() bool {
				v, err := c.Get(t.Context(), "k", noLoad(t))
				return err != nil || v != "v"
			})
			t.Logf("served for %v after the server had stopped", time.Since(began))
		})
	}
}

// timed notes when a key is dropped, the one that is asked about: messages of
// others, and of what was loaded before, come at any time.
type timed struct {
	leasecache.Near
	began   time.Time
	key     atomic.Pointer[string]
	dropped atomic.Int64 // after began, in nanoseconds
}

// Delete implements [leasecache.Near].
func (n *timed) Delete(k leasecache.NearKey) {
	n.Near.Delete(k)
	if key := n.key.Load(); key != nil && *key == k.Key {
		n.dropped.Store(int64(time.Since(n.began)))
	}
}

// How long another process goes on to serve a value after Invalidate has returned
// in this one: docs/design.md has the figures.
func TestOtherProcessesDropWhatWasInvalidated(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 100
	}
	s, _ := startOne(t)
	open := func(kept leasecache.Near) *leasecache.Cache[string] {
		return newCache(t, goredis.New(redisClient(t, s.Addr)), leasecache.Options{Prefix: "p:", Near: kept})
	}
	there := &timed{Near: near.New(1 << 20), began: time.Now()}
	here, other := open(near.New(1<<20)), open(there)
	late := make([]time.Duration, n)
	for i := range late {
		key := strconv.Itoa(i)
		cacheAndKeep(t, other, key, "old")
		there.dropped.Store(-1)
		there.key.Store(&key)
		if err := here.Invalidate(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		returned := time.Since(there.began)
		for deadline := time.Now().Add(patience); there.dropped.Load() < 0; {
			if time.Now().After(deadline) {
				t.Fatalf("invalidation %d: the other process has not dropped the value", i)
			}
		}
		if v, err := other.Get(t.Context(), key, constant("new")); v != "new" || err != nil {
			t.Fatalf("invalidation %d: after the drop, Get returned %q, %v", i, v, err)
		}
		late[i] = max(time.Duration(there.dropped.Load())-returned, 0)
	}
	slices.Sort(late)
	before, _ := slices.BinarySearch(late, 1)
	report(t, "near: other processes drop a value after Invalidate has returned: median %v, 99 %% within %v, worst %v of %d; %d were dropped before it returned",
		late[n/2], late[n*99/100], late[n-1], n, before)
}

const nearSize = 512 // bytes of a value

// nearCaches returns caches of a server that keep the key "k", and rueidis with the
// key in its own cache.
func nearCaches(t testing.TB) (text func(), bytes func(), doCache func()) {
	t.Helper()
	s, _ := startOne(t)
	client, err := rueidisclient.NewClient(rueidisclient.ClientOption{InitAddress: []string{s.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx := t.Context()
	store := newStore(t, rueidis.New(client), patience)
	value := strings.Repeat("x", nearSize)
	o := leasecache.Options{Prefix: "s:", TTL: time.Hour, Near: near.New(1 << 20)}
	c := newCache(t, store, o)
	cacheAndKeep(t, c, "k", value)
	o.Prefix = "b:"
	b, err := leasecache.New[[]byte](store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(ctx)) })
	load := func(context.Context) ([]byte, error) { return []byte(value), nil }
	eventually(t, "the bytes are kept", func() bool {
		if _, err := b.Get(ctx, "k", load); err != nil {
			t.Fatal(err)
		}
		return b.Stats().NearHits > 0
	})
	never := noLoad(t)
	text = func() {
		if v, err := c.Get(ctx, "k", never); len(v) != nearSize || err != nil {
			t.Fatal(err)
		}
	}
	bytes = func() {
		if v, err := b.Get(ctx, "k", load); len(v) != nearSize || err != nil {
			t.Fatal(err)
		}
	}
	doCache = func() {
		v, err := client.DoCache(ctx, client.B().Get().Key("s:v:{k}").Cache(), time.Hour).ToString()
		if len(v) != nearSize || err != nil {
			t.Fatal(err)
		}
	}
	doCache()
	return text, bytes, doCache
}

func TestANearHitAllocatesNothingButACopyOfBytes(t *testing.T) {
	text, bytes, _ := nearCaches(t)
	for _, c := range []struct {
		name string
		hit  func()
		want float64
	}{{"a string", text, 0}, {"bytes", bytes, 1}} {
		if got := testing.AllocsPerRun(1000, c.hit); got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}

// BenchmarkNear compares hits of 512 bytes that ask no server: blocks of the three
// alternate, so that all meet the same machine, and the median of the blocks counts.
// The ratios are to rueidis's DoCache of the same key.
func BenchmarkNear(b *testing.B) {
	const block = 32
	var took [3][]time.Duration
	text, bytes, doCache := nearCaches(b)
	sides := [3]func(){text, bytes, doCache}
	for b.Loop() {
		for i, side := range sides {
			began := time.Now()
			for range block {
				side()
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	per := func(i int) float64 {
		slices.Sort(took[i])
		return float64(took[i][len(took[i])/2].Nanoseconds()) / block
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(per(0), "ns/string")
	b.ReportMetric(per(1), "ns/bytes")
	b.ReportMetric(per(2), "ns/docache")
	b.ReportMetric(per(0)/per(2), "string_ratio")
	b.ReportMetric(per(1)/per(2), "bytes_ratio")
}
