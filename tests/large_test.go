package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/compress"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// largeOptions leave a loaded machine the time to move the largest value.
var largeOptions = leasecache.Options{TTL: 10 * time.Minute, Lease: longLease, WaitBound: longLease}

// binary returns n bytes of every value, of which the first is 0x00: the only
// one that is stored differently.
func binary(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(b) // never fails
	b[0] = 0
	return string(b)
}

func TestLargeValues(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"valkey-9", "redis-8"} {
		server := servertest.Start(t, servertest.Named(t, name))
		admin := redisClient(t, server.Addr)
		for i, c := range clients {
			if i > 0 && name == "redis-8" {
				break // the clients differ, and one of them tells whether the servers do
			}
			for _, size := range []int{1 << 20, 16 << 20} {
				t.Run(fmt.Sprintf("%s/%s/%d MiB", name, c.name, size>>20), func(t *testing.T) {
					open := func() driver.Evaler {
						return c.open(t, target{protocol: c.protocols[0], addrs: []string{server.Addr}})
					}
					prefix := fmt.Sprintf("%s:%d:", c.name, size)
					one, other := newStore(t, open(), patience), newStore(t, open(), patience)
					text, blob := strings.Repeat("0123456789abcde\n", size/16), binary(size)
					largeTrip(t, admin, one, other, prefix+"string:", nil, text, text)
					largeTrip(t, admin, one, other, prefix+"bytes:", nil, []byte(blob), "\x00"+blob)
					largeTrip(t, admin, one, other, prefix+"json:", leasecache.JSON, text, `"`+strings.ReplaceAll(text, "\n", `\n`)+`"`)
				})
			}
		}
	}
}

// largeTrip caches a value by one process, and reads it by that and another.
func largeTrip[V string | []byte](t *testing.T, admin *redis.Client, one, other *leasecache.Store, prefix string, codec leasecache.Codec, value V, stored string) {
	t.Helper()
	o := largeOptions
	o.Prefix, o.Codec = prefix, codec
	load := func(context.Context) (V, error) { return value, nil }
	var never V
	for i, s := range []*leasecache.Store{one, other} {
		c, err := leasecache.New[V](s, o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		want := []leasecache.Source{leasecache.Loaded, leasecache.Hit}[i]
		r, err := c.Read(t.Context(), "k", load)
		if string(r.Value) != string(value) || r.Source != want || !r.Cached() || err != nil {
			t.Errorf("%s: process %d reads %d bytes, %s, uncached %q, error %v; want the %d, %s", prefix, i+1, len(r.Value), r.Source, r.Uncached, err, len(value), want)
		}
		load = func(context.Context) (V, error) { return never, errors.New("a read that should be a hit loads") }
		if v, err := c.Get(t.Context(), "k", load); string(v) != string(value) || err != nil {
			t.Errorf("%s: process %d gets %d bytes, error %v; want the %d", prefix, i+1, len(v), err, len(value))
		}
	}
	if got, err := admin.Get(t.Context(), prefix+"v:{k}").Result(); got != stored || err != nil {
		t.Errorf("%s: %d bytes are stored, error %v; want %d", prefix, len(got), err, len(stored))
	}
}

func newCodec(t testing.TB, o compress.Options) leasecache.Codec {
	t.Helper()
	c, err := compress.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLargeValuesCompressed(t *testing.T) {
	t.Parallel()
	server, admin := startOne(t)
	for _, size := range []int{1 << 20, 16 << 20} {
		t.Run(fmt.Sprint(size>>20, " MiB"), func(t *testing.T) {
			value := strings.Repeat("0123456789abcde\n", size/16)
			for name, inner := range map[string]leasecache.Codec{"json": nil, "raw": compress.Raw} {
				o := largeOptions
				o.Prefix = fmt.Sprintf("%s:%d:", name, size)
				o.Codec = newCodec(t, compress.Options{Codec: inner})
				c := newCache(t, goredis.New(redisClient(t, server.Addr)), o)
				other := newCache(t, goredis.New(redisClient(t, server.Addr)), o)
				for _, read := range []*read{goRead(t, c, "k", constant(value)), goRead(t, other, "k", constant(value))} {
					await(t, "a read ends", read.done)
					if read.res.Value != value || !read.res.Cached() || read.err != nil {
						t.Errorf("%s: read %d bytes, uncached %q, error %v; want the %d", name, len(read.res.Value), read.res.Uncached, read.err, size)
					}
				}
				if v, err := other.Get(t.Context(), "k", noLoad(t)); v != value || err != nil {
					t.Errorf("%s: got %d bytes, error %v", name, len(v), err)
				}
				n, err := admin.StrLen(t.Context(), o.Prefix+"v:{k}").Result()
				if n < 1 || n > int64(size/100) || err != nil {
					t.Errorf("%s: %d bytes are stored, error %v; want less than a hundredth of %d", name, n, err, size)
				}
			}
		})
	}
}

// A rolling deploy switches compression on: processes with it and without share
// a cache for a while.
func TestCompressionIsSwitchedOnWhileOthersHaveItNot(t *testing.T) {
	t.Parallel()
	server, admin := startOne(t)
	open := func(t *testing.T, prefix string, codec leasecache.Codec) *leasecache.Cache[string] {
		o := largeOptions
		o.Prefix, o.Codec, o.DropBackoff = prefix, codec, time.Minute
		return newCache(t, goredis.New(redisClient(t, server.Addr)), o)
	}
	value := strings.Repeat("0123456789abcdef", 1000)
	wantRead := func(t *testing.T, c *leasecache.Cache[string], source leasecache.Source, uncached leasecache.Reason) {
		t.Helper()
		r, err := c.Read(t.Context(), "k", constant(value))
		if r.Value != value || r.Source != source || r.Uncached != uncached || err != nil {
			t.Errorf("read %d bytes, %s, uncached %q, error %v; want %d, %s, uncached %q", len(r.Value), r.Source, r.Uncached, err, len(value), source, uncached)
		}
	}
	stored := func(t *testing.T, prefix string) int64 {
		n, err := admin.StrLen(t.Context(), prefix+"v:{k}").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	t.Run("at once, with a codec that can tell", func(t *testing.T) {
		before, after := open(t, "json:", leasecache.JSON), open(t, "json:", newCodec(t, compress.Options{}))
		wantRead(t, before, leasecache.Loaded, "")
		wantRead(t, after, leasecache.Hit, "")
		if err := after.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		wantRead(t, after, leasecache.Loaded, "")
		if n := stored(t, "json:"); n > 1000 {
			t.Fatalf("%d bytes are stored; want them compressed", n)
		}
		// Who cannot decode it drops it once, and may not again for a while.
		wantRead(t, before, leasecache.Loaded, "")
		if err := before.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		wantRead(t, after, leasecache.Loaded, "")
		wantRead(t, before, leasecache.Loaded, leasecache.CannotDecode)
		wantRead(t, after, leasecache.Hit, "") // and it is left where it is
		if n := before.Stats().Undecodable; n != 2 {
			t.Errorf("%d values were counted as undecodable; want 2", n)
		}
	})

	t.Run("in two deploys, where nothing can tell", func(t *testing.T) {
		before := open(t, "raw:", nil)
		first := open(t, "raw:", newCodec(t, compress.Options{Codec: compress.Raw, ReadOnly: true}))
		wantRead(t, first, leasecache.Loaded, "")
		wantRead(t, before, leasecache.Hit, "")
		if n := stored(t, "raw:"); n != int64(len(value)) {
			t.Fatalf("%d bytes are stored; want them as they are", n)
		}
		second := open(t, "raw:", newCodec(t, compress.Options{Codec: compress.Raw}))
		wantRead(t, second, leasecache.Hit, "")
		if err := second.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		wantRead(t, second, leasecache.Loaded, "")
		if n := stored(t, "raw:"); n > 1000 {
			t.Fatalf("%d bytes are stored; want them compressed", n)
		}
		wantRead(t, first, leasecache.Hit, "")
	})
}
