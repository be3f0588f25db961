package conformance

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// Cases of the optional abilities.

var cacheOptions leasecache.Options // the defaults of newCache

func (e *env) store(d driver.Evaler, callTimeout time.Duration) *leasecache.Store {
	e.Helper()
	s, err := leasecache.NewStore(d, leasecache.StoreOptions{CallTimeout: callTimeout})
	if err != nil {
		e.Fatal(err)
	}
	return s
}

func lacksGet(l Lacks) string   { return l.Get }
func lacksBound(l Lacks) string { return l.Bound }
func lacksPing(l Lacks) string  { return l.Ping }

var abilityCases = []testCase{
	{
		name: "GetReturnsTheValue", lacks: lacksGet,
		rule: "Get must return the bytes that are stored, and ok false only when there is no such key.",
		run: func(e *env) {
			g := e.driver().(driver.Getter)
			for _, want := range []string{"", "x", "0", "nil", "a\x00b\r\n", "\xff", strings.Repeat("v", 1<<20)} {
				e.do("SET", e.prefix+"k", want)
				if got, ok, err := g.Get(e.ctx, e.prefix+"k"); got != want || !ok || err != nil {
					e.Errorf("Get returned %.20q (%d bytes), %v, %v; want %.20q", got, len(got), ok, err, want)
				}
			}
			e.do("DEL", e.prefix+"k")
			if got, ok, err := g.Get(e.ctx, e.prefix+"k"); got != "" || ok || err != nil {
				e.Errorf("Get of a key that does not exist returned %q, %v, %v", got, ok, err)
			}
		},
	},
	{
		name: "GetSortsItsErrors", lacks: lacksGet,
		rule: "Get must sort errors as Eval does: server, not sent, unknown.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			g := d.(driver.Getter)
			e.do("RPUSH", e.prefix+"list", "x")
			_, ok, err := g.Get(e.ctx, e.prefix+"list")
			var se *driver.ServerError
			if ok || !errors.As(err, &se) || se.Code != "WRONGTYPE" {
				e.Errorf("Get of a list returned %v, %v; want a ServerError with code WRONGTYPE", ok, err)
			}
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			if _, _, err := g.Get(ctx, e.prefix+"k"); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, context.Canceled) {
				e.Errorf("Get with a cancelled context returned %v; want ErrNotSent and context.Canceled", err)
			}
			p.On(MatchCommand("GET"), 1, DropReply)
			_, _, err = g.Get(e.ctx, e.prefix+"k")
			e.wantUnknown(err)
		},
	},
	{
		name: "BoundEndsTheCall", lacks: lacksBound,
		rule: "An Evaler that Bound returned must end its calls after that time, whatever their context says, with an error that is not ErrNotSent.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			bounded := d.(driver.Bounder).Bound(200 * time.Millisecond)
			e.mustEval(d, s, []string{key}, nil) // a connection takes longer on a slow machine
			p.On(MatchScript(s.SHA1(), s.Source()), -1, Hang)
			p.On(MatchCommand("GET"), -1, Hang)
			start := time.Now()
			_, err := bounded.Eval(context.Background(), s, []string{key}, nil)
			e.wantUnknown(err)
			if g, ok := d.(driver.Getter); ok {
				g, ok := bounded.(driver.Getter)
				if !ok {
					e.Fatal("Bound lost the ability Get")
				}
				_, _, err := g.Get(context.Background(), key)
				e.wantUnknown(err)
			} else if _, ok := bounded.(driver.Getter); ok {
				e.Fatalf("Bound added the ability Get to a %T", g)
			}
			if took := time.Since(start); took > 10*time.Second {
				e.Errorf("two calls took %v, bounded to 200ms each", took)
			}
		},
	},
	{
		name: "BoundHeedsTheDeadline", lacks: lacksBound,
		rule: "An Evaler that Bound returned must end a call at its context's deadline, when that comes sooner, with an error that satisfies errors.Is with context.DeadlineExceeded.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			bounded := d.(driver.Bounder).Bound(patience)
			e.mustEval(bounded, s, []string{key}, nil)
			p.On(MatchScript(s.SHA1(), s.Source()), -1, Hang)
			start := time.Now()
			_, err := bounded.Eval(e.deadline(200*time.Millisecond), s, []string{key}, nil)
			e.wantUnknown(err)
			if !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("got the error %v; want context.DeadlineExceeded", err)
			}
			if took := time.Since(start); took > patience/2 {
				e.Errorf("the call took %v, with a deadline of 200ms", took)
			}
		},
	},
	{
		name: "PingTellsWhetherTheServerAnswers", lacks: lacksPing,
		rule: "Ping must return nil only if the server answered.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			if err := d.(driver.Pinger).Ping(e.ctx); err != nil {
				e.Errorf("Ping: %v", err)
			}
			p.Down()
			if err := d.(driver.Pinger).Ping(e.ctx); err == nil {
				e.Error("Ping of a server that is down returned nil")
			}
		},
	},
	{
		name: "StorePings", cache: true,
		rule: "Store.Ping must tell whether the server answers, whatever abilities the driver has.",
		run: func(e *env) {
			p := e.proxy()
			s := e.store(e.driverOn(p), 5*time.Second)
			if err := s.Ping(e.ctx); err != nil {
				e.Errorf("Ping: %v", err)
			}
			p.Down()
			if err := s.Ping(e.ctx); !errors.Is(err, leasecache.ErrUnavailable) {
				e.Errorf("Ping of a server that is down returned %v; want ErrUnavailable", err)
			}
		},
	},
}
