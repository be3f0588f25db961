package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
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
		name: "LeaksNoConnection", part: lacksRedial,
		rule: "A call must give its connection back, also when the server replied with an error, and close one that it left without a reply.",
		run: func(e *env) {
			var open, dialed atomic.Int64
			counted := func(c net.Conn, err error) (net.Conn, error) {
				if err != nil {
					return nil, err
				}
				open.Add(1)
				dialed.Add(1)
				return &countedConn{Conn: c, open: &open}, nil
			}
			counting := *e
			counting.h.Dial = func(ctx context.Context) (net.Conn, error) { return counted(e.h.Dial(ctx)) }
			if e.h.DialNode != nil {
				counting.h.DialNode = func(ctx context.Context, addr string) (net.Conn, error) { return counted(e.h.DialNode(ctx, addr)) }
			}
			p := counting.proxy()
			d := e.driverOn(p)
			in := ended(e, d)
			key := e.prefix + "{k}"
			fine, fails, hangs := e.script("return 1"), e.script("return redis.error_reply('LEASE is odd')"), e.script("return 2")
			for range 5 {
				e.mustEval(d, fine, []string{key}, nil)
			}
			before := open.Load()
			if dialed.Load() == 0 { // and not open: a driver may dial for every call
				e.Fatal("conformance: the connections of the driver are not counted")
			}
			const calls = 40 // more than a pool has connections, one after the other
			for range calls {
				e.mustEval(d, fine, []string{key}, nil)
				if _, err := d.Eval(e.deadline(patience), fails, []string{key}, nil); errorCode(err) != "LEASE" {
					e.Fatalf("Eval returned %v; want the error that the script returns", err)
				}
			}
			e.eventually("the calls have closed their connections, or used the same", func() bool { return open.Load() < before+calls/4 })
			hang := func() *Rule { return p.On(MatchScript(hangs.SHA1(), hangs.Source()), -1, Hang) }
			rule := hang()
			try := func(timeout time.Duration) {
				if _, err := in.Eval(e.deadline(timeout), hangs, []string{key}, nil); err == nil {
					e.Fatal("Eval returned no error from a server that hangs")
				}
			}
			if why := e.h.Lacks.Redial; why != "" {
				e.eventually("a script is sent", func() bool {
					try(time.Second)
					return rule.Hits() > 0
				})
				if _, err := in.Eval(e.deadline(time.Second), fine, []string{key}, nil); err == nil {
					e.Fatalf("conformance: Lacks.Redial is %q, but a call works while another gets no reply: leave it empty", why)
				}
			}
			for range calls {
				try(20 * time.Millisecond)
				if e.h.Lacks.Redial != "" {
					rule.Remove() // the proxy closes the connection
					rule = hang()
				}
				// One that begins on the connection of the call may fail with it.
				e.eventually("calls work after one that was left without a reply", func() bool {
					_, err := d.Eval(e.deadline(patience), fine, []string{key}, nil)
					return err == nil
				})
			}
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
		name: "RepliesAreTheCallersOwn",
		rule: "A reply must not change after Eval returned it: not by later calls that use the same buffer.",
		run: func(e *env) {
			d := e.driver()
			s := e.script("return {ARGV[1], {ARGV[2]}}")
			for _, size := range []int{1, 100, 64 << 10} {
				var got, want []driver.Reply
				for i := range 20 {
					a, b := strings.Repeat(string(rune('a'+i)), size), strings.Repeat(string(rune('A'+i)), size)
					got = append(got, e.mustEval(d, s, []string{e.prefix + "k"}, []string{a, b}))
					want = append(want, driver.List(driver.Str(a), driver.List(driver.Str(b))))
				}
				for i := range got {
					if !equal(got[i], want[i]) {
						a, _ := got[i].At(0).Str()
						e.Fatalf("reply %d of %d bytes begins with %.10q after the other calls; want %q", i, size, a, rune('a'+i))
					}
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
		name:  "ClientErrorsStayReachable",
		rule:  "The client's own error must stay reachable by errors.As in what Eval and Get return.",
		needs: needsClientError,
		run: func(e *env) {
			d := e.driver()
			e.do("RPUSH", e.prefix+"list", "x")
			_, err := d.Eval(e.ctx, e.script("return redis.call('GET', KEYS[1])"), []string{e.prefix + "list"}, nil)
			if err == nil || !e.h.ClientError(err) {
				e.Errorf("Eval returned %v (%T), which wraps no error of the client", err, err)
			}
			if g, ok := d.(driver.Getter); ok {
				if _, _, err := g.Get(e.ctx, e.prefix+"list"); err == nil || !e.h.ClientError(err) {
					e.Errorf("Get returned %v (%T), which wraps no error of the client", err, err)
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
		name: "FallsBackOnce",
		rule: "Eval must fall back once: a NOSCRIPT error in reply to the source is an error like any other.",
		run: func(e *env) {
			d := e.driver()
			s, key := e.counting("return redis.error_reply('NOSCRIPT says the script itself')"), e.prefix+"n"
			_, err := d.Eval(e.ctx, s, []string{key}, nil)
			if errorCode(err) != "NOSCRIPT" {
				e.Errorf("got the error %v; want a *driver.ServerError with code NOSCRIPT", err)
			}
			if n := e.counted(key); n != 1 {
				e.Errorf("the script ran %d times; want once, by its source", n)
			}
		},
	},
	{
		name: "SendsTheDigest",
		rule: "Eval must send EVALSHA, EVAL only after a NOSCRIPT reply, and EVALSHA_RO and EVAL_RO never: clients may send those to replicas.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s := e.script("return 1")
			const calls = 10
			for range calls {
				e.mustEval(d, s, []string{e.prefix + "k"}, nil)
			}
			sent := p.Commands()
			if sent["EVALSHA"] < calls-1 || sent["EVAL"] > 1 {
				e.Errorf("%d calls sent EVALSHA %d times, and EVAL %d times; want EVAL once at most", calls, sent["EVALSHA"], sent["EVAL"])
			}
			if n := sent["EVALSHA_RO"] + sent["EVAL_RO"]; n > 0 {
				e.Errorf("%d calls sent EVALSHA_RO and EVAL_RO %d times; want never", calls, n)
			}
		},
	},
	{
		name: "SendsToThePrimary", alone: true, // it counts what the replica answers
		rule:  "Eval and Get must send to the primary: a replica does not know the leases, and answers with values that were invalidated.",
		needs: needsReplica,
		run: func(e *env) {
			nc, err := e.h.DialReplica(e.ctx)
			if err != nil {
				e.Fatalf("conformance: Harness.DialReplica: %v", err)
			}
			replica := resp.NewConn(nc)
			defer replica.Close()
			if v, err := replica.Do("INFO", "replication"); err != nil || !strings.Contains(v.Str, "role:slave") {
				e.Fatalf("conformance: Harness.DialReplica: want a connection to a replica, and INFO replication says %q, %v", v.Str, err)
			}
			// What the primary sends to its replicas are writes.
			reads := func() (n int) {
				e.Helper()
				v, err := replica.Do("INFO", "commandstats")
				if err != nil {
					e.Fatalf("INFO commandstats on the replica: %v", err)
				}
				for line := range strings.Lines(v.Str) {
					name, stats, _ := strings.Cut(line, ":calls=")
					switch name {
					case "cmdstat_get", "cmdstat_eval", "cmdstat_evalsha", "cmdstat_eval_ro", "cmdstat_evalsha_ro":
						calls, _, _ := strings.Cut(stats, ",")
						c, err := strconv.Atoi(calls)
						if err != nil {
							e.Fatalf("INFO commandstats on the replica says %q", line)
						}
						n += c
					}
				}
				return n
			}
			d := e.driver()
			s := e.script("return redis.call('GET', KEYS[1])")
			write := e.script("return redis.call('SET', KEYS[1], ARGV[1])")
			before := reads()
			for i := range 100 {
				key, want := fmt.Sprintf("%s{%d}", e.prefix, i), fmt.Sprint(i)
				e.mustEval(d, write, []string{key}, []string{want})
				if r := e.mustEval(d, s, []string{key}, nil); !equal(r, driver.Str(want)) {
					e.Errorf("Eval read %v right after %q was written", r, want)
				}
				if g, ok := d.(driver.Getter); ok {
					if got, ok, err := g.Get(e.ctx, key); got != want || !ok || err != nil {
						e.Errorf("Get returned %q, %v, %v right after %q was written", got, ok, err, want)
					}
				}
			}
			if n := reads() - before; n > 0 {
				e.Errorf("the replica answered %d calls; want none", n)
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
		name: "LateReplyIsDropped",
		rule: "A reply that comes after its call was given up must not be taken for the reply to another call.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, keys := e.script("return ARGV[1]"), []string{e.prefix + "k"}
			e.mustEval(d, s, keys, []string{"warm"})
			rule := p.On(MatchScript(s.SHA1(), s.Source()), 1, HoldReply)
			_, err := ended(e, d).Eval(e.deadline(200*time.Millisecond), s, keys, []string{"given up"})
			e.wantUnknown(err)
			rule.Remove()
			// Those that begin on the connection of the call may fail with it.
			for i := range 20 {
				want := fmt.Sprint(i)
				e.eventually("calls work again", func() bool {
					r, err := d.Eval(e.ctx, s, keys, []string{want})
					if err == nil && !equal(r, driver.Str(want)) {
						got, _ := r.Str()
						e.Fatalf("the reply to %q is %q", want, got)
					}
					return err == nil
				})
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
		name: "RecoversFromACut",
		rule: "When connections broke, the calls that follow must get new ones, without anybody's help.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, keys := e.script("return 1"), []string{e.prefix + "k"}
			inARow := func() bool {
				for range 20 {
					if _, err := d.Eval(e.deadline(patience), s, keys, nil); err != nil {
						return false
					}
				}
				return true
			}
			e.mustEval(d, s, keys, nil)
			p.CutAll()
			e.eventually("calls work again after all connections were cut", inARow)
			p.On(MatchScript(s.SHA1(), s.Source()), 1, DropReply)
			_, err := d.Eval(e.ctx, s, keys, nil)
			e.wantUnknown(err)
			e.eventually("calls work again after a reply was lost", inARow)
		},
	},
	{
		name: "NotSentIsNeverSent",
		rule: "A call that returned ErrNotSent must never be sent afterwards: not from a queue in which it was left either.",
		run: func(e *env) {
			s := e.script("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]")
			calls := e.leaveCalls(s, func(*leftCall) {})
			for i, c := range calls {
				if errors.Is(c.err, driver.ErrNotSent) && e.exists(c.keys[0]) {
					e.Errorf("call %d ran after it had returned %v", i, c.err)
				}
			}
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
		name: "DeadlineIsOfItsCall",
		rule: "A deadline must end its own call only: it must not stay on a connection that other calls use.",
		run: func(e *env) {
			d := e.driver()
			s, keys := e.script("return 1"), []string{e.prefix + "k"}
			e.mustEval(d, s, keys, nil)
			for name, in := range map[string]driver.Evaler{"as it is": d, "bounded": ended(e, d)} {
				e.outlastDeadline(in, s, keys)
				// Without a deadline, which would take the place of the other.
				for _, after := range []driver.Evaler{watched{e, d}, in} {
					if _, err := after.Eval(context.Background(), s, keys, nil); err != nil {
						e.Errorf("%s: a call after the deadline of another one: %v", name, err)
					}
				}
			}
		},
	},
	{
		name: "CancelledCallIsUnknown",
		rule: "Eval, bounded by Bound or by package leasecache, must not wrap ErrNotSent when ctx is cancelled after the command was written, and must return ctx's error if that ended the call.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s, key := e.counting("return 1"), e.prefix+"n"
			e.mustEval(d, s, []string{key}, nil)
			rule := p.On(MatchScript(s.SHA1(), s.Source()), -1, HoldReply)
			// A driver need not heed that a context is cancelled.
			ctx, cancel := context.WithTimeout(e.ctx, time.Second)
			defer cancel()
			go func() {
				select {
				case <-rule.Caught():
					cancel()
				case <-ctx.Done():
				}
			}()
			_, err := ended(e, d).Eval(ctx, s, []string{key}, nil)
			e.wantUnknown(err)
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("got the error %v; want context.Canceled", err)
			}
			if n := e.counted(key); n != 2 {
				e.Errorf("after two calls the script ran %d times", n)
			}
		},
	},
	{
		name: "ArgsAreNotKept",
		rule: "Eval must not keep or change keys and args after it has returned, also when it left a reply behind.",
		run: func(e *env) {
			s := e.script("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]")
			calls := e.leaveCalls(s, func(c *leftCall) {
				c.keys[0], c.args[0] = c.keys[0]+":changed", "changed"
			})
			for i, c := range calls {
				if e.exists(c.keys[0]) {
					e.Errorf("call %d ran with keys that were changed after it had returned", i)
				}
			}
			d := e.driver()
			keys, args := slices.Repeat([]string{e.prefix + "k"}, 8), slices.Repeat([]string{" V "}, 8)
			keysBefore, argsBefore := slices.Clone(keys), slices.Clone(args)
			e.mustEval(d, s, keys[:1], args[:2]) // what is appended to them is seen
			if !slices.Equal(keys, keysBefore) || !slices.Equal(args, argsBefore) {
				e.Errorf("a call changed the keys to %q, and the arguments to %q", keys, args)
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

func needsReplica(h Harness) string {
	if h.DialReplica == nil {
		return "Harness.DialReplica is not set, so nothing shows where reads go."
	}
	return ""
}

func lacksRedial(l Lacks) string { return l.Redial }

func needsClientError(h Harness) string {
	if h.ClientError == nil {
		return "Harness.ClientError is not set, so nothing tells which errors are the client's."
	}
	return ""
}

// countedConn is a connection that counts as open until it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// leftCall is a call that was given up while the server did not answer.
type leftCall struct {
	keys, args []string // the slices that it was made with
	err        error
}

// leaveCalls makes more calls at once than a pool has connections, on a server
// that hangs until all have ended by their deadline, and calls returned for each
// as soon as it has returned. Then the server wakes up. When leaveCalls returns,
// it has answered as many calls that came later, to the same node: what was to
// be sent from a queue was sent before them.
func (e *env) leaveCalls(s *driver.Script, returned func(*leftCall)) []*leftCall {
	e.Helper()
	p := e.proxy()
	d := e.driverOn(p)
	e.mustEval(d, s, []string{e.prefix + "{k}warm"}, []string{"warm"})
	rule := p.On(MatchScript(s.SHA1(), s.Source()), -1, HoldRequest)
	in, ctx := ended(e, d), e.deadline(500*time.Millisecond)
	calls := make([]*leftCall, 64)
	var wg sync.WaitGroup
	for i := range calls {
		c := &leftCall{keys: []string{fmt.Sprintf("%s{k}left:%d", e.prefix, i)}, args: []string{"left"}}
		calls[i] = c
		wg.Go(func() {
			if _, c.err = in.Eval(ctx, s, c.keys, c.args); c.err == nil {
				e.Error("Eval returned no error from a server that hangs")
			}
			returned(c)
		})
	}
	wg.Wait()
	rule.Remove()
	for range calls {
		wg.Go(func() {
			for start := time.Now(); time.Since(start) < patience; {
				if _, err := d.Eval(e.ctx, s, []string{e.prefix + "{k}later"}, []string{"later"}); err == nil {
					return
				}
			}
			e.Errorf("not within %v: a call works when the server answers again", patience)
		})
	}
	wg.Wait()
	return calls
}

// errorCode returns the code of the server's error, or "" if err is none.
func errorCode(err error) string {
	if se, ok := errors.AsType[*driver.ServerError](err); ok {
		return se.Code
	}
	return ""
}

// outlastDeadline makes a call that has a deadline, and returns when that has
// passed.
func (e *env) outlastDeadline(d driver.Evaler, s *driver.Script, keys []string) {
	e.Helper()
	// On a loaded machine a call may take longer than its deadline.
	for timeout := 200 * time.Millisecond; timeout <= patience; timeout *= 2 {
		ctx := e.deadline(timeout)
		if _, err := d.Eval(ctx, s, keys, nil); err == nil {
			<-ctx.Done()
			return
		}
	}
	e.Fatalf("no call ended within its deadline of up to %v", patience)
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
	return watched{e, e.store(d, patience)}
}

// watched leaves a call behind that does not end, so that it fails the case
// instead of hanging it.
type watched struct {
	e *env
	d driver.Evaler
}

func (w watched) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	var r driver.Reply
	var err error
	if !inTime(w.e, "Eval", func() { r, err = w.d.Eval(ctx, s, keys, args) }) {
		return driver.Reply{}, errors.New("conformance: the call did not end")
	}
	return r, err
}

// inTime reports whether call ends in time. If not, the case has failed, and
// what call writes to must not be used.
func inTime(e *env, name string, call func()) bool {
	e.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
		return true
	case <-time.After(2 * patience):
		e.Errorf("%s did not end within %v", name, 2*patience)
		return false
	}
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
