// Package acltest holds the tests of a server's access control lists, which run
// on every server, and on one under each mutant.
package acltest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
)

// leastRights are the commands that docs/protocol.md lists for a user of the
// cache, and nothing more.
var leastRights = []string{"+evalsha", "+eval", "+get", "+set", "+del", "+pttl", "+pexpire", "+rename", "+type", "+getrange", "+time"}

// userClient returns a client that logs in as a new user with these rights on
// the keys of the prefix.
func userClient(t *testing.T, admin *redis.Client, name, prefix string, rights ...string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">secret-of-" + name, "~" + prefix + "*"}
	for _, r := range append([]string{"+hello", "+client|setinfo", "+client|maint_notifications"}, rights...) {
		args = append(args, r)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		// Older servers do not know every subcommand.
		args = append(args[:7], "+hello", "+client")
		for _, r := range rights {
			args = append(args, r)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { admin.Do(context.Background(), "ACL", "DELUSER", name) })
	c := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: name, Password: "secret-of-" + name})
	t.Cleanup(func() { c.Close() })
	return c
}

func without(rights []string, right string) []string {
	var out []string
	for _, r := range rights {
		if r != right {
			out = append(out, r)
		}
	}
	return out
}

// Run tests on the server at addr what users with less than all rights can do.
func Run(t *testing.T, addr string) {
	admin := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { admin.Close() })
	t.Run("a user with the documented rights can do everything", func(t *testing.T) {
		c := newCache(t, goredis.New(userClient(t, admin, "least", "least:", leastRights...)), leasecache.Options{Prefix: "least:", Stale: time.Minute})
		for i := range 3 {
			v, err := c.Get(t.Context(), "k", constant("v"))
			if v != "v" || err != nil {
				t.Fatalf("Get = %q, %v", v, err)
			}
			if _, err := c.Refresh(t.Context(), "k", constant("v")); err != nil {
				t.Fatal(err)
			}
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if n := admin.Exists(t.Context(), "least:s:{k}").Val(); n != 1 {
				t.Errorf("round %d: no stale copy was kept", i)
			}
		}
	})

	t.Run("a missing right is an error that names it and loses nothing", func(t *testing.T) {
		for _, right := range []string{"+eval", "+get", "+set", "+del"} {
			name := "no" + strings.Trim(right, "+")
			c := newCache(t, goredis.New(userClient(t, admin, name, "p:", without(leastRights, right)...)), leasecache.Options{Prefix: "p:"})
			admin.ScriptFlush(t.Context())
			admin.Set(t.Context(), "p:v:{cached}", "v", time.Minute)
			_, err := c.Get(t.Context(), "k", constant("v"))
			if right == "+del" { // reads need no DEL, but the fill frees no lease
				err = c.Invalidate(t.Context(), "cached")
			}
			var se *driver.ServerError
			if !errors.As(err, &se) || !strings.Contains(err.Error(), "docs/protocol.md") {
				t.Errorf("without %s: got %v; want the server's error and what to do", right, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret-of") {
				t.Errorf("without %s: the error prints the password: %v", right, err)
			}
			if v := admin.Get(t.Context(), "p:v:{cached}").Val(); v != "v" {
				t.Errorf("without %s: what was cached is %q", right, v)
			}
		}
	})

	t.Run("without stale serving its rights are not needed", func(t *testing.T) {
		c := newCache(t, goredis.New(userClient(t, admin, "nostale", "r:", "+evalsha", "+eval", "+get", "+set", "+del", "+pttl", "+time")), leasecache.Options{Prefix: "r:"})
		if _, err := c.Get(t.Context(), "k", constant("v")); err != nil {
			t.Error(err)
		}
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})

	t.Run("an invalidation that is refused changes nothing", func(t *testing.T) {
		for _, right := range []string{"+type", "+getrange", "+pttl", "+del"} {
			name := "inv" + strings.Trim(right, "+")
			c := newCache(t, goredis.New(userClient(t, admin, name, "s:", without(leastRights, right)...)), leasecache.Options{Prefix: "s:", Stale: time.Minute})
			admin.MSet(t.Context(), "s:v:{k}", "v", "s:l:{k}", "l")
			if err := c.Invalidate(t.Context(), "k"); err == nil {
				t.Errorf("without %s: Invalidate returned nil", right)
			}
			if n := admin.Exists(t.Context(), "s:v:{k}", "s:l:{k}").Val(); n != 2 {
				t.Errorf("without %s: %d of value and lease are left; want both", right, n)
			}
		}
	})

	t.Run("keys outside of the user's patterns are an error", func(t *testing.T) {
		c := newCache(t, goredis.New(userClient(t, admin, "other", "mine:", leastRights...)), leasecache.Options{Prefix: "theirs:"})
		_, err := c.Get(t.Context(), "k", constant("v"))
		if !strings.Contains(errText(err), "NOPERM") {
			t.Errorf("got %v; want NOPERM", err)
		}
	})

	t.Run("a stale copy never outlives its window for want of a right", func(t *testing.T) {
		for _, right := range []string{"+pexpire", "+rename"} {
			name := "stale" + strings.Trim(right, "+")
			c := newCache(t, goredis.New(userClient(t, admin, name, "q:", without(leastRights, right)...)), leasecache.Options{Prefix: "q:", Stale: time.Second})
			admin.Set(t.Context(), "q:v:{k}", "v", time.Hour)
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Errorf("without %s: %v", right, err)
			}
			if n := admin.Exists(t.Context(), "q:v:{k}", "q:s:{k}").Val(); n != 0 {
				t.Errorf("without %s: the value or an unbounded stale copy is left", right)
			}
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func newCache(t *testing.T, e driver.Evaler, o leasecache.Options) *leasecache.Cache[string] {
	t.Helper()
	o.TTL = 10 * time.Minute
	c, err := leasecache.New[string](e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func constant(v string) leasecache.Loader[string] {
	return func(context.Context) (string, error) { return v, nil }
}
