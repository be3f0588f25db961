package main

import (
	"context"
	"fmt"

	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
)

type bareValkeyGo struct{ client valkey.Client }

func dialValkeyGo(_ context.Context, addr string) (bare, error) {
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	return bareValkeyGo{c}, err
}

func (b bareValkeyGo) evaler() driver.Evaler { return valkeygo.New(b.client) }

func (b bareValkeyGo) get(ctx context.Context, key string) ([]byte, error) {
	v, err := b.client.Do(ctx, b.client.B().Get().Key(key).Build()).AsBytes()
	if valkey.IsValkeyNil(err) {
		err = errNone
	}
	return v, err
}

func (b bareValkeyGo) getString(ctx context.Context, key string) (string, error) {
	v, err := b.client.Do(ctx, b.client.B().Get().Key(key).Build()).ToString()
	if valkey.IsValkeyNil(err) {
		err = errNone
	}
	return v, err
}

func (b bareValkeyGo) getMany(ctx context.Context, keys []string) ([][]byte, error) {
	cmds := make(valkey.Commands, len(keys))
	for i, key := range keys {
		cmds[i] = b.client.B().Get().Key(key).Build()
	}
	values := make([][]byte, len(keys))
	for i, r := range b.client.DoMulti(ctx, cmds...) {
		var err error
		if values[i], err = r.AsBytes(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (b bareValkeyGo) evalsha(ctx context.Context, sha string, keys, args []string) (int64, string, error) {
	list, err := b.client.Do(ctx, b.client.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToArray()
	if err != nil {
		return 0, "", err
	}
	if len(list) != 2 {
		return 0, "", fmt.Errorf("a script returned a list of %d, want 2", len(list))
	}
	n, err := list[0].AsInt64()
	second, _ := list[1].ToString() // may be a number
	return n, second, err
}

func (b bareValkeyGo) close() error {
	b.client.Close()
	return nil
}
