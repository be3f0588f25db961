package redigo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

// callError sorts the error of a call on a connection: the server replied with
// it, or nobody knows. What was certainly not sent is known by where it failed.
func callError(ctx, call context.Context, err error) error {
	if re, ok := errors.AsType[redis.Error](err); ok {
		se := driver.ParseServerError(string(re), err)
		if se.Code == "MOVED" || se.Code == "ASK" {
			return fmt.Errorf("redigo: the server is part of a cluster, for which redigo has no client: use adapters/goredis, adapters/rueidis or adapters/valkeygo: %w", se)
		}
		return se
	}
	if c, ok := call.(*callContext); ok && isOver(call) && !isOver(ctx) {
		// Lest the caller takes it for a deadline of his own.
		err = fmt.Errorf("redigo: no reply within the bound of %v: %w", c.bound, err)
	}
	return driver.CallError(ctx, err)
}

// isOver reports whether ctx has ended. A timer of the connection may run ahead
// of the context's own by a moment.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= time.Millisecond
}
