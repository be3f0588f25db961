package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
)

// Cases of keys, values, TTLs and what cannot be decoded.

func goexit(context.Context) (string, error) {
	runtime.Goexit()
	return "", nil
}

// fussyCodec cannot encode "no", and decodes only what begins with '+'.
type fussyCodec struct{}

func (fussyCodec) Marshal(v any) ([]byte, error) {
	if v == "no" {
		return nil, errors.New("cannot encode no")
	}
	return fmt.Appendf(nil, "+%s", v), nil
}

func (fussyCodec) Unmarshal(data []byte, v any) error {
	s, ok := strings.CutPrefix(string(data), "+")
	if !ok {
		return errors.New("not of this codec")
	}
	*v.(*string) = s
	return nil
}

var valueCases = []testCase{
	{
		name: "Keys", cache: true,
		rule: "Every string of bytes must work as a key, but the empty one and those that start with '}'.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			binary := make([]byte, 300)
			for i := range binary {
				binary[i] = byte(rand.Uint32())
			}
			binary[0] = 'x'
			for i, key := range []string{
				"42", " ", "{", "{}", "{a}", "a}b", "a}{b}", "{}{x}", "\x00", "\xff\xfe", "a\r\nb", "ключ", string(binary), strings.Repeat("k", 64<<10),
			} {
				want := fmt.Sprint("v", i)
				if res := e.mustRead(c, key, loaderOf(want, nil)); res.Value != want || !res.Cached() {
					e.Errorf("Read of key %.40q returned %+v", key, res)
				}
				if res := e.mustRead(c, key, loaderOf("wrong", nil)); res.Value != want || res.Source != leasecache.Hit {
					e.Errorf("the second Read of key %.40q returned %+v", key, res)
				}
				e.mustInvalidate(c, key)
				if _, ok, err := c.Peek(e.ctx, key); ok || err != nil {
					e.Errorf("Peek of key %.40q after Invalidate returned %v, %v", key, ok, err)
				}
			}
			for _, key := range []string{"", "}", "}x"} {
				_, getErr := c.Get(e.ctx, key, loaderOf("wrong", nil))
				_, _, peekErr := c.Peek(e.ctx, key)
				_, refreshErr := c.Refresh(e.ctx, key, loaderOf("wrong", nil))
				for _, err := range []error{getErr, peekErr, refreshErr} {
					if !errors.Is(err, leasecache.ErrKey) {
						e.Errorf("a read of key %q returned %v; want ErrKey", key, err)
					}
				}
			}
		},
	},
	{
		name: "Values", cache: true,
		rule: "Every value must come back as it was, the empty one, those that begin with 0x00 and those that look like a marker included, and must be stored as the codec wrote it unless it begins with 0x00.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			for i, want := range []string{
				"", "null", "0", "OK", "nil", "wait", "\x00", "\x00\x00", "\x00\x01", "\x00\x02", "\x00\x02\x00", "\x00\x01\x00v", "\xff", strings.Repeat("v", 1<<20),
			} {
				key := fmt.Sprint(i)
				e.goRead(c, key, loaderOf(want, nil)).want(e, want, leasecache.Loaded, "")
				e.goRead(c, key, loaderOf("wrong", nil)).want(e, want, leasecache.Hit, "")
				if v, err := c.Get(e.ctx, key, loaderOf("wrong", nil)); v != want || err != nil {
					e.Errorf("Get returned %.20q, %v; want %.20q", v, err, want)
				}
				stored, _ := e.stored(key)
				if raw := !strings.HasPrefix(want, "\x00"); raw && stored != want || !raw && stored != "\x00"+want {
					e.Errorf("%.20q is stored as %.20q", want, stored)
				}
			}
			bytes := newCache[[]byte](e, e.driver(), cacheOptions)
			for _, want := range [][]byte{nil, {}, {0}, []byte("x")} {
				key := fmt.Sprintf("bytes%v%v", want == nil, want)
				for range 2 {
					if v, err := bytes.Get(e.ctx, key, func(context.Context) ([]byte, error) { return want, nil }); string(v) != string(want) || err != nil {
						e.Errorf("Get returned %q, %v; want %q", v, err, want)
					}
				}
			}
			type item struct{ N int }
			pointers := newCache[*item](e, e.driver(), cacheOptions)
			calls := 0
			for range 3 {
				v, err := pointers.Get(e.ctx, "nil", func(context.Context) (*item, error) { calls++; return nil, nil })
				if v != nil || err != nil {
					e.Errorf("Get of a nil pointer returned %v, %v", v, err)
				}
			}
			if calls != 1 {
				e.Errorf("a nil pointer was loaded %d times; want once", calls)
			}
			e.wantStored("nil", "null")
		},
	},
	{
		name: "NotFoundIsCached", cache: true,
		rule: "ErrNotFound must be cached for its own TTL and returned as ErrNotFound, and an invalidation must end it.",
		run: func(e *env) {
			o := cacheOptions
			o.NotFoundTTL = 30 * time.Second
			c := e.cache(o)
			var loads counter
			missing := func(context.Context) (string, error) {
				loads.add()
				return "", fmt.Errorf("no row: %w", leasecache.ErrNotFound)
			}
			for range 3 {
				if _, err := c.Get(e.ctx, "k", missing); !errors.Is(err, leasecache.ErrNotFound) {
					e.Errorf("Get returned %v; want ErrNotFound", err)
				}
			}
			res, err := c.Read(e.ctx, "k", missing)
			if !errors.Is(err, leasecache.ErrNotFound) || res.Source != leasecache.Hit || res.TTL <= 0 || res.TTL > 30*time.Second {
				e.Errorf("Read returned %+v, %v; want ErrNotFound, cached for up to 30s", res, err)
			}
			if _, ok, err := c.Peek(e.ctx, "k"); !ok || !errors.Is(err, leasecache.ErrNotFound) {
				e.Errorf("Peek returned %v, %v; want ErrNotFound", ok, err)
			}
			if n := loads.count(); n != 1 {
				e.Errorf("%d loads ran; want one", n)
			}
			e.mustInvalidate(c, "k")
			e.goRead(c, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
		},
	},
	{
		name: "TTLs", cache: true,
		rule: "A value must live for the TTL of the options, or the one that its loader chose, shortened by jitter only.",
		run: func(e *env) {
			ttl := func(key string) time.Duration {
				return time.Duration(e.do("PTTL", e.value(key)).Int) * time.Millisecond
			}
			c := e.cache(leasecache.Options{TTL: time.Hour})
			e.mustRead(c, "options", loaderOf("v", nil))
			if got := ttl("options"); got > time.Hour || got < time.Hour-patience {
				e.Errorf("the value lives for %v; want an hour", got)
			}
			e.mustRead(c, "loader", func(ctx context.Context) (string, error) {
				leasecache.LoadFrom(ctx).SetTTL(time.Minute + 999*time.Microsecond)
				return "v", nil
			})
			if got := ttl("loader"); got > time.Minute || got < time.Minute-patience {
				e.Errorf("the value lives for %v; want a minute, as its loader chose", got)
			}
			j := e.cache(leasecache.Options{TTL: time.Hour, Jitter: 0.5})
			seen := map[time.Duration]bool{}
			for i := range 20 {
				key := fmt.Sprint("jitter", i)
				e.mustRead(j, key, loaderOf("v", nil))
				got := ttl(key)
				if got > time.Hour || got < time.Hour/2-patience {
					e.Errorf("with half an hour of jitter a value lives for %v", got)
				}
				seen[got.Round(time.Minute)] = true
			}
			if len(seen) < 3 {
				e.Errorf("20 values with jitter have TTLs of %v", seen)
			}
		},
	},
	{
		name: "UndecodableValueIsLoadedAfresh", cache: true,
		rule: "A value that cannot be decoded must be dropped, loaded afresh, cached and counted; once per DropBackoff, so that two versions of a service do not drop each other's for ever.",
		run: func(e *env) {
			o := cacheOptions
			o.Codec = fussyCodec{}
			o.DropBackoff = time.Minute
			c := e.cache(o)
			for _, bad := range []string{"", "another format", "\x00", "\x00\x07"} {
				key := fmt.Sprintf("k%x", bad)
				e.do("SET", e.value(key), bad, "PX", "60000")
				e.goRead(c, key, loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
				e.wantStored(key, "+v")
				// Now the other version writes its own again.
				e.do("SET", e.value(key), bad, "PX", "60000")
				e.goRead(c, key, loaderOf("w", nil)).want(e, "w", leasecache.Loaded, leasecache.CannotDecode)
				if v, err := c.Get(e.ctx, key, loaderOf("x", nil)); v != "x" || err != nil {
					e.Errorf("Get within the back-off returned %q, %v", v, err)
				}
				e.wantStored(key, bad)
				if _, ok, err := c.Peek(e.ctx, key); ok || err != nil {
					e.Errorf("Peek of a value that cannot be decoded returned %v, %v", ok, err)
				}
			}
			if n := c.Stats().Undecodable; n < 12 {
				e.Errorf("Stats: %d undecodable values; want each counted", n)
			}
		},
	},
	{
		name: "UndecodableValueFoundWhileWaiting", cache: true,
		rule: "A value that cannot be decoded must be dropped and loaded afresh also when a waiting read finds it.",
		run: func(e *env) {
			o := cacheOptions
			o.Codec = fussyCodec{}
			c := e.cache(o)
			e.do("SET", e.lease("k"), "another's", "PX", "600000")
			r := e.goRead(c, "k", loaderOf("v", nil))
			e.eventually("the read waits", func() bool { return c.Stats().Waits == 1 })
			e.do("SET", e.value("k"), "another format", "PX", "60000")
			e.eventually("the value is dropped", func() bool { return !e.exists(e.value("k")) })
			e.do("DEL", e.lease("k"))
			r.want(e, "v", leasecache.Loaded, "")
			e.wantStored("k", "+v")
		},
	},
	{
		name: "WrongType", cache: true,
		rule: "A key that holds something else than a string must be an error that says so and what to do, and Invalidate must heal it.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.do("RPUSH", e.value("k"), "x")
			_, err := c.Get(e.ctx, "k", loaderOf("wrong", nil))
			if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), "Invalidate") {
				e.Errorf("Get returned %v; want an error with WRONGTYPE and what to do", err)
			}
			if errors.Is(err, leasecache.ErrUnavailable) {
				e.Errorf("Get returned %v; the server is not unavailable", err)
			}
			e.mustInvalidate(c, "k")
			e.goRead(c, "k", loaderOf("v", nil)).want(e, "v", leasecache.Loaded, "")
		},
	},
	{
		name: "OneCallerCannotChangeAnothersValue", cache: true,
		rule: "Each caller must get a value of its own, so that changing it changes nobody else's.",
		run: func(e *env) {
			c := newCache[[]byte](e, e.driver(), cacheOptions)
			g := newGate()
			load := func(ctx context.Context) ([]byte, error) {
				s, err := g.loader("value")(ctx)
				return []byte(s), err
			}
			got := make(chan []byte, 5)
			get := func() {
				v, err := c.Get(e.ctx, "k", load)
				if err != nil {
					e.Errorf("Get: %v", err)
				}
				s := string(v)
				if len(v) > 0 {
					v[0] = 'X'
				}
				got <- []byte(s)
			}
			go get()
			await(e, "the load begins", g.began)
			for range 4 {
				go get()
			}
			e.eventually("all reads have missed", func() bool { return c.Stats().Misses == 5 })
			g.open()
			for range 5 {
				if v := await(e, "a read ends", got); string(v) != "value" {
					e.Errorf("Get returned %q; want a value that no other caller has changed", v)
				}
			}
			e.wantStored("k", "value")
		},
	},
	{
		name: "OneCallerCannotChangeAnothersHit", cache: true,
		rule: "Each hit must be a value of its own, also when reads share a round trip, so that changing it changes nobody else's.",
		run: func(e *env) {
			for _, share := range []bool{false, true} {
				c := newCache[[]byte](e, e.driver(), leasecache.Options{ShareReads: share})
				// A value, an empty one, and one that is stored in another form.
				for _, value := range []string{"value", "", "\x00value"} {
					key := fmt.Sprintf("k%v%q", share, value)
					load := func(context.Context) ([]byte, error) { return []byte(value), nil }
					if _, err := c.Get(e.ctx, key, load); err != nil {
						e.Fatalf("Get: %v", err)
					}
					var wg sync.WaitGroup
					for range 32 {
						wg.Go(func() {
							for range 10 {
								v, err := c.Get(e.ctx, key, load)
								if err != nil || string(v) != value || v == nil {
									e.Errorf("Get returned %q, %v; want %q, which no other caller has changed", v, err, value)
								}
								for i := range v {
									v[i] = 'X'
								}
							}
						})
					}
					wg.Wait()
				}
			}
		},
	},
}
