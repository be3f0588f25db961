package tests

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
)

func TestMain(m *testing.M) {
	// Tests of several processes start this binary again: see worker_test.go.
	if config, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(work(config))
	}
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(m,
		// A cluster client that was closed leaves this behind for up to a second.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"))
}

// silent keeps go-redis from printing each connection that a test has broken:
// the calls return it.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// drivers are the adapters under test that reach a server over the network, once
// for each version of the protocol that the client has.
var drivers = []struct {
	name  string
	open  func(t testing.TB, addr string) driver.Evaler
	own   func(err error) bool // tells the client's own errors
	lacks conformance.Lacks
}{
	{name: "goredis", open: openGoredis(3), own: is[redis.Error]},
	{name: "goredis-resp2", open: openGoredis(2), own: is[redis.Error]},
	{name: "rueidis", open: openRueidis(false), own: is[*rueidisclient.RedisError]},
	{name: "rueidis-resp2", open: openRueidis(true), own: is[*rueidisclient.RedisError]},
	{name: "valkeygo", open: openValkeygo(false), own: is[*valkey.ValkeyError]},
	{name: "valkeygo-resp2", open: openValkeygo(true), own: is[*valkey.ValkeyError]},
	{name: "redigo", open: openRedigo, own: is[redigopool.Error]}, // it has RESP2 only
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func openGoredis(protocol int) func(testing.TB, string) driver.Evaler {
	return func(t testing.TB, addr string) driver.Evaler {
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol})
		t.Cleanup(func() { c.Close() })
		return goredis.New(c)
	}
}

func openRueidis(resp2 bool) func(testing.TB, string) driver.Evaler {
	return func(t testing.TB, addr string) driver.Evaler {
		c, err := rueidisclient.NewClient(rueidisclient.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, AlwaysRESP2: resp2, DisableCache: resp2,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return rueidis.New(c)
	}
}

func openValkeygo(resp2 bool) func(testing.TB, string) driver.Evaler {
	return func(t testing.TB, addr string) driver.Evaler {
		c, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, AlwaysRESP2: resp2, DisableCache: resp2,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return valkeygo.New(c)
	}
}

func openRedigo(t testing.TB, addr string) driver.Evaler {
	p := &redigopool.Pool{
		DialContext: func(ctx context.Context) (redigopool.Conn, error) {
			return redigopool.DialContext(ctx, "tcp", addr, redigopool.DialWriteTimeout(5*time.Second))
		},
		MaxIdle: 32,
	}
	t.Cleanup(func() { p.Close() })
	return redigo.New(p)
}

func redisClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}
