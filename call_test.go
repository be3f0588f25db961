package leasecache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// scripted is a driver that is told what to do with one call after the other,
// in these words:
//
//	ok               replies 1
//	-CODE text       replies with this error
//	unsent           fails before it sends
//	broken           fails, and nobody knows what the server did
//	hang             replies nothing, and fails when its context ends
//	stuck            replies nothing, whatever its context does, until released
//	panic            panics
//	after D WORD     does WORD after the duration D
//
// The last word is repeated. A call whose context is done is not sent.
type scripted struct {
	words   []string
	release chan struct{} // closed to let go of what is stuck

	mu    sync.Mutex
	calls []time.Time
}

var errBroken = errors.New("connection reset by peer")

func (d *scripted) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(err)
	}
	d.mu.Lock()
	word := d.words[min(len(d.calls), len(d.words)-1)]
	d.calls = append(d.calls, time.Now())
	d.mu.Unlock()
	if rest, ok := strings.CutPrefix(word, "after "); ok {
		wait, then, _ := strings.Cut(rest, " ")
		after, err := time.ParseDuration(wait)
		if err != nil {
			panic(err)
		}
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return driver.Reply{}, driver.CallError(ctx, errBroken)
		}
		word = then
	}
	switch word {
	case "ok":
		return driver.Int(1), nil
	case "unsent":
		return driver.Reply{}, driver.NotSent(errBroken)
	case "broken":
		return driver.Reply{}, driver.CallError(ctx, errBroken)
	case "hang":
		<-ctx.Done()
		return driver.Reply{}, driver.CallError(ctx, errBroken)
	case "stuck":
		<-d.release
		return driver.Int(1), nil
	case "panic":
		panic("a bug in the driver")
	}
	if text, ok := strings.CutPrefix(word, "-"); ok {
		return driver.Reply{}, driver.ParseServerError(text, nil)
	}
	panic("scripted: no such word: " + word)
}

func (d *scripted) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// bounded is scripted with the ability to end its calls in time.
type bounded struct {
	*scripted
	d time.Duration
}

func (b bounded) Bound(d time.Duration) driver.Evaler { return bounded{b.scripted, d} }

func (b bounded) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, b.d)
	defer cancel()
	return b.scripted.Eval(ctx, s, keys, args)
}

func mustStore(t *testing.T, e driver.Evaler, callTimeout time.Duration) *Store {
	t.Helper()
	s, err := NewStore(e, StoreOptions{CallTimeout: callTimeout})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// evalers runs test with a driver that ends its calls in time, and with one that
// has to be left behind.
func evalers(t *testing.T, words []string, test func(t *testing.T, d *scripted, e driver.Evaler)) {
	t.Helper()
	for _, name := range []string{"bounded", "guarded"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &scripted{words: words, release: make(chan struct{})}
				if name == "bounded" {
					test(t, d, bounded{scripted: d})
				} else {
					test(t, d, d)
				}
			})
		})
	}
}

func TestAStepIsTriedAgainOnlyWhenThatCanHelp(t *testing.T) {
	type want struct {
		attempts    int
		err         error // that the step's error wraps; nil is success
		code        string
		unavailable bool
		unknown     bool
		took        time.Duration // exactly; 0 is no more than the pauses between attempts
	}
	for _, test := range []struct {
		name  string
		words []string
		want  want
	}{
		{"success", []string{"ok"}, want{attempts: 1}},
		{"a connection that broke", []string{"broken", "ok"}, want{attempts: 2}},
		{"two that broke", []string{"broken", "broken", "ok"}, want{attempts: 3}},
		{"three that broke", []string{"broken"}, want{attempts: 3, err: errBroken, unavailable: true, unknown: true}},
		{"a call that was not sent", []string{"unsent", "ok"}, want{attempts: 2}},
		{"three that were not sent", []string{"unsent"}, want{attempts: 3, err: driver.ErrNotSent, unavailable: true}},
		{"one of three may have run", []string{"unsent", "broken", "unsent"}, want{attempts: 3, err: driver.ErrNotSent, unavailable: true, unknown: true}},
		{"the first of two may have run", []string{"broken", "-ERR no"}, want{attempts: 2, code: "ERR", unknown: true}},
		{"a code for now", []string{"-LOADING reading", "ok"}, want{attempts: 2}},
		{"a code for now that stays", []string{"-LOADING reading"}, want{attempts: 3, code: "LOADING", unavailable: true}},
		{"a code for good", []string{"-WRONGTYPE no", "ok"}, want{attempts: 1, code: "WRONGTYPE"}},
		{"a code for now, then one for good", []string{"-LOADING reading", "-NOPERM no", "ok"}, want{attempts: 2, code: "NOPERM"}},
		{"a call that hangs", []string{"hang", "ok"}, want{attempts: 1, err: context.DeadlineExceeded, unavailable: true, unknown: true, took: time.Second}},
		{"the second attempt hangs", []string{"broken", "hang", "ok"}, want{attempts: 2, err: context.DeadlineExceeded, unavailable: true, unknown: true, took: time.Second}},
		{"slow attempts share the time", []string{"after 600ms broken", "after 300ms -BUSY", "hang"}, want{attempts: 3, err: context.DeadlineExceeded, unavailable: true, unknown: true, took: time.Second}},
		{"no time is left for another", []string{"after 999999us broken", "ok"}, want{attempts: 1, err: errBroken, unavailable: true, unknown: true, took: time.Second}},
		{"a driver that panics", []string{"after 0s panic", "ok"}, want{attempts: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			evalers(t, test.words, func(t *testing.T, d *scripted, e driver.Evaler) {
				if _, ok := e.(bounded); ok && strings.Contains(test.words[0], "panic") {
					return // such a driver answers for itself
				}
				s := mustStore(t, e, time.Second)
				start := time.Now()
				reply, err := s.call(t.Context(), "key", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
				took := time.Since(start)

				if n := d.count(); n != test.want.attempts {
					t.Errorf("%d attempts, want %d", n, test.want.attempts)
				}
				if test.want.took > 0 && took != test.want.took {
					t.Errorf("it took %v, want %v", took, test.want.took)
				}
				if test.want.took == 0 && took > 22*time.Millisecond {
					t.Errorf("it took %v, want only the pauses", took)
				}
				if test.want.err == nil && test.want.code == "" {
					if n, ok := reply.Int(); err != nil || !ok || n != 1 {
						t.Errorf("it returned %v, %v; want 1", reply, err)
					}
					return
				}
				se, ok := errors.AsType[*stepError](err)
				if !ok {
					t.Fatalf("it returned %v, want a stepError", err)
				}
				if test.want.err != nil && !errors.Is(err, test.want.err) {
					t.Errorf("the error is %v, want %v", err, test.want.err)
				}
				if got := serverCode(err); got != test.want.code {
					t.Errorf("the error has code %q, want %q", got, test.want.code)
				}
				if got := errors.Is(err, ErrUnavailable); got != test.want.unavailable {
					t.Errorf("%v is ErrUnavailable: %v, want %v", err, got, test.want.unavailable)
				}
				if se.unknown != test.want.unknown {
					t.Errorf("%v is unknown: %v, want %v", err, se.unknown, test.want.unknown)
				}
				if !strings.HasPrefix(err.Error(), `leasecache: delete "key": `) {
					t.Errorf("the error is %q, want it to say what was done to which key", err)
				}
			})
		})
	}
}

func TestAnErrorSaysWhyThereWasNoTimeForTheLastAttempt(t *testing.T) {
	for _, test := range []struct {
		words []string
		want  string
		is    error
	}{
		{[]string{"after 600ms broken", "hang"}, "before that: connection reset by peer", errBroken},
		{[]string{"after 600ms -BUSY a script runs", "hang"}, "before that: BUSY a script runs", context.DeadlineExceeded},
		{[]string{"after 600ms unsent", "hang"}, "before that: not sent: ", driver.ErrNotSent},
	} {
		t.Run(test.words[0], func(t *testing.T) {
			evalers(t, test.words, func(t *testing.T, _ *scripted, e driver.Evaler) {
				c := mustCache(t, mustStore(t, e, time.Second), Options{})
				check := func(what string, err error) {
					t.Helper()
					if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, test.is) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v; want that its time was over, and %q", what, err, test.want)
					}
				}
				_, err := c.store.call(t.Context(), "key", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
				check("a step", err)
			})
		})
	}
	t.Run("Invalidate", func(t *testing.T) {
		evalers(t, []string{"broken", "broken", "broken", "hang"}, func(t *testing.T, _ *scripted, e driver.Evaler) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			err := mustCache(t, mustStore(t, e, time.Second), Options{}).Invalidate(ctx, "key")
			if !errors.Is(err, errBroken) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v; want that its time was over, and why", err)
			}
		})
	})
}

func TestEveryCodeForNowIsTriedAgainAndNoOther(t *testing.T) {
	now := []string{
		"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "BUSY",
		"NOREPLICAS", "MOVED", "ASK", "UNKILLABLE", "FAILOVER", "REDIRECT",
	}
	good := []string{
		"ERR", "WRONGTYPE", "OOM", "NOPERM", "NOAUTH", "WRONGPASS", "NOSCRIPT",
		"CROSSSLOT", "MISCONF", "EXECABORT", "NOPROTO", "SOMETHINGNEW",
	}
	if len(now) != len(transient) {
		t.Errorf("%d codes are tried again, this test knows %d", len(transient), len(now))
	}
	for _, code := range append(slices.Clone(now), good...) {
		synctest.Test(t, func(t *testing.T) {
			d := &scripted{words: []string{"-" + code + " text"}}
			_, err := mustStore(t, d, time.Second).call(t.Context(), "k", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
			want := 1
			if slices.Contains(now, code) {
				want = maxAttempts
			}
			if n := d.count(); n != want {
				t.Errorf("%s: %d attempts, want %d", code, n, want)
			}
			if errors.Is(err, ErrUnavailable) != (want > 1) {
				t.Errorf("%s: the error is %v", code, err)
			}
		})
	}
}

func TestAttemptsArePausedForMillisecondsWithJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := &scripted{words: []string{"broken"}}
			_, _ = mustStore(t, d, time.Second).call(t.Context(), "k", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
			if len(d.calls) != 3 {
				t.Fatalf("%d attempts", len(d.calls))
			}
			for i, low := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
				gap := d.calls[i+1].Sub(d.calls[i])
				if gap < low || gap >= 2*low {
					t.Errorf("pause %d took %v, want from %v to %v", i+1, gap, low, 2*low)
				}
				seen[gap] = true
			}
		})
	}
	if len(seen) < 3 {
		t.Errorf("40 pauses took %v, want jitter", seen)
	}
}

func TestACallerThatLeavesEndsTheAttempts(t *testing.T) {
	t.Run("before the first", func(t *testing.T) {
		evalers(t, []string{"ok"}, func(t *testing.T, d *scripted, e driver.Evaler) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := mustStore(t, e, time.Second).call(ctx, "k", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
			if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrNotSent) || d.count() != 0 {
				t.Errorf("%d attempts, error %v; want none, and not sent", d.count(), err)
			}
		})
	})
	t.Run("by its deadline", func(t *testing.T) {
		evalers(t, []string{"hang"}, func(t *testing.T, d *scripted, e driver.Evaler) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := mustStore(t, e, time.Second).call(ctx, "k", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
			if took := time.Since(start); took != 300*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || d.count() != 1 {
				t.Errorf("%d attempts took %v, error %v", d.count(), took, err)
			}
		})
	})
	t.Run("between two", func(t *testing.T) {
		evalers(t, []string{"broken", "broken", "ok"}, func(t *testing.T, d *scripted, e driver.Evaler) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := mustStore(t, e, time.Second).call(ctx, "k", protocol.DeleteCalls(protocol.NewKeys("", "k"))[1])
			if took := time.Since(start); took != 5*time.Millisecond || !errors.Is(err, errBroken) || d.count() != 2 {
				t.Errorf("%d attempts took %v, error %v; want two, and an end at the deadline", d.count(), took, err)
			}
		})
	})
}

func TestADriverThatHangsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scripted{words: []string{"stuck"}, release: make(chan struct{})}
		s := mustStore(t, d, 700*time.Millisecond)
		start := time.Now()
		_, err := s.Eval(t.Context(), protocol.Delete, []string{"k"}, nil)
		if took := time.Since(start); took != 700*time.Millisecond {
			t.Errorf("it took %v, want the CallTimeout of 700ms", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("the error is %v, want DeadlineExceeded, and not ErrNotSent", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := s.Eval(ctx, protocol.Delete, []string{"k"}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want Canceled", err)
		}
		close(d.release) // or the bubble would not end: nothing else is left
	})
}

func TestALeftCallKeepsStringsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, got := make(chan struct{}), make(chan []string, 1)
		e := evalFunc(func(_ context.Context, _ *driver.Script, keys, args []string) (driver.Reply, error) {
			<-release
			got <- slices.Concat(keys, args)
			return driver.Nil(), nil
		})
		keys, args := []string{"key"}, []string{"arg"}
		_, err := mustStore(t, e, time.Second).Eval(t.Context(), protocol.Delete, keys, args)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		keys[0], args[0] = "changed", "changed"
		close(release)
		if left := <-got; !slices.Equal(left, []string{"key", "arg"}) {
			t.Errorf("the call that was left behind sees %q", left)
		}
	})
}

type evalFunc func(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error)

func (f evalFunc) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	return f(ctx, s, keys, args)
}

func TestADriverThatPanicsIsAnErrorOfUnknownOutcome(t *testing.T) {
	d := &scripted{words: []string{"panic"}}
	_, err := mustStore(t, d, time.Second).Eval(t.Context(), protocol.Delete, []string{"k"}, nil)
	if err == nil || !strings.Contains(err.Error(), "the driver panicked: a bug in the driver") || !strings.Contains(err.Error(), "call_test.go") {
		t.Errorf("the error is %v; want the panic and its stack", err)
	}
	if !isUnknown(err) || !isUnavailable(err) {
		t.Errorf("%v: unknown %v, unavailable %v", err, isUnknown(err), isUnavailable(err))
	}
}

// getFunc is a driver whose GET is the function, and which has no Bound.
type getFunc struct {
	driver.Evaler
	get func(ctx context.Context, key string) (string, bool, error)
}

func (g getFunc) Get(ctx context.Context, key string) (string, bool, error) { return g.get(ctx, key) }

func TestAGetIsBoundedAndTriedAgainAsAScriptIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		replies := []error{errBroken, driver.NotSent(io.EOF), nil}
		g := getFunc{&scripted{}, func(ctx context.Context, key string) (string, bool, error) {
			calls++
			if err := replies[min(calls, 3)-1]; err != nil {
				return "", false, err
			}
			return "value of " + key, true, nil
		}}
		s := mustStore(t, g, time.Second)
		if v, ok, err := s.get(t.Context(), "k", "v:{k}"); v != "value of v:{k}" || !ok || err != nil || calls != 3 {
			t.Errorf("get = %q, %v, %v after %d calls", v, ok, err, calls)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := getFunc{&scripted{}, func(context.Context, string) (string, bool, error) {
			<-release
			return "", false, nil
		}}
		start := time.Now()
		_, ok, err := mustStore(t, g, time.Second).get(t.Context(), "k", "v:{k}")
		if took := time.Since(start); ok || took != time.Second || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("get = %v, %v after %v", ok, err, took)
		}
		close(release)
	})
}

func TestTheGuardAddsNoAbility(t *testing.T) {
	if s := mustStore(t, &scripted{}, time.Second); s.getter != nil {
		t.Error("a driver without Get has got one")
	}
	if s := mustStore(t, getFunc{Evaler: &scripted{}}, time.Second); s.getter == nil {
		t.Error("a driver has lost Get")
	}
}

func TestErrorsSayWhetherTheServerCanBeUsed(t *testing.T) {
	reply := func(text string) error { return driver.ParseServerError(text, nil) }
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"broken connection", errBroken, true},
		{"not sent", driver.NotSent(errBroken), true},
		{"deadline", context.DeadlineExceeded, true},
		{"wrapped by a client", fmt.Errorf("client: %w", io.ErrUnexpectedEOF), true},
		{"replica", reply("READONLY You can't write against a read only replica."), true},
		{"cluster", reply("CLUSTERDOWN The cluster is down"), true},
		{"wrapped reply", fmt.Errorf("client: %w", reply("LOADING Redis is loading the dataset in memory")), true},
		{"full of clients", reply("ERR max number of clients reached"), true},
		{"full of clients, and the client strips ERR", reply("max number of clients reached"), true},
		{"cluster that serves reads", reply("ERR Script attempted to execute a write command while the cluster is down and readonly script: x, on @user_script:38."), true},
		{"cluster that serves reads, Valkey", reply("ERR Can not execute a write command 'set' while the cluster is down and readonly script: on @user_script:38."), true},
		{"script error", reply("ERR Error running script"), false},
		{"wrong type", reply("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{"no memory", reply("OOM command not allowed when used memory > 'maxmemory'."), false},
		{"no right", reply("NOPERM No permissions to access a key"), false},
		{"code that nobody knows", reply("NEWCODE text"), false},
		{"reply of another form", fmt.Errorf("%w: nil", protocol.ErrReply), false},
		{"step that failed", &stepError{step: "read", key: "k", err: errBroken}, true},
		{"step that was refused", &stepError{step: "read", key: "k", err: reply("OOM no")}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := isUnavailable(test.err); got != test.want {
				t.Errorf("%v: unavailable %v, want %v", test.err, got, test.want)
			}
			if got := isPermanent(test.err); got == test.want {
				t.Errorf("%v: permanent %v, want %v", test.err, got, !test.want)
			}
			reason := Refused
			if test.want {
				reason = ServerDown
			}
			if got := reasonOf(test.err); got != reason {
				t.Errorf("%v: reason %q, want %q", test.err, got, reason)
			}
		})
	}
}
