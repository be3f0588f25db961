package redigo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

// maxPipeline is how many bytes of commands are sent before their replies are
// read. That much goes into the buffers of the operating system, so nobody writes
// to one who does not read.
const maxPipeline = 16 << 10

// batched is one command of a batch.
type batched struct {
	name string
	args []any
	took func(v any, err error)
}

// EvalBatch implements [driver.Batcher]: on one connection, in pipelines of
// limited size.
func (e full) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	results := make([]driver.Result, len(calls))
	cmds := make([]batched, len(calls))
	for i, c := range calls {
		args := make([]any, 0, 2+len(c.Keys)+len(c.Args))
		args = append(args, c.Script.SHA1(), len(c.Keys))
		for _, k := range c.Keys {
			args = append(args, k)
		}
		for _, a := range c.Args {
			args = append(args, a)
		}
		cmds[i] = batched{"EVALSHA", args, func(v any, err error) {
			r := &results[i]
			if r.Reply, r.Err = (driver.Reply{}), err; err == nil {
				r.Reply, r.Err = reply(v)
			}
		}}
	}
	again := func() (again []batched) {
		for i, r := range results {
			if se, ok := errors.AsType[*driver.ServerError](r.Err); ok && se.Code == "NOSCRIPT" {
				cmds[i].name, cmds[i].args[0] = "EVAL", calls[i].Script.Source()
				again = append(again, cmds[i])
			}
		}
		return again
	}
	e.pipeline(ctx, cmds, again)
	return results
}

// pipeline sends commands on one connection, and then those that again returns.
func (e full) pipeline(ctx context.Context, cmds []batched, again func() []batched) {
	fail := func(cmds []batched, err error) {
		for _, cmd := range cmds {
			cmd.took(nil, driver.NotSent(err))
		}
	}
	if len(cmds) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		fail(cmds, err)
		return
	}
	call := e.bound.context(ctx) // one bound for all that follows
	c, err := e.bound.conn(call, e.client)
	if err != nil {
		fail(cmds, callError(ctx, call, err))
		return
	}
	defer c.Close()
	for len(cmds) > 0 {
		n, bytes := 0, 0
		for ; n < len(cmds) && (n == 0 || bytes+size(cmds[n].args) <= maxPipeline); n++ {
			bytes += size(cmds[n].args)
		}
		if n == 1 {
			cmds[0].took(send(ctx, call, c, cmds[0].name, cmds[0].args))
		} else {
			sendAll(ctx, call, c, cmds[:n])
		}
		if cmds = cmds[n:]; c.Err() != nil {
			fail(cmds, callError(ctx, call, c.Err()))
			cmds = nil
		}
		if len(cmds) == 0 && again != nil {
			cmds, again = again(), nil
		}
	}
}

// sendAll sends commands and reads their replies.
func sendAll(ctx, call context.Context, c redis.Conn, cmds []batched) {
	left := time.Duration(0) // the connection's own timeout
	deadline, ok := call.Deadline()
	if ok {
		left = time.Until(deadline)
	}
	var err error
	switch {
	case ctx.Err() != nil:
		err = driver.NotSent(ctx.Err())
	case ok && left <= 0:
		err = driver.NotSent(callError(ctx, call, context.DeadlineExceeded))
	}
	for i := 0; err == nil && i < len(cmds); i++ {
		if err = c.Send(cmds[i].name, cmds[i].args...); err != nil {
			err = callError(ctx, call, err)
		}
	}
	var replies []any
	if err == nil {
		// The empty command flushes, and reads all replies.
		var v any
		if ok {
			v, err = redis.DoWithTimeout(c, left, "")
		} else {
			v, err = c.Do("")
		}
		if replies, _ = v.([]any); err == nil && len(replies) != len(cmds) {
			err = fmt.Errorf("redigo: there are %d replies to %d commands", len(replies), len(cmds))
		}
		if err != nil {
			err = callError(ctx, call, err)
		}
	}
	for i, cmd := range cmds {
		if err != nil {
			cmd.took(nil, err)
			continue
		}
		if re, ok := replies[i].(redis.Error); ok {
			cmd.took(nil, callError(ctx, call, re))
			continue
		}
		cmd.took(replies[i], nil)
	}
}
