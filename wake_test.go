package leasecache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver"
)

// switchboard is a driver.Subscriber that notes what is asked of it.
type switchboard struct {
	mu     sync.Mutex
	calls  []string
	notify func(channel string)
	err    error // of Subscribe
	addErr error
	hang   bool   // Add, until its context ends
	bug    string // the method that panics
}

func (b *switchboard) note(call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call)
	if name, _, _ := strings.Cut(call, " "); name == b.bug {
		panic("a bug in the driver")
	}
}

// since returns what was asked for since it was called last.
func (b *switchboard) since() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *switchboard) Subscribe(notify func(channel string)) (driver.Subscription, error) {
	b.note("subscribe")
	b.notify = notify
	if b.err != nil {
		return nil, b.err
	}
	return b, nil
}

func (b *switchboard) Add(ctx context.Context, channel string) error {
	b.note("add " + channel)
	if b.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.addErr
}

func (b *switchboard) Remove(channel string) { b.note("remove " + channel) }

func (b *switchboard) Close() error {
	b.note("close")
	return nil
}

func (b *switchboard) want(t *testing.T, when string, calls ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(calls, b.since()); diff != "" {
		t.Errorf("asked of the driver %s (-want +got):\n%s", when, diff)
	}
}

// inExchange runs test in a bubble, with wake-ups over a switchboard.
func inExchange(t *testing.T, test func(t *testing.T, w *wakeups, b *switchboard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &switchboard{}
		w := &wakeups{subscriber: b, timeout: time.Second}
		test(t, w, b)
		w.close()
	})
}

func mustWatch(t *testing.T, w *wakeups, channel string, wake func()) (stop func()) {
	t.Helper()
	stop, err := w.watch(t.Context(), channel, wake)
	if err != nil || stop == nil {
		t.Fatalf("watch %s: %v; it watches: %v", channel, err, stop != nil)
	}
	return stop
}

func TestAMessageWakesThoseWhoWaitForItsChannel(t *testing.T) {
	inExchange(t, func(t *testing.T, w *wakeups, b *switchboard) {
		var woken []string
		wakes := func(name string) func() { return func() { woken = append(woken, name) } }
		stop := mustWatch(t, w, "one", wakes("first"))
		mustWatch(t, w, "one", wakes("second"))
		mustWatch(t, w, "two", wakes("third"))
		b.want(t, "by three who wait for two channels", "subscribe", "add one", "add two")
		b.notify("one")
		slices.Sort(woken)
		if diff := cmp.Diff([]string{"first", "second"}, woken); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
		woken = nil
		stop()
		b.notify("one")
		b.notify("none of ours")
		if diff := cmp.Diff([]string{"second"}, woken); diff != "" {
			t.Errorf("woken when the first has stopped (-want +got):\n%s", diff)
		}
	})
}

func TestAChannelLingersAndSoDoesTheConnection(t *testing.T) {
	inExchange(t, func(t *testing.T, w *wakeups, b *switchboard) {
		nothing := func() {}
		stopOne, stopTwo := mustWatch(t, w, "one", nothing), mustWatch(t, w, "two", nothing)
		b.want(t, "at first", "subscribe", "add one", "add two")
		stopOne()
		time.Sleep(wakeLinger / 2)
		mustWatch(t, w, "one", nothing)()
		b.want(t, "by one who comes soon after the last has left")
		time.Sleep(3 * wakeLinger)
		b.want(t, "later", "remove one")
		stopTwo()
		time.Sleep(3 * wakeLinger)
		b.want(t, "when nobody has waited for a while", "remove two", "close")
		stop := mustWatch(t, w, "two", nothing)
		b.want(t, "by the next who waits", "subscribe", "add two")
		w.close()
		b.want(t, "by closing", "close")
		stop() // it may come late
	})
}

func TestWhoeverCannotSubscribePolls(t *testing.T) {
	inExchange(t, func(t *testing.T, w *wakeups, b *switchboard) {
		polls := func(when string, wantErr error, calls ...string) {
			t.Helper()
			stop, err := w.watch(t.Context(), "one", func() {})
			if stop != nil || !errors.Is(err, wantErr) {
				t.Errorf("%s: watch returned %v, it watches: %v; want %v", when, err, stop != nil, wantErr)
			}
			b.want(t, when, calls...)
		}
		b.addErr = errors.New("NOPERM")
		polls("when the server refuses", b.addErr, "subscribe", "add one", "remove one")
		polls("soon after", nil)
		b.addErr = nil
		time.Sleep(wakeRetry)
		b.want(t, "meanwhile", "close")
		mustWatch(t, w, "one", func() {})()
		b.want(t, "after a while", "subscribe", "add one")

		time.Sleep(3 * wakeLinger)
		b.want(t, "later", "remove one", "close")
		b.hang = true
		start := time.Now()
		polls("when the server hangs", context.DeadlineExceeded, "subscribe", "add one", "remove one")
		if took := time.Since(start); took != w.timeout {
			t.Errorf("it took %v, want %v", took, w.timeout)
		}
		w.close()
		b.want(t, "by closing", "close")

		time.Sleep(wakeRetry)
		b.err = errors.New("no connection")
		polls("when there is no connection", b.err, "subscribe")
		time.Sleep(wakeRetry)
		b.err = errors.ErrUnsupported
		polls("when the client cannot", nil, "subscribe")
		time.Sleep(wakeRetry)
		polls("ever after", nil)
	})
}

func TestNobodyIsAskedForWakeUpsThatAreOff(t *testing.T) {
	inExchange(t, func(t *testing.T, w *wakeups, b *switchboard) {
		if stop, err := w.watch(t.Context(), "", func() {}); stop != nil || err != nil {
			t.Errorf("watch without a channel: %v; it watches: %v", err, stop != nil)
		}
		b.want(t, "without a channel")
	})
	none := &wakeups{}
	if stop, err := none.watch(t.Context(), "one", func() {}); stop != nil || err != nil {
		t.Errorf("watch without a subscriber: %v; it watches: %v", err, stop != nil)
	}
	none.close()
}

func TestManyWhoWaitAtOnceSubscribeOnce(t *testing.T) {
	inExchange(t, func(t *testing.T, w *wakeups, b *switchboard) {
		b.hang = true // so that all come while the first one's Add is under way
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if stop, err := w.watch(t.Context(), "one", func() {}); stop != nil || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("watch: %v; it watches: %v", err, stop != nil)
				}
			})
		}
		wg.Wait()
		b.want(t, "by twenty at once", "subscribe", "add one", "remove one")
	})
}

// held is a driver on whose server another process holds the lease of every key.
type held struct{ *switchboard }

func (h held) Bound(time.Duration) driver.Evaler { return h }

func (held) Eval(_ context.Context, s *driver.Script, _, _ []string) (driver.Reply, error) {
	if s.Name() == "read" {
		return driver.List(driver.Int(4), driver.Int(60000)), nil
	}
	return driver.Int(1), nil
}

func TestAWaitBoundHoldsWhileTheServerIsAskedForMessages(t *testing.T) {
	for _, bound := range []time.Duration{100 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := &switchboard{hang: true}
			c := mustCache(t, held{b}, Options{WaitBound: bound})
			start := time.Now()
			res, err := c.Read(t.Context(), "k", func(context.Context) (string, error) { return "loaded", nil })
			if took := time.Since(start); took != bound || err != nil || res.Uncached != WaitedTooLong {
				t.Errorf("with a WaitBound of %v: %+v, %v after %v", bound, res, err, took)
			}
			if asked := len(b.since()) > 0; asked != (bound >= defaultCallTimeout) {
				t.Errorf("with a WaitBound of %v it was asked for messages: %v", bound, asked)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPanicOfTheDriverEndsNoProcess(t *testing.T) {
	for _, bug := range []string{"subscribe", "add", "remove", "close"} {
		inExchange(t, func(t *testing.T, w *wakeups, b *switchboard) {
			b.bug = bug
			stop, err := w.watch(t.Context(), "one", func() {})
			if panicked := bug == "subscribe" || bug == "add"; panicked != (err != nil) || err != nil && !strings.Contains(err.Error(), "the driver panicked: a bug in the driver") {
				t.Errorf("panic in %s: watch: %v", bug, err)
			}
			if stop != nil {
				stop()
			}
			time.Sleep(3 * wakeLinger)
			if calls := b.since(); !slices.Contains(calls, bug) && !slices.Contains(calls, bug+" one") {
				t.Errorf("asked of the driver: %q; want it to meet the bug in %s", calls, bug)
			}
			b.bug = ""
			mustWatch(t, w, "one", func() {})()
		})
	}
}
