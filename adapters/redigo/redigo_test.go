package redigo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestAnEvalerHasTheAbilitiesThatItsClientAllows(t *testing.T) {
	type embedding struct{ *redis.Pool }
	dial := func() (redis.Conn, error) { return nil, errors.New("no") }
	for _, tt := range []struct {
		name   string
		client Client
		want   []string
	}{
		{"pool", &redis.Pool{Dial: dial}, []string{"get", "bound", "ping"}},
		{"type that embeds a pool", embedding{&redis.Pool{Dial: dial}}, []string{"ping"}},
		{"function", clientFunc(func(context.Context) (redis.Conn, error) { return nil, io.EOF }), []string{"ping"}},
		{"nil", nil, []string{"invalid"}},
		{"nil pool", (*redis.Pool)(nil), []string{"invalid"}},
		{"nil function", clientFunc(nil), []string{"invalid"}},
		{"pool that cannot dial", &redis.Pool{}, []string{"invalid"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			adaptertest.CheckAbilities(t, New(tt.client), tt.want, "redigo: ")
		})
	}
}

func TestTheRegistryAdoptsPools(t *testing.T) {
	e, err := driver.Adopt(serve(t, answer("+OK\r\n")).pool(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "bound", "ping"}, abilities(e)); diff != "" {
		t.Errorf("abilities (-want +got):\n%s", diff)
	}
	if _, err := driver.Adopt((*redis.Pool)(nil)); err == nil || !strings.Contains(err.Error(), "redigo: pool is nil") {
		t.Errorf("Adopt(nil *redis.Pool): %v; want the error of this package", err)
	}
	conn, err := redis.Dial("tcp", serve(t, answer("+OK\r\n")).Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := driver.Adopt(conn); err == nil || !strings.Contains(err.Error(), `driver "redigo" takes other types`) {
		t.Errorf("Adopt(redis.Conn): %v; want that this driver takes other types", err)
	}
}

func TestAnOpenedPoolIsClosedAndAnAdoptedOneIsNot(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	e, err := driver.Open("redigo", "redis://"+s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "bound", "ping", "close"}, abilities(e)); diff != "" {
		t.Errorf("abilities (-want +got):\n%s", diff)
	}
	b := e.(driver.Bounder).Bound(1e9)
	for _, e := range []driver.Evaler{e, b} {
		for name, call := range calls(t, e) {
			if err := call(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := b.(driver.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range []driver.Evaler{e, b} {
		for name, call := range calls(t, e) {
			if err := call(t.Context()); !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "closed pool") {
				t.Errorf("%s after Close: %v; want ErrNotSent and redigo's error", name, err)
			}
		}
	}
}

func TestACommandIsSentOnceWhenItsReplyIsLost(t *testing.T) {
	s := serve(t, answer(cut))
	e := New(s.pool(t))
	for _, e := range []driver.Evaler{e, e.(driver.Bounder).Bound(1e9)} {
		for name, call := range calls(t, e) {
			before := s.Count(name)
			if err := call(t.Context()); !errors.Is(err, io.EOF) || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%s: %v; want io.EOF, and not ErrNotSent", name, err)
			}
			if n := s.Count(name) - before; n != 1 {
				t.Errorf("%s was sent %d times, want once", name, n)
			}
		}
	}
	if n := s.Count("EVAL"); n != 0 {
		t.Errorf("EVAL was sent %d times after a lost reply, want never", n)
	}
}

func TestARedirectionIsAnErrorThatNamesOtherAdapters(t *testing.T) {
	for _, code := range []string{"MOVED", "ASK"} {
		e := New(serve(t, answer("-"+code+" 7629 127.0.0.1:7001\r\n")).pool(t))
		for name, call := range calls(t, e) {
			err := call(t.Context())
			if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != code || !strings.Contains(err.Error(), "adapters/goredis") {
				t.Errorf("%s: %v; want a ServerError with the code %s that names other adapters", name, err, code)
			}
		}
	}
}

func TestAScriptThatTheServerDoesNotKnowIsSentByItsSource(t *testing.T) {
	adaptertest.CheckFallback(t, connect, "EOF")
}

func TestKeysAndArgumentsAreSentAsTheyAre(t *testing.T) {
	adaptertest.CheckArguments(t, connect, "3", "{k}", "\x00\r\n\xff", "")
}

func TestGetReturnsTheValueOrThatThereIsNone(t *testing.T) {
	adaptertest.CheckGet(t, connect)
	e, _ := connect(t, answer(":1\r\n"))
	if _, ok, err := get(t.Context(), t, e); ok || err == nil {
		t.Errorf("an integer: got %v, %v; want an error", ok, err)
	}
}

func TestACommandIsNotSentWhenItsContextIsDone(t *testing.T) {
	adaptertest.CheckDoneContext(t, connect)
}

func TestWhatFailsBeforeThereIsAConnectionIsNotSent(t *testing.T) {
	for _, cause := range []error{
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, redis.ErrPoolExhausted, io.EOF, context.DeadlineExceeded,
	} {
		e := New(&redis.Pool{Dial: func() (redis.Conn, error) { return nil, cause }})
		for _, e := range []driver.Evaler{e, e.(driver.Bounder).Bound(time.Minute)} {
			for name, call := range calls(t, e) {
				if err := call(t.Context()); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, cause) {
					t.Errorf("%s: %v; want ErrNotSent and %v", name, err, cause)
				}
			}
		}
	}
}

func TestRepliesAreConvertedToFourShapes(t *testing.T) {
	adaptertest.CheckReplies(t, connect, nil)
	if _, err := reply(1.5); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("a float64: %v; want an error that names the type", err)
	}
}

func TestTheCodeOfAnErrorReply(t *testing.T) {
	for reply, want := range map[string][2]string{
		"-WRONGTYPE Operation":           {"WRONGTYPE", "Operation"},
		"-ERR NOSCRIPT is a word":        {"ERR", "NOSCRIPT is a word"},
		"-MYCODE":                        {"MYCODE", ""},
		"-no code":                       {"ERR", "no code"},
		"*1\r\n*1\r\n-ERR LEASE in ours": {"ERR", "LEASE in ours"},
	} {
		_, err := eval(t.Context(), New(serve(t, answer(reply+"\r\n")).pool(t)))
		se, ok := errors.AsType[*driver.ServerError](err)
		if !ok || se.Code != want[0] || se.Message != want[1] || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%q: %#v; want a ServerError with %q", reply, err, want)
		}
		if _, ok := errors.AsType[redis.Error](err); !ok {
			t.Errorf("%q: %v does not lead to the client's own error", reply, err)
		}
	}
}

func TestACallEndsWhenTheServerHangs(t *testing.T) {
	const d = 250 * time.Millisecond
	s := serve(t, answer(hang))
	e := New(s.pool(t))
	for name := range calls(t, e) {
		for kind, call := range map[string]func() error{
			"by the bound": func() error { return calls(t, e.(driver.Bounder).Bound(d))[name](t.Context()) },
			"by the caller's deadline": func() error {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				return calls(t, e)[name](ctx)
			},
			"by the caller's deadline, within a bound": func() error {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				return calls(t, e.(driver.Bounder).Bound(time.Minute))[name](ctx)
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				begin := time.Now()
				err := call()
				if took := time.Since(begin); err == nil || took < d/2 || took > 4*time.Second || errors.Is(err, driver.ErrNotSent) {
					t.Errorf("ended after %v with %v; want an error after %v that is not ErrNotSent", took, err, d)
				}
				if own := !strings.Contains(kind, "by the bound"); own != errors.Is(err, context.DeadlineExceeded) || own == strings.Contains(fmt.Sprint(err), "within the bound of 250ms") {
					t.Errorf("got %v; want an error that says whose time is over", err)
				}
			})
		}
	}
}

func TestALargeCommandEndsWhenTheServerReadsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, never reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := New((&fakeServer{&adaptertest.Server{Addr: l.Addr().String()}}).pool(t)).(driver.Bounder).Bound(250 * time.Millisecond)
	begin := time.Now()
	_, err = e.Eval(t.Context(), script, []string{"k"}, []string{strings.Repeat("x", 64<<20)})
	if took := time.Since(begin); err == nil || took > 4*time.Second || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("ended after %v with %v; want an error after 250ms that is not ErrNotSent", took, err)
	}
}

func TestABoundedCallEndsWhileAFunctionOfThePoolHangs(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	s := serve(t, answer("$1\r\na\r\n"))
	for name, make := range map[string]func() *redis.Pool{
		"Dial": func() *redis.Pool {
			return &redis.Pool{Dial: func() (redis.Conn, error) {
				<-stop
				return nil, os.ErrClosed
			}}
		},
		"TestOnBorrow": func() *redis.Pool {
			p := s.pool(t)
			if _, err := eval(t.Context(), New(p)); err != nil { // so that there is one to borrow
				t.Fatal(err)
			}
			p.TestOnBorrow = func(redis.Conn, time.Time) error {
				<-stop
				return nil
			}
			return p
		},
		"nothing, but all connections are taken": func() *redis.Pool {
			p := s.pool(t)
			p.MaxActive, p.Wait = 1, true
			taken := p.Get()
			t.Cleanup(func() { taken.Close() })
			return p
		},
	} {
		for _, call := range []string{"EVALSHA", "GET", "PING"} {
			e := New(make()).(driver.Bounder).Bound(50 * time.Millisecond)
			begin := time.Now()
			err := calls(t, e)[call](t.Context())
			if took := time.Since(begin); !errors.Is(err, driver.ErrNotSent) || took > 4*time.Second {
				t.Errorf("%s, %s: ended after %v with %v; want ErrNotSent after 50ms", name, call, took, err)
			}
		}
	}
}

func TestAConnectionThatComesTooLateGoesBackToThePool(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	release := make(chan struct{})
	p := s.pool(t)
	dial := p.DialContext
	p.DialContext = func(context.Context) (redis.Conn, error) {
		<-release
		return dial(context.Background())
	}
	if _, err := eval(t.Context(), New(p).(driver.Bounder).Bound(20*time.Millisecond)); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("got %v; want ErrNotSent", err)
	}
	close(release)
	for deadline := time.Now().Add(10 * time.Second); p.IdleCount() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the pool has %d idle connections, want one", p.IdleCount())
		}
	}
}
