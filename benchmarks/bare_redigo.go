package main

import (
	"context"
	"errors"

	redigopool "github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/driver"
)

type bareRedigo struct{ pool *redigopool.Pool }

func dialRedigo(_ context.Context, addr string) (bare, error) {
	return bareRedigo{&redigopool.Pool{
		MaxIdle: goroutines, // or connections would be made while it is measured
		DialContext: func(ctx context.Context) (redigopool.Conn, error) {
			return redigopool.DialContext(ctx, "tcp", addr)
		},
	}}, nil
}

func (b bareRedigo) evaler() driver.Evaler { return redigo.New(b.pool) }

// do sends a command without the context, which costs redigo a goroutine: that is what most of its users do.
func (b bareRedigo) do(ctx context.Context, name string, args ...any) (any, error) {
	c, err := b.pool.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(name, args...)
}

func (b bareRedigo) get(ctx context.Context, key string) ([]byte, error) {
	v, err := redigopool.Bytes(b.do(ctx, "GET", key))
	return v, redigoError(err)
}

func (b bareRedigo) getString(ctx context.Context, key string) (string, error) {
	v, err := redigopool.String(b.do(ctx, "GET", key))
	return v, redigoError(err)
}

func redigoError(err error) error {
	if errors.Is(err, redigopool.ErrNil) {
		return errNone
	}
	return err
}

func (b bareRedigo) getMany(ctx context.Context, keys []string) ([][]byte, error) {
	c, err := b.pool.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, key := range keys {
		if err := c.Send("GET", key); err != nil {
			return nil, err
		}
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	for i := range keys {
		if values[i], err = redigopool.Bytes(c.Receive()); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (b bareRedigo) evalsha(ctx context.Context, sha string, keys, args []string) (int64, string, error) {
	cmd := redigopool.Args{}.Add(sha, len(keys)).AddFlat(keys).AddFlat(args)
	return reply(redigopool.Values(b.do(ctx, "EVALSHA", cmd...)))
}

func (b bareRedigo) close() error { return b.pool.Close() }
