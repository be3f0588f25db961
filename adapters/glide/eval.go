package glide

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	command := slices.Concat([]string{"EVALSHA", s.SHA1(), strconv.Itoa(len(keys))}, keys, args)
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
// glide reports it. It sends nothing when the context is done, or when the
// server does not answer.
func (e evaler) do(c call, keys, command []string) (any, error) {
	if e.doubtful.Load() {
		if err := e.probe(c, keys[:min(1, len(keys))]); err != nil {
			return nil, err
		}
	}
	return e.send(c, keys, command)
}

// send is do without the probe.
func (e evaler) send(c call, keys, command []string) (any, error) {
	timeout, err := c.timeout()
	if err != nil {
		return nil, driver.NotSent(err)
	}
	reserveStack(uint(len(command)))
	replies, err := e.client.send(c.ctx, keys, command, timeout)
	if err == nil && len(replies) != 1 {
		err = fmt.Errorf("glide: there are %d replies to one command", len(replies))
	}
	var v any
	if err == nil {
		v = replies[0]
		err, _ = v.(error)
	}
	if err != nil {
		v, err = nil, callError(c, err)
	}
	if replied := err == nil || isServerError(err); e.doubtful.Load() == replied {
		e.doubtful.Store(!replied)
	}
	return v, err
}
