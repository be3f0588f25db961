package leasecache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// present is a driver on whose server every key has the value "v", and which
// answers everything else with 1. It ends its calls in time.
type present struct{ fail error }

func (p present) Bound(time.Duration) driver.Evaler { return p }

func (p present) Get(context.Context, string) (string, bool, error) { return "v", true, p.fail }

func (p present) Eval(_ context.Context, s *driver.Script, _, _ []string) (driver.Reply, error) {
	switch {
	case p.fail != nil:
		return driver.Reply{}, p.fail
	case s.Name() == "read":
		return driver.List(driver.Int(1), driver.Str("v"), driver.Int(60000)), nil
	}
	return driver.Int(1), nil
}

func mustCache(t *testing.T, e driver.Evaler, o Options) *Cache[string] {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = time.Minute
	}
	c, err := New[string](e, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// never is a loader for keys that are cached.
func never(context.Context) (string, error) { panic("the loader was called") }

func TestADriverThatIsNilIsAnErrorAndNoPanic(t *testing.T) {
	for _, test := range []struct {
		name string
		e    driver.Evaler
		want string
	}{
		{"nil", nil, "driver is nil"},
		{"nil Store", (*Store)(nil), "Store is nil"},
		{"invalid", driver.Invalid(errors.New("goredis: the client is nil")), "goredis: the client is nil"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := New[string](test.e, Options{TTL: time.Minute})
			if err == nil || !strings.Contains(err.Error(), test.want) || c != nil {
				t.Errorf("New = %v, %v; want %q", c, err, test.want)
			}
			s, err := NewStore(test.e, StoreOptions{})
			if err == nil || !strings.Contains(err.Error(), test.want) || s != nil {
				t.Errorf("NewStore = %v, %v; want %q", s, err, test.want)
			}
		})
	}
}

func TestADriverThatIsATypedNilFailsItsCallsAndNotTheProcess(t *testing.T) {
	// Only the driver knows whether its nil works, and may say so by Validate.
	type evaler struct{ driver.Evaler }
	c := mustCache(t, (*evaler)(nil), Options{})
	_, err := c.Get(t.Context(), "k", never)
	if err == nil || !strings.Contains(err.Error(), "the driver panicked") {
		t.Errorf("Get: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// closing counts how often it is closed.
type closing struct {
	present
	closed *int
	err    error
}

func (c closing) Bound(time.Duration) driver.Evaler { return c }

func (c closing) Close() error {
	*c.closed++
	return c.err
}

// storeDriver is registered for the tests here. Its DSN is what it does.
type storeDriver struct{}

var (
	opened, openedClosed int
	errClose             = errors.New("close: connection reset by peer")
)

func (storeDriver) Open(dsn string) (driver.Evaler, error) {
	opened++
	switch dsn {
	case "works":
		return closing{closed: &openedClosed}, nil
	case "cannot be closed":
		return closing{closed: &openedClosed, err: errClose}, nil
	case "has no Close":
		return present{}, nil
	case "nil":
		return nil, nil
	}
	return nil, errors.New("no such DSN")
}

func (storeDriver) Adopt(client any) (driver.Evaler, bool, error) {
	c, ok := client.(closing)
	return c, ok, nil
}

func init() { driver.Register("storetest", storeDriver{}) }

func TestAStoreClosesOnlyTheClientThatItOpened(t *testing.T) {
	opened, openedClosed = 0, 0
	s, err := Open("storetest", "works", StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if opened != 1 || openedClosed != 1 {
		t.Errorf("opened %d and closed %d times, want once", opened, openedClosed)
	}

	n := 0
	given := closing{closed: &n}
	adopted, err := Adopt(given, StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{adopted, mustStore(t, given, time.Second)} {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	c := mustCache(t, given, Options{})
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n != 0 {
		t.Errorf("a client that was handed over was closed %d times", n)
	}
}

func TestOpenReportsWhatIsWrongAndLeavesNothingOpen(t *testing.T) {
	for _, test := range []struct {
		name, driver, dsn string
		opts              StoreOptions
		want              []string
		closes            int
	}{
		{"unknown driver", "nosuchdriver", "", StoreOptions{}, []string{`unknown driver "nosuchdriver"`}, 0},
		{"DSN that the driver refuses", "storetest", "bad", StoreOptions{}, []string{`driver "storetest"`, "no such DSN"}, 0},
		{"driver that opens nothing", "storetest", "nil", StoreOptions{}, []string{"driver is nil"}, 0},
		{"bad option", "storetest", "works", StoreOptions{CallTimeout: -1}, []string{"StoreOptions.CallTimeout is -1ns"}, 1},
		{"bad option, and Close fails", "storetest", "cannot be closed", StoreOptions{CallTimeout: -1}, []string{"StoreOptions.CallTimeout is -1ns", errClose.Error()}, 1},
		{"bad option, and there is no Close", "storetest", "has no Close", StoreOptions{CallTimeout: -1}, []string{"StoreOptions.CallTimeout is -1ns"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			openedClosed = 0
			s, err := Open(test.driver, test.dsn, test.opts)
			if err == nil || s != nil {
				t.Fatalf("Open = %v, %v; want an error", s, err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error is %q, want it to say %q", err, part)
				}
			}
			if openedClosed != test.closes {
				t.Errorf("closed %d times, want %d", openedClosed, test.closes)
			}
		})
	}
}

func TestTheErrorOfClosingTheClientIsReturned(t *testing.T) {
	s, err := Open("storetest", "cannot be closed", StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, errClose) {
		t.Errorf("Close: %v", err)
	}
	s, err = Open("storetest", "has no Close", StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestAdoptOfAClientThatNobodyTakesIsAnError(t *testing.T) {
	for _, client := range []any{nil, 42} {
		if s, err := Adopt(client, StoreOptions{}); err == nil || s != nil {
			t.Errorf("Adopt(%v) = %v, %v", client, s, err)
		}
	}
	n := 0
	if _, err := Adopt(closing{closed: &n}, StoreOptions{CallTimeout: -1}); err == nil || n != 0 {
		t.Errorf("Adopt with a bad option: %v, and the client was closed %d times", err, n)
	}
}

func TestCallsOnAClosedStoreReturnErrClosed(t *testing.T) {
	for name, e := range map[string]driver.Evaler{"with Get": present{}, "with Eval alone": evalFunc(present{}.Eval)} {
		t.Run(name, func(t *testing.T) {
			s := mustStore(t, e, time.Second)
			c := mustCache(t, s, Options{OnUnavailable: UnavailableLoad})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			_, getErr := c.Get(t.Context(), "k", never)
			_, readErr := c.Read(t.Context(), "k", never)
			_, refreshErr := c.Refresh(t.Context(), "k", never)
			_, _, peekErr := c.Peek(t.Context(), "k")
			_, evalErr := s.Eval(t.Context(), pingScript, []string{"k"}, nil)
			for call, err := range map[string]error{
				"Get": getErr, "Read": readErr, "Refresh": refreshErr, "Peek": peekErr,
				"Invalidate": c.Invalidate(t.Context(), "k"), "Ping": s.Ping(t.Context()), "Eval": evalErr,
			} {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v, want ErrClosed", call, err)
				}
				if errors.Is(err, ErrUnavailable) {
					t.Errorf("%s: %v is ErrUnavailable, though the server was not asked", call, err)
				}
			}
			// A new cache on it says so as well, at its first call.
			if _, err := mustCache(t, s, Options{}).Get(t.Context(), "k", never); !errors.Is(err, ErrClosed) {
				t.Errorf("Get of a new cache: %v, want ErrClosed", err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("Close of the cache: %v", err)
			}
		})
	}
}

func TestCallsOnAClosedCacheReturnErrClosedAndTheStoreGoesOn(t *testing.T) {
	s := mustStore(t, present{}, time.Second)
	c, other := mustCache(t, s, Options{}), mustCache(t, s, Options{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	_, getErr := c.Get(t.Context(), "k", never)
	_, readErr := c.Read(t.Context(), "k", never)
	_, refreshErr := c.Refresh(t.Context(), "k", never)
	_, _, peekErr := c.Peek(t.Context(), "k")
	err := c.Invalidate(t.Context(), "a", "b")
	for call, err := range map[string]error{"Get": getErr, "Read": readErr, "Refresh": refreshErr, "Peek": peekErr, "Invalidate": err} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", call, err)
		}
	}
	if failed, ok := errors.AsType[*InvalidateError](err); !ok || fmt.Sprint(failed.Keys) != "[a b]" {
		t.Errorf("Invalidate: %v, want both keys named", err)
	}
	if v, err := other.Get(t.Context(), "k", never); v != "v" || err != nil {
		t.Errorf("Get of another cache: %q, %v", v, err)
	}
}

func TestANilLoaderIsAnErrorThatSaysWhatToDo(t *testing.T) {
	c := mustCache(t, present{}, Options{})
	_, getErr := c.Get(t.Context(), "k", nil)
	_, readErr := c.Read(t.Context(), "k", nil)
	_, refreshErr := c.Refresh(t.Context(), "k", nil)
	for _, err := range []error{getErr, readErr, refreshErr} {
		if err == nil || !strings.Contains(err.Error(), "loader is nil") || !strings.Contains(err.Error(), "Peek") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestInvalidateOfNoKeysDoesNothing(t *testing.T) {
	d := &scripted{words: []string{"broken"}}
	if err := mustCache(t, d, Options{}).Invalidate(t.Context()); err != nil || d.count() != 0 {
		t.Errorf("Invalidate: %v, with %d calls", err, d.count())
	}
}

func TestAStoreOnAStoreHasABoundOfItsOwn(t *testing.T) {
	for _, bound := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := &scripted{words: []string{"hang"}}
			outer := mustStore(t, mustStore(t, d, time.Second), bound)
			start := time.Now()
			if _, err := outer.Eval(t.Context(), pingScript, []string{"k"}, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Eval: %v", err)
			}
			if took := time.Since(start); took != bound {
				t.Errorf("Eval took %v, want %v", took, bound)
			}
		})
	}
}

type subscribing struct {
	present
	driver.Subscriber
}

type boundedSubscribing struct{ subscribing }

func (b boundedSubscribing) Bound(time.Duration) driver.Evaler { return b }

func TestWakeUpsNeedNoOtherAbility(t *testing.T) {
	for _, e := range []driver.Evaler{subscribing{}, boundedSubscribing{}} {
		if s := mustStore(t, e, time.Second); s.wakeups.subscriber == nil {
			t.Errorf("a Store over a %T does not subscribe", e)
		} else if s = mustStore(t, s, time.Minute); s.wakeups.subscriber == nil {
			t.Errorf("a Store over a Store over a %T does not subscribe", e)
		}
		s, err := NewStore(e, StoreOptions{NoWakeUps: true})
		if err != nil {
			t.Fatal(err)
		}
		if s.wakeups.subscriber != nil {
			t.Errorf("a Store without wake-ups over a %T subscribes", e)
		}
	}
}

type pinging struct {
	present
	err error
}

func (p pinging) Bound(time.Duration) driver.Evaler { return p }
func (p pinging) Ping(context.Context) error        { return p.err }

// unboundedPinging cannot end its calls, and its ping ends when hang is closed.
type unboundedPinging struct {
	driver.Evaler
	err  error
	hang chan struct{}
}

func (p unboundedPinging) Ping(context.Context) error {
	if p.hang != nil {
		<-p.hang
	}
	return p.err
}

func TestPingAsksTheDriverOrElseRunsAScript(t *testing.T) {
	for _, test := range []struct {
		name string
		e    driver.Evaler
		want error
	}{
		{"with Ping", pinging{present{fail: errors.New("was asked by a script")}, nil}, nil},
		{"with Ping that fails", pinging{err: errBroken}, errBroken},
		{"with Ping, but no bound", unboundedPinging{Evaler: present{fail: errors.New("was asked by a script")}}, nil},
		{"with Ping that fails, but no bound", unboundedPinging{Evaler: present{}, err: errBroken}, errBroken},
		{"without", present{}, nil},
		{"without, and the script fails", present{fail: errBroken}, errBroken},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := mustStore(t, test.e, time.Second).Ping(t.Context())
			if !errors.Is(err, test.want) || errors.Is(err, ErrUnavailable) != (test.want != nil) {
				t.Errorf("Ping: %v, want %v", err, test.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := mustStore(t, &scripted{words: []string{"hang"}}, time.Second).Ping(t.Context())
		if took := time.Since(start); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ping of a server that hangs: %v after %v", err, took)
		}
		start = time.Now()
		hang := make(chan struct{})
		defer close(hang)
		err = mustStore(t, unboundedPinging{Evaler: present{}, hang: hang}, time.Second).Ping(t.Context())
		if took := time.Since(start); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ping that does not end by itself: %v after %v", err, took)
		}
	})
}
