package tests

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/internal/resp"
	"github.com/leasecache/leasecache/servertest"
)

func TestAServerThatIsFullIsUnavailableUntilClientsLeave(t *testing.T) {
	for _, name := range []string{"valkey-9", "redis-7"} {
		for _, client := range serviceClients {
			t.Run(name+" "+client.name, func(t *testing.T) {
				t.Parallel()
				server := servertest.Start(t, servertest.Named(t, name), servertest.Args("--maxclients", "10"))
				// One connection for us.
				admin := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, MaxActiveConns: 1, ConnMaxIdleTime: -1})
				t.Cleanup(func() { admin.Close() })
				own, err := admin.ClientID(t.Context()).Result()
				if err != nil {
					t.Fatal(err)
				}

				addr := server.Addr
				if client.name == "rueidis" || client.name == "valkeygo" {
					// They panic in a goroutine of their own, once in a while, when a server
					// has said something before they did: see their adapters' Limits.
					addr = silentUntilSpokenTo(t, addr)
				}
				svc := client.mustDial(t, connect{addr: addr})
				callTimeout := patience
				if client.retries { // else calls take all of it
					callTimeout = time.Second
				}
				store := newStore(t, svc.driver, callTimeout)
				c := newCache(t, store, leasecache.Options{Prefix: "full:"})
				other := newCache(t, store, leasecache.Options{Prefix: "full:", OnUnavailable: leasecache.UnavailableLoad})
				if _, err := c.Get(t.Context(), "k", constant("v")); err != nil {
					t.Fatal(err)
				}
				// The client loses its connections, and others come before it.
				limit := func(n string) {
					if err := admin.ConfigSet(t.Context(), "maxclients", n).Err(); err != nil {
						t.Fatal(err)
					}
				}
				if client.retries { // at once, so that it would be the first
					limit("1")
				}
				if err := admin.ClientKillByFilter(t.Context(), "SKIPME", "yes", "TYPE", "normal").Err(); err != nil {
					t.Fatal(err)
				}
				leave := func() { limit("10") }
				if !client.retries {
					leave = fill(t, server.Addr)
				}
				if id, err := admin.ClientID(t.Context()).Result(); err != nil || id != own {
					t.Fatalf("our own connection was lost: client %d, %v", id, err)
				}

				// The server says so to a connection that is too many, and closes it. The
				// reply may be lost then, on its way, or because the client takes it for
				// one to its greeting and goes on: all do but redigo, which has none.
				for call, do := range operations(c, constant("v")) {
					if call == "Invalidate" { // which goes on, see below
						continue
					}
					eventually(t, call+" says that there are too many clients", func() bool {
						err := do(t.Context(), "k")
						if !errors.Is(err, leasecache.ErrUnavailable) {
							t.Fatalf("%s: %v; want ErrUnavailable", call, err)
						}
						if client.name == "redigo" && !strings.Contains(err.Error(), "max number of clients reached") {
							return false
						}
						return client.retries || strings.Contains(err.Error(), "maxclients")
					})
				}
				if v, err := other.Get(t.Context(), "source", constant("from the source")); v != "from the source" || err != nil {
					t.Errorf("with UnavailableLoad: %q, %v; want what the source has", v, err)
				}

				// An invalidation gets through when there is room again.
				invalidated := make(chan error, 1)
				go func() { invalidated <- c.Invalidate(t.Context(), "k") }()
				leave()
				if err := await(t, "Invalidate ends", invalidated); err != nil {
					t.Error(err)
				}
				eventually(t, "reads work again", func() bool {
					_, err := c.Get(t.Context(), "k", constant("v"))
					return err == nil
				})
			})
		}
	}
}

// silentUntilSpokenTo returns the address of a proxy for addr that passes on what
// the server says only after the client has said something.
func silentUntilSpokenTo(t testing.TB, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { in.Close() })
			wg.Go(func() {
				first := make([]byte, 4096)
				n, err := in.Read(first)
				if err != nil {
					in.Close()
					return
				}
				forward(in, addr, first[:n])
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// fill takes all connections that the server at addr still has. leave gives them back.
func fill(t testing.TB, addr string) (leave func()) {
	t.Helper()
	var taken []net.Conn
	leave = func() {
		for _, c := range taken {
			c.Close()
		}
	}
	t.Cleanup(leave)
	for range 100 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.NewConn(c).Do("PING"); err != nil {
			c.Close()
			return leave
		}
		taken = append(taken, c)
	}
	t.Fatalf("the server took %d clients", len(taken))
	return leave
}
