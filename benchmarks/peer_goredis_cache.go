package main

import (
	"context"

	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
)

// goRedisCache is go-redis/cache without its tier in memory.
type goRedisCache struct {
	client *redis.Client
	cache  *cache.Cache
}

func openGoRedisCache(_ context.Context, addr string) (peer, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	return goRedisCache{c, cache.New(&cache.Options{Redis: c})}, nil
}

func (p goRedisCache) get(ctx context.Context, key string, load func(context.Context) (product, error)) (v product, err error) {
	err = p.cache.Once(&cache.Item{
		Ctx: ctx, Key: prefix + "go-redis-cache:" + key, Value: &v, TTL: ttl,
		Do: func(item *cache.Item) (any, error) { return load(item.Context()) },
	})
	return v, err
}

func (p goRedisCache) forget(string) {}

func (p goRedisCache) invalidate(ctx context.Context, key string) error {
	return p.cache.Delete(ctx, prefix+"go-redis-cache:"+key)
}

func (p goRedisCache) close() error { return p.client.Close() }
