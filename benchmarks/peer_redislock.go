package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// lockedLoads is what services write by hand: GET, a lock on the server around the loader, and
// GET again every 10 ms while another has it.
type lockedLoads struct {
	client *redis.Client
	locks  *redislock.Client
}

func openRedislock(_ context.Context, addr string) (peer, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	return lockedLoads{c, redislock.New(c)}, nil
}

func (p lockedLoads) get(ctx context.Context, key string, load func(context.Context) (product, error)) (_ product, err error) {
	var lock *redislock.Lock
	for lock == nil {
		v, err := p.cached(ctx, key)
		if !errors.Is(err, redis.Nil) {
			return v, err
		}
		lock, err = p.locks.Obtain(ctx, prefix+"redislock:lock:"+key, 5*time.Second, nil)
		switch {
		case errors.Is(err, redislock.ErrNotObtained):
			time.Sleep(10 * time.Millisecond)
		case err != nil:
			return product{}, err
		}
	}
	defer func() { err = errors.Join(err, lock.Release(ctx)) }()
	// Another may have loaded it meanwhile.
	v, err := p.cached(ctx, key)
	if !errors.Is(err, redis.Nil) {
		return v, err
	}
	if v, err = load(ctx); err != nil {
		return product{}, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return product{}, err
	}
	return v, p.client.Set(ctx, prefix+"redislock:"+key, data, ttl).Err()
}

func (p lockedLoads) cached(ctx context.Context, key string) (v product, err error) {
	data, err := p.client.Get(ctx, prefix+"redislock:"+key).Bytes()
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}

func (p lockedLoads) forget(string) {}

func (p lockedLoads) invalidate(ctx context.Context, key string) error {
	return p.client.Del(ctx, prefix+"redislock:"+key).Err()
}

func (p lockedLoads) close() error { return p.client.Close() }
