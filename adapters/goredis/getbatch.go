package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// GetBatch implements [driver.BatchGetter].
func (e getter) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	return e.getBatch(ctx, keys)
}

// GetBatch implements [driver.BatchGetter].
func (e getBounder) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	return e.getBatch(ctx, keys)
}

// getBatch reads the keys in a pipeline. It is the path of hits.
func (e evaler) getBatch(ctx context.Context, keys []string) []driver.GetResult {
	type get struct {
		cmd  onceGet
		args [2]any
	}
	call := e.bound.context(ctx, new(callContext))
	gets := make([]get, len(keys))
	cmds := make([]redis.Cmder, len(keys))
	for i, key := range keys {
		g := &gets[i]
		g.args = [2]any{"get", key}
		g.cmd.StringCmd = redis.NewStringCmd(call, g.args[:]...)
		g.cmd.SetFirstKeyPos(1)
		g.cmd.SetStepCount(1)
		cmds[i] = &g.cmd
	}
	results := make([]driver.GetResult, len(keys))
	e.pipeline(ctx, call, cmds, func(i int, err error) {
		r := &results[i]
		if r.Err = err; err == nil && !errors.Is(cmds[i].Err(), redis.Nil) {
			r.Value, r.OK = gets[i].cmd.Val(), true
		}
	})
	return results
}
