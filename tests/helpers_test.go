package tests

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

const (
	// patience bounds everything that is expected to happen. It is generous, so
	// that a loaded machine fails no test; nothing waits for it to pass.
	patience = 30 * time.Second

	// longLease is far longer than patience: what happens within patience did
	// not wait for such a lease to run out.
	longLease = 10 * time.Minute
)

// newCache returns a cache of strings that is closed with the test. Unless e is
// a Store, which has a bound of its own, calls are bounded by patience.
func newCache(t testing.TB, e driver.Evaler, o leasecache.Options) *leasecache.Cache[string] {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = 10 * time.Minute
	}
	store, ok := e.(*leasecache.Store)
	if !ok {
		store = newStore(t, e, patience)
	}
	c, err := leasecache.New[string](store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func newStore(t testing.TB, e driver.Evaler, callTimeout time.Duration) *leasecache.Store {
	t.Helper()
	s, err := leasecache.NewStore(e, leasecache.StoreOptions{CallTimeout: callTimeout})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func constant(v string) leasecache.Loader[string] {
	return func(context.Context) (string, error) { return v, nil }
}

// noLoad is the loader of a read that must be a hit.
func noLoad(t testing.TB) leasecache.Loader[string] {
	return func(context.Context) (string, error) {
		t.Error("a read that should be a hit loads")
		return "", nil
	}
}

// startOne starts a server of the newest kind, for tests that need only one.
func startOne(t testing.TB, opts ...servertest.Option) (*servertest.Server, *redis.Client) {
	t.Helper()
	s := servertest.Start(t, servertest.Named(t, "valkey-9"), opts...)
	return s, redisClient(t, s.Addr)
}

// eventually waits until ok reports true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// await waits for a channel that is expected to be closed or sent to.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// misses waits until n reads of c have missed and joined a flight.
func misses(t testing.TB, c *leasecache.Cache[string], n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d reads have missed", n), func() bool { return c.Stats().Misses >= uint64(n) })
}

// gate is a loader that waits until it is opened.
type gate struct {
	calls  atomic.Int64
	began  chan struct{} // closed when the first call began
	opened chan struct{}
	once   sync.Once
}

func newGate() *gate { return &gate{began: make(chan struct{}), opened: make(chan struct{})} }

func (g *gate) open() { close(g.opened) }

// then returns a loader that begins, waits for the gate, and ends as end does.
func (g *gate) then(end leasecache.Loader[string]) leasecache.Loader[string] {
	return func(ctx context.Context) (string, error) {
		g.calls.Add(1)
		g.once.Do(func() { close(g.began) })
		select {
		case <-g.opened:
			return end(ctx)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// read is a Read that runs in the background.
type read struct {
	done chan struct{}
	res  leasecache.Result[string]
	err  error
}

func goRead(t testing.TB, c *leasecache.Cache[string], key string, load leasecache.Loader[string]) *read {
	r := &read{done: make(chan struct{})}
	ctx := t.Context()
	go func() {
		defer close(r.done)
		r.res, r.err = c.Read(ctx, key, load)
	}()
	return r
}

// want waits for the read and checks its outcome, of which the TTL is left out.
func (r *read) want(t testing.TB, who, value string, source leasecache.Source, uncached leasecache.Reason) {
	t.Helper()
	await(t, who+" ends", r.done)
	if r.err != nil || r.res.Value != value || r.res.Source != source || r.res.Uncached != uncached {
		t.Errorf("%s got %q, %s, uncached %q, error %v; want %q, %s, uncached %q",
			who, r.res.Value, r.res.Source, r.res.Uncached, r.err, value, source, uncached)
	}
}

func valueKey(prefix, key string) string { return prefix + "v:{" + key + "}" }
func leaseKey(prefix, key string) string { return prefix + "l:{" + key + "}" }
func staleKey(prefix, key string) string { return prefix + "s:{" + key + "}" }

func exists(t testing.TB, admin redis.Cmdable, key string) bool {
	t.Helper()
	n, err := admin.Exists(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// wantStored checks what the value's Redis key holds; "" is nothing.
func wantStored(t testing.TB, admin redis.Cmdable, prefix, key, want string) {
	t.Helper()
	got, err := admin.Get(t.Context(), valueKey(prefix, key)).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("stored value of %q is %q; want %q", key, got, want)
	}
}

// leaseGone waits until nobody holds the lease.
func leaseGone(t testing.TB, admin redis.Cmdable, prefix, key string) {
	t.Helper()
	eventually(t, "the lease of "+key+" is gone", func() bool { return !exists(t, admin, leaseKey(prefix, key)) })
}

// noLeases waits until no lease of the prefix is left on the server.
func noLeases(t testing.TB, admin redis.Cmdable, prefix string) {
	t.Helper()
	var left []string
	eventually(t, "no lease is left", func() bool {
		var err error
		if left, err = admin.Keys(t.Context(), prefix+"l:*").Result(); err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
}

// quantile returns the value below which a part q of ds lies. It sorts ds.
func quantile(ds []time.Duration, q float64) time.Duration {
	slices.Sort(ds)
	return ds[int(q*float64(len(ds)-1))]
}

// errText returns what err says, or "" for none.
func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
