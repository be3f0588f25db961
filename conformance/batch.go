package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Cases of the abilities for batches. The calls of a batch have keys of their own,
// so in a cluster they are on all of its primaries.

func lacksBatch(l Lacks) string    { return l.Batch }
func lacksBatchGet(l Lacks) string { return l.BatchGet }
func lacksBoundBatch(l Lacks) string {
	if l.Bound != "" {
		return l.Bound
	}
	return l.Batch
}

// batch returns n calls of s, each with a key and an argument of its own.
func (e *env) batch(s *driver.Script, n int) []driver.Call {
	calls := make([]driver.Call, n)
	for i := range calls {
		calls[i] = driver.Call{Script: s, Keys: []string{e.batchKey(i)}, Args: []string{fmt.Sprint("arg ", i)}}
	}
	return calls
}

func (e *env) batchKey(i int) string { return fmt.Sprintf("%sk:{%d}", e.prefix, i) }

// evalBatch runs a batch, and fails if it does not end or has not one result for
// each call.
func (e *env) evalBatch(ctx context.Context, d driver.Evaler, calls []driver.Call) []driver.Result {
	e.Helper()
	var results []driver.Result
	if !inTime(e, "EvalBatch", func() { results = d.(driver.Batcher).EvalBatch(ctx, calls) }) {
		e.FailNow()
	}
	if len(results) != len(calls) {
		e.Fatalf("EvalBatch returned %d results for %d calls", len(results), len(calls))
	}
	return results
}

func (e *env) getBatch(ctx context.Context, d driver.Evaler, keys []string) []driver.GetResult {
	e.Helper()
	var results []driver.GetResult
	if !inTime(e, "GetBatch", func() { results = d.(driver.BatchGetter).GetBatch(ctx, keys) }) {
		e.FailNow()
	}
	if len(results) != len(keys) {
		e.Fatalf("GetBatch returned %d results for %d keys", len(results), len(keys))
	}
	return results
}

// ran is counted for a key that may have no counter.
func (e *env) ran(key string) int64 {
	e.Helper()
	if !e.exists(key) {
		return 0
	}
	return e.counted(key)
}

// wantRan checks that every call of a batch ran as often as its result says.
func (e *env) wantRan(results []driver.Result, before int64) {
	e.Helper()
	for i, r := range results {
		ran := e.ran(e.batchKey(i)) - before
		_, replied := errors.AsType[*driver.ServerError](r.Err)
		switch {
		case ran > 1:
			e.Errorf("call %d ran %d times", i, ran)
		case r.Err == nil && ran != 1:
			e.Errorf("call %d has a reply, and ran %d times", i, ran)
		case errors.Is(r.Err, driver.ErrNotSent) && ran != 0:
			e.Errorf("call %d is ErrNotSent, and ran", i)
		case replied:
			e.Errorf("call %d: the server replied with %v", i, r.Err)
		}
	}
}

var batchCases = []testCase{
	{
		name: "BatchReturnsResultsInOrder", lacks: lacksBatch,
		rule: "EvalBatch must run every call once, with its own keys and arguments, whatever bytes they hold, and return the results in the order of the calls.",
		run: func(e *env) {
			d := e.driver()
			echo, list := e.script("return {KEYS[1], ARGV[1]}"), e.script("return {1, {'two'}, ARGV[2]}")
			for _, n := range []int{0, 1, 2, 150} {
				calls := e.batch(echo, n)
				want := make([]driver.Reply, n)
				for i := range calls {
					if i%3 == 1 {
						calls[i].Args[0] = strings.Repeat("\x00\r\n\xff*3", i)
					}
					want[i] = driver.List(driver.Str(calls[i].Keys[0]), driver.Str(calls[i].Args[0]))
					if i%5 == 4 {
						calls[i].Script, calls[i].Args = list, []string{"", ""}
						want[i] = driver.List(driver.Int(1), driver.List(driver.Str("two")), driver.Str(""))
					}
				}
				for i, r := range e.evalBatch(e.ctx, d, calls) {
					if r.Err != nil || !equal(r.Reply, want[i]) {
						e.Fatalf("call %d of %d: %v, %v; want %v", i, n, r.Reply, r.Err, want[i])
					}
				}
			}
		},
	},
	{
		name: "BatchRunsEachCallOnce", lacks: lacksBatch,
		rule: "EvalBatch must run every call once, also when several have the same keys and arguments.",
		run: func(e *env) {
			d := e.driver()
			calls := e.batch(e.counting("return 1"), 40)
			results := e.evalBatch(e.ctx, d, calls)
			e.wantRan(results, 0)
			same := make([]driver.Call, 20)
			for i := range same {
				same[i] = calls[0]
			}
			for i, r := range e.evalBatch(e.ctx, d, same) {
				if r.Err != nil {
					e.Errorf("call %d: %v", i, r.Err)
				}
			}
			if n := e.ran(e.batchKey(0)); n != 21 {
				e.Errorf("one call, and 20 in a batch, ran %d times", n)
			}
		},
	},
	{
		name: "BatchErrorIsOfItsCall", lacks: lacksBatch,
		rule: "An error reply to a call of a batch must be the result of that call, as a ServerError, and must not end the others nor make them run again.",
		run: func(e *env) {
			d := e.driver()
			calls := e.batch(e.counting("return 1"), 20)
			boom, isNil := e.script("return redis.error_reply('BOOM ' .. ARGV[1])"), e.script("return false")
			for _, i := range []int{0, 7, 19} {
				calls[i].Script = boom
			}
			calls[8].Script = isNil
			for i, r := range e.evalBatch(e.ctx, d, calls) {
				n := e.ran(e.batchKey(i))
				switch calls[i].Script {
				case boom:
					se, ok := errors.AsType[*driver.ServerError](r.Err)
					if !ok || se.Code != "BOOM" || !strings.HasPrefix(se.Message, calls[i].Args[0]) {
						e.Errorf("call %d: %v, %v; want a ServerError of its own, with code BOOM", i, r.Reply, r.Err)
					}
				case isNil:
					if r.Err != nil || r.Reply.Kind() != driver.KindNil {
						e.Errorf("call %d: %v, %v; want nil", i, r.Reply, r.Err)
					}
				default:
					if r.Err != nil || n != 1 {
						e.Errorf("call %d: the error %v, and it ran %d times", i, r.Err, n)
					}
				}
			}
		},
	},
	{
		name: "BatchFallsBackOnNoScript", lacks: lacksBatch, alone: true, // it flushes the scripts of all
		rule: "EvalBatch must send those calls once more by source that got a NOSCRIPT reply, and no others.",
		run: func(e *env) {
			d := e.driver()
			known, unknown := e.counting("return ARGV[1]"), e.counting("return 'new ' .. ARGV[1]")
			for round := range int64(3) {
				e.do("SCRIPT", "FLUSH")
				if round > 0 {
					e.do("SCRIPT", "LOAD", known.Source())
				}
				calls := e.batch(known, 30)
				for i := range calls {
					if i%4 == 1 || round == 2 && i < 15 {
						calls[i].Script = unknown
					}
				}
				results := e.evalBatch(e.ctx, d, calls)
				for i, r := range results {
					want := calls[i].Args[0]
					if calls[i].Script == unknown {
						want = "new " + want
					}
					if got, ok := r.Reply.Str(); r.Err != nil || !ok || got != want {
						e.Errorf("call %d: %q, %v; want %q", i, got, r.Err, want)
					}
				}
				e.wantRan(results, round)
			}
		},
	},
	{
		name: "BatchSendsOnceWhenAReplyIsLost", lacks: lacksBatch,
		rule: "EvalBatch must send every call at most once: when replies are lost, the outcome of those calls is unknown, and no other call may run again with them.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s := e.counting("return 1")
			calls := e.batch(s, 30)
			e.wantRan(e.evalBatch(e.ctx, d, calls), 0) // the connections and the script are warm
			lost := e.batchKey(11)
			match := MatchScript(s.SHA1(), s.Source())
			p.On(func(command []string) bool { return match(command) && command[3] == lost }, 1, DropReply)
			results := e.evalBatch(e.ctx, d, calls)
			e.wantUnknown(results[11].Err)
			e.wantRan(results, 1)
			e.eventually("batches work again", func() bool {
				for _, r := range e.evalBatch(e.ctx, d, calls) {
					if r.Err != nil {
						return false
					}
				}
				return true
			})
		},
	},
	{
		name: "BatchWithADoneContextIsNotSent", lacks: lacksBatch,
		rule: "EvalBatch must return without sending if ctx is already done: every result wraps ErrNotSent and ctx's error.",
		run: func(e *env) {
			d := e.driver()
			calls := e.batch(e.counting("return 1"), 10)
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			results := e.evalBatch(ctx, d, calls)
			for i, r := range results {
				if !errors.Is(r.Err, driver.ErrNotSent) || !errors.Is(r.Err, context.Canceled) {
					e.Errorf("call %d: %v; want ErrNotSent and context.Canceled", i, r.Err)
				}
			}
			e.wantRan(results, 0)
		},
	},
	{
		name: "BatchOnAServerThatIsDown", lacks: lacksBatch,
		rule: "Every call of a batch must have an error when the server refuses connections, which is ErrNotSent once the client has noticed.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			calls := e.batch(e.script("return 1"), 10)
			e.evalBatch(e.ctx, d, calls)
			p.Down()
			e.eventually("calls of a batch are ErrNotSent", func() bool {
				all := true
				for i, r := range e.evalBatch(e.ctx, d, calls) {
					if r.Err == nil {
						e.Fatalf("call %d has a reply", i)
					}
					all = all && errors.Is(r.Err, driver.ErrNotSent)
				}
				return all
			})
		},
	},
	{
		name: "BatchOfManyLongCalls", lacks: lacksBatch,
		rule: "A batch of hundreds of calls with long arguments and replies must get through.",
		run: func(e *env) {
			d := e.driver()
			calls := e.batch(e.script("return ARGV[1]"), 500)
			long := strings.Repeat("x", 2000)
			for i := range calls {
				calls[i].Args[0] = fmt.Sprint(i, long)
			}
			for i, r := range e.evalBatch(e.ctx, d, calls) {
				if got, _ := r.Reply.Str(); r.Err != nil || got != calls[i].Args[0] {
					e.Fatalf("call %d: %d bytes, %v", i, len(got), r.Err)
				}
			}
		},
	},
	{
		name: "BoundEndsTheBatch", lacks: lacksBoundBatch,
		rule: "An Evaler that Bound returned must end a batch that time after it began, with an error for each call that is not ErrNotSent if it may have been sent, and must not use keys and arguments after that.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			s := e.counting("return 1")
			const bound = 400 * time.Millisecond
			bounded := d.(driver.Bounder).Bound(bound)
			calls := e.batch(s, 40)
			e.wantRan(e.evalBatch(e.ctx, d, calls), 0)
			rule := p.On(MatchScript(s.SHA1(), s.Source()), -1, HoldRequest)
			start := time.Now()
			results := e.evalBatch(context.Background(), bounded, calls)
			if took := time.Since(start); took > patience/2 {
				e.Errorf("the batch took %v, bounded to %v", took, bound)
			}
			for i, r := range results {
				if r.Err == nil {
					e.Errorf("call %d has a reply from a server that hangs", i)
				}
			}
			for i := range calls { // a race, if they are still used
				calls[i].Keys[0], calls[i].Args[0] = e.prefix+"other", "other"
				calls[i].Script = nil
			}
			rule.Remove()
			again := e.batch(s, 40)
			e.eventually("batches work when the server answers again", func() bool {
				for _, r := range e.evalBatch(e.ctx, d, again) {
					if r.Err != nil {
						return false
					}
				}
				return true
			})
			if n := e.ran(e.prefix + "other"); n != 0 {
				e.Errorf("a call was sent with keys that were changed after it had returned")
			}
		},
	},
	{
		name: "GetBatchReturnsTheValues", lacks: lacksBatchGet,
		rule: "GetBatch must return the bytes that are stored under each key, in the order of the keys, and OK false only where there is no such key. An error of one is its own.",
		run: func(e *env) {
			d := e.driver()
			values := []string{"", "x", "0", "nil", "a\x00b\r\n", "\xff", " 007 ", strings.Repeat("v", 1<<20)}
			keys := make([]string, 200)
			for i := range keys {
				keys[i] = e.batchKey(i)
				if i%3 != 2 {
					e.do("SET", keys[i], values[i%len(values)])
				}
			}
			e.do("DEL", keys[9])
			e.do("RPUSH", keys[9], "x")
			keys[150] = keys[1] // twice
			for range 2 {
				for i, r := range e.getBatch(e.ctx, d, keys) {
					from := i
					if i == 150 {
						from = 1
					}
					want, ok := values[from%len(values)], from%3 != 2
					if i == 9 {
						if errorCode(r.Err) != "WRONGTYPE" || r.OK {
							e.Errorf("a list: %v, %v; want a ServerError with code WRONGTYPE", r.OK, r.Err)
						}
						continue
					}
					if !ok {
						want = ""
					}
					if r.Err != nil || r.OK != ok || r.Value != want {
						e.Errorf("key %d: %.20q (%d bytes), %v, %v; want %.20q, %v", i, r.Value, len(r.Value), r.OK, r.Err, want, ok)
					}
				}
			}
			if n := len(e.getBatch(e.ctx, d, nil)); n != 0 {
				e.Errorf("%d results of no key", n)
			}
		},
	},
	{
		name: "GetBatchSortsItsErrors", lacks: lacksBatchGet,
		rule: "GetBatch must sort errors as Eval does: server, not sent, unknown.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			keys := []string{e.batchKey(0), e.batchKey(1), e.batchKey(2)}
			e.getBatch(e.ctx, d, keys)
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			for _, r := range e.getBatch(ctx, d, keys) {
				if !errors.Is(r.Err, driver.ErrNotSent) || !errors.Is(r.Err, context.Canceled) {
					e.Errorf("GetBatch with a cancelled context: %v; want ErrNotSent and context.Canceled", r.Err)
				}
			}
			p.On(MatchCommand("GET"), 1, DropReply)
			lost := 0
			for _, r := range e.getBatch(e.ctx, d, keys) {
				if r.Err != nil && !errors.Is(r.Err, driver.ErrNotSent) {
					e.wantUnknown(r.Err)
					lost++
				}
			}
			if lost == 0 {
				e.Error("a reply was lost, and no result is unknown")
			}
			p.Down()
			e.eventually("GetBatch on a server that refuses connections is ErrNotSent", func() bool {
				all := true
				for i, r := range e.getBatch(e.ctx, d, keys) {
					if r.Err == nil {
						e.Fatalf("key %d has a reply", i)
					}
					all = all && errors.Is(r.Err, driver.ErrNotSent)
				}
				return all
			})
		},
	},
}
