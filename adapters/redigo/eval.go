package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

// evaler runs scripts through client. When bound is not nil, its calls end in
// that time.
type evaler struct {
	client Client
	bound  *bound
}

// Eval implements [driver.Evaler].
func (e evaler) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	// Strings but for the number, and a slice of our own, which redigo may read
	// after the call has ended.
	cmd := make([]any, 0, 2+len(keys)+len(args))
	cmd = append(cmd, s.SHA1(), len(keys))
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	for _, a := range args {
		cmd = append(cmd, a)
	}
	v, err := e.do(ctx, "EVALSHA", cmd, s)
	if err != nil {
		return driver.Reply{}, err
	}
	return reply(v)
}

// do sends one command and returns its reply as redigo reports it. When it runs
// s, it sends it once more by its source if the server does not know it.
func (e evaler) do(ctx context.Context, name string, args []any, s *driver.Script) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	call := e.bound.context(ctx) // one bound for all that follows
	c, err := e.bound.conn(call, e.client)
	if err != nil {
		return nil, driver.NotSent(callError(ctx, call, err))
	}
	defer c.Close()
	v, err := send(ctx, call, c, name, args)
	if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "NOSCRIPT" && s != nil {
		// The server does not know the digest, so it has run nothing.
		args[0] = s.Source()
		v, err = send(ctx, call, c, "EVAL", args)
	}
	return v, err
}

// Up to this size a command goes into the buffers of the operating system, and
// only the wait for its reply takes time.
const small = 8 << 10

// send sends one command on c. ctx is the caller's context, call the one by
// which the command ends.
func send(ctx, call context.Context, c redis.Conn, name string, args []any) (v any, err error) {
	// Done contexts must not get to redigo: it may send all the same.
	if err := ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	deadline, ok := call.Deadline()
	switch left := time.Until(deadline); {
	case !ok:
		v, err = c.Do(name, args...)
	case left <= 0:
		return nil, driver.NotSent(callError(ctx, call, context.DeadlineExceeded))
	case size(args) <= small:
		v, err = redis.DoWithTimeout(c, left, name, args...)
	default:
		// That timeout is for reading alone. This ends a write too, and costs a
		// goroutine.
		call, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		v, err = redis.DoContext(c, call, name, args...)
	}
	if err != nil {
		return nil, callError(ctx, call, err)
	}
	return v, nil
}

func size(args []any) (n int) {
	for _, a := range args {
		if s, ok := a.(string); ok {
			n += len(s)
		}
	}
	return n
}
