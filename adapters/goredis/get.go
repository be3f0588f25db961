package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// Get implements [driver.Getter].
func (e getter) Get(ctx context.Context, key string) (string, bool, error) {
	return e.getString(ctx, key)
}

// Get implements [driver.Getter].
func (e getBounder) Get(ctx context.Context, key string) (string, bool, error) {
	return e.getString(ctx, key)
}

func (e evaler) getString(ctx context.Context, key string) (string, bool, error) {
	cmd, err := e.get(ctx, key)
	if cmd == nil {
		return "", false, err
	}
	return cmd.Val(), true, nil
}

// onceGet is a GET that is not repeated. A side effect of NoRetry matters too:
// go-redis does not answer such a command from its client-side cache.
type onceGet struct{ *redis.StringCmd }

// NoRetry keeps go-redis from sending the command a second time.
func (*onceGet) NoRetry() bool { return true }

// getCall holds what one GET needs beside the command, in one allocation.
type getCall struct {
	ctx  callContext
	cmd  onceGet
	args [2]any
}

// get returns a GET of key that found a value, or nil. It is the path of every hit.
func (e evaler) get(ctx context.Context, key string) (*redis.StringCmd, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.NotSent(err)
	}
	g := &getCall{args: [2]any{"get", key}}
	call := e.bound.context(ctx, &g.ctx)
	g.cmd.StringCmd = redis.NewStringCmd(call, g.args[:]...)
	g.cmd.SetFirstKeyPos(1)
	g.cmd.SetStepCount(1)

	err := e.client.Process(call, &g.cmd)
	if err == nil {
		err = g.cmd.Err()
	}
	switch {
	case err == nil:
		return g.cmd.StringCmd, nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	}
	e.reload(call, err)
	return nil, callError(ctx, call, err)
}

// readsPrimary reports whether a GET through c is certainly answered by the
// primary that owns the key.
func readsPrimary(c Client) bool {
	switch c := c.(type) {
	case *redis.Client, *redis.Ring:
		return true
	case *redis.ClusterClient:
		o := c.Options()
		return !o.ReadOnly && !o.RouteByLatency && !o.RouteRandomly
	}
	return false
}
