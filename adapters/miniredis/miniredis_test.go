package miniredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

const (
	echo = `return {KEYS, ARGV}`
	set  = `return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`
	incr = `return redis.call('INCR', KEYS[1])`
)

func newTest(t *testing.T) *Server {
	t.Helper()
	s := New()
	t.Cleanup(func() { s.Close() })
	return s
}

// wrapTest is a miniredis as a user's test has it, and an Evaler over it.
func wrapTest(t *testing.T) (*miniredis.Miniredis, driver.Evaler) {
	t.Helper()
	m := miniredis.RunT(t)
	return m, Wrap(m)
}

func mustOpen(t *testing.T, dsn string) *Server {
	t.Helper()
	e, err := driver.Open("miniredis", dsn)
	if err != nil {
		t.Fatal(err)
	}
	s := e.(*Server)
	t.Cleanup(func() { s.Close() })
	return s
}

func mustGet(t *testing.T, e driver.Evaler, key, want string) {
	t.Helper()
	v, ok, err := e.(driver.Getter).Get(t.Context(), key)
	if err != nil || v != want || ok != (want != "") {
		t.Errorf("Get(%q) = %q, %v, %v; want %q", key, v, ok, err, want)
	}
}

// hook counts the commands that arrive from outside or from scripts, and lets
// each meet its fate.
func hook(m *miniredis.Miniredis, fate func(c *server.Peer, cmd string) bool) (seen func() []string) {
	var mu sync.Mutex
	var cmds []string
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		mu.Lock()
		cmds = append(cmds, cmd)
		mu.Unlock()
		return fate != nil && fate(c, cmd)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(cmds)
	}
}

func TestKeysAndArgumentsArriveUnchanged(t *testing.T) {
	s := newTest(t)
	many := make([]string, 1000)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for name, test := range map[string]struct{ keys, args []string }{
		"one key":         {[]string{"k"}, nil},
		"bytes":           {[]string{"{\x00\xff\r\n}"}, []string{"", "\x00", "\r\n$3\r\n", "é"}},
		"numbers as text": {[]string{"007"}, []string{"1e3", "0x10", "-0", "9223372036854775808", "1.50"}},
		"many":            {many[:3], many},
		"large":           {[]string{strings.Repeat("k", 64<<10)}, []string{strings.Repeat("\x00v", 512<<10)}},
	} {
		t.Run(name, func(t *testing.T) {
			keys, args := slices.Clone(test.keys), slices.Clone(test.args)
			r, err := s.Eval(t.Context(), driver.NewScript("echo", echo), keys, args)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range [][]string{test.keys, test.args} {
				list := r.At(i)
				if list.Len() != len(want) {
					t.Fatalf("%d strings arrived, want %d", list.Len(), len(want))
				}
				for j, w := range want {
					if got, ok := list.At(j).Str(); !ok || got != w {
						t.Errorf("string %d arrived as %.40q, want %.40q", j, got, w)
					}
				}
			}
			if !slices.Equal(keys, test.keys) || !slices.Equal(args, test.args) {
				t.Error("Eval changed its arguments")
			}
		})
	}
}

func TestAScriptIsSentBySourceOnlyWhenTheServerDoesNotKnowIt(t *testing.T) {
	s := newTest(t)
	seen := hook(s.Miniredis(), nil)
	for range 2 {
		eval(t, s, `return 1`, []string{"k"}, nil)
	}
	flushScripts(t, s)
	eval(t, s, `return 1`, []string{"k"}, nil)
	want := []string{"EVALSHA", "EVAL", "EVALSHA", "SCRIPT", "EVALSHA", "EVAL"}
	if got := seen(); !slices.Equal(got, want) {
		t.Errorf("commands sent: %v, want %v", got, want)
	}
}

func flushScripts(t *testing.T, s *Server) {
	t.Helper()
	nc, err := s.Miniredis().Dial()
	if err != nil {
		t.Fatal(err)
	}
	c := resp.NewConn(nc)
	defer c.Close()
	if _, err := c.Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
}

func TestTheWordNoscriptInAReplyDoesNotSendTheScriptAgain(t *testing.T) {
	s := newTest(t)
	for _, script := range []string{
		`redis.call('INCR', KEYS[1]) return 'NOSCRIPT No matching script.'`,
		`redis.call('INCR', KEYS[1]) return redis.error_reply('ERR NOSCRIPT No matching script.')`,
		`redis.call('INCR', KEYS[1]) return redis.error_reply('NOSCRIPTS are many')`,
		`redis.call('INCR', KEYS[1]) error('NOSCRIPT No matching script.')`,
	} {
		s.Miniredis().FlushAll()
		sc := driver.NewScript("test", script)
		for range 2 { // first by source, then by digest
			_, _ = s.Eval(t.Context(), sc, []string{"n"}, nil)
		}
		mustGet(t, s, "n", "2")
	}
}

func TestAConnectionThatBreaksLeavesTheOutcomeUnknownAndSendsNothingAgain(t *testing.T) {
	s := newTest(t)
	eval(t, s, incr, []string{"n"}, nil) // from now on by digest
	seen := hook(s.Miniredis(), func(c *server.Peer, _ string) bool {
		if _, err := s.Miniredis().Incr("n", 1); err != nil {
			t.Error(err)
		}
		c.Close() // the reply is lost
		return true
	})
	_, err := s.Eval(t.Context(), driver.NewScript("incr", incr), []string{"n"}, nil)
	if err == nil || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("Eval: %v, want an unknown outcome", err)
	}
	if se, ok := errors.AsType[*driver.ServerError](err); ok {
		t.Errorf("Eval: %v is a ServerError", se)
	}
	if got := seen(); !slices.Equal(got, []string{"EVALSHA"}) {
		t.Errorf("commands sent: %v, want one EVALSHA", got)
	}
	hook(s.Miniredis(), nil)
	mustGet(t, s, "n", "2")
}

func TestGetTellsAnEmptyValueFromNone(t *testing.T) {
	s := newTest(t)
	m := s.Miniredis()
	mustSet(t, m, "empty", "")
	mustSet(t, m, "bytes", "\x00\xff\r\n")
	m.HSet("hash", "f", "v")
	if v, ok, err := s.Get(t.Context(), "empty"); v != "" || !ok || err != nil {
		t.Errorf("Get(empty) = %q, %v, %v", v, ok, err)
	}
	mustGet(t, s, "none", "")
	mustGet(t, s, "bytes", "\x00\xff\r\n")
	_, _, err := s.Get(t.Context(), "hash")
	if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != "WRONGTYPE" {
		t.Errorf("Get(hash): %v, want WRONGTYPE", err)
	}
}

func TestAnErrorOfTheServerKeepsItsCodeAndTheConnection(t *testing.T) {
	s := newTest(t)
	m := s.Miniredis()
	m.SetError("LOADING Redis is loading the dataset in memory")
	for name, call := range calls(s) {
		err := call(t.Context())
		se, ok := errors.AsType[*driver.ServerError](err)
		if !ok || se.Code != "LOADING" || se.Message != "Redis is loading the dataset in memory" {
			t.Errorf("%s: %v, want a ServerError with LOADING", name, err)
		}
		if _, ok := errors.AsType[resp.Error](err); !ok {
			t.Errorf("%s: the client's own error is out of reach", name)
		}
	}
	m.SetError("")
	for name, call := range calls(s) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One to start the server, and one for all calls.
	if n := m.TotalConnectionCount(); n != 2 {
		t.Errorf("%d connections were made, want 2", n)
	}
}

// calls are all the ways to send something, by name.
func calls(e driver.Evaler) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Eval": func(ctx context.Context) error {
			_, err := e.Eval(ctx, driver.NewScript("one", `return 1`), []string{"k"}, nil)
			return err
		},
		"Get": func(ctx context.Context) error {
			_, _, err := e.(driver.Getter).Get(ctx, "k")
			return err
		},
		"Ping": func(ctx context.Context) error { return e.(driver.Pinger).Ping(ctx) },
	}
}

func TestAContextThatIsDoneSendsNothing(t *testing.T) {
	s := newTest(t)
	seen := hook(s.Miniredis(), nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		for name, call := range calls(s) {
			err := call(ctx)
			if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v, want ErrNotSent and %v", name, err, ctx.Err())
			}
		}
	}
	if got := seen(); len(got) != 0 {
		t.Errorf("commands sent: %v", got)
	}
}

func TestACallEndsInTimeWhenTheServerHangs(t *testing.T) {
	const hang = time.Hour
	for name, end := range map[string]struct {
		after  time.Duration
		evaler func(*Server) driver.Evaler
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		is     error
		isNot  error
	}{
		"by the deadline": {
			time.Second,
			func(s *Server) driver.Evaler { return s },
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			context.DeadlineExceeded, nil,
		},
		"by a deadline sooner than the bound": {
			time.Second,
			func(s *Server) driver.Evaler { return s.Bound(2 * time.Second) },
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			context.DeadlineExceeded, nil,
		},
		"by the bound": {
			2 * time.Second,
			func(s *Server) driver.Evaler { return s.Bound(2 * time.Second) },
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 3*time.Second)
			},
			os.ErrDeadlineExceeded, context.DeadlineExceeded,
		},
		"by the bound of a bound": {
			2 * time.Second,
			func(s *Server) driver.Evaler {
				return s.Bound(time.Second).(driver.Bounder).Bound(2 * time.Second)
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
			os.ErrDeadlineExceeded, context.DeadlineExceeded,
		},
		"by a cancel": {
			time.Second,
			func(s *Server) driver.Evaler { return s },
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
			context.Canceled, context.DeadlineExceeded,
		},
	} {
		for what := range calls(nil) {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := New()
					defer s.Close()
					if err := s.Ping(t.Context()); err != nil {
						t.Fatal(err) // leaves a connection, which the call then uses
					}
					hook(s.Miniredis(), func(_ *server.Peer, cmd string) bool {
						time.Sleep(hang)
						return false
					})
					ctx, cancel := end.ctx(t.Context())
					defer cancel()
					start := time.Now()
					err := calls(end.evaler(s))[what](ctx)
					if d := time.Since(start); d != end.after {
						t.Errorf("it took %v, want %v", d, end.after)
					}
					if !errors.Is(err, end.is) || end.isNot != nil && errors.Is(err, end.isNot) {
						t.Errorf("%v: want it to be %v, not %v", err, end.is, end.isNot)
					}
					if errors.Is(err, driver.ErrNotSent) {
						t.Errorf("%v is ErrNotSent, but the server has the command", err)
					}

					// The late reply reaches nobody, and neighbours are unharmed.
					hook(s.Miniredis(), nil)
					mustSet(t, s.Miniredis(), "k", "v")
					mustGet(t, s, "k", "v")
					time.Sleep(hang)
					mustGet(t, s, "k", "v")
				})
			})
		}
	}
}

func TestACallThatSucceededAtItsDeadlineDoesNotHarmTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		mustSet(t, s.Miniredis(), "k", "v")
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			mustGet(t, s, "k", "v")
			if _, _, err := s.Get(ctx, "k"); err != nil {
				t.Error(err)
			}
			cancel()
			mustGet(t, s.Bound(time.Second), "k", "v")
			time.Sleep(time.Minute) // whatever timer a call left behind has gone off
		}
		// All used one connection; another one started the server.
		if n := s.Miniredis().TotalConnectionCount(); n != 2 {
			t.Errorf("%d connections were made, want 2", n)
		}
	})
}

func TestAKeyExpiresByTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		eval(t, s, set, []string{"k"}, []string{"v", "1000"})
		time.Sleep(999 * time.Millisecond)
		mustGet(t, s, "k", "v")
		time.Sleep(2 * time.Millisecond)
		mustGet(t, s, "k", "")
		if got := eval(t, s, `return redis.call('EXISTS', KEYS[1])`, []string{"k"}, nil); got != "0" {
			t.Errorf("EXISTS = %s", got)
		}
	})
}

func TestTimeIsTheTimeOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		const script = `local t = redis.call('TIME') return {tonumber(t[1]), tonumber(t[2])}`
		for range 3 {
			now := time.Now()
			want := fmt.Sprintf("{%d %d}", now.Unix(), now.Nanosecond()/1000)
			if got := eval(t, s, script, []string{"k"}, nil); got != want {
				t.Errorf("TIME is %s, want %s", got, want)
			}
			time.Sleep(1234567 * time.Microsecond)
		}
	})
}

func TestAKeyExpiresInRealTime(t *testing.T) {
	s := newTest(t)
	eval(t, s, set, []string{"k"}, []string{"v", "20"})
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, ok, err := s.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a key with a TTL of 20 ms is there after 10 s")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestABubbleCanEndWithCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		hook(s.Miniredis(), func(*server.Peer, string) bool {
			time.Sleep(time.Minute)
			return false
		})
		errs := make(chan error)
		for range 20 {
			go func() { errs <- s.Ping(t.Context()) }()
		}
		synctest.Wait()
		s.Close()
		for range 20 {
			if err := <-errs; err == nil || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("Ping: %v, want an unknown outcome", err)
			}
		}
	})
}

func TestAClosedServerSendsNothing(t *testing.T) {
	s := New()
	bound := s.Bound(time.Second)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range []driver.Evaler{s, bound} {
		for name, call := range calls(e) {
			err := call(t.Context())
			if !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "the server was closed") {
				t.Errorf("%s: %v, want ErrNotSent with the reason", name, err)
			}
		}
		if err := e.(driver.Closer).Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
	}
	if _, err := s.Listen("127.0.0.1:0"); err == nil {
		t.Error("a closed server listens")
	}
	if s.Miniredis().Server() != nil {
		t.Error("a call started the server again")
	}
}

func TestABoundServerClosesTheServer(t *testing.T) {
	s := New()
	if err := s.Bound(time.Second).(driver.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("Ping: %v, want ErrNotSent", err)
	}
}

func TestManyCallsAtOnceShareTheServer(t *testing.T) {
	s := newTest(t)
	var wg sync.WaitGroup
	for i := range 100 {
		e := driver.Evaler(s)
		if i%2 == 1 {
			e = s.Bound(time.Minute)
		}
		wg.Go(func() {
			key := fmt.Sprintf("k%d", i)
			for range 3 {
				args := []string{fmt.Sprintf("v%d", i), "60000"}
				if _, err := e.Eval(t.Context(), driver.NewScript("set", set), []string{key}, args); err != nil {
					t.Error(err)
				}
				clear(args) // they are the caller's again
				mustGet(t, e, key, fmt.Sprintf("v%d", i))
				if _, err := e.Eval(t.Context(), driver.NewScript("incr", incr), []string{"n"}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustGet(t, s, "n", "300")
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	if n := len(s.client.idle); n == 0 || n > maxIdle {
		t.Errorf("%d connections are kept, want 1 to %d", n, maxIdle)
	}
}

func TestCallsAndCloseAtOnceEndAndLeaveNothing(t *testing.T) {
	for range 20 {
		s := New()
		addr, err := s.Listen("")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for {
					if err := s.Ping(t.Context()); err != nil {
						if !errors.Is(s.Ping(t.Context()), driver.ErrNotSent) {
							t.Error("a call after Close is not ErrNotSent")
						}
						return
					}
				}
			})
		}
		wg.Go(func() {
			for {
				nc, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				nc.Close()
			}
		})
		wg.Go(func() { s.Close() })
		wg.Wait()
		s.Close()
	}
}

func TestOtherProcessesReachAServerThatListens(t *testing.T) {
	s := New()
	defer s.Close()
	eval(t, s, set, []string{"k"}, []string{"v", "60000"})
	var addrs []string
	for _, addr := range []string{"", "127.0.0.1:0"} {
		addr, err := s.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		if host, port, err := net.SplitHostPort(addr); err != nil || host != "127.0.0.1" || port == "0" {
			t.Errorf("it listens on %q", addr)
		}
		addrs = append(addrs, addr)
	}
	var conns []*resp.Conn
	for _, addr := range addrs {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c := resp.NewConn(nc)
		defer c.Close()
		if v, err := c.Do("GET", "k"); err != nil || v.Str != "v" {
			t.Errorf("GET over TCP: %q, %v", v.Str, err)
		}
		if _, err := c.Do("SET", "other", addr); err != nil {
			t.Error(err)
		}
		mustGet(t, s, "other", addr)
		conns = append(conns, c)
	}

	if _, err := s.Listen(addrs[0]); err == nil || !strings.HasPrefix(err.Error(), "miniredis: ") || !strings.Contains(err.Error(), addrs[0]) {
		t.Errorf("listening on an address that is taken: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, c := range conns {
		if _, err := c.Do("GET", "k"); err == nil {
			t.Error("a connection outlived the server")
		}
		if nc, err := net.Dial("tcp", addrs[i]); err == nil {
			nc.Close()
			t.Error("a closed server listens")
		}
	}
}

func TestOpensOfOneNameShareAServerUntilTheLastIsClosed(t *testing.T) {
	a, b := mustOpen(t, "miniredis://shared"), mustOpen(t, "miniredis://shared")
	other, own := mustOpen(t, "miniredis://other"), mustOpen(t, "miniredis:")
	if a.Miniredis() != b.Miniredis() {
		t.Error("two Opens of one name have two servers")
	}
	eval(t, a, set, []string{"k"}, []string{"v", "60000"})
	mustGet(t, b, "k", "v")
	mustGet(t, other, "k", "")
	mustGet(t, own, "k", "")

	for range 2 { // the second time counts for nothing
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Ping(t.Context()); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("a call after Close: %v, want ErrNotSent", err)
	}
	mustGet(t, b, "k", "v")
	b.Bound(time.Second).(driver.Closer).Close()
	if err := b.Ping(t.Context()); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("a call after Close: %v, want ErrNotSent", err)
	}
	mustGet(t, mustOpen(t, "miniredis://shared"), "k", "")
}

func TestServersWithoutANameAreNotShared(t *testing.T) {
	for _, dsn := range []string{"miniredis:", "miniredis://"} {
		a, b := mustOpen(t, dsn), mustOpen(t, dsn)
		if a.Miniredis() == b.Miniredis() {
			t.Errorf("two Opens of %q share a server", dsn)
		}
		a.Close()
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestOpensAndClosesOfOneNameAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				e, err := driver.Open("miniredis", "miniredis://busy")
				if err != nil {
					t.Error(err)
					return
				}
				s := e.(*Server)
				if err := s.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				s.Close()
			}
		})
	}
	wg.Wait()
	nodes.Lock()
	defer nodes.Unlock()
	if n := nodes.byName["busy"]; n != nil {
		t.Errorf("the server is kept, with %d uses", n.refs)
	}
}

func TestABadDSNIsRefusedByOpen(t *testing.T) {
	e, err := driver.Open("miniredis", "redis://:hunter2@localhost:6379")
	if e != nil || err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), `driver "miniredis"`) {
		t.Errorf("Open = %v, %v", e, err)
	}
}

func TestARunningMiniredisIsAdoptedByItsType(t *testing.T) {
	m := miniredis.RunT(t)
	e, err := driver.Adopt(m)
	if err != nil {
		t.Fatal(err)
	}
	mustSet(t, m, "k", "v")
	mustGet(t, e, "k", "v")
	if _, ok := e.(driver.Closer); ok {
		t.Error("an Evaler over a miniredis that was handed in can close it")
	}
	if _, ok := e.(driver.Bounder).Bound(time.Second).(driver.Closer); ok {
		t.Error("a bound Evaler can close what the unbound cannot")
	}
	if _, ok, err := (opener{}).Adopt(42); ok || err != nil {
		t.Errorf("Adopt(42): %v, %v", ok, err)
	}
}

func TestANilMiniredisIsRefused(t *testing.T) {
	var m *miniredis.Miniredis
	const want = "hand over one that runs"
	if _, err := driver.Adopt(m); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Adopt: %v", err)
	}
	e := Wrap(m)
	if err := e.(driver.Validator).Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Validate: %v", err)
	}
	_, err := e.Eval(t.Context(), driver.NewScript("one", `return 1`), []string{"k"}, nil)
	if !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), want) {
		t.Errorf("Eval: %v", err)
	}
}

func TestAWrappedMiniredisThatIsClosedIsNotStartedAgain(t *testing.T) {
	m, e := wrapTest(t)
	for name, call := range calls(e) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.Close()
	for name, call := range calls(e) {
		if err := call(t.Context()); !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "has stopped") {
			t.Errorf("%s: %v, want ErrNotSent with the reason", name, err)
		}
	}
	if err := Wrap(m).(driver.Pinger).Ping(t.Context()); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("Ping of one wrapped when closed: %v, want ErrNotSent", err)
	}
	if m.Server() != nil {
		t.Error("the server was started again")
	}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls(e) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s after Restart: %v", name, err)
		}
	}
}

func TestAMiniredisThatNeverRanIsStartedByWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		m.ClockTTL(true)
		e := Wrap(m)
		eval(t, e, set, []string{"k"}, []string{"v", "1000"})
		time.Sleep(time.Second)
		mustGet(t, e, "k", "")
	})
}

func TestAWrappedMiniredisKeepsItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		e := Wrap(m)
		eval(t, e, set, []string{"k"}, []string{"v", "1000"})
		time.Sleep(time.Hour)
		mustGet(t, e, "k", "v")
		m.FastForward(time.Second)
		mustGet(t, e, "k", "")
	})
}

func TestAWrappedMiniredisThatWantsAPasswordSaysSo(t *testing.T) {
	m, e := wrapTest(t)
	m.RequireAuth("hunter2")
	for name, call := range calls(e) {
		if se, ok := errors.AsType[*driver.ServerError](call(t.Context())); !ok || se.Code != "NOAUTH" {
			t.Errorf("%s: %v, want NOAUTH", name, se)
		}
	}
}

func TestAReplyOfAnotherShapeIsRefused(t *testing.T) {
	for _, kind := range []resp.Kind{resp.Null, resp.Bool, resp.Double, resp.BigNumber, resp.BulkError, resp.Verbatim, resp.Map, resp.Set, resp.Push} {
		v := resp.Value{Kind: kind}
		for _, v := range []resp.Value{v, {Kind: resp.Array, List: []resp.Value{v}}} {
			_, err := convert(v)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", kind)) {
				t.Errorf("a value of kind %q: %v", kind, err)
			}
		}
	}
}
