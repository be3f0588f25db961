//go:build mutants

// Package suite is what runs under each mutant: the conformance suite with one
// driver, and what needs users with few rights. One build has all mutants; the
// environment names the one that it runs with.
package suite

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/tests/acltest"
	_ "github.com/leasecache/leasecache/tests/mutants/script"
)

func serverAddr(t *testing.T) string {
	t.Helper()
	addr := os.Getenv("LEASECACHE_MUTANTS_ADDR")
	if addr == "" {
		t.Fatal("LEASECACHE_MUTANTS_ADDR is not set: run scripts/mutants.sh")
	}
	return addr
}

func TestConformance(t *testing.T) {
	addr := serverAddr(t)
	conformance.Run(t, conformance.Harness{
		Driver: "goredis",
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		},
		Open: func(t testing.TB, addr string) driver.Evaler {
			c := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { c.Close() })
			return goredis.New(c)
		},
	})
}

func TestACL(t *testing.T) { acltest.Run(t, serverAddr(t)) }
