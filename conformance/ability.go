package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
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

func lacksGet(l Lacks) string      { return l.Get }
func lacksGetBytes(l Lacks) string { return l.GetBytes }
func lacksBound(l Lacks) string    { return l.Bound }
func lacksPing(l Lacks) string     { return l.Ping }

func watchedGet(ctx context.Context, e *env, g driver.Getter, key string) (string, bool, error) {
	e.Helper()
	var value string
	var ok bool
	var err error
	if !inTime(e, "Get", func() { value, ok, err = g.Get(ctx, key) }) {
		return "", false, errors.New("conformance: the call did not end")
	}
	return value, ok, err
}

// getBytes is GetBytes as a Get.
func getBytes(d driver.Evaler) func(context.Context, string) (string, bool, error) {
	return func(ctx context.Context, key string) (string, bool, error) {
		b, ok, err := d.(driver.BytesGetter).GetBytes(ctx, key)
		return string(b), ok, err
	}
}

// getReturnsTheValue checks what a Get returns of several values, and of none.
func (e *env) getReturnsTheValue(get func(context.Context, string) (string, bool, error)) {
	e.Helper()
	values := []string{"", "x", "0", "nil", "a\x00b\r\n", "\xff", " 007 ", strings.Repeat("v", 1<<20)}
	for _, want := range values {
		e.do("SET", e.prefix+"k", want)
		if got, ok, err := get(e.ctx, e.prefix+"k"); got != want || !ok || err != nil {
			e.Errorf("Get returned %.20q (%d bytes), %v, %v; want %.20q", got, len(got), ok, err, want)
		}
	}
	e.do("DEL", e.prefix+"k")
	if got, ok, err := get(e.ctx, e.prefix+"k"); got != "" || ok || err != nil {
		e.Errorf("Get of a key that does not exist returned %q, %v, %v", got, ok, err)
	}
}

// getSortsItsErrors checks the errors of a Get through the proxy.
func (e *env) getSortsItsErrors(p *Proxy, get func(context.Context, string) (string, bool, error)) {
	e.Helper()
	e.do("RPUSH", e.prefix+"list", "x")
	_, ok, err := get(e.ctx, e.prefix+"list")
	var se *driver.ServerError
	if ok || !errors.As(err, &se) || se.Code != "WRONGTYPE" {
		e.Errorf("Get of a list returned %v, %v; want a ServerError with code WRONGTYPE", ok, err)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, _, err := get(ctx, e.prefix+"k"); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, context.Canceled) {
		e.Errorf("Get with a cancelled context returned %v; want ErrNotSent and context.Canceled", err)
	}
	p.On(MatchCommand("GET"), 1, DropReply)
	_, _, err = get(e.ctx, e.prefix+"k")
	e.wantUnknown(err)
	p.Down()
	e.eventually("Get on a server that refuses connections is ErrNotSent", func() bool {
		_, ok, err := get(e.ctx, e.prefix+"k")
		if ok || err == nil {
			e.Fatalf("Get on a server that is down returned %v, %v", ok, err)
		}
		return errors.Is(err, driver.ErrNotSent)
	})
}

var abilityCases = []testCase{
	{
		name: "GetReturnsTheValue", lacks: lacksGet,
		rule: "Get must return the bytes that are stored, and ok false only when there is no such key.",
		run:  func(e *env) { e.getReturnsTheValue(e.driver().(driver.Getter).Get) },
	},
	{
		name: "GetReturnsAStringOfItsOwn", lacks: lacksGet,
		rule: "The string that Get returned must not change afterwards: not by later calls that use the same buffer.",
		run: func(e *env) {
			g := e.driver().(driver.Getter)
			for _, size := range []int{1, 100, 64 << 10} {
				var got, want []string
				for i := range 20 {
					v := strings.Repeat(string(rune('a'+i)), size)
					e.do("SET", e.prefix+"k", v)
					r, _, err := g.Get(e.ctx, e.prefix+"k")
					if err != nil {
						e.Fatalf("Get: %v", err)
					}
					got, want = append(got, r), append(want, v)
				}
				for i := range got {
					if got[i] != want[i] {
						e.Fatalf("value %d of %d bytes begins with %.10q after the other calls; want %.10q", i, size, got[i], want[i])
					}
				}
			}
		},
	},
	{
		name: "GetSortsItsErrors", lacks: lacksGet,
		rule: "Get must sort errors as Eval does: server, not sent, unknown.",
		run: func(e *env) {
			p := e.proxy()
			e.getSortsItsErrors(p, e.driverOn(p).(driver.Getter).Get)
		},
	},
	{
		name: "GetBytesReturnsTheValue", lacks: lacksGetBytes,
		rule: "GetBytes must return the bytes that are stored, and ok false only when there is no such key.",
		run:  func(e *env) { e.getReturnsTheValue(getBytes(e.driver())) },
	},
	{
		name: "GetBytesAreTheCallers", lacks: lacksGetBytes,
		rule: "The bytes that GetBytes returned must be the caller's: what he does to them must change nothing that another call returns, and later calls must not change them.",
		run: func(e *env) {
			g := e.driver().(driver.BytesGetter)
			key := e.prefix + "k"
			for _, size := range []int{1, 100, 64 << 10} {
				value := strings.Repeat("v", size)
				e.do("SET", key, value)
				mine, _, err := g.GetBytes(e.ctx, key)
				if err != nil {
					e.Fatalf("GetBytes: %v", err)
				}
				for i := range mine {
					mine[i] = 'x'
				}
				for range 20 {
					if again, _, err := g.GetBytes(e.ctx, key); string(again) != value {
						e.Fatalf("after a change of what GetBytes returned it returns %.10q, %v; want %.10q", again, err, value)
					}
					if got := e.do("GET", key).Str; got != value {
						e.Fatalf("after a change of what GetBytes returned, %.10q is stored; want %.10q", got, value)
					}
				}
				if strings.Trim(string(mine), "x") != "" || len(mine) != size {
					e.Fatalf("the bytes of a caller are %.10q after other calls; want what he made them", mine)
				}
			}
		},
	},
	{
		name: "GetBytesSortsItsErrors", lacks: lacksGetBytes,
		rule: "GetBytes must sort errors as Eval does: server, not sent, unknown.",
		run: func(e *env) {
			p := e.proxy()
			e.getSortsItsErrors(p, getBytes(e.driverOn(p)))
		},
	},
	{
		name: "BoundKeepsTheAbilities", lacks: lacksBound,
		rule: "What Bound returns must have the abilities of the driver, and no others.",
		run: func(e *env) {
			d := e.driver()
			bounded := d.(driver.Bounder).Bound(patience)
			_, get := d.(driver.Getter)
			if _, ok := bounded.(driver.Getter); ok != get {
				e.Errorf("the ability Get: %v, and %v after Bound", get, ok)
			}
			_, bytes := d.(driver.BytesGetter)
			if _, ok := bounded.(driver.BytesGetter); ok != bytes {
				e.Errorf("the ability GetBytes: %v, and %v after Bound", bytes, ok)
			}
			_, ping := d.(driver.Pinger)
			if _, ok := bounded.(driver.Pinger); ok != ping {
				e.Errorf("the ability Ping: %v, and %v after Bound", ping, ok)
			}
			_, batch := d.(driver.Batcher)
			if _, ok := bounded.(driver.Batcher); ok != batch {
				e.Errorf("the ability Batch: %v, and %v after Bound", batch, ok)
			}
			_, batchGet := d.(driver.BatchGetter)
			if _, ok := bounded.(driver.BatchGetter); ok != batchGet {
				e.Errorf("the ability BatchGet: %v, and %v after Bound", batchGet, ok)
			}
			e.do("SET", e.prefix+"k", "v")
			if g, ok := bounded.(driver.Getter); ok {
				if got, ok, err := g.Get(e.ctx, e.prefix+"k"); got != "v" || !ok || err != nil {
					e.Errorf("Get after Bound returned %q, %v, %v", got, ok, err)
				}
			}
			if p, ok := bounded.(driver.Pinger); ok {
				if err := p.Ping(e.ctx); err != nil {
					e.Errorf("Ping after Bound: %v", err)
				}
			}
			if r := e.mustEval(bounded, e.script("return 7"), []string{e.prefix + "k"}, nil); !equal(r, driver.Int(7)) {
				e.Errorf("Eval after Bound returned %v", r)
			}
		},
	},
	{
		name: "BoundEndsTheCall", lacks: lacksBound,
		rule: "An Evaler that Bound returned must end its calls that time after they began, whatever their context says, also those that wait for a connection, with an error that is not ErrNotSent if they may have been sent.",
		run: func(e *env) {
			p := e.proxy()
			d, other := e.driverOn(p), e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			const bound, calls = 400 * time.Millisecond, 48
			bounded := d.(driver.Bounder).Bound(bound)
			e.mustEval(d, s, []string{key}, nil)
			e.mustEval(other, s, []string{key}, nil)
			p.On(MatchScript(s.SHA1(), s.Source()), -1, Hang)
			p.On(MatchCommand("GET"), -1, Hang)
			eval := func() error {
				_, err := watched{e, bounded}.Eval(context.Background(), s, []string{key}, nil)
				return err
			}
			start := time.Now()
			e.wantUnknown(eval())
			// On a connection of its own: on that of the Eval it may not be sent.
			if g, ok := other.(driver.Bounder).Bound(bound).(driver.Getter); ok {
				_, _, err := watchedGet(context.Background(), e, g, key)
				e.wantUnknown(err)
			}
			if e.Failed() {
				return // by calls that never end, and one is enough
			}
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					if eval() == nil {
						e.Error("Eval returned no error from a server that hangs")
					}
				})
			}
			wg.Wait()
			p.On(func([]string) bool { return true }, -1, Hang)
			if ping, ok := bounded.(driver.Pinger); ok {
				inTime(e, "Ping", func() {
					if ping.Ping(context.Background()) == nil {
						e.Error("Ping returned nil from a server that hangs")
					}
				})
			}
			if took := time.Since(start); took > bound*calls/2 {
				e.Errorf("an Eval, a Get, %d Evals at once and a Ping took %v, bounded to %v each", calls, took, bound)
			}
		},
	},
	{
		name: "BoundIsOfEachCall", lacks: lacksBound,
		rule: "Bound must give each call the whole time: it is not one deadline for all calls.",
		run: func(e *env) {
			const bound = 200 * time.Millisecond
			d := e.driver()
			s, keys := e.script("return 1"), []string{e.prefix + "{k}"}
			e.mustEval(d, s, keys, nil)
			bounded := d.(driver.Bounder).Bound(bound)
			over := time.Now().Add(4 * bound)
			for time.Now().Before(over) {
				start := time.Now()
				_, err := bounded.Eval(context.Background(), s, keys, nil)
				// On a loaded machine a call may take all of its time.
				if took := time.Since(start); err != nil && took < bound/2 {
					e.Fatalf("a call bounded to %v returned %v after %v", bound, err, took)
				}
			}
		},
	},
	{
		name: "BoundLeavesTheOthers", lacks: lacksBound,
		rule: "Bound must not change the driver that it is called on, nor what it returned before.",
		run: func(e *env) {
			const bound = 100 * time.Millisecond
			p := e.proxy()
			d := e.driverOn(p)
			s := e.script("return 1")
			e.mustEval(d, s, []string{e.prefix + "k"}, nil)
			long := d.(driver.Bounder).Bound(patience)
			d.(driver.Bounder).Bound(bound)
			for name, in := range map[string]driver.Evaler{"the driver": d, "what is bounded to longer": long} {
				rule := p.On(MatchScript(s.SHA1(), s.Source()), 1, HoldReply)
				// Long enough for a call that ends by the short bound.
				time.AfterFunc(5*bound, rule.Remove)
				if _, err := in.Eval(e.deadline(patience), s, []string{e.prefix + "k"}, nil); err != nil {
					e.Errorf("%s: a call that was answered after %v returned %v, with a bound of %v of another Evaler", name, 5*bound, err, bound)
				}
			}
		},
	},
	{
		name: "BoundHeedsTheDeadline", lacks: lacksBound,
		rule: "An Evaler that Bound returned must end a call at its context's deadline, when that comes sooner, with an error that satisfies errors.Is with context.DeadlineExceeded.",
		run: func(e *env) {
			p := e.proxy()
			s, key := e.counting("return 1"), e.prefix+"n"
			bounded := e.driverOn(p).(driver.Bounder).Bound(patience)
			// A Get on the connection of the Eval may not be sent.
			other := e.driverOn(p).(driver.Bounder).Bound(patience)
			e.mustEval(bounded, s, []string{key}, nil)
			e.mustEval(other, s, []string{key}, nil)
			p.On(MatchScript(s.SHA1(), s.Source()), -1, Hang)
			p.On(MatchCommand("GET"), -1, Hang)
			calls := map[string]func(context.Context) error{
				"Eval": func(ctx context.Context) error {
					_, err := watched{e, bounded}.Eval(ctx, s, []string{key}, nil)
					return err
				},
			}
			if g, ok := other.(driver.Getter); ok {
				calls["Get"] = func(ctx context.Context) error {
					_, _, err := watchedGet(ctx, e, g, key)
					return err
				}
			}
			for name, call := range calls {
				start := time.Now()
				err := call(e.deadline(200 * time.Millisecond))
				e.wantUnknown(err)
				if !errors.Is(err, context.DeadlineExceeded) {
					e.Errorf("%s returned the error %v; want context.DeadlineExceeded", name, err)
				}
				if took := time.Since(start); took > patience/2 {
					e.Errorf("%s took %v, with a deadline of 200ms", name, took)
				}
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
