package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	glideclient "github.com/valkey-io/valkey-glide/go/v2"
	glideconfig "github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"

	"github.com/leasecache/leasecache/adapters/glide"
	"github.com/leasecache/leasecache/driver"
)

type bareGlide struct{ client *glideclient.Client }

func dialGlide(_ context.Context, addr string) (bare, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	c, err := glideclient.NewClient(glideconfig.NewClientConfiguration().
		WithAddress(&glideconfig.NodeAddress{Host: host, Port: n}).
		WithRequestTimeout(5 * time.Second))
	return bareGlide{c}, err
}

func (b bareGlide) evaler() driver.Evaler { return glide.New(b.client) }

func (b bareGlide) get(ctx context.Context, key string) ([]byte, error) {
	v, err := b.getString(ctx, key)
	return []byte(v), err
}

func (b bareGlide) getString(ctx context.Context, key string) (string, error) {
	v, err := b.client.Get(ctx, key)
	if err == nil && v.IsNil() {
		err = errNone
	}
	return v.Value(), err
}

func (b bareGlide) getMany(ctx context.Context, keys []string) ([][]byte, error) {
	p := pipeline.NewStandaloneBatch(false)
	for _, key := range keys {
		p.Get(key)
	}
	got, err := b.client.Exec(ctx, *p, true)
	if err != nil {
		return nil, err
	}
	values := make([][]byte, len(got))
	for i, v := range got {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("GET in a pipeline returned a %T", v)
		}
		values[i] = []byte(s)
	}
	return values, nil
}

func (b bareGlide) evalsha(ctx context.Context, sha string, keys, args []string) (int64, string, error) {
	v, err := b.client.CustomCommand(ctx, slices.Concat([]string{"EVALSHA", sha, strconv.Itoa(len(keys))}, keys, args))
	list, ok := v.([]any)
	if err == nil && !ok {
		err = fmt.Errorf("a script returned a %T, want a list", v)
	}
	return reply(list, err)
}

func (b bareGlide) close() error {
	b.client.Close()
	return nil
}
