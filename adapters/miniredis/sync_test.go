package miniredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/miniredis"
	"github.com/leasecache/leasecache/driver"
)

// These are the timing tests of package leasecache. They run in bubbles, in
// which time stands still while anything runs and the embedded server answers at
// once, so that every instant can be compared exactly.

const prefix = "test:"

// bubble is the world of a test: one server, and an instant to count from.
type bubble struct {
	*testing.T
	server *miniredis.Server
	start  time.Time
}

// inBubble runs test in a bubble. Whatever the test leaves behind, a goroutine
// or a lease, fails it.
func inBubble(t *testing.T, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, server: miniredis.New(), start: time.Now()}
		t.Cleanup(func() { b.server.Close() }) // after the caches
		test(b)
	})
}

// now is the time since the test began.
func (b *bubble) now() time.Duration { return time.Since(b.start) }

// at sleeps until that time, and lets everything happen that happens then.
func (b *bubble) at(d time.Duration) {
	b.Helper()
	if d < b.now() {
		b.Fatalf("it is %v already, and not %v", b.now(), d)
	}
	time.Sleep(d - b.now())
	synctest.Wait()
}

func (b *bubble) wantNow(want time.Duration) {
	b.Helper()
	if got := b.now(); got != want {
		b.Errorf("it is %v, want %v", got, want)
	}
}

// cache returns a cache on a client of its own: another process.
func (b *bubble) cache(o leasecache.Options) *leasecache.Cache[string] {
	b.Helper()
	return b.cacheOn(b.server.Bound(time.Second), o)
}

func (b *bubble) cacheOn(e driver.Evaler, o leasecache.Options) *leasecache.Cache[string] {
	b.Helper()
	o.Prefix = prefix
	if o.TTL == 0 {
		o.TTL = time.Hour
	}
	c, err := leasecache.New[string](e, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background()) // the test's own is over
		cancel()
		_ = c.Close(ctx) // what the test left running is cancelled
	})
	return c
}

// store bounds the calls on e.
func (b *bubble) store(e driver.Evaler, callTimeout time.Duration) *leasecache.Store {
	b.Helper()
	s, err := leasecache.NewStore(e, leasecache.StoreOptions{CallTimeout: callTimeout})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// exists reports whether the value ("v"), lease ("l"), stale copy ("s") or drop
// mark ("d") of a key is stored now.
func (b *bubble) exists(kind, key string) bool {
	b.Helper()
	_, ok, err := b.server.Get(context.WithoutCancel(b.Context()), prefix+kind+":{"+key+"}")
	if err != nil {
		b.Fatal(err)
	}
	return ok
}

func (b *bubble) wantExists(kind, key string, want bool) {
	b.Helper()
	if got := b.exists(kind, key); got != want {
		b.Errorf("after %v: %s:{%s} exists: %v, want %v", b.now(), kind, key, got, want)
	}
}

// hold makes another process hold the lease of key for d.
func (b *bubble) hold(key string, d time.Duration) {
	b.Helper()
	script := driver.NewScript("hold", `return redis.call('SET', KEYS[1], 'another', 'PX', ARGV[1])`)
	_, err := b.server.Eval(b.Context(), script, []string{prefix + "l:{" + key + "}"}, []string{fmt.Sprint(d.Milliseconds())})
	if err != nil {
		b.Fatal(err)
	}
}

// free makes the other process release the lease of key.
func (b *bubble) free(key string) {
	b.Helper()
	script := driver.NewScript("free", `return redis.call('DEL', KEYS[1])`)
	if _, err := b.server.Eval(b.Context(), script, []string{prefix + "l:{" + key + "}"}, nil); err != nil {
		b.Fatal(err)
	}
}

// put stores bytes as the value of key k, as another program would.
func (b *bubble) put(value string, ttl time.Duration) {
	b.Helper()
	script := driver.NewScript("put", `return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`)
	_, err := b.server.Eval(b.Context(), script, []string{prefix + "v:{k}"}, []string{value, fmt.Sprint(ttl.Milliseconds())})
	if err != nil {
		b.Fatal(err)
	}
}

// call is a read that runs in the background.
type call struct {
	loads  atomic.Int32 // of its own loader
	began  atomic.Int64 // when the last of them began
	cancel context.CancelFunc

	done chan struct{} // closed when it has ended; then these are set:
	res  leasecache.Result[string]
	err  error
	end  time.Duration
}

// isDone lets everything happen that happens now, and reports whether the read
// has ended then.
func (c *call) isDone() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ended is when the read ended, and loadBegan when its own loader began.
func (c *call) ended() time.Duration     { <-c.done; return c.end }
func (c *call) loadBegan() time.Duration { return time.Duration(c.began.Load()) }

type reader func(ctx context.Context, key string, load func(context.Context) (string, error)) (leasecache.Result[string], error)

// goRead starts a read, and lets everything happen that happens now.
func (b *bubble) goRead(read reader, key string, load leasecache.Loader[string]) *call {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	return b.goReadContext(ctx, cancel, read, key, load)
}

func (b *bubble) goReadContext(ctx context.Context, cancel context.CancelFunc, read reader, key string, load leasecache.Loader[string]) *call {
	b.Helper()
	b.Cleanup(cancel)
	c := &call{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.res, c.err = read(ctx, key, func(ctx context.Context) (string, error) {
			c.began.Store(int64(b.now()))
			c.loads.Add(1)
			return load(ctx)
		})
		c.end = b.now()
	}()
	synctest.Wait()
	return c
}

// want checks that the read has ended at that time with that value.
func (c *call) want(b *bubble, ended time.Duration, value string, source leasecache.Source, uncached leasecache.Reason) {
	b.Helper()
	switch {
	case !c.isDone():
		b.Errorf("after %v: the read has not ended; want %q after %v", b.now(), value, ended)
	case c.err != nil:
		b.Errorf("the read returned %v after %v; want %q after %v", c.err, c.end, value, ended)
	case c.end != ended || c.res.Value != value || c.res.Source != source || c.res.Uncached != uncached:
		b.Errorf("the read returned %q, %v, uncached %q, after %v;\nwant %q, %v, uncached %q, after %v",
			c.res.Value, c.res.Source, c.res.Uncached, c.end, value, source, uncached, ended)
	}
}

func (c *call) wantError(b *bubble, ended time.Duration, is ...error) {
	b.Helper()
	if !c.isDone() {
		b.Errorf("after %v: the read has not ended; want %v after %v", b.now(), is, ended)
		return
	}
	if c.end != ended {
		b.Errorf("the read returned %v after %v; want %v after %v", c.err, c.end, is, ended)
	}
	for _, err := range is {
		if !errors.Is(c.err, err) {
			b.Errorf("the read returned %v, want %v", c.err, err)
		}
	}
}

func (c *call) wantPending(b *bubble) {
	b.Helper()
	if c.isDone() {
		b.Errorf("the read has ended after %v, with %q, %v; want it to wait", c.end, c.res.Value, c.err)
	}
}

// returns is a loader that takes that long, whatever its context does.
func returns(v string, after time.Duration) leasecache.Loader[string] {
	return func(context.Context) (string, error) {
		time.Sleep(after)
		return v, nil
	}
}

// heeds is a loader that takes that long, and ends with its context.
func heeds(v string, after time.Duration) leasecache.Loader[string] {
	return func(ctx context.Context) (string, error) {
		select {
		case <-time.After(after):
			return v, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// notFound is a loader of what the source does not have.
func notFound(context.Context) (string, error) { return "", leasecache.ErrNotFound }

// spy is a driver that notes what is sent and when, and may be told to hang or
// to be slow. It ends its calls in time.
type spy struct {
	b     *bubble
	bound time.Duration
	*spied
}

type spied struct {
	mu    sync.Mutex
	steps []step
	// fate, if set, is asked before a step is sent, and may wait. A step whose
	// fate is an error is not sent.
	fate func(ctx context.Context, name string) error
	// after, if set, is called when the reply is there.
	after func(name string)
}

// step is a call: the name of its script, or "get".
type step struct {
	name string
	at   time.Duration
	// lease is whether it asked for the lease.
	lease bool
}

func (b *bubble) spy() *spy { return &spy{b: b, spied: &spied{}} }

func (s *spy) Bound(d time.Duration) driver.Evaler { return &spy{s.b, d, s.spied} }

func (s *spy) send(ctx context.Context, st step, do func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return driver.NotSent(err)
	}
	if s.bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.bound)
		defer cancel()
	}
	st.at = s.b.now()
	s.mu.Lock()
	s.steps = append(s.steps, st)
	fate, after := s.fate, s.after
	s.mu.Unlock()
	if fate != nil {
		if err := fate(ctx, st.name); err != nil {
			return driver.CallError(ctx, err)
		}
	}
	err := do(context.WithoutCancel(ctx))
	if after != nil {
		after(st.name)
	}
	return err
}

func (s *spy) Eval(ctx context.Context, script *driver.Script, keys, args []string) (reply driver.Reply, err error) {
	st := step{name: script.Name(), lease: script.Name() == "read" && args[0] != ""}
	err = s.send(ctx, st, func(ctx context.Context) error {
		reply, err = s.b.server.Eval(ctx, script, keys, args)
		return err
	})
	return reply, err
}

func (s *spy) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	err = s.send(ctx, step{name: "get"}, func(ctx context.Context) error {
		value, ok, err = s.b.server.Get(ctx, key)
		return err
	})
	return value, ok, err
}

// sent returns the steps of that name so far.
func (s *spied) sent(name string) []step {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []step
	for _, st := range s.steps {
		if st.name == name {
			found = append(found, st)
		}
	}
	return found
}

func (s *spied) setFate(fate func(ctx context.Context, name string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fate = fate
}

// hang is the fate of a step that is never answered.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return errors.New("no answer")
}

// only limits a fate to steps of that name.
func only(name string, fate func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, n string) error {
		if n != name {
			return nil
		}
		return fate(ctx, n)
	}
}

// Leases.

func TestALeaseIsTakenOverWhenItEndsAndNotBefore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		sp := b.spy()
		crashed, c := b.cache(leasecache.Options{Lease: 3 * time.Second, LoadTimeout: time.Hour}), b.cacheOn(sp, leasecache.Options{})
		dead := b.goRead(crashed.Read, "k", heeds("never", time.Hour))
		b.at(500 * time.Millisecond)
		r := b.goRead(c.Read, "k", returns("v", time.Second))
		b.at(3*time.Second - 1)
		if r.loads.Load() != 0 {
			b.Errorf("it loads while another holds the lease, after %v", r.loadBegan())
		}
		b.at(5 * time.Second)
		// PTTL counts in milliseconds, so a waiter comes up to one late; and by the
		// next poll if he last looked when there was less than one left.
		most := time.Millisecond
		for _, look := range sp.sent("read") {
			if left := 3*time.Second - look.at; left > 0 && left < time.Millisecond {
				most = 50 * time.Millisecond
			}
		}
		if late := r.loadBegan() - 3*time.Second; late < 0 || late > most {
			b.Errorf("the lease ended after 3s, and was taken over after %v", r.loadBegan())
		}
		r.want(b, r.loadBegan()+time.Second, "v", leasecache.Loaded, "")
		dead.wantPending(b)
	})
}

func TestALoadThatEndsWithItsLeaseIsNotCached(t *testing.T) {
	for _, test := range []struct {
		takes    time.Duration
		uncached leasecache.Reason
	}{
		{3*time.Second - time.Millisecond, ""},
		{3 * time.Second, leasecache.LeaseLost},
		{4 * time.Second, leasecache.LeaseLost},
	} {
		t.Run(test.takes.String(), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.cache(leasecache.Options{Lease: 3 * time.Second, LoadTimeout: 10 * time.Second})
				r := b.goRead(c.Read, "k", returns("v", test.takes))
				b.at(5 * time.Second)
				r.want(b, test.takes, "v", leasecache.Loaded, test.uncached)
				b.wantExists("v", "k", test.uncached == "")
				b.wantExists("l", "k", false)
			})
		})
	}
}

// TTLs.

func TestAValueLivesForItsTTL(t *testing.T) {
	chosen := func(ctx context.Context) (string, error) {
		leasecache.LoadFrom(ctx).SetTTL(7*time.Second + 999*time.Microsecond)
		return "v", nil
	}
	chosenNotFound := func(ctx context.Context) (string, error) {
		leasecache.LoadFrom(ctx).SetTTL(7 * time.Second)
		return "", leasecache.ErrNotFound
	}
	o := leasecache.Options{TTL: 20 * time.Second, NotFoundTTL: 4 * time.Second}
	for _, test := range []struct {
		name string
		o    leasecache.Options
		load leasecache.Loader[string]
		want time.Duration
		err  error
	}{
		{"of the options", o, returns("v", 0), 20 * time.Second, nil},
		{"of the loader, in whole milliseconds", o, chosen, 7 * time.Second, nil},
		{"of what was not found", o, notFound, 4 * time.Second, leasecache.ErrNotFound},
		{"of what was not found, by the loader", o, chosenNotFound, 7 * time.Second, leasecache.ErrNotFound},
		{"of what was not found, by default", leasecache.Options{TTL: time.Hour}, notFound, time.Minute, leasecache.ErrNotFound},
		{"of what was not found, by a short TTL", leasecache.Options{TTL: 5 * time.Second}, notFound, 5 * time.Second, leasecache.ErrNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.cache(test.o)
				r := b.goRead(c.Read, "k", test.load)
				if !errors.Is(r.err, test.err) || r.res.TTL != test.want {
					b.Errorf("the load is cached for %v, error %v; want %v", r.res.TTL, r.err, test.want)
				}
				for _, at := range []time.Duration{time.Millisecond, test.want / 2, test.want - time.Millisecond} {
					b.at(at)
					res, ok, err := c.Peek(b.Context(), "k")
					if !ok || !errors.Is(err, test.err) || res.TTL != test.want-at {
						b.Errorf("after %v: Peek = TTL %v, %v, %v; want %v left", at, res.TTL, ok, err, test.want-at)
					}
				}
				b.at(test.want)
				if res, ok, err := c.Peek(b.Context(), "k"); ok || err != nil {
					b.Errorf("after %v: Peek = %+v, %v, %v; want nothing", test.want, res, ok, err)
				}
			})
		})
	}
}

func TestJitterShortensTTLsOfValuesAndOfWhatWasNotFound(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{TTL: 100 * time.Second, NotFoundTTL: 10 * time.Second, Jitter: 0.2})
		for _, test := range []struct {
			load      leasecache.Loader[string]
			low, high time.Duration
		}{
			{returns("v", 0), 80 * time.Second, 100 * time.Second},
			{notFound, 8 * time.Second, 10 * time.Second},
		} {
			seen := map[time.Duration]bool{}
			for i := range 50 {
				r := b.goRead(c.Read, fmt.Sprint(test.high, i), test.load)
				if r.res.TTL < test.low-time.Millisecond || r.res.TTL > test.high {
					b.Errorf("the TTL is %v, want from %v to %v", r.res.TTL, test.low, test.high)
				}
				seen[r.res.TTL] = true
			}
			if len(seen) < 20 {
				b.Errorf("50 TTLs are only %d different ones", len(seen))
			}
		}
	})
}

func TestAStaleCopyEndsWithItsWindowOrWithTheTTLThatTheValueHad(t *testing.T) {
	for _, test := range []struct {
		name              string
		ttl, invalidateAt time.Duration
		again             time.Duration // a second invalidation, at
		want              time.Duration // the end of the copy
	}{
		{"the window is shorter", time.Hour, time.Minute, 0, time.Minute + 30*time.Second},
		{"the value had less to live", time.Minute, 50 * time.Second, 0, time.Minute},
		{"a second invalidation does not prolong it", time.Hour, time.Minute, time.Minute + 20*time.Second, time.Minute + 30*time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				o := leasecache.Options{TTL: test.ttl, Stale: 30 * time.Second, WaitBound: time.Hour}
				c := b.cache(o)
				b.goRead(c.Read, "k", returns("old", 0))
				b.at(test.invalidateAt)
				if err := c.Invalidate(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
				if test.again > 0 {
					b.at(test.again)
					if err := c.Invalidate(b.Context(), "k"); err != nil {
						b.Fatal(err)
					}
				}
				b.hold("k", time.Hour)
				b.at(test.want - time.Millisecond)
				served := b.goRead(c.Read, "k", returns("wrong", 0))
				served.want(b, test.want-time.Millisecond, "old", leasecache.Stale, leasecache.StaleCopy)
				b.at(test.want)
				b.wantExists("s", "k", false)
				b.goRead(c.Read, "k", returns("wrong", 0)).wantPending(b)
			})
		})
	}
}

// Waiting.

func TestAWaiterLoadsWithoutALeaseExactlyWhenItsBoundPasses(t *testing.T) {
	for _, name := range []string{"get", "script"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := b.spy()
				var e driver.Evaler = s
				if name == "script" {
					e = struct{ driver.Evaler }{b.server.Bound(time.Second)}
				}
				c := b.cacheOn(e, leasecache.Options{WaitBound: 4 * time.Second})
				b.hold("k", time.Hour)
				b.at(time.Second)
				r := b.goRead(c.Read, "k", returns("v", 2*time.Second))
				b.at(5*time.Second - 1)
				r.wantPending(b)
				if r.loads.Load() != 0 {
					b.Errorf("it loads after %v", r.loadBegan())
				}
				b.at(8 * time.Second)
				if r.loadBegan() != 5*time.Second || r.loads.Load() != 1 {
					b.Errorf("it loads %d times, after %v; want once, after 5s", r.loads.Load(), r.loadBegan())
				}
				r.want(b, 7*time.Second, "v", leasecache.Loaded, leasecache.WaitedTooLong)
				b.wantExists("v", "k", false)
				if st := c.Stats(); st.WaitTimeouts != 1 || st.UnleasedLoads != 1 || st.Waits != 1 {
					b.Errorf("the statistics are %+v", st)
				}
			})
		})
	}
}

func TestAllWhoWaitGoWithTheFirstWhoseBoundPasses(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{WaitBound: 4 * time.Second})
		b.hold("k", time.Hour)
		first := b.goRead(c.Read, "k", returns("v", time.Second))
		b.at(3 * time.Second)
		second := b.goRead(c.Read, "k", returns("wrong", 0))
		b.at(4500 * time.Millisecond)
		late := b.goRead(c.Read, "k", returns("w", 0)) // came after the load began
		b.at(9 * time.Second)
		first.want(b, 5*time.Second, "v", leasecache.Loaded, leasecache.WaitedTooLong)
		second.want(b, 5*time.Second, "v", leasecache.Joined, leasecache.WaitedTooLong)
		late.want(b, 8500*time.Millisecond, "w", leasecache.Loaded, leasecache.WaitedTooLong)
	})
}

func TestPollsComeSoonerFirstAndThenOncePerInterval(t *testing.T) {
	for _, interval := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 50 * time.Millisecond, time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := b.spy()
				c := b.cacheOn(s, leasecache.Options{PollInterval: interval, WaitBound: 20 * interval})
				b.hold("k", time.Hour)
				r := b.goRead(c.Read, "k", returns("v", 0))
				b.at(20 * interval)
				r.want(b, 20*interval, "v", leasecache.Loaded, leasecache.WaitedTooLong)

				reads := s.sent("read")[1:] // the first one is Read's own look
				if len(reads) < 20 || reads[0].at != 0 {
					b.Fatalf("%d reads, the first after %v", len(reads), reads[0].at)
				}
				most := min(2*time.Millisecond, interval)
				for i := 1; i < len(reads); i++ {
					gap, last := reads[i].at-reads[i-1].at, i == len(reads)-1
					if gap > most || gap < most/2 && !last {
						b.Errorf("look %d came %v after the one before, want from %v to %v", i, gap, most/2, most)
					}
					most = min(2*most, interval)
				}
			})
		})
	}
}

func TestThereIsOnePollerForAllWhoWaitForAKey(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(s, leasecache.Options{PollInterval: 100 * time.Millisecond, WaitBound: time.Minute})
		b.hold("k", 30*time.Second)
		for range 20 {
			b.goRead(func(ctx context.Context, key string, load func(context.Context) (string, error)) (leasecache.Result[string], error) {
				v, err := c.Get(ctx, key, load)
				return leasecache.Result[string]{Value: v}, err
			}, "k", returns("v", 0))
		}
		before := len(s.sent("read"))
		b.at(10 * time.Second)
		// From half an interval to a whole one.
		if n := len(s.sent("read")) - before; n < 100 || n > 220 {
			b.Errorf("20 readers looked %d times in 10s, want from 100 to 220", n)
		}
	})
}

func TestReadsAndARefreshOfAKeyShareThePoller(t *testing.T) {
	for name, refreshFirst := range map[string]bool{"the reads come first": false, "the refresh comes first": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := b.spy()
				c := b.cacheOn(s, leasecache.Options{PollInterval: 100 * time.Millisecond, WaitBound: time.Minute})
				b.hold("k", 30*time.Second)
				var refresh *call
				if refreshFirst {
					refresh = b.goRead(c.Refresh, "k", returns("refreshed", time.Second))
				}
				var reads []*call
				for range 10 {
					reads = append(reads, b.goRead(c.Read, "k", returns("read", time.Second)))
				}
				if !refreshFirst {
					refresh = b.goRead(c.Refresh, "k", returns("refreshed", time.Second))
				}
				before := len(s.sent("read"))
				b.at(10 * time.Second)
				if n := len(s.sent("read")) - before; n < 100 || n > 220 {
					b.Errorf("they looked %d times in 10s, want from 100 to 220", n)
				}
				// The lease runs out. Whoever polls leads; the others go on without a
				// poll of their own, and never wait for more than one interval.
				b.at(40 * time.Second)
				if late := refresh.loadBegan() - 30*time.Second; refresh.loads.Load() != 1 || late < 0 || late > 1200*time.Millisecond {
					b.Errorf("Refresh loads %d times, after %v; want once, within 1.2s of the lease's end", refresh.loads.Load(), refresh.loadBegan())
				}
				for _, r := range reads {
					if late := r.ended() - 30*time.Second; late > 1200*time.Millisecond {
						b.Errorf("a read ended after %v; want within 1.2s of the lease's end", r.ended())
					}
				}
				if n := len(s.sent("read")) - before; n > 700 {
					b.Errorf("they looked %d times in all, want at most 700", n)
				}
			})
		})
	}
}

func TestARefreshGoesOnWhenTheReadThatPollsHasItsValue(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{PollInterval: 100 * time.Millisecond, WaitBound: time.Minute})
		b.hold("k", time.Hour)
		r := b.goRead(c.Read, "k", returns("wrong", 0))
		refresh := b.goRead(c.Refresh, "k", returns("refreshed", time.Second))
		b.at(10 * time.Second)
		b.put("v", time.Minute)
		b.free("k")
		b.at(20 * time.Second)
		r.want(b, r.ended(), "v", leasecache.Hit, "")
		refresh.want(b, r.ended()+time.Second, "refreshed", leasecache.Loaded, "")
	})
}

func TestARefreshGoesOnWhenTheReadThatPollsLeaves(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{PollInterval: 100 * time.Millisecond, WaitBound: time.Minute})
		b.hold("k", 20*time.Second)
		ctx, cancel := context.WithCancel(b.Context())
		r := b.goReadContext(ctx, cancel, c.Read, "k", returns("wrong", 0))
		refresh := b.goRead(c.Refresh, "k", returns("refreshed", time.Second))
		b.at(10 * time.Second)
		cancel()
		b.at(30 * time.Second)
		r.wantError(b, 10*time.Second, context.Canceled)
		if late := refresh.loadBegan() - 20*time.Second; late < 0 || late > 100*time.Millisecond {
			b.Errorf("it loads after %v; want when the lease runs out after 20s", refresh.loadBegan())
		}
	})
}

func TestAWaiterSeesAValueByItsNextPoll(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{PollInterval: 80 * time.Millisecond, WaitBound: time.Minute})
		b.hold("k", time.Hour)
		r := b.goRead(c.Read, "k", returns("wrong", 0))
		b.at(10 * time.Second)
		b.put("v", time.Minute)
		b.at(10*time.Second + 80*time.Millisecond)
		r.want(b, r.ended(), "v", leasecache.Hit, "")
		// What is left, in the whole milliseconds of PTTL.
		if left := time.Minute + 10*time.Second - r.ended(); r.res.TTL > left || r.res.TTL <= left-time.Millisecond {
			b.Errorf("the TTL is %v, want %v", r.res.TTL, left)
		}
	})
}

func TestACallerLeavesAtItsDeadlineWhileItWaits(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(s, leasecache.Options{WaitBound: time.Minute})
		b.hold("k", time.Hour)
		ctx, cancel := context.WithTimeout(b.Context(), 1234567*time.Microsecond)
		r := b.goReadContext(ctx, cancel, c.Read, "k", returns("wrong", 0))
		other := b.goRead(c.Read, "k", returns("wrong", 0))
		b.at(2 * time.Second)
		r.wantError(b, 1234567*time.Microsecond, context.DeadlineExceeded)
		if r.err == nil || !strings.Contains(r.err.Error(), `"k"`) {
			b.Errorf("the error is %v, want it to name the key", r.err)
		}
		other.wantPending(b)
		other.cancel()
		other.wantError(b, 2*time.Second, context.Canceled)
		n := len(s.sent("read"))
		b.at(10 * time.Second)
		if more := len(s.sent("read")) - n; more > 0 {
			b.Errorf("%d polls though nobody waits", more)
		}
	})
}

// Loads.

func TestALoadTakesLoadTimeoutAtMost(t *testing.T) {
	for name, load := range map[string]leasecache.Loader[string]{
		"the loader heeds its context":   heeds("wrong", time.Hour),
		"the loader ignores its context": returns("wrong", 20*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.cache(leasecache.Options{Lease: 10 * time.Second, LoadTimeout: 3 * time.Second, FailureBackoff: -1})
				var deadline time.Duration
				r := b.goRead(c.Read, "k", func(ctx context.Context) (string, error) {
					d, _ := ctx.Deadline()
					deadline = d.Sub(b.start)
					return load(ctx)
				})
				b.at(2 * time.Second)
				joined := b.goRead(c.Read, "k", returns("v", 0))
				b.at(3 * time.Second)
				if deadline != 3*time.Second {
					b.Errorf("the loader's deadline was after %v, want 3s", deadline)
				}
				r.wantError(b, 3*time.Second, leasecache.ErrLoadTimeout, context.DeadlineExceeded)
				// Who came after the load began does not share its failure. He may ask
				// before the lease is released, and then asks again by the first poll.
				b.at(3*time.Second + 2*time.Millisecond)
				joined.want(b, joined.ended(), "v", leasecache.Loaded, "")
				if st := c.Stats(); st.Errors[leasecache.ErrorLoadTimeout] != 1 || st.Errors[leasecache.ErrorLoader] != 0 {
					b.Errorf("the errors are %v, want one load timeout", st.Errors)
				}
				b.at(21 * time.Second)
				b.wantExists("l", "k", false)
			})
		})
	}
}

func TestALoaderThatIgnoresItsContextHoldsItsSlotUntilItReturns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{Lease: 2 * time.Second, WaitBound: time.Minute})
		ignores := returns("dropped", 10*time.Second)
		first := b.goRead(c.Read, "k", ignores)
		b.at(2 * time.Second)
		first.wantError(b, 2*time.Second, leasecache.ErrLoadTimeout)
		second := b.goRead(c.Read, "k", ignores)
		b.at(4 * time.Second)
		second.wantError(b, 4*time.Second, leasecache.ErrLoadTimeout)
		// Two loaders run: nobody loads until one has returned.
		third := b.goRead(c.Read, "k", returns("v", 0))
		b.at(10*time.Second - 1)
		third.wantPending(b)
		b.at(10 * time.Second)
		third.want(b, 10*time.Second, "v", leasecache.Loaded, "")
		b.at(13 * time.Second)
		if res, ok, err := c.Peek(b.Context(), "k"); res.Value != "v" || !ok || err != nil {
			b.Errorf("cached is %q, %v, %v; what an ignoring loader returned must be dropped", res.Value, ok, err)
		}
	})
}

func TestAfterItsBoundAJoinerLoadsAndTheLeaderGoesOn(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{Lease: 10 * time.Second, LoadTimeout: 10 * time.Second, WaitBound: 3 * time.Second})
		leader := b.goRead(c.Read, "k", returns("slow", 8*time.Second))
		b.at(time.Second)
		joiner := b.goRead(c.Read, "k", returns("own", time.Second))
		b.at(2 * time.Second)
		second := b.goRead(c.Read, "k", returns("wrong", 0))
		b.at(4500 * time.Millisecond)
		if joiner.loadBegan() != 4*time.Second {
			b.Errorf("the joiner loads after %v, want 4s", joiner.loadBegan())
		}
		leader.wantPending(b)
		third := b.goRead(c.Read, "k", returns("wrong", 0)) // both slots are taken
		b.at(9 * time.Second)
		joiner.want(b, 5*time.Second, "own", leasecache.Loaded, leasecache.WaitedTooLong)
		second.want(b, 5*time.Second, "own", leasecache.Joined, leasecache.WaitedTooLong)
		leader.want(b, 8*time.Second, "slow", leasecache.Loaded, "")
		if third.loads.Load() > 0 {
			third.want(b, 7500*time.Millisecond, "wrong", leasecache.Loaded, leasecache.WaitedTooLong)
		} else {
			third.want(b, 8*time.Second, "slow", leasecache.Joined, "")
		}
	})
}

func TestALoadGoesOnWhenAllItsCallersHaveLeft(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		r := b.goReadContext(ctx, cancel, c.Read, "k", heeds("v", 3*time.Second))
		b.at(time.Second)
		r.wantError(b, time.Second, context.DeadlineExceeded)
		b.at(3 * time.Second)
		if res, ok, err := c.Peek(b.Context(), "k"); res.Value != "v" || !ok || err != nil || res.TTL != time.Hour {
			b.Errorf("cached is %+v, %v, %v; want what the load returned", res, ok, err)
		}
	})
}

func TestLoadsQueueForMaxLoadsBeforeTheyTakeALease(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{MaxLoads: 2, WaitBound: time.Minute, TTL: time.Hour})
		running, most := 0, 0
		var mu sync.Mutex
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		calls := map[string]*call{}
		for i := range 10 {
			key := fmt.Sprint("k", i)
			calls[key] = b.goRead(c.Read, key, func(ctx context.Context) (string, error) {
				count(1)
				defer count(-1)
				return heeds(key, time.Second)(ctx)
			})
		}
		b.at(500 * time.Millisecond)
		leases := 0
		for key := range calls {
			if b.exists("l", key) {
				leases++
			}
		}
		if leases != 2 {
			b.Errorf("%d leases are held, want 2", leases)
		}
		b.at(5 * time.Second) // no place is left empty: ten loads of a second each
		ended := map[time.Duration]int{}
		for key, r := range calls {
			r.want(b, r.ended(), key, leasecache.Loaded, "")
			ended[r.ended()]++
		}
		for s := range 5 {
			if at := time.Duration(s+1) * time.Second; ended[at] != 2 {
				b.Errorf("the loads ended %v, want two each second", ended)
				break
			}
		}
		if most != 2 {
			b.Errorf("%d loads ran at a time, want 2", most)
		}
	})
}

func TestAReadThatQueuesIsOverloadedWhenItsBoundPasses(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{MaxLoads: 1, WaitBound: 3 * time.Second, LoadTimeout: time.Minute, Lease: time.Minute})
		first := b.goRead(c.Read, "a", returns("v", 10*time.Second))
		b.at(time.Second)
		second := b.goRead(c.Read, "b", returns("wrong", 0))
		b.at(10 * time.Second)
		first.want(b, 10*time.Second, "v", leasecache.Loaded, "")
		second.wantError(b, 4*time.Second, leasecache.ErrOverloaded)
		if st := c.Stats(); st.Overloads != 1 || st.WaitTimeouts != 1 || st.Loads != 1 {
			b.Errorf("the statistics are %+v", st)
		}
		b.wantExists("l", "b", false)
	})
}

// Refresh.

func TestRefreshLoadsAtOnceAndOthersGetThePresentValueMeanwhile(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c, other := b.cache(leasecache.Options{TTL: time.Minute}), b.cache(leasecache.Options{})
		b.goRead(c.Read, "k", returns("old", 0))
		b.at(10 * time.Second)
		r := b.goRead(c.Refresh, "k", returns("new", 3*time.Second))
		b.at(12 * time.Second)
		for _, cache := range []*leasecache.Cache[string]{c, other} {
			hit := b.goRead(cache.Read, "k", returns("wrong", 0))
			hit.want(b, 12*time.Second, "old", leasecache.Hit, "")
			if hit.res.TTL != 48*time.Second {
				b.Errorf("the present value is cached for %v, want 48s", hit.res.TTL)
			}
		}
		b.at(13 * time.Second)
		r.want(b, 13*time.Second, "new", leasecache.Loaded, "")
		if r.res.TTL != time.Minute {
			b.Errorf("the new value is cached for %v, want a minute from now", r.res.TTL)
		}
		b.goRead(other.Read, "k", returns("wrong", 0)).want(b, 13*time.Second, "new", leasecache.Hit, "")
	})
}

func TestRefreshWaitsForTheLoadOfAnotherAndThenLoadsAgain(t *testing.T) {
	for name, stale := range map[string]time.Duration{"without stale copies": 0, "with stale copies": time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				o := leasecache.Options{Stale: stale, PollInterval: 10 * time.Millisecond}
				c, other := b.cache(o), b.cache(o)
				b.goRead(c.Read, "k", returns("oldest", 0))
				if err := c.Invalidate(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
				b.goRead(other.Read, "k", returns("old", 2*time.Second))
				b.at(time.Second)
				r := b.goRead(c.Refresh, "k", returns("new", time.Second))
				b.at(4 * time.Second)
				if late := r.loadBegan() - 2*time.Second; r.loads.Load() != 1 || late < 0 || late > 10*time.Millisecond {
					b.Errorf("it loads %d times, after %v; want once, by the first poll after 2s", r.loads.Load(), r.loadBegan())
				}
				r.want(b, r.loadBegan()+time.Second, "new", leasecache.Loaded, "")
			})
		})
	}
}

func TestCallsOfRefreshShareALoadThatBeganAfterAllOfThem(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{})
		first := b.goRead(c.Refresh, "k", returns("v1", 2*time.Second))
		b.at(time.Second)
		second := b.goRead(c.Refresh, "k", returns("v2", 2*time.Second))
		third := b.goRead(c.Refresh, "k", returns("wrong", 0))
		b.at(5 * time.Second)
		first.want(b, 2*time.Second, "v1", leasecache.Loaded, "")
		second.want(b, 4*time.Second, "v2", leasecache.Loaded, "")
		third.want(b, 4*time.Second, "v2", leasecache.Joined, "")
	})
}

func TestRefreshPastItsBoundLoadsWithoutALeaseAndLeavesTheValue(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{WaitBound: 3 * time.Second})
		b.goRead(c.Read, "k", returns("old", 0))
		b.hold("k", time.Hour)
		r := b.goRead(c.Refresh, "k", returns("new", time.Second))
		b.at(4 * time.Second)
		r.want(b, 4*time.Second, "new", leasecache.Loaded, leasecache.WaitedTooLong)
		b.goRead(c.Read, "k", returns("wrong", 0)).want(b, 4*time.Second, "old", leasecache.Hit, "")
	})
}

// Reads that are shared.

// get is Get as a reader.
func get(c *leasecache.Cache[string]) reader {
	return func(ctx context.Context, key string, load func(context.Context) (string, error)) (leasecache.Result[string], error) {
		v, err := c.Get(ctx, key, load)
		return leasecache.Result[string]{Value: v}, err
	}
}

// crossing makes each GET take two seconds: it is executed in the middle.
func (s *spy) crossing() {
	s.setFate(only("get", func(context.Context, string) error {
		time.Sleep(time.Second)
		return nil
	}))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = func(name string) {
		if name == "get" {
			time.Sleep(time.Second)
		}
	}
}

func TestSharedReadsAreJoinedUntilTheyAreSent(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 10*time.Second), leasecache.Options{ShareReads: true})
		b.put("one", time.Hour)
		s.crossing()
		never := returns("wrong", 0)
		first, second := b.goRead(get(c), "k", never), b.goRead(get(c), "k", never)
		var third []*call
		for range 10 {
			third = append(third, b.goRead(get(c), "k", never))
		}
		other := b.goRead(get(c), "k2", returns("another key's", 0))
		b.at(1500 * time.Millisecond)
		b.put("two", time.Hour) // the first two have read, the third is not sent yet
		late := b.goRead(get(c), "k", never)
		b.at(2500 * time.Millisecond)
		afterSent := b.goRead(get(c), "k", never)
		b.at(time.Minute)
		first.want(b, 2*time.Second, "one", 0, "")
		second.want(b, 2*time.Second, "one", 0, "")
		for _, r := range append(third, late) {
			r.want(b, 4*time.Second, "two", 0, "")
		}
		afterSent.want(b, 4500*time.Millisecond, "two", 0, "")
		other.want(b, 2*time.Second, "another key's", 0, "")
		if n := len(s.sent("get")); n != 5 {
			b.Errorf("%d GETs were sent, want 3 for the first key's 13 readers at once, 1 for the last, 1 for the other key", n)
		}
		if n := c.Stats().SharedReads; n != 11 {
			b.Errorf("%d shared reads, want 11", n)
		}
	})
}

func TestASharedReadThatStartsAfterAnInvalidationGetsNothingOlder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 10*time.Second), leasecache.Options{ShareReads: true})
		b.put("old", time.Hour)
		s.crossing()
		for range 3 {
			b.goRead(get(c), "k", returns("new", 0))
		}
		// At three and a half seconds the third read has been executed, and its
		// reply is on the way.
		b.at(3500 * time.Millisecond)
		if err := c.Invalidate(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
		var after []*call
		for range 5 {
			after = append(after, b.goRead(get(c), "k", returns("new", 0)))
		}
		b.at(time.Minute)
		for _, r := range after {
			r.want(b, r.ended(), "new", 0, "")
		}
	})
}

func TestASharedReadIsLeftAtOnceAndFailsForAll(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 10*time.Second), leasecache.Options{ShareReads: true})
		s.setFate(only("get", hang))
		never := returns("wrong", 0)
		direct := []*call{b.goRead(get(c), "k", never), b.goRead(get(c), "k", never)}
		ctx, cancel := context.WithCancel(b.Context())
		leaves := b.goReadContext(ctx, cancel, get(c), "k", never)
		stays := b.goRead(get(c), "k", never)
		b.at(time.Second)
		cancel()
		b.at(5 * time.Second)
		late := b.goRead(get(c), "k", never)
		b.at(time.Minute)
		leaves.wantError(b, time.Second, context.Canceled)
		for _, r := range append(direct, stays, late) {
			r.wantError(b, 10*time.Second, leasecache.ErrUnavailable)
		}
		if n := len(s.sent("get")); n != 2 {
			b.Errorf("%d GETs were sent, want 2: those who wait for them should not wait once more", n)
		}
		s.crossing()
		b.put("one", time.Hour)
		after := []*call{b.goRead(get(c), "k", never), b.goRead(get(c), "k", never)}
		b.at(2 * time.Minute)
		for _, r := range after {
			r.want(b, time.Minute+2*time.Second, "one", 0, "")
		}
		if n := c.Stats().SharedReads; n != 3 {
			b.Errorf("%d shared reads, want 3: the last two have nobody to wait for", n)
		}
	})
}

func TestADeadlineOfOneWhoReadsIsNoneOfThoseWhoShareTheNextRead(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 10*time.Second), leasecache.Options{ShareReads: true})
		b.put("one", time.Hour)
		s.setFate(only("get", hang))
		never := returns("wrong", 0)
		var hasty []*call
		for range 2 {
			ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
			hasty = append(hasty, b.goReadContext(ctx, cancel, get(c), "k", never))
		}
		stays := b.goRead(get(c), "k", never)
		b.at(time.Second)
		s.setFate(nil)
		b.at(time.Minute)
		for _, r := range hasty {
			r.wantError(b, 2*time.Second, context.DeadlineExceeded)
		}
		stays.want(b, 2*time.Second, "one", 0, "")
	})
}

// The server hangs.

func TestAServerThatHangsCostsAReadOneCallTimeout(t *testing.T) {
	for _, name := range []string{"a driver that ends its calls", "a driver that has to be left behind"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := b.spy()
				s.setFate(hang)
				var e driver.Evaler = s
				release := make(chan struct{})
				if strings.Contains(name, "left") {
					e = stuck{release}
				}
				c := b.cacheOn(b.store(e, 700*time.Millisecond), leasecache.Options{})
				load := b.cacheOn(b.store(e, 700*time.Millisecond), leasecache.Options{OnUnavailable: leasecache.UnavailableLoad})
				r := b.goRead(c.Read, "k", returns("wrong", 0))
				r2 := b.goRead(load.Read, "k", returns("v", time.Second))
				_, _, err := c.Peek(b.Context(), "k")
				b.wantNow(700 * time.Millisecond)
				if !errors.Is(err, leasecache.ErrUnavailable) {
					b.Errorf("Peek: %v", err)
				}
				b.at(2 * time.Second)
				r.wantError(b, 700*time.Millisecond, leasecache.ErrUnavailable, context.DeadlineExceeded)
				r2.want(b, 1700*time.Millisecond, "v", leasecache.Loaded, leasecache.ServerDown)

				// A caller's own deadline counts if it comes sooner.
				ctx, cancel := context.WithTimeout(b.Context(), 100*time.Millisecond)
				early := b.goReadContext(ctx, cancel, c.Read, "k", returns("wrong", 0))
				b.at(3 * time.Second)
				early.wantError(b, 2100*time.Millisecond, context.DeadlineExceeded)
				if errors.Is(early.err, leasecache.ErrUnavailable) {
					b.Errorf("the error is %v: it was the caller's deadline", early.err)
				}
				close(release)
			})
		})
	}
}

// stuck is a driver whose calls heed nothing.
type stuck struct{ release chan struct{} }

func (s stuck) Eval(context.Context, *driver.Script, []string, []string) (driver.Reply, error) {
	<-s.release
	return driver.Reply{}, errors.New("connection closed")
}

func TestAFillThatHangsCostsOneCallTimeoutAndTheValueIsReturned(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 700*time.Millisecond), leasecache.Options{})
		s.setFate(only("fill", hang))
		r := b.goRead(c.Read, "k", returns("v", time.Second))
		b.at(2 * time.Second)
		r.want(b, 1700*time.Millisecond, "v", leasecache.Loaded, leasecache.ServerDown)
		b.wantExists("l", "k", false) // released
	})
}

func TestACallerLeavesAtItsDeadlineWhileItsFillHangs(t *testing.T) {
	for name, after := range map[string]time.Duration{"there was no time for it": 9 * time.Second, "there was": time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := b.spy()
				s.setFate(only("fill", hang))
				c := b.cacheOn(b.store(s, 5*time.Second), leasecache.Options{Lease: time.Minute})
				ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
				r := b.goReadContext(ctx, cancel, c.Read, "k", returns("v", after))
				b.at(10 * time.Second)
				if after > 5*time.Second {
					r.wantError(b, 10*time.Second, context.DeadlineExceeded)
				} else {
					r.want(b, after+5*time.Second, "v", leasecache.Loaded, leasecache.ServerDown)
				}
				s.setFate(nil)
				b.at(20 * time.Second)
			})
		})
	}
}

func TestInvalidateWithoutADeadlineGivesUpAfterTenCallTimeouts(t *testing.T) {
	for name, fate := range map[string]func(context.Context, string) error{
		"the server hangs":      hang,
		"connections break":     func(context.Context, string) error { return errors.New("connection reset") },
		"the server is loading": func(context.Context, string) error { return driver.ParseServerError("LOADING", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				s := b.spy()
				s.setFate(fate)
				c := b.cacheOn(b.store(s, 300*time.Millisecond), leasecache.Options{})
				err := c.Invalidate(b.Context(), "a", "b")
				b.wantNow(3 * time.Second)
				failed, ok := errors.AsType[*leasecache.InvalidateError](err)
				if !ok || !slices.Equal(failed.Keys, []string{"a", "b"}) {
					b.Fatalf("Invalidate: %v, want both keys named", err)
				}
				if !errors.Is(err, leasecache.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					b.Errorf("Invalidate: %v, want ErrUnavailable and DeadlineExceeded", err)
				}
			})
		})
	}
}

func TestInvalidateTriesUntilItsContextEnds(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 300*time.Millisecond), leasecache.Options{})
		b.put("old", time.Hour)
		s.setFate(hang)
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		go func() { done <- c.Invalidate(ctx, "k") }()
		b.at(30 * time.Second) // ten times longer than without a deadline
		select {
		case err := <-done:
			b.Fatalf("Invalidate gave up: %v", err)
		default:
		}
		s.setFate(nil)
		if err := <-done; err != nil {
			b.Errorf("Invalidate: %v", err)
		}
		// The call that hangs, and the pause before the next.
		if late := b.now() - 30*time.Second; late > 500*time.Millisecond {
			b.Errorf("Invalidate noticed after %v that the server answers", late)
		}
		b.wantExists("v", "k", false)

		s.setFate(hang)
		short, cancel2 := context.WithTimeout(b.Context(), 100*time.Millisecond)
		defer cancel2()
		before := b.now()
		if err := c.Invalidate(short, "k"); !errors.Is(err, context.DeadlineExceeded) || b.now()-before != 100*time.Millisecond {
			b.Errorf("Invalidate with a short deadline: %v after %v", err, b.now()-before)
		}
	})
}

func TestInvalidateDeletesKeyByKeyWhenASlotMigratesUntilTheEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		s.setFate(only("invalidate", func(context.Context, string) error {
			return driver.ParseServerError("TRYAGAIN Multiple keys request during rehashing of slot", nil)
		}))
		c := b.cacheOn(s, leasecache.Options{})
		b.put("old", time.Hour)
		b.hold("k", time.Hour)
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		if err := c.Invalidate(ctx, "k"); err != nil {
			b.Errorf("Invalidate: %v", err)
		}
		b.wantNow(5 * time.Second)
		b.wantExists("v", "k", false)
		b.wantExists("l", "k", false)
		if n := len(s.sent("delete")); n != 2 {
			b.Errorf("%d single deletes, want 2", n)
		}
	})
}

// Close.

func TestCloseWaitsForLoadsSoThatTheyAreCached(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{MaxLoads: 1, WaitBound: time.Minute})
		load := b.goRead(c.Read, "a", heeds("v", 4*time.Second))
		joined := b.goRead(c.Read, "a", returns("wrong", 0))
		queued := b.goRead(c.Read, "b", returns("wrong", 0))
		b.hold("c", time.Hour)
		waits := b.goRead(c.Read, "c", returns("wrong", 0))
		b.at(time.Second)
		if err := c.Close(b.Context()); err != nil {
			b.Errorf("Close: %v", err)
		}
		b.wantNow(4 * time.Second)
		load.want(b, 4*time.Second, "v", leasecache.Loaded, "")
		joined.want(b, 4*time.Second, "v", leasecache.Joined, "")
		queued.wantError(b, time.Second, leasecache.ErrClosed)
		waits.wantError(b, time.Second, leasecache.ErrClosed)
		b.wantExists("v", "a", true)
		b.wantExists("l", "a", false)
		b.wantExists("l", "b", false)
		late := b.goRead(c.Read, "a", returns("wrong", 0))
		late.wantError(b, 4*time.Second, leasecache.ErrClosed)
	})
}

func TestCloseCancelsLoadsWhenItsContextEndsAndReleasesTheirLeases(t *testing.T) {
	for name, load := range map[string]leasecache.Loader[string]{
		"the loader heeds its context":   heeds("v", time.Hour),
		"the loader ignores its context": returns("v", 10*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.cache(leasecache.Options{Lease: time.Minute})
				r := b.goRead(c.Read, "k", load)
				b.wantExists("l", "k", true)
				ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
				defer cancel()
				if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
					b.Errorf("Close: %v, want its context's error", err)
				}
				b.wantNow(2 * time.Second)
				b.wantExists("l", "k", false)
				b.wantExists("v", "k", false)
				r.wantError(b, 2*time.Second, leasecache.ErrClosed, context.Canceled)
				b.at(11 * time.Second)
				b.wantExists("v", "k", false)
			})
		})
	}
}

func TestCloseOfAServerThatHangsTakesOneCallTimeoutMore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		s := b.spy()
		c := b.cacheOn(b.store(s, 700*time.Millisecond), leasecache.Options{Lease: time.Minute})
		b.goRead(c.Read, "k", heeds("v", time.Hour))
		s.setFate(hang)
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("Close: %v, want its context's error", err)
		}
		b.wantNow(2700 * time.Millisecond)
		if n := c.Stats().Errors[leasecache.ErrorRelease]; n != 1 {
			b.Errorf("%d releases failed, want one counted", n)
		}
	})
}

func TestASecondCloseWaitsAsTheFirstDoes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{})
		b.goRead(c.Read, "k", returns("v", 3*time.Second))
		var ended [2]time.Duration
		var wg sync.WaitGroup
		for i := range ended {
			wg.Go(func() {
				if err := c.Close(b.Context()); err != nil {
					b.Errorf("Close: %v", err)
				}
				ended[i] = b.now()
			})
		}
		wg.Wait()
		if ended != [2]time.Duration{3 * time.Second, 3 * time.Second} {
			b.Errorf("they ended after %v, want 3s each", ended)
		}
	})
}

// Values that cannot be decoded.

// prefixed is a codec that takes only what begins with its prefix.
type prefixed string

func (p prefixed) Marshal(v any) ([]byte, error) { return fmt.Appendf(nil, "%s%s", string(p), v), nil }

func (p prefixed) Unmarshal(data []byte, v any) error {
	s, ok := strings.CutPrefix(string(data), string(p))
	if !ok {
		return errors.New("not of this version")
	}
	*v.(*string) = s
	return nil
}

func TestTwoVersionsDropEachOthersValuesOncePerBackoff(t *testing.T) {
	inBubble(t, func(b *bubble) {
		o := leasecache.Options{DropBackoff: 5 * time.Second, Codec: prefixed("old:")}
		older := b.cache(o)
		o.Codec = prefixed("new:")
		newer := b.cache(o)
		b.goRead(older.Read, "k", returns("v", 0)).want(b, 0, "v", leasecache.Loaded, "")
		// The first drop sets the mark.
		b.goRead(newer.Read, "k", returns("w", 0)).want(b, 0, "w", leasecache.Loaded, "")
		for _, at := range []time.Duration{0, time.Second, 5*time.Second - time.Millisecond} {
			b.at(at)
			b.goRead(older.Read, "k", returns("v", 0)).want(b, at, "v", leasecache.Loaded, leasecache.CannotDecode)
			b.goRead(newer.Read, "k", returns("wrong", 0)).want(b, at, "w", leasecache.Hit, "")
		}
		b.at(5 * time.Second)
		b.goRead(older.Read, "k", returns("v", 0)).want(b, 5*time.Second, "v", leasecache.Loaded, "")
		b.goRead(newer.Read, "k", returns("w", 0)).want(b, 5*time.Second, "w", leasecache.Loaded, leasecache.CannotDecode)
	})
}

// OnLoad.

func TestOnLoadTellsTheTimelineOfEveryLoad(t *testing.T) {
	type event struct {
		leased, refresh              bool
		began, loaded, filled, ended time.Duration // filled is -1 if it was not
		outcome                      leasecache.LoadOutcome
		err                          error
	}
	noFill := time.Duration(-1)
	second := time.Second
	failed := errors.New("the source is down")
	for _, test := range []struct {
		name  string
		o     leasecache.Options
		setup func(b *bubble, s *spy, c *leasecache.Cache[string])
		load  leasecache.Loader[string]
		read  func(c *leasecache.Cache[string]) reader
		want  event
	}{
		{
			name: "accepted", load: returns("v", second),
			want: event{leased: true, loaded: second, filled: second, ended: second, outcome: leasecache.LoadAccepted},
		},
		{
			name: "accepted, and the fill is slow", load: returns("v", second),
			setup: func(_ *bubble, s *spy, _ *leasecache.Cache[string]) {
				s.setFate(only("fill", func(context.Context, string) error { time.Sleep(second / 2); return nil }))
			},
			want: event{leased: true, loaded: second, filled: second, ended: second * 3 / 2, outcome: leasecache.LoadAccepted},
		},
		{
			name: "accepted, and not found", load: notFound,
			want: event{leased: true, outcome: leasecache.LoadAccepted},
		},
		{
			name: "accepted, by Refresh", load: returns("v", second),
			read: func(c *leasecache.Cache[string]) reader { return c.Refresh },
			want: event{leased: true, refresh: true, loaded: second, filled: second, ended: second, outcome: leasecache.LoadAccepted},
		},
		{
			name: "rejected", load: returns("v", 3*second), o: leasecache.Options{Lease: 2 * second, LoadTimeout: time.Minute},
			want: event{leased: true, loaded: 3 * second, filled: 3 * second, ended: 3 * second, outcome: leasecache.LoadRejected},
		},
		{
			name: "present", load: returns("v", second),
			setup: func(b *bubble, s *spy, _ *leasecache.Cache[string]) {
				s.setFate(only("fill", func(context.Context, string) error {
					b.put("v", time.Minute)
					_, err := b.server.Eval(b.Context(), driver.NewScript("del", `return redis.call('DEL', KEYS[1])`), []string{prefix + "l:{k}"}, nil)
					return err
				}))
			},
			want: event{leased: true, loaded: second, filled: second, ended: second, outcome: leasecache.LoadPresent},
		},
		{
			name: "fill refused", load: returns("v", second),
			setup: func(_ *bubble, s *spy, _ *leasecache.Cache[string]) {
				s.setFate(only("fill", func(context.Context, string) error { return driver.ParseServerError("OOM no", nil) }))
			},
			want: event{leased: true, loaded: second, filled: second, ended: second, outcome: leasecache.LoadFillFailed, err: errAny},
		},
		{
			name: "fill lost", load: returns("v", second),
			setup: func(_ *bubble, s *spy, _ *leasecache.Cache[string]) { s.setFate(only("fill", hang)) },
			want:  event{leased: true, loaded: second, filled: second, ended: 2 * second, outcome: leasecache.LoadFillFailed, err: leasecache.ErrUnavailable},
		},
		{
			name: "not stored, as the loader asked",
			load: func(ctx context.Context) (string, error) {
				leasecache.LoadFrom(ctx).DoNotStore()
				return returns("v", second)(ctx)
			},
			want: event{leased: true, loaded: second, filled: noFill, ended: second, outcome: leasecache.LoadNotStored},
		},
		{
			name: "not stored, for its size", load: returns("12345", second), o: leasecache.Options{MaxValueSize: 4},
			want: event{leased: true, loaded: second, filled: noFill, ended: second, outcome: leasecache.LoadNotStored},
		},
		{
			name: "not stored, without a lease", load: returns("v", second), o: leasecache.Options{WaitBound: 2 * second},
			setup: func(b *bubble, _ *spy, _ *leasecache.Cache[string]) { b.hold("k", time.Hour) },
			want:  event{began: 2 * second, loaded: 3 * second, filled: noFill, ended: 3 * second, outcome: leasecache.LoadNotStored},
		},
		{
			name: "not stored, without a lease, and not found", load: notFound, o: leasecache.Options{WaitBound: 2 * second},
			setup: func(b *bubble, _ *spy, _ *leasecache.Cache[string]) { b.hold("k", time.Hour) },
			want:  event{began: 2 * second, loaded: 2 * second, filled: noFill, ended: 2 * second, outcome: leasecache.LoadNotStored},
		},
		{
			name: "not stored, as the server is down", load: returns("v", second), o: leasecache.Options{OnUnavailable: leasecache.UnavailableLoad},
			setup: func(_ *bubble, s *spy, _ *leasecache.Cache[string]) { s.setFate(hang) },
			want:  event{began: second, loaded: 2 * second, filled: noFill, ended: 2 * second, outcome: leasecache.LoadNotStored, err: leasecache.ErrUnavailable},
		},
		{
			name: "failed", load: func(context.Context) (string, error) { time.Sleep(second); return "", failed },
			want: event{leased: true, loaded: second, filled: noFill, ended: second, outcome: leasecache.LoadFailed, err: failed},
		},
		{
			name: "failed, without a lease", load: func(context.Context) (string, error) { return "", failed }, o: leasecache.Options{WaitBound: 2 * second},
			setup: func(b *bubble, _ *spy, _ *leasecache.Cache[string]) { b.hold("k", time.Hour) },
			want:  event{began: 2 * second, loaded: 2 * second, filled: noFill, ended: 2 * second, outcome: leasecache.LoadFailed, err: failed},
		},
		{
			name: "failed, for its TTL",
			load: func(ctx context.Context) (string, error) {
				leasecache.LoadFrom(ctx).SetTTL(time.Microsecond)
				return "v", nil
			},
			want: event{leased: true, filled: noFill, outcome: leasecache.LoadFailed, err: leasecache.ErrTTL},
		},
		{
			name: "failed, as its time was over", load: returns("v", 4*second), o: leasecache.Options{LoadTimeout: 2 * second},
			want: event{leased: true, loaded: 2 * second, filled: noFill, ended: 2 * second, outcome: leasecache.LoadFailed, err: leasecache.ErrLoadTimeout},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				var mu sync.Mutex
				var events []leasecache.LoadEvent
				o := test.o
				o.OnLoad = func(ev leasecache.LoadEvent) {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, ev)
				}
				s := b.spy()
				c := b.cacheOn(s, o)
				if test.setup != nil {
					test.setup(b, s, c)
				}
				read := reader(c.Read)
				if test.read != nil {
					read = test.read(c)
				}
				b.goRead(read, "k", test.load)
				b.at(10 * time.Second)
				if len(events) != 1 {
					b.Fatalf("OnLoad was called %d times, want once", len(events))
				}
				ev := events[0]
				got := event{
					leased: ev.Leased, refresh: ev.Refresh, outcome: ev.Outcome, filled: noFill, err: test.want.err,
					began: ev.Began.Sub(b.start), loaded: ev.Loaded.Sub(b.start), ended: ev.Ended.Sub(b.start),
				}
				if !ev.FillSent.IsZero() {
					got.filled = ev.FillSent.Sub(b.start)
				}
				if got != test.want || ev.Key != "k" {
					b.Errorf("OnLoad got %+v of key %q,\nwant %+v", got, ev.Key, test.want)
				}
				switch {
				case test.want.err == nil && ev.Err != nil:
					b.Errorf("the event has the error %v, want none", ev.Err)
				case test.want.err == errAny && ev.Err == nil: //nolint:errorlint // it is a placeholder
					b.Error("the event has no error")
				case test.want.err != nil && test.want.err != errAny && !errors.Is(ev.Err, test.want.err): //nolint:errorlint // it is a placeholder
					b.Errorf("the event has the error %v, want %v", ev.Err, test.want.err)
				}
			})
		})
	}
}

// errAny stands for whatever error.
var errAny = errors.New("any")

func TestOnLoadIsCalledAfterTheReadersWereAnsweredAndBeforeCloseReturns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var called time.Duration
		c := b.cache(leasecache.Options{OnLoad: func(leasecache.LoadEvent) {
			time.Sleep(2 * time.Second) // returns late, which it should not
			called = b.now()
		}})
		r := b.goRead(c.Read, "k", returns("v", time.Second))
		b.at(time.Second)
		r.want(b, time.Second, "v", leasecache.Loaded, "")
		if err := c.Close(b.Context()); err != nil {
			b.Errorf("Close: %v", err)
		}
		b.wantNow(3 * time.Second)
		if called != 3*time.Second {
			b.Errorf("OnLoad ended after %v", called)
		}
	})
}
