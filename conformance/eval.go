package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Cases of the rules of driver.Evaler.

// script returns a script that no server has seen: its comment is unique.
func (e *env) script(source string) *driver.Script {
	return driver.NewScript("test", source+"\n-- "+e.prefix)
}

// counting returns a script that counts how often it ran, and then goes on.
func (e *env) counting(then string) *driver.Script {
	return e.script("redis.call('INCR', KEYS[1])\n" + then)
}

func (e *env) counted(key string) int64 {
	e.Helper()
	n, err := strconv.ParseInt(e.do("GET", key).Str, 10, 64)
	if err != nil {
		e.Fatalf("the counter of runs: %v", err)
	}
	return n
}

func (e *env) mustEval(d driver.Evaler, s *driver.Script, keys, args []string) driver.Reply {
	e.Helper()
	r, err := d.Eval(e.ctx, s, keys, args)
	if err != nil {
		e.Fatalf("Eval: %v", err)
	}
	return r
}

// wantUnknown checks the error of a call that may have run.
func (e *env) wantUnknown(err error) {
	e.Helper()
	var se *driver.ServerError
	switch {
	case err == nil:
		e.Fatal("Eval returned no error, though the reply was lost")
	case errors.Is(err, driver.ErrNotSent):
		e.Fatalf("the error is ErrNotSent, but the script ran: %v", err)
	case errors.As(err, &se):
		e.Fatalf("the error is a ServerError, but the server replied with none: %v", err)
	}
}

var evalCases = []testCase{
	{
		name: "LeaksNoGoroutine", alone: true,
		rule: "A call must leave no goroutine behind.",
		run: func(e *env) {
			d := e.driver()
			s := e.script("return 1")
			for range 20 { // pools fill up
				e.mustEval(d, s, []string{e.prefix + "k"}, nil)
			}
			before := runtime.NumGoroutine()
			const calls = 200
			for range calls {
				e.mustEval(d, s, []string{e.prefix + "k"}, nil)
			}
			e.eventually("the goroutines of the calls have ended", func() bool {
				return runtime.NumGoroutine() < before+calls/4
			})
		},
	},
	{
		name: "KeysAndArgsUnchanged",
		rule: "Eval must pass keys and args unchanged, whatever bytes they hold.",
		run: func(e *env) {
			d := e.driver()
			tag := "{" + e.prefix + "}"
			many := make([]string, 1000)
			for i := range many {
				many[i] = fmt.Sprint(i)
			}
			allBytes := make([]byte, 256)
			for i := range allBytes {
				allBytes[i] = byte(i)
			}
			s := e.script("local r = {#KEYS, #ARGV} for _, k in ipairs(KEYS) do r[#r+1] = k end for _, a in ipairs(ARGV) do r[#r+1] = a end return r")
			for _, args := range [][]string{
				nil,
				{""},
				{"", "a", ""},
				{string(allBytes), "\x00", "a\x00b", "\r\n", "$-1\r\n", "\xff\xfe"},
				{"1", "1.0", "007", "1e3", "+1", "-0", "true", "nil", "null", "12345678901234567890"},
				{strings.Repeat("x", 1<<20)},
				many,
			} {
				keys := []string{tag + "k", tag + string(allBytes), tag + strings.Repeat("k", 64<<10)}
				r := e.mustEval(d, s, keys, args)
				if nk, _ := r.At(0).Int(); nk != int64(len(keys)) {
					e.Fatalf("the script got %d keys; want %d", nk, len(keys))
				}
				if na, _ := r.At(1).Int(); na != int64(len(args)) {
					e.Fatalf("the script got %d arguments; want %d", na, len(args))
				}
				for i, want := range append(slices.Clip(keys), args...) {
					if got, ok := r.At(2 + i).Str(); !ok || got != want {
						e.Fatalf("key or argument %d came back as %v (%.40q); want %.40q of %d bytes", i, r.At(2+i), got, want, len(want))
					}
				}
			}
		},
	},
	{
		name: "RepliesInFourShapes",
		rule: "Eval must return the reply as nil, integer, string or list, and a nil, an empty string and an empty list as three different things.",
		run: func(e *env) {
			d := e.driver()
			big := strings.Repeat("\x00\xff", 1<<19)
			for _, c := range []struct {
				source string
				want   driver.Reply
			}{
				{"return 0", driver.Int(0)},
				{"return 1", driver.Int(1)},
				{"return -7", driver.Int(-7)},
				{"return 9007199254740992", driver.Int(1 << 53)},
				{"return ''", driver.Str("")},
				{"return '0'", driver.Str("0")},
				{"return 'a\\0b\\r\\n'", driver.Str("a\x00b\r\n")},
				{"return ARGV[1]", driver.Str(big)},
				{"return redis.status_reply('FINE')", driver.Str("FINE")},
				{"return redis.call('SET', KEYS[1], 'x')", driver.Str("OK")},
				{"return false", driver.Nil()},
				{"return redis.call('GET', KEYS[1] .. 'none')", driver.Nil()},
				{"return {}", driver.List()},
				{"return {1, 'two', {3, '', false, 4}}", driver.List(driver.Int(1), driver.Str("two"),
					driver.List(driver.Int(3), driver.Str(""), driver.Nil(), driver.Int(4)))},
			} {
				r := e.mustEval(d, e.script(c.source), []string{e.prefix + "{k}"}, []string{big})
				if !equal(r, c.want) {
					e.Errorf("%s: got %v; want %v", c.source, r, c.want)
				}
			}
		},
	},
	{
		name: "ServerErrorsAreServerErrors",
		rule: "Eval must report an error reply of the server as a *ServerError with its code, also when it is an element of a list, and never as ErrNotSent.",
		run: func(e *env) {
			d := e.driver()
			e.do("RPUSH", e.prefix+"list", "x")
			for _, c := range []struct{ source, code, contains string }{
				{"return redis.error_reply('LEASE is odd')", "LEASE", "is odd"},
				{"return redis.error_reply('ERR plain words')", "ERR", "plain words"},
				{"return redis.call('GET', KEYS[1])", "WRONGTYPE", ""},
				{"return {1, redis.error_reply('LEASE in a list')}", "LEASE", "in a list"},
				{"return {1, {redis.error_reply('LEASE in a list of a list')}}", "LEASE", "in a list of a list"},
			} {
				_, err := d.Eval(e.ctx, e.script(c.source), []string{e.prefix + "list"}, nil)
				var se *driver.ServerError
				if !errors.As(err, &se) {
					e.Errorf("%s: got the error %v (%T); want a *driver.ServerError", c.source, err, err)
					continue
				}
				if se.Code != c.code || !strings.Contains(se.Message, c.contains) {
					e.Errorf("%s: got code %q, message %q; want code %q, message with %q", c.source, se.Code, se.Message, c.code, c.contains)
				}
				if errors.Is(err, driver.ErrNotSent) {
					e.Errorf("%s: the error is ErrNotSent, but the server replied", c.source)
				}
			}
		},
	},
	{
		name: "FallsBackOnNoScript", alone: true, // it flushes the scripts of all
		rule: "Eval must send the script once more by its source after a NOSCRIPT reply, whenever that comes.",
		run: func(e *env) {
			d := e.driver()
			s, key := e.counting("return 'done'"), e.prefix+"n"
			for i := range 3 {
				if r := e.mustEval(d, s, []string{key}, nil); !equal(r, driver.Str("done")) {
					e.Fatalf("got %v; want the script's reply", r)
				}
				if n := e.counted(key); n != int64(i+1) {
					e.Fatalf("after %d calls the script ran %d times", i+1, n)
				}
				e.do("SCRIPT", "FLUSH")
			}
		},
	},
	{
		name: "OtherErrorsAreNotNoScript",
		rule: "Eval must fall back on the code NOSCRIPT alone: the word elsewhere in an error proves nothing, and the script would run twice.",
		run: func(e *env) {
			d := e.driver()
			for i, text := range []string{"ERR this is no NOSCRIPT", "NOSCRIPTS are fine", "MY NOSCRIPT"} {
				s, key := e.counting("return redis.error_reply(ARGV[1])"), fmt.Sprintf("%s%d", e.prefix, i)
				e.do("SCRIPT", "LOAD", s.Source())
				_, err := d.Eval(e.ctx, s, []string{key}, []string{text})
				if _, ok := errors.AsType[*driver.ServerError](err); !ok {
					e.Errorf("%q: got the error %v; want a *driver.ServerError", text, err)
				}
				if n := e.counted(key); n != 1 {
					e.Errorf("%q: the script ran %d times; want once", text, n)
				}
			}
		},
	},
	{
		name: "SendsOnceWhenTheReplyIsLost",
		rule: "Eval must send a script at most once: when the reply is lost, the script has run, and the outcome is unknown.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil) // the connection and the script are warm
			p.On(MatchScript(s.SHA1(), s.Source()), 1, DropReply)
			_, err := d.Eval(e.ctx, s, []string{key}, nil)
			e.wantUnknown(err)
			if n := e.counted(key); n != 2 {
				e.Errorf("after two calls the script ran %d times", n)
			}
		},
	},
	{
		name: "SendsOnceWhenTheReplyIsLate",
		rule: "Eval must send a script at most once, also when it gives up waiting for the reply.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil)
			p.On(MatchScript(s.SHA1(), s.Source()), -1, HoldReply)
			_, err := ended(e, d).Eval(e.deadline(300*time.Millisecond), s, []string{key}, nil)
			e.wantUnknown(err)
			if n := e.counted(key); n != 2 {
				e.Errorf("after two calls the script ran %d times", n)
			}
		},
	},
	{
		name: "DoneContextIsNotSent",
		rule: "Eval must return without sending if ctx is already done, with an error that wraps ErrNotSent and ctx's error.",
		run: func(e *env) {
			d := e.driver()
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil)
			cancelled, cancel := context.WithCancel(e.ctx)
			cancel()
			passed, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
			defer cancel()
			for range 200 {
				for ctx, want := range map[context.Context]error{cancelled: context.Canceled, passed: context.DeadlineExceeded} {
					_, err := d.Eval(ctx, s, []string{key}, nil)
					if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, want) {
						e.Fatalf("got the error %v; want ErrNotSent and %v", err, want)
					}
				}
			}
			if n := e.counted(key); n != 1 {
				e.Errorf("the script ran %d times; want once, before the contexts were done", n)
			}
		},
	},
	{
		name: "RefusedDialIsNotSent",
		rule: "Eval must wrap ErrNotSent when no connection could be had.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil)
			p.Down()
			// The first calls may meet the connections that were cut.
			e.eventually("a call on a server that refuses connections is ErrNotSent", func() bool {
				_, err := d.Eval(e.ctx, s, []string{key}, nil)
				if _, replied := errors.AsType[*driver.ServerError](err); err == nil || replied {
					e.Fatalf("got the error %v from a server that is down", err)
				}
				return errors.Is(err, driver.ErrNotSent)
			})
			p.Up()
			e.eventually("calls work again", func() bool {
				_, err := d.Eval(e.ctx, s, []string{key}, nil)
				return err == nil
			})
		},
	},
	{
		name: "CutConnectionIsUnknown",
		rule: "Eval must not wrap ErrNotSent when the connection broke after the command was written: nobody knows whether it arrived.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil)
			p.On(MatchScript(s.SHA1(), s.Source()), 1, CutBefore)
			_, err := d.Eval(e.ctx, s, []string{key}, nil)
			e.wantUnknown(err)
		},
	},
	{
		name: "DeadlineEndsTheCall",
		rule: "Eval, bounded by Bound or by package leasecache, must return when ctx's deadline passes, with an error that satisfies errors.Is with context.DeadlineExceeded and is not ErrNotSent.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil)
			p.On(MatchScript(s.SHA1(), s.Source()), -1, Hang)
			start := time.Now()
			_, err := ended(e, d).Eval(e.deadline(200*time.Millisecond), s, []string{key}, nil)
			e.wantUnknown(err)
			if !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("got the error %v; want context.DeadlineExceeded", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				e.Errorf("the call took %v, with a deadline of 200ms", took)
			}
		},
	},
	{
		name: "ArgsAreNotKept",
		rule: "Eval must not keep or change keys and args after it has returned, also when it left a reply behind.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			// The case is for the race detector and for what arrives later.
			s, keys, args := e.script("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]"), []string{e.prefix + "a"}, []string{"first"}
			e.mustEval(d, s, keys, args)
			rule := p.On(MatchScript(s.SHA1(), s.Source()), 1, HoldRequest)
			_, err := ended(e, d).Eval(e.deadline(200*time.Millisecond), s, keys, args)
			e.wantUnknown(err)
			keys[0], args[0] = e.prefix+"b", "second"
			rule.Remove()
			if e.exists(e.prefix + "b") {
				e.Error("the call that was left behind used keys that were changed after it returned")
			}
			r := e.mustEval(d, s, keys, args)
			if got, _ := r.Str(); got != "second" || keys[0] != e.prefix+"b" || len(args) != 1 {
				e.Errorf("the next call returned %q, and left keys %q and args %q", got, keys, args)
			}
		},
	},
	{
		name: "ConcurrentCalls",
		rule: "An Evaler must be safe for concurrent use, and give each call its own reply.",
		run: func(e *env) {
			d := e.driver()
			s := e.script("return {KEYS[1], ARGV[1]}")
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					for n := range 20 {
						key, arg := fmt.Sprintf("%s%d", e.prefix, i), fmt.Sprint(n)
						r, err := d.Eval(e.ctx, s, []string{key}, []string{arg})
						if err != nil || !equal(r, driver.List(driver.Str(key), driver.Str(arg))) {
							e.Errorf("Eval with key %q and argument %q: %v, %v", key, arg, r, err)
							return
						}
					}
				})
			}
			wg.Wait()
		},
	},
	{
		name: "HandedInClientStaysOpen",
		rule: "An Evaler over a client that was handed in must not close it, and so has no Closer.",
		run: func(e *env) {
			d := e.driver()
			if _, ok := d.(driver.Closer); ok {
				e.Errorf("%T has a Close method: only what Driver.Open returns closes its client", d)
			}
			c := e.cacheOn(d, cacheOptions)
			e.mustRead(c, "k", loaderOf("v", nil))
			if err := c.Close(e.ctx); err != nil {
				e.Errorf("Close: %v", err)
			}
			e.mustEval(d, e.script("return 1"), []string{e.prefix + "k"}, nil)
		},
	},
}

// deadline returns a context with that timeout.
func (e *env) deadline(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(e.ctx, d)
	e.Cleanup(cancel)
	return ctx
}

// ended returns d as package leasecache uses it: its calls end in time.
func ended(e *env, d driver.Evaler) driver.Evaler {
	e.Helper()
	return e.store(d, patience)
}

func equal(a, b driver.Reply) bool {
	if a.Kind() != b.Kind() || a.Len() != b.Len() {
		return false
	}
	an, _ := a.Int()
	bn, _ := b.Int()
	as, _ := a.Str()
	bs, _ := b.Str()
	for i := range a.Len() {
		if !equal(a.At(i), b.At(i)) {
			return false
		}
	}
	return an == bn && as == bs
}
