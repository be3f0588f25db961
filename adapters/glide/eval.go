package glide

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// evaler runs scripts through client. When bound is above 0, its calls end in
// that time.
type evaler struct {
	client   sender
	bound    time.Duration
	doubtful *atomic.Bool // nobody knows what became of the last call on the client
}

// Eval implements [driver.Evaler].
func (e evaler) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	c := e.call(ctx) // one time limit for all that follows
	if err := e.probe(c, keys); err != nil {
		return driver.Reply{}, err
	}
	command := make([]string, 0, 3+len(keys)+len(args))
	command = append(command, "EVALSHA", s.SHA1(), strconv.Itoa(len(keys)))
	command = append(append(command, keys...), args...)
	v, err := e.do(c, keys, command)
	if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "NOSCRIPT" {
		// The server does not know the digest, so it has run nothing.
		command[0], command[1] = "EVAL", s.Source()
		v, err = e.do(c, keys, command)
	}
	if err != nil {
		return driver.Reply{}, err
	}
	return reply(v)
}

// do sends one command, to the node that has the keys, and returns its reply as
// glide reports it. It sends nothing when the context is done.
func (e evaler) do(c call, keys, command []string) (any, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	timeout, err := c.timeout()
	if err != nil {
		return nil, driver.NotSent(err)
	}
	replies, err := e.client.send(c.ctx, keys, command, timeout)
	if err == nil && len(replies) != 1 {
		err = fmt.Errorf("glide: there are %d replies to one command", len(replies))
	}
	if err == nil {
		err, _ = replies[0].(error)
	}
	if err != nil {
		err = callError(c, err)
		_, replied := errors.AsType[*driver.ServerError](err)
		e.note(replied)
		return nil, err
	}
	e.note(true)
	return replies[0], nil
}
