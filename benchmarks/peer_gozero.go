package main

import (
	"context"
	"errors"
	"sync"

	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/cache"
	"github.com/zeromicro/go-zero/core/stores/redis"
	"github.com/zeromicro/go-zero/core/syncx"
)

// goZero is the cache of go-zero. All instances in a process share a client, which it never closes, but each has its own
// barrier, as each process has.
type goZero struct{ cache cache.Cache }

var errGoZeroNotFound = errors.New("not found")

// goZeroStat counts for all instances: each has a goroutine that never ends.
var goZeroStat = sync.OnceValue(func() *cache.Stat {
	logx.Disable() // it writes to standard output
	return cache.NewStat("bench")
})

func openGoZero(_ context.Context, addr string) (peer, error) {
	stat := goZeroStat()
	r, err := redis.NewRedis(redis.RedisConf{Host: addr, Type: redis.NodeType, NonBlock: true})
	if err != nil {
		return nil, err
	}
	return goZero{cache.NewNode(r, syncx.NewSingleFlight(), stat, errGoZeroNotFound, cache.WithExpiry(ttl))}, nil
}

func (p goZero) get(ctx context.Context, key string, load func(context.Context) (product, error)) (v product, err error) {
	err = p.cache.TakeCtx(ctx, &v, prefix+"go-zero:"+key, func(to any) error {
		got, err := load(ctx)
		*to.(*product) = got
		return err
	})
	return v, err
}

func (p goZero) forget(string) {}

func (p goZero) invalidate(ctx context.Context, key string) error {
	return p.cache.DelCtx(ctx, prefix+"go-zero:"+key)
}

func (p goZero) close() error { return nil }
