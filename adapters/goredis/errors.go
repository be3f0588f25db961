package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// callError sorts the error of a command: the server replied with it, it was
// certainly not sent, or nobody knows. redis.Nil is no error and was handled
// before. Hooks wrap errors, so nothing is compared with ==.
func callError(ctx, call context.Context, err error) error {
	if re, ok := errors.AsType[redis.Error](err); ok {
		return driver.ParseServerError(re.Error(), err)
	}
	sent := !notSent(err)
	if c, ok := call.(*callContext); ok && c.ended() && ctx.Err() == nil {
		// Lest the caller takes it for a deadline of his own.
		err = fmt.Errorf("goredis: no reply within the bound of %v: %w", c.bound, err)
	}
	err = driver.CallError(ctx, err)
	if sent {
		return err
	}
	return driver.NotSent(err)
}

// notSent reports whether go-redis gave up before it wrote the command.
func notSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, redis.ErrClosed)
}

// reload has a cluster client learn who owns the slots by now, after a call that
// got no reply. By itself it learns of a failover when a node redirects it,
// which a node that is gone does not do, or a minute later.
func (e evaler) reload(ctx context.Context, err error) {
	c, ok := e.client.(*redis.ClusterClient)
	if !ok || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return
	}
	if _, ok := errors.AsType[redis.Error](err); !ok {
		c.ReloadState(ctx) // in the background, one at a time
	}
}
