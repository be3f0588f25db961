package tests

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
)

func TestMain(m *testing.M) {
	// Tests of several processes start this binary again: see worker_test.go.
	if config, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(work(config))
	}
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(m)
}

// silent keeps go-redis from printing each connection that a test has broken:
// the calls return it.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// drivers are the adapters under test that reach a server over the network.
var drivers = []struct {
	name  string
	open  func(t testing.TB, addr string) driver.Evaler
	lacks conformance.Lacks
}{
	{
		name: "goredis",
		open: func(t testing.TB, addr string) driver.Evaler { return goredis.New(redisClient(t, addr)) },
		lacks: conformance.Lacks{
			Ping: "goredis.New takes any redis.Client by its Process method alone.",
		},
	},
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
