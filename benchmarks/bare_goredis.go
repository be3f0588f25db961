package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
)

type bareGoRedis struct {
	client *redis.Client
	// plain is the client as it was before leasecache used it, over the same connections.
	plain *redis.Client
}

func dialGoRedis(o redis.Options) func(context.Context, string) (bare, error) {
	return func(_ context.Context, addr string) (bare, error) {
		o := o
		o.Addr = addr
		c := redis.NewClient(&o)
		return &bareGoRedis{client: c, plain: c.WithTimeout(c.Options().ReadTimeout)}, nil
	}
}

func (b *bareGoRedis) evaler() driver.Evaler { return goredis.New(b.client) }

func (b *bareGoRedis) get(ctx context.Context, key string) ([]byte, error) {
	v, err := b.client.Get(ctx, key).Bytes()
	return v, goRedisError(err)
}

func (b *bareGoRedis) getString(ctx context.Context, key string) (string, error) {
	v, err := b.client.Get(ctx, key).Result()
	return v, goRedisError(err)
}

func goRedisError(err error) error {
	if errors.Is(err, redis.Nil) {
		return errNone
	}
	return err
}

func (b *bareGoRedis) getMany(ctx context.Context, keys []string) ([][]byte, error) {
	p := b.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		cmds[i] = p.Get(ctx, key)
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	for i, cmd := range cmds {
		var err error
		if values[i], err = cmd.Bytes(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (b *bareGoRedis) evalsha(ctx context.Context, sha string, keys, args []string) (int64, string, error) {
	as := make([]any, len(args))
	for i, a := range args {
		as[i] = a
	}
	return reply(b.client.EvalSha(ctx, sha, keys, as...).Slice())
}

// reply returns what evalsha has to, from a list.
func reply(list []any, err error) (int64, string, error) {
	if err != nil {
		return 0, "", err
	}
	if len(list) != 2 {
		return 0, "", fmt.Errorf("a script returned a list of %d, want 2", len(list))
	}
	n, ok := list[0].(int64)
	if !ok {
		return 0, "", fmt.Errorf("a script returned a list that begins with a %T, want a number", list[0])
	}
	switch s := list[1].(type) {
	case string:
		return n, s, nil
	case []byte:
		return n, string(s), nil
	}
	return n, "", nil
}

func (b *bareGoRedis) close() error { return b.client.Close() }

// subscribe is for as long as the process lives.
func (b *bareGoRedis) subscribe(ctx context.Context, hear func(channel string)) (func(ctx context.Context, channel string) error, error) {
	sub := b.client.SSubscribe(ctx, prefix+"first")
	if _, err := sub.Receive(ctx); err != nil {
		return nil, err
	}
	confirmed := make(chan struct{}, 1)
	go func() {
		for {
			switch m, err := sub.Receive(ctx); m := m.(type) {
			case *redis.Subscription:
				confirmed <- struct{}{}
			case *redis.Message:
				hear(m.Channel)
			default:
				if err != nil {
					return // then nobody is woken, which the other end notices
				}
			}
		}
	}()
	return func(ctx context.Context, channel string) error {
		if err := sub.SSubscribe(ctx, channel); err != nil {
			return err
		}
		select {
		case <-confirmed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}
