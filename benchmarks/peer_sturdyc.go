package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/viccon/sturdyc"
)

// sturdycPeer is sturdyc with a storage on the server behind its memory.
type sturdycPeer struct {
	storage sturdycStorage
	cache   *sturdyc.Client[product]
}

func openSturdyc(_ context.Context, addr string) (peer, error) {
	s := sturdycStorage{redis.NewClient(&redis.Options{Addr: addr})}
	return sturdycPeer{s, sturdyc.New[product](10_000, 10, ttl, 10, sturdyc.WithNoContinuousEvictions(), sturdyc.WithDistributedStorage(s))}, nil
}

func (p sturdycPeer) get(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error) {
	return p.cache.GetOrFetch(ctx, prefix+"sturdyc:"+key, load)
}

func (p sturdycPeer) forget(key string) { p.cache.Delete(prefix + "sturdyc:" + key) }

// invalidate deletes on the server, and then in the memory of this instance: sturdyc leaves the former to its user.
func (p sturdycPeer) invalidate(ctx context.Context, key string) error {
	defer p.forget(key)
	return p.storage.client.Del(ctx, prefix+"sturdyc:"+key).Err()
}

func (p sturdycPeer) close() error { return p.storage.client.Close() }

type sturdycStorage struct{ client *redis.Client }

func (s sturdycStorage) Get(ctx context.Context, key string) ([]byte, bool) {
	v, err := s.client.Get(ctx, key).Bytes()
	return v, err == nil
}

func (s sturdycStorage) Set(ctx context.Context, key string, value []byte) {
	s.client.Set(ctx, key, value, ttl)
}

// The batches are not used.

func (s sturdycStorage) GetBatch(context.Context, []string) map[string][]byte { return nil }

func (s sturdycStorage) SetBatch(context.Context, map[string][]byte) {}
