package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
)

type ourPeer struct {
	client *redis.Client
	store  *leasecache.Store
	cache  *leasecache.Cache[product]
}

func openOurs(_ context.Context, addr string) (peer, error) {
	p := ourPeer{client: redis.NewClient(&redis.Options{Addr: addr})}
	var err error
	if p.store, err = leasecache.NewStore(goredis.New(p.client), leasecache.StoreOptions{CallTimeout: 5 * time.Second}); err != nil {
		return nil, err
	}
	p.cache, err = leasecache.New[product](p.store, leasecache.Options{Prefix: prefix, TTL: ttl})
	return p, err
}

func (p ourPeer) get(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error) {
	return p.cache.Get(ctx, key, load)
}

func (p ourPeer) forget(string) {}

func (p ourPeer) invalidate(ctx context.Context, key string) error {
	return p.cache.Invalidate(ctx, key)
}

func (p ourPeer) close() error {
	return errors.Join(p.cache.Close(context.Background()), p.store.Close(), p.client.Close())
}
