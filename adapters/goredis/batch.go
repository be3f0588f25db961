package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// Every client whose GETs are certain to go to a primary has pipelines, so the
// abilities for batches go with that one.

// EvalBatch implements [driver.Batcher].
func (e getter) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	return e.evalBatch(ctx, calls)
}

// EvalBatch implements [driver.Batcher].
func (e getBounder) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	return e.evalBatch(ctx, calls)
}

// evalBatch runs the calls in a pipeline, and those in a second one whose scripts
// the server does not know.
func (e evaler) evalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	call := e.bound.context(ctx, new(callContext)) // one bound for both
	results := make([]driver.Result, len(calls))
	all := make([]int, len(calls))
	for i := range calls {
		all[i] = i
	}
	e.evalSome(ctx, call, "evalsha", (*driver.Script).SHA1, calls, all, results)
	var again []int
	for i := range results {
		if se, ok := errors.AsType[*driver.ServerError](results[i].Err); ok && se.Code == "NOSCRIPT" {
			again = append(again, i)
		}
	}
	e.evalSome(ctx, call, "eval", (*driver.Script).Source, calls, again, results)
	return results
}

func (e evaler) evalSome(ctx, call context.Context, name string, script func(*driver.Script) string, calls []driver.Call, some []int, results []driver.Result) {
	if len(some) == 0 {
		return
	}
	cmds := make([]redis.Cmder, len(some))
	for j, i := range some {
		c := calls[i]
		cmds[j] = evalCmd(call, name, script(c.Script), c.Keys, c.Args)
	}
	e.pipeline(ctx, call, cmds, func(j int, err error) {
		r := &results[some[j]]
		if r.Reply, r.Err = (driver.Reply{}), err; err == nil {
			r.Reply, r.Err = reply(cmds[j].(*onceCmd).Val())
		}
	})
}

// pipeline sends the commands together. took gets what became of each; a nil reply
// is no error.
func (e evaler) pipeline(ctx, call context.Context, cmds []redis.Cmder, took func(i int, err error)) {
	if err := ctx.Err(); err != nil {
		for i := range cmds {
			took(i, driver.NotSent(err))
		}
		return
	}
	all := send(call, e.client.(pipeliner), cmds)
	if firstError(cmds) != nil {
		all = nil // else it is a hook's, which has told no command
	}
	reloaded := false
	for i, cmd := range cmds {
		one := cmd.Err()
		if all != nil {
			one = all
		}
		switch {
		case one == nil, errors.Is(one, redis.Nil):
			took(i, nil)
			continue
		}
		if !reloaded {
			if _, replied := errors.AsType[redis.Error](one); !replied {
				e.reload(call, one)
				reloaded = true
			}
		}
		took(i, callError(ctx, call, one))
	}
}

func firstError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// pipeliner is the part of a client that sends commands together.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// send runs a pipeline of cmds. go-redis repeats none that has a command which
// must not be repeated.
func send(ctx context.Context, c pipeliner, cmds []redis.Cmder) error {
	p := c.Pipeline()
	for _, cmd := range cmds {
		if err := p.Process(ctx, cmd); err != nil {
			return err
		}
	}
	_, err := p.Exec(ctx)
	return err
}
