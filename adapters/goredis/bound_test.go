package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// tooLong is far above the times that these tests wait for, and below go-redis's
// own timeouts of 5 s.
const tooLong = 3 * time.Second

// ends fails the test when call does not end by an error between least and tooLong.
func ends(t *testing.T, least time.Duration, call func() error) error {
	t.Helper()
	begin := time.Now()
	err := call()
	if took := time.Since(begin); err == nil || took < least || took > tooLong {
		t.Errorf("ended after %v with %v; want an error between %v and %v", took, err, least, tooLong)
	}
	return err
}

// calls are the two kinds of calls of an Evaler with Get.
func calls(t *testing.T, e driver.Evaler) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Eval": func(ctx context.Context) error { _, err := eval(ctx, e); return err },
		"Get":  func(ctx context.Context) error { _, _, err := get(ctx, t, e); return err },
	}
}

func TestABoundedCallEndsWhenTheServerHangs(t *testing.T) {
	const d = 250 * time.Millisecond
	s := serve(t, answer(hang))
	clients := map[string]Client{
		"client":                     s.client(t, redis.Options{}),
		"client without timeouts":    s.client(t, redis.Options{ReadTimeout: -1}),
		"client that heeds contexts": s.client(t, redis.Options{ContextTimeoutEnabled: true}),
		"cluster": closing(t, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{s.Addr}, ContextTimeoutEnabled: true,
		})),
		"ring": closing(t, redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": s.Addr}, ContextTimeoutEnabled: true,
			HeartbeatFn: func(context.Context, *redis.Client) bool { return true },
		})),
	}
	for name, c := range clients {
		b := New(c).(driver.Bounder)
		for method, call := range calls(t, b.Bound(d)) {
			t.Run(name+" "+method+" by the bound", func(t *testing.T) {
				t.Parallel()
				err := ends(t, d/2, func() error { return call(t.Context()) })
				if errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "within the bound of 250ms") {
					t.Errorf("%v; want that there was no reply within the bound of 250ms, and not ErrNotSent", err)
				}
			})
		}
		for method, call := range calls(t, b.Bound(time.Minute)) {
			t.Run(name+" "+method+" by the caller's deadline", func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				err := ends(t, d/2, func() error { return call(ctx) })
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotSent) {
					t.Errorf("%v; want context.DeadlineExceeded, not ErrNotSent", err)
				}
			})
		}
	}
}

func TestABoundedCallKeepsToTheShorterTimeoutOfItsClient(t *testing.T) {
	s := serve(t, answer(hang))
	c := s.client(t, redis.Options{ReadTimeout: 30 * time.Millisecond})
	err := ends(t, 15*time.Millisecond, func() error {
		_, err := eval(t.Context(), New(c).(driver.Bounder).Bound(time.Minute))
		return err
	})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v; want os.ErrDeadlineExceeded", err)
	}
}

func TestABoundedCallEndsWhileItWaitsForAConnection(t *testing.T) {
	taken := make(chan struct{})
	s := serve(t, func([]string) string {
		close(taken)
		return hang
	})
	c := s.client(t, redis.Options{PoolSize: 1})
	e := New(c).(driver.Bounder)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = eval(t.Context(), e.Bound(time.Second)) })
	defer wg.Wait()
	<-taken // the only connection
	for method, call := range calls(t, e.Bound(50*time.Millisecond)) {
		err := ends(t, 25*time.Millisecond, func() error { return call(t.Context()) })
		if want := "within the bound of 50ms"; err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want one with %q", method, err, want)
		}
	}
	if n := s.Count("get"); n != 0 {
		t.Errorf("GET was sent %d times, want never", n)
	}
}

func TestABoundedCallEndsWhileADialHangs(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	c := closing(t, redis.NewClient(&redis.Options{
		DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			<-stop // go-redis leaves the dial behind
			return nil, errors.New("refused at last")
		},
	}))
	for method, call := range calls(t, New(c).(driver.Bounder).Bound(50*time.Millisecond)) {
		if err := ends(t, 25*time.Millisecond, func() error { return call(t.Context()) }); errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%s: %v is ErrNotSent, which nothing shows", method, err)
		}
	}
}

func TestABoundedCallEndsWhileTheConnectionIsSetUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := closing(t, redis.NewClient(&redis.Options{Addr: l.Addr().String()}))
	for method, call := range calls(t, New(c).(driver.Bounder).Bound(50*time.Millisecond)) {
		if err := ends(t, 25*time.Millisecond, func() error { return call(t.Context()) }); errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%s: %v is ErrNotSent, which nothing shows", method, err)
		}
	}
}

func TestTheBoundCoversBothAttempts(t *testing.T) {
	const d = 400 * time.Millisecond
	s := serve(t, func(args []string) string {
		if args[0] == "evalsha" {
			time.Sleep(d * 3 / 4) // a slow server
			return "-NOSCRIPT x\r\n"
		}
		return hang
	})
	c := s.client(t, redis.Options{})
	begin := time.Now()
	_, err := eval(t.Context(), New(c).(driver.Bounder).Bound(d))
	if took := time.Since(begin); err == nil || took > d*3/2 {
		t.Errorf("ended after %v with %v; want an error after %v", took, err, d)
	}
}

func TestBoundLeavesTheClientAsItWas(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	c := s.client(t, redis.Options{ReadTimeout: 4 * time.Second, WriteTimeout: 3 * time.Second})
	type timeouts struct {
		Read, Write, Dial, Pool time.Duration
		Context                 bool
	}
	of := func(o *redis.Options) timeouts {
		return timeouts{o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.PoolTimeout, o.ContextTimeoutEnabled}
	}
	before, options := of(c.Options()), c.Options()
	e := New(c).(driver.Bounder).Bound(time.Second)
	if _, err := eval(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, of(c.Options())); diff != "" || c.Options() != options {
		t.Errorf("the client's options changed (-before +after):\n%s", diff)
	}
	if n := c.PoolStats().TotalConns; n != 1 {
		t.Errorf("the client's pool has %d connections, want the one that was used", n)
	}
	// Nor does a deadline of ours stay on the connection.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := eval(ctx, e); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if err := c.Get(t.Context(), "k").Err(); err != nil {
		t.Errorf("the service's own call afterwards: %v", err)
	}
}

func TestHooksOfTheClientSeeBoundedCalls(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	c := s.client(t, redis.Options{})
	type key struct{}
	h := &recorder{}
	h.seen = func(ctx context.Context, cmd redis.Cmder) {
		h.got = append(h.got, fmt.Sprint(cmd.Name(), " ", ctx.Value(key{})))
	}
	c.AddHook(h)
	ctx := context.WithValue(t.Context(), key{}, "v")
	for _, call := range calls(t, New(c).(driver.Bounder).Bound(time.Second)) {
		if err := call(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.got) != 2 {
		t.Fatalf("the hook saw %q, want two commands", h.got)
	}
	for _, got := range h.got {
		if got != "evalsha v" && got != "get v" {
			t.Errorf("the hook saw %q; want a command with the values of the caller's context", got)
		}
	}
}

// recorder is a hook of go-redis.
type recorder struct {
	seen func(context.Context, redis.Cmder)
	got  []string
}

func (*recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" && cmd.Name() != "client" { // the set-up of a connection
			r.seen(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (*recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestABoundPassesOnAContextThatEndsSooner(t *testing.T) {
	b := &bound{d: time.Minute}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got := b.context(ctx, new(callContext)); got != ctx {
		t.Errorf("got %v, want the caller's context", got)
	}
	if got := (*bound)(nil).context(t.Context(), nil); got != t.Context() {
		t.Errorf("without a bound: got %v, want the caller's context", got)
	}
}

func TestGetAllocatesLittleMoreThanTheClientsOwn(t *testing.T) {
	s := serve(t, answer("$3\r\nabc\r\n"))
	c := s.client(t, redis.Options{})
	e := New(c)
	key := strings.Clone("{k}") // not a constant, which costs nothing to box
	own := testing.AllocsPerRun(200, func() { _, _ = c.Get(t.Context(), key).Result() })
	for name, e := range map[string]driver.Evaler{"unbounded": e, "bounded": e.(driver.Bounder).Bound(time.Second)} {
		ours := testing.AllocsPerRun(200, func() { _, _, _ = get(t.Context(), t, e) })
		t.Logf("%s: %v, the client's own: %v", name, ours, own)
		if ours > own+1 {
			t.Errorf("%s: %v allocations, the client's own Get makes %v; want at most 1 more", name, ours, own)
		}
	}
}

func TestAMockThatIsAHookAnswersBoundedCalls(t *testing.T) {
	c := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	c.AddHook(mock{})
	e := New(c).(driver.Bounder).Bound(time.Second)
	r, err := eval(t.Context(), e)
	if s, _ := r.Str(); s != "mocked" || err != nil {
		t.Errorf("Eval: got %v, %v", r, err)
	}
	if s, _, err := get(t.Context(), t, e); s != "mocked" || err != nil {
		t.Errorf("Get: got %q, %v", s, err)
	}
}

// mock is a hook that answers by itself, as mocks of go-redis do.
type mock struct{ toClone }

func (mock) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if v := reflect.ValueOf(cmd).Elem().FieldByName("val"); !v.IsValid() {
			return fmt.Errorf("a %T hides its value from mocks that set it by reflection", cmd)
		}
		switch cmd := cmd.(type) {
		case interface{ SetVal(any) }:
			cmd.SetVal("mocked")
		case interface{ SetVal(string) }:
			cmd.SetVal("mocked")
		}
		return nil
	}
}

func TestAClientGetsOneHookHoweverManyCachesUseIt(t *testing.T) {
	isHooked := func(id weak.Pointer[redis.Client]) bool {
		hooked.Lock()
		defer hooked.Unlock()
		return hooked.clients[id]
	}
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	id := weak.Make(c)
	e := New(c)
	if isHooked(id) {
		t.Error("New alone added a hook")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { e.(driver.Bounder).Bound(time.Second).(driver.Bounder).Bound(time.Minute) })
	}
	wg.Wait()
	if !isHooked(id) {
		t.Error("Bound added no hook")
	}
	// Hooks added twice would nest, which the depth of the stack shows.
	depth := 0
	c.AddHook(&recorder{seen: func(context.Context, redis.Cmder) {
		pc := make([]uintptr, 64)
		frames := runtime.CallersFrames(pc[:runtime.Callers(0, pc)])
		for {
			f, more := frames.Next()
			if strings.Contains(f.Function, "toClone.ProcessHook") {
				depth++
			}
			if !more {
				return
			}
		}
	}})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	c.Get(canceled, "k")
	if depth != 1 {
		t.Errorf("the client has our hook %d times, want once", depth)
	}

	c.Close()
	for deadline := time.Now().Add(10 * time.Second); isHooked(id); runtime.Gosched() {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatal("the client is gone, but still known")
		}
	}
}
