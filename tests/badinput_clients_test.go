package tests

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	glideclient "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/glide"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
)

// connect says how a service's client connects.
type connect struct {
	addr           string
	user, password string
	tls            *tls.Config
}

// service is the client of a service, and the adapter over it.
type service struct {
	client any
	driver driver.Evaler
	close  func()
}

// serviceClient is a kind of client, as services make them: with the client's own
// defaults.
type serviceClient struct {
	name string
	// dial returns a new client. Some connect at once, and fail when they cannot.
	dial func(connect) (service, error)
	// isClosed reports whether err is the client's own error for a closed client.
	isClosed func(err error) bool
	// rights are what its user needs beside those of a cache and +ping.
	rights []string
	// retries is set for a client that connects in the background, and of which a
	// call without a connection says no more than that its time is over.
	retries bool
	// ownTLS is set for a client that takes no *tls.Config.
	ownTLS bool
}

var serviceClients = []serviceClient{
	{
		name: "goredis",
		dial: func(to connect) (service, error) {
			c := redis.NewClient(&redis.Options{Addr: to.addr, Username: to.user, Password: to.password, TLSConfig: to.tls})
			return service{c, goredis.New(c), func() { c.Close() }}, nil
		},
		isClosed: func(err error) bool { return errors.Is(err, redis.ErrClosed) },
	},
	{
		name: "rueidis",
		dial: func(to connect) (service, error) {
			c, err := rueidisclient.NewClient(rueidisclient.ClientOption{
				InitAddress: []string{to.addr}, Username: to.user, Password: to.password, TLSConfig: to.tls,
				ForceSingleClient: true, DisableCache: true,
			})
			if err != nil {
				return service{}, err
			}
			return service{c, rueidis.New(c), c.Close}, nil
		},
		isClosed: func(err error) bool { return errors.Is(err, rueidisclient.ErrClosing) },
	},
	{
		name: "valkeygo",
		dial: func(to connect) (service, error) {
			c, err := valkey.NewClient(valkey.ClientOption{
				InitAddress: []string{to.addr}, Username: to.user, Password: to.password, TLSConfig: to.tls,
				ForceSingleClient: true, DisableCache: true,
			})
			if err != nil {
				return service{}, err
			}
			return service{c, valkeygo.New(c), c.Close}, nil
		},
		isClosed: func(err error) bool { return errors.Is(err, valkey.ErrClosing) },
	},
	{
		name: "redigo",
		dial: func(to connect) (service, error) {
			p := &redigopool.Pool{MaxIdle: 8, DialContext: func(ctx context.Context) (redigopool.Conn, error) {
				return redigopool.DialContext(ctx, "tcp", to.addr, redigopool.DialUsername(to.user), redigopool.DialPassword(to.password),
					redigopool.DialUseTLS(to.tls != nil), redigopool.DialTLSConfig(to.tls))
			}}
			return service{p, redigo.New(p), func() { p.Close() }}, nil
		},
		// It has no exported error for that.
		isClosed: func(err error) bool { return strings.Contains(err.Error(), "redigo: get on closed pool") },
	},
	{
		name: "glide",
		dial: func(to connect) (service, error) {
			c, err := dialGlide(target{topology: standalone, addrs: []string{to.addr}, user: to.user, password: to.password})
			if err != nil {
				return service{}, err
			}
			return service{c, glide.New(c), c.Close}, nil
		},
		isClosed: is[*glideclient.ClosingError],
		rights:   []string{"+info"},
		retries:  true,
		ownTLS:   true,
	},
}

// mustDial returns a new client that is closed with the test.
func (c serviceClient) mustDial(t testing.TB, to connect) service {
	t.Helper()
	s, err := c.dial(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// operations are the ways to use a cache, each on a key of its own.
func operations(c *leasecache.Cache[string], load leasecache.Loader[string]) map[string]func(ctx context.Context, key string) error {
	return map[string]func(context.Context, string) error{
		"Get": func(ctx context.Context, key string) error {
			_, err := c.Get(ctx, key, load)
			return err
		},
		"Read": func(ctx context.Context, key string) error {
			_, err := c.Read(ctx, key, load)
			return err
		},
		"Peek": func(ctx context.Context, key string) error {
			_, _, err := c.Peek(ctx, key)
			return err
		},
		"Refresh": func(ctx context.Context, key string) error {
			_, err := c.Refresh(ctx, key, load)
			return err
		},
		"Invalidate": func(ctx context.Context, key string) error { return c.Invalidate(ctx, key) },
	}
}

// ends returns the error of call, and fails the test if that does not end.
func ends(t testing.TB, what string, call func(context.Context) error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call(t.Context()) }()
	return await(t, what+" ends", done)
}
