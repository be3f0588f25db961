package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// bare is a client as a service has it, and the commands of its own that leasecache is compared with.
type bare interface {
	// evaler returns the adapter over the client.
	evaler() driver.Evaler
	// get is GET, errNone if there is nothing.
	get(ctx context.Context, key string) ([]byte, error)
	// getString is GET for who wants a string.
	getString(ctx context.Context, key string) (string, error)
	// getMany is a pipeline of GETs of keys that exist.
	getMany(ctx context.Context, keys []string) ([][]byte, error)
	// evalsha is EVALSHA of a script that returns a list of a number and something else, which is returned if it is a string.
	evalsha(ctx context.Context, sha string, keys, args []string) (int64, string, error)
	close() error
}

// errNone is that a key does not exist.
var errNone = errors.New("there is no such key")

// clientKind is a client, and what its figures have to keep to.
type clientKind struct {
	name string // in the names of figures
	dial func(ctx context.Context, addr string) (bare, error)

	// Zero bars are none.
	latencyBar, throughputBar, allocsBar, hotKeyBar, batchBar bar
}

const (
	goRedis    = "goredis"
	goRedisCtx = "goredis-ctx"
)

var clientKinds = []clientKind{
	{name: goRedis, dial: dialGoRedis(redis.Options{}), latencyBar: atMost(1.05), throughputBar: atLeast(0.95), allocsBar: atMost(3), hotKeyBar: atLeast(5), batchBar: atMost(1.3)},
	{name: goRedisCtx, dial: dialGoRedis(redis.Options{ContextTimeoutEnabled: true}), latencyBar: atMost(1.05), throughputBar: atLeast(0.95), allocsBar: atMost(3), hotKeyBar: atLeast(5), batchBar: atMost(1.3)},
	{name: "rueidis", dial: dialRueidis, latencyBar: atMost(1.05), throughputBar: atLeast(0.93), allocsBar: atMost(3), hotKeyBar: atLeast(3.5), batchBar: atMost(1.3)},
	{name: "valkeygo", dial: dialValkeyGo, latencyBar: atMost(1.05), throughputBar: atLeast(0.93), allocsBar: atMost(3), hotKeyBar: atLeast(3.5), batchBar: atMost(1.3)},
	{name: "redigo", dial: dialRedigo, latencyBar: atMost(1.05), throughputBar: atLeast(0.93), allocsBar: atMost(3), hotKeyBar: atLeast(5), batchBar: atMost(1.3)},
	{name: "glide", dial: dialGlide}, // has no bars
}

func clientNamed(name string) (clientKind, error) {
	i := slices.IndexFunc(clientKinds, func(k clientKind) bool { return k.name == name })
	if i < 0 {
		return clientKind{}, fmt.Errorf("there is no client %q", name)
	}
	return clientKinds[i], nil
}
