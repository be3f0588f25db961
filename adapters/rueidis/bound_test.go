package rueidis

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// tooLong is far above the times that these tests wait for, and below the
// client's own timeout of 10 s.
const tooLong = 4 * time.Second

func TestABoundedCallEndsWhenTheServerHangs(t *testing.T) {
	const d = 250 * time.Millisecond
	s := serve(t, answer(hang))
	for kind, o := range map[string]rueidis.ClientOption{
		"pipelining when needed": {},
		"always pipelining":      {AlwaysPipelining: true},
		"never pipelining":       {DisableAutoPipelining: true},
	} {
		for _, name := range []string{"EVALSHA", "GET", "PING"} {
			// A client each: a call that ends takes its neighbours with it.
			short := New(s.client(t, o)).(driver.Bounder).Bound(d)
			long := New(s.client(t, o)).(driver.Bounder).Bound(time.Minute)
			check := func(t *testing.T, call func() error) error {
				begin := time.Now()
				err := call()
				if took := time.Since(begin); err == nil || took < d/2 || took > tooLong {
					t.Errorf("ended after %v with %v; want an error after %v", took, err, d)
				}
				if errors.Is(err, driver.ErrNotSent) {
					t.Errorf("%v is ErrNotSent", err)
				}
				return err
			}
			t.Run(kind+" "+name+" by the bound", func(t *testing.T) {
				t.Parallel()
				err := check(t, func() error { return calls(t, short)[name](t.Context()) })
				if err != nil && !strings.Contains(err.Error(), "within the bound of 250ms") {
					t.Errorf("%v; want that there was no reply within the bound of 250ms", err)
				}
			})
			t.Run(kind+" "+name+" by the caller's deadline", func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				err := check(t, func() error { return calls(t, long)[name](ctx) })
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v; want context.DeadlineExceeded", err)
				}
			})
		}
	}
}

func TestBoundedCallsEndWhenTheClientsQueueIsFull(t *testing.T) {
	s := serve(t, answer(hang))
	// A queue of four commands, and callers of the service who fill it.
	c := s.client(t, rueidis.ClientOption{
		AlwaysPipelining: true, RingScaleEachConn: 2, PipelineMultiplex: -1, ForceSingleClient: true,
		ConnWriteTimeout: 20 * time.Second,
	})
	e := New(c).(driver.Bounder).Bound(200 * time.Millisecond)
	// One call finds out that the server hangs. From then on none waits for room.
	if _, err := eval(t.Context(), e); err == nil {
		t.Fatal("the server replied")
	}
	begin := time.Now()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := eval(t.Context(), e); err == nil || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("got %v; want an error that is not ErrNotSent", err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took > tooLong {
		t.Errorf("50 calls took %v, bounded to 200ms each", took)
	}
}

func TestBoundsGuardAllButTheFirstCalls(t *testing.T) {
	client := failing(t, nil)
	synctest.Test(t, func(t *testing.T) {
		// A client that heeds nothing for an hour, as one does whose queue is full.
		client.do = func(context.Context) rueidis.RedisResult {
			time.Sleep(time.Hour)
			return rueidis.NewErrorResult(errors.New("late"))
		}
		e := evaler{client: client, bound: &bound{d: time.Second, made: time.Now()}}
		var wg sync.WaitGroup
		var mu sync.Mutex
		late := 0
		begin := time.Now()
		for range 200 {
			wg.Go(func() {
				_, _ = eval(t.Context(), e)
				if time.Since(begin) > time.Second {
					mu.Lock()
					late++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if late > maxDirect {
			t.Errorf("%d calls ended late; want %d at most", late, maxDirect)
		}
		begin = time.Now()
		_, err := eval(t.Context(), e)
		if took := time.Since(begin); err == nil || took > time.Second {
			t.Errorf("a call after that ended after %v with %v; want an error after 1s", took, err)
		}
		time.Sleep(2 * time.Hour) // for the goroutines that were left behind
	})
}

func TestAGuardedCallTakesNoPlaceOfTheOthers(t *testing.T) {
	client := failing(t, nil)
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		var guarded atomic.Int32
		client.do = func(context.Context) rueidis.RedisResult {
			if strings.Contains(string(debug.Stack()), "(*bound).do in goroutine") {
				guarded.Add(1)
			}
			<-ended
			return rueidis.NewErrorResult(errors.New("no matter"))
		}
		e := evaler{client: client, bound: &bound{d: time.Minute, made: time.Now()}}
		var wg sync.WaitGroup
		call := func() { _, _ = eval(t.Context(), e) }
		begin := func(n int) {
			for range n {
				wg.Go(call)
			}
			synctest.Wait()
		}
		begin(maxDirect)
		begin(10)
		if n := guarded.Load(); n != 10 {
			t.Errorf("of %d calls %d were guarded; want 10", maxDirect+10, n)
		}
		ended <- struct{}{} // of one that has no guard: they receive in order
		synctest.Wait()
		begin(1)
		if n := guarded.Load(); n != 10 {
			t.Errorf("%d calls were guarded, the last of them while %d others had no guard; want 10", n, maxDirect-1)
		}
		close(ended)
		wg.Wait()
	})
}

func TestABoundEndsCallsUpToASixteenthEarlyAndNeverLate(t *testing.T) {
	client := failing(t, nil)
	synctest.Test(t, func(t *testing.T) {
		client.do = func(ctx context.Context) rueidis.RedisResult {
			<-ctx.Done()
			return rueidis.NewErrorResult(ctx.Err())
		}
		adaptertest.CheckBound(t, evaler{client: client, bound: &bound{d: 16 * time.Second, made: time.Now()}})
	})
}

func TestABoundPassesOnAContextThatEndsSooner(t *testing.T) {
	b := &bound{d: time.Minute}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got := b.context(ctx); got != ctx {
		t.Errorf("got %v, want the caller's context", got)
	}
	if got := (*bound)(nil).context(t.Context()); got != t.Context() {
		t.Errorf("without a bound: got %v, want the caller's context", got)
	}
}

func TestABoundedCallHasTheValuesOfItsContext(t *testing.T) {
	type key struct{}
	m := failing(t, nil)
	var got any
	m.do = func(ctx context.Context) rueidis.RedisResult {
		got = ctx.Value(key{})
		return rueidis.NewErrorResult(errors.New("no matter"))
	}
	e := evaler{client: m, bound: &bound{d: time.Minute, made: time.Now()}}
	_, _ = eval(context.WithValue(t.Context(), key{}, "v"), e)
	if got != "v" {
		t.Errorf("the client's hooks see %v; want the values of the caller's context", got)
	}
}

func TestGetAllocatesLittleMoreThanTheClientsOwn(t *testing.T) {
	s := serve(t, answer("$3\r\nabc\r\n"))
	c := s.client(t, rueidis.ClientOption{})
	e := New(c)
	ctx := context.Background()
	own := testing.AllocsPerRun(200, func() { _, _ = c.Do(ctx, c.B().Get().Key("{k}").Build()).ToString() })
	for name, e := range map[string]driver.Evaler{"unbounded": e, "bounded": e.(driver.Bounder).Bound(time.Second)} {
		ours := testing.AllocsPerRun(200, func() { _, _, _ = get(ctx, t, e) })
		t.Logf("%s: %v, the client's own: %v", name, ours, own)
		if ours > own+1 {
			t.Errorf("%s: %v allocations, the client's own GET makes %v; want at most 1 more", name, ours, own)
		}
	}
}
