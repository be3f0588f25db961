package goredis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// Ping implements [driver.Pinger]. In a cluster it asks any of the nodes.
func (e evaler) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return driver.NotSent(err)
	}
	call := e.bound.context(ctx, new(callContext))
	cmd := &onceCmd{redis.NewCmd(call, "ping")}
	cmd.SetStepCount(1)
	err := e.client.Process(call, cmd)
	if err == nil {
		err = cmd.Err()
	}
	if err != nil {
		return callError(ctx, call, err)
	}
	return nil
}
