package tests

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// What docs/protocol.md lists for a cache without stale serving, and PING, which
// clients send for themselves.
const cacheRights = "+evalsha +eval +get +set +del +pttl +time +ping"

func TestAUserWhoMayNotIsToldWhatToGrant(t *testing.T) {
	for _, name := range []string{"valkey-9", "redis-7"} {
		t.Run(name, func(t *testing.T) {
			server := servertest.Start(t, servertest.Named(t, name))
			admin := redisClient(t, server.Addr)
			for _, client := range serviceClients {
				for _, tt := range []struct {
					name            string
					patterns        string
					without         string
					hit, miss, invs bool // whether it works
				}{
					{"all rights", "~acl:*", "", true, true, true},
					{"without EVALSHA", "~acl:*", "+evalsha", true, false, false},
					{"without EVAL", "~acl:*", "+eval", true, false, false},
					{"without GET", "~acl:*", "+get", false, false, true},
					{"without SET", "~acl:*", "+set", true, false, true},
					{"without DEL", "~acl:*", "+del", true, true, false}, // the value that was loaded is returned,
					{"without a key pattern", "", "", false, false, false},
					{"with another prefix", "~other:*", "", false, false, false},
					{"with values alone", "~acl:v:*", "", true, false, false},
				} {
					t.Run(client.name+" "+tt.name, func(t *testing.T) {
						ctx := t.Context()
						admin.FlushAll(ctx)
						admin.ScriptFlush(ctx)
						admin.Set(ctx, valueKey("acl:", "cached"), "v", time.Hour)
						user := login(t, admin, tt.patterns, slices.DeleteFunc(append(strings.Fields(cacheRights), client.rights...), func(r string) bool { return r == tt.without })...)
						svc := client.mustDial(t, connect{addr: server.Addr, user: user, password: "s3cret"})
						c := newCache(t, svc.driver, leasecache.Options{Prefix: "acl:", Lease: 500 * time.Millisecond})

						wantRight(t, "a hit", tt.hit, second(c.Get(ctx, "cached", constant("v"))))
						wantRight(t, "a miss", tt.miss, second(c.Get(ctx, "k", constant("v"))))
						if got := admin.Get(ctx, valueKey("acl:", "cached")).Val(); got != "v" {
							t.Errorf("what was cached is %q now", got)
						}
						leaseGone(t, admin, "acl:", "k")
						err := c.Invalidate(ctx, "cached")
						wantRight(t, "Invalidate", tt.invs, err)
						if left := exists(t, admin, valueKey("acl:", "cached")); left != (err != nil) {
							t.Errorf("Invalidate returned %v, and the value is left: %v", err, left)
						}
					})
				}
			}
		})
	}
}

// wantRight checks that err is nil, or tells what to grant.
func wantRight(t testing.TB, what string, may bool, err error) {
	t.Helper()
	if may || err == nil {
		if !may || err != nil {
			t.Errorf("%s: %v; want that it works: %v", what, err, may)
		}
		return
	}
	_, ok := errors.AsType[*driver.ServerError](err)
	if !ok || errors.Is(err, leasecache.ErrUnavailable) {
		t.Errorf("%s: %v; want the server's error, and not ErrUnavailable, for it is not a matter of time", what, err)
	}
	for _, want := range []string{"grant the user", "docs/protocol.md"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error %q does not contain %q", what, err, want)
		}
	}
	noSecret(t, what, err)
}

func second[V any](_ V, err error) error { return err }

// login makes a user with these rights and the password s3cret, who may nothing else.
func login(t testing.TB, admin *redis.Client, patterns string, rights ...string) string {
	t.Helper()
	const name = "user"
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">s3cret"}
	for _, r := range append(strings.Fields(patterns), rights...) {
		args = append(args, r)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Do(context.Background(), "ACL", "DELUSER", name) })
	return name
}
