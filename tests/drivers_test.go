package tests

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	glideclient "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/adapters/glide"
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
	// glide writes on threads that Go does not know. When a connection breaks, the
	// signal would end this process: see the limits in the adapter's documentation.
	signal.Ignore(syscall.SIGPIPE)
	// What clients leave behind for up to a second after they were closed.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"), // it could not dial
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),                 // of a cluster
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"), // closes connections in 5 s
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*clusterClient)._refresh.func2"))
}

// silent keeps go-redis from printing each connection that a test has broken:
// the calls return it.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// client is a client under test, with its adapter.
type client struct {
	name        string
	docs        string            // what docs/protocol.md calls it
	protocols   []int             // the versions of RESP that it has
	oneProtocol string            // why, if it has not both
	cannot      map[string]string // the topologies that it cannot be used with, and why
	open        func(t testing.TB, to target) driver.Evaler
	own         func(err error) bool // tells the client's own errors
	undialled   bool                 // it takes no function that dials: on a cluster the proxy rewrites addresses
	lacks       conformance.Lacks
	nearResp2   string // why it lacks a near tier with RESP2, if it does
}

// clients are the clients that reach a server over the network: the rows of the
// matrix. A new one is added here, and to lacks in lacks_test.go.
var clients = []client{
	{name: "goredis", docs: "go-redis", protocols: []int{3, 2}, open: openGoredis, own: is[redis.Error]},
	{name: "rueidis", docs: "rueidis", protocols: []int{3, 2}, open: openRueidis, own: is[*rueidisclient.RedisError], nearResp2: "with RESP2, a dedicated connection of rueidis gets no messages of client tracking."},
	{name: "valkeygo", docs: "valkey-go", protocols: []int{3, 2}, open: openValkeygo, own: is[*valkey.ValkeyError], nearResp2: "with RESP2, a dedicated connection of valkey-go gets no messages of client tracking."},
	{
		name: "redigo", docs: "redigo", protocols: []int{2}, oneProtocol: "redigo does not know RESP3", open: openRedigo, own: is[redigopool.Error],
		cannot: map[string]string{cluster: "redigo follows no redirections"},
	},
	{
		name: "glide", docs: "glide", protocols: []int{3}, oneProtocol: "glide for Go has RESP3 only", open: openGlide, undialled: true,
		cannot: map[string]string{sentinel: "glide does not ask sentinels", withTLS: "glide for Go has no client certificates"},
		lacks: conformance.Lacks{
			Redial: "glide has one connection to a server, and drops it when it breaks, and not when a reply is late.",
			Wake:   "adapters/glide does not subscribe yet.",
			Near:   "adapters/glide has no connection that the server could tell what changes.",

			Batch:    "adapters/glide sends no batches of several commands yet.",
			BatchGet: "adapters/glide sends no batches of several commands yet.",
		},
	},
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// target is what a client is told about the servers that it is to use.
type target struct {
	topology       string
	protocol       int
	addrs          []string // of the server, of nodes, or of the sentinel
	primaryName    string   // by which the sentinel knows the primary
	user, password string
	tls            *tls.Config
	// route returns the address to dial in place of one that the client was given
	// or has learned; nil for the same.
	route func(addr string) string
}

func (to target) dial(ctx context.Context, addr string) (net.Conn, error) {
	if to.route != nil {
		addr = to.route(addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

func openGoredis(t testing.TB, to target) driver.Evaler {
	var c interface {
		redis.UniversalClient
		goredis.Client
	}
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) { return to.dial(ctx, addr) }
	switch to.topology {
	case cluster:
		c = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: to.addrs, Protocol: to.protocol, ContextTimeoutEnabled: true, Dialer: dial,
		})
	case sentinel:
		c = redis.NewFailoverClient(&redis.FailoverOptions{
			SentinelAddrs: to.addrs, MasterName: to.primaryName, Protocol: to.protocol, Dialer: dial,
		})
	default:
		c = redis.NewClient(&redis.Options{
			Addr: to.addrs[0], Protocol: to.protocol, Username: to.user, Password: to.password, TLSConfig: to.tls,
		})
	}
	t.Cleanup(func() { c.Close() })
	return goredis.New(c)
}

func openRueidis(t testing.TB, to target) driver.Evaler {
	o := rueidisclient.ClientOption{
		InitAddress: to.addrs, AlwaysRESP2: to.protocol == 2, DisableCache: to.protocol == 2,
		Username: to.user, Password: to.password, TLSConfig: to.tls,
		Sentinel: rueidisclient.SentinelOption{MasterSet: to.primaryName},
	}
	o.ForceSingleClient = to.topology != cluster && to.topology != sentinel
	if to.route != nil {
		o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return to.dial(ctx, addr)
		}
	}
	c, err := rueidisclient.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return rueidis.New(c)
}

func openValkeygo(t testing.TB, to target) driver.Evaler {
	o := valkey.ClientOption{
		InitAddress: to.addrs, AlwaysRESP2: to.protocol == 2, DisableCache: to.protocol == 2,
		Username: to.user, Password: to.password, TLSConfig: to.tls,
		Sentinel: valkey.SentinelOption{MasterSet: to.primaryName},
	}
	o.ForceSingleClient = to.topology != cluster && to.topology != sentinel
	if to.route != nil {
		o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return to.dial(ctx, addr)
		}
	}
	c, err := valkey.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return valkeygo.New(c)
}

func openRedigo(t testing.TB, to target) driver.Evaler {
	p := &redigopool.Pool{
		DialContext: func(ctx context.Context) (redigopool.Conn, error) {
			addr := to.addrs[0]
			if to.topology == sentinel {
				var err error
				if addr, err = askSentinel(ctx, to); err != nil {
					return nil, err
				}
			}
			o := []redigopool.DialOption{redigopool.DialWriteTimeout(5 * time.Second)}
			if to.user != "" {
				o = append(o, redigopool.DialUsername(to.user), redigopool.DialPassword(to.password))
			}
			if to.tls != nil {
				o = append(o, redigopool.DialUseTLS(true), redigopool.DialTLSConfig(to.tls))
			}
			return redigopool.DialContext(ctx, "tcp", addr, o...)
		},
		MaxIdle: 32,
	}
	t.Cleanup(func() { p.Close() })
	return redigo.New(p)
}

// askSentinel returns the address at which to dial the primary.
func askSentinel(ctx context.Context, to target) (string, error) {
	c, err := redigopool.DialContext(ctx, "tcp", to.route(to.addrs[0]))
	if err != nil {
		return "", err
	}
	defer c.Close()
	pair, err := redigopool.Strings(redigopool.DoContext(c, ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", to.primaryName))
	if err != nil {
		return "", err
	}
	return to.route(net.JoinHostPort(pair[0], pair[1])), nil
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
}

func openGlide(t testing.TB, to target) driver.Evaler {
	if to.topology != cluster {
		c, err := dialGlide(to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return glide.New(c)
	}
	addrs, err := glideAddrs(to)
	if err != nil {
		t.Fatal(err)
	}
	o := config.NewClusterClientConfiguration().WithRequestTimeout(5 * time.Second)
	for i := range addrs {
		o.WithAddress(&addrs[i])
	}
	c, err := glideclient.NewClusterClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return glide.New(c)
}

// dialGlide returns a client of one server.
func dialGlide(to target) (*glideclient.Client, error) {
	addrs, err := glideAddrs(to)
	if err != nil {
		return nil, err
	}
	o := config.NewClientConfiguration().WithAddress(&addrs[0]).WithRequestTimeout(5 * time.Second)
	if to.user != "" {
		o.WithCredentials(config.NewServerCredentials(to.user, to.password))
	}
	return glideclient.NewClient(o)
}

func glideAddrs(to target) (addrs []config.NodeAddress, err error) {
	for _, addr := range to.addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, config.NodeAddress{Host: host, Port: n})
	}
	return addrs, nil
}
