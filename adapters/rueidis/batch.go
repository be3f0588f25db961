package rueidis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// EvalBatch implements [driver.Batcher]: a DoMulti, and a second one for those
// calls whose scripts the server does not know.
func (e full) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	call := e.bound.context(ctx) // one bound for both
	results := make([]driver.Result, len(calls))
	some := make([]int, 0, len(calls))
	for i, c := range calls {
		if shareTag(c.Keys) {
			some = append(some, i)
		} else {
			results[i].Err = driver.NotSent(errKeys)
		}
	}
	e.evalSome(ctx, call, "EVALSHA", (*driver.Script).SHA1, calls, some, results)
	again := some[:0]
	for _, i := range some {
		if se, ok := errors.AsType[*driver.ServerError](results[i].Err); ok && se.Code == "NOSCRIPT" {
			again = append(again, i)
		}
	}
	e.evalSome(ctx, call, "EVAL", (*driver.Script).Source, calls, again, results)
	return results
}

func (e full) evalSome(ctx, call context.Context, name string, script func(*driver.Script) string, calls []driver.Call, some []int, results []driver.Result) {
	e.multi(ctx, call, len(some), func(j int) rueidis.Completed {
		c := calls[some[j]]
		return e.client.B().Arbitrary(name, script(c.Script), strconv.Itoa(len(c.Keys))).Keys(c.Keys...).Args(c.Args...).Build()
	}, func(j int, m rueidis.RedisMessage, err error) {
		r := &results[some[j]]
		if r.Reply, r.Err = (driver.Reply{}), err; err == nil {
			r.Reply, r.Err = reply(m)
		}
	})
}

// multi sends n commands together. took gets what became of each; a nil reply is no
// error. ctx is the caller's context, call the one to send with.
func (e full) multi(ctx, call context.Context, n int, build func(i int) rueidis.Completed, took func(i int, m rueidis.RedisMessage, err error)) {
	if n == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		for i := range n {
			took(i, rueidis.RedisMessage{}, driver.NotSent(err))
		}
		return
	}
	cmds := make([]rueidis.Completed, n)
	for i := range cmds {
		cmds[i] = build(i)
	}
	for i, r := range e.bound.doMulti(call, e.client.(rueidis.Client), cmds) {
		if err := r.NonRedisError(); err != nil {
			took(i, rueidis.RedisMessage{}, callError(ctx, call, err))
			continue
		}
		m, err := r.ToMessage()
		if err != nil && !m.IsNil() {
			took(i, m, serverError(m, err))
			continue
		}
		took(i, m, nil)
	}
}

// doMulti sends cmds, and leaves them behind when the bound is over: the client
// waits for room in a full queue whatever the context says. A goroutine is nothing
// beside a batch.
func (b *bound) doMulti(call context.Context, c rueidis.Client, cmds []rueidis.Completed) []rueidis.RedisResult {
	if b == nil {
		return c.DoMulti(call, cmds...)
	}
	n := len(cmds)
	fail := func(err error) []rueidis.RedisResult {
		results := make([]rueidis.RedisResult, n)
		for i := range results {
			results[i] = rueidis.NewErrorResult(err)
		}
		return results
	}
	got := make(chan []rueidis.RedisResult, 1)
	go func() {
		defer func() {
			// A panic here would end the process instead of reaching the caller.
			if p := recover(); p != nil {
				got <- fail(fmt.Errorf("rueidis: the client panicked: %v", p))
			}
		}()
		got <- c.DoMulti(call, cmds...)
	}()
	select {
	case results := <-got:
		return results
	case <-call.Done():
		return fail(call.Err())
	}
}
