// Package acltest holds the tests of a server's access control lists, which run
// on every server, and on one under each mutant.
package acltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// leastRights are the commands that docs/protocol.md lists for a user of the
// cache, and nothing more.
var leastRights = slices.Concat(silentRights, []string{"+spublish", "+ssubscribe", "+sunsubscribe"})

// silentRights are those of a user without wake-ups.
var silentRights = []string{"+evalsha", "+eval", "+get", "+set", "+del", "+pttl", "+pexpire", "+rename", "+type", "+getrange", "+time"}

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
		name := unique("least")
		c := newCache(t, goredis.New(userClient(t, admin, name, "least:", slices.Concat(leastRights, []string{"&least:w:*"})...)), leasecache.Options{Prefix: "least:", Stale: time.Minute})
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
		if n := refusals(t, admin, name); n != 0 {
			t.Errorf("the server refused something %d times", n)
		}
	})

	t.Run("a user without rights on channels can do everything but wake others", func(t *testing.T) {
		name, prefix := unique("deaf"), unique("deaf")+":"
		user := userClient(t, admin, name, prefix, slices.Concat(leastRights, []string{"resetchannels"})...)
		c := newCache(t, goredis.New(user), leasecache.Options{Prefix: prefix})
		useScripts(t, admin, c, goredis.New(user), prefix, protocol.NewKeys(prefix, "k"))
		// One each of fill, release, invalidate and delete.
		if n := refusals(t, admin, name); n < 4 {
			t.Errorf("the server refused %d messages; want one for each script", n)
		}
	})

	t.Run("without wake-ups nothing is refused to such a user", func(t *testing.T) {
		name, prefix := unique("silent"), unique("silent")+":"
		user := userClient(t, admin, name, prefix, silentRights...)
		store, err := leasecache.NewStore(goredis.New(user), leasecache.StoreOptions{NoWakeUps: true})
		if err != nil {
			t.Fatal(err)
		}
		keys := protocol.NewKeys(prefix, "k")
		keys.Wake = ""
		useScripts(t, admin, newCache(t, store, leasecache.Options{Prefix: prefix}), goredis.New(user), prefix, keys)
		if n := refusals(t, admin, name); n != 0 {
			t.Errorf("the server refused something %d times", n)
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

// useScripts runs every script that ends a lease, by a cache and by itself.
func useScripts(t *testing.T, admin *redis.Client, c *leasecache.Cache[string], e driver.Evaler, prefix string, keys protocol.Keys) {
	t.Helper()
	if r, err := c.Read(t.Context(), "k", constant("v")); err != nil || r.Source != leasecache.Loaded || r.Uncached != "" {
		t.Errorf("Read = %+v, %v; want a load that is cached", r, err)
	}
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), "k", func(context.Context) (string, error) { return "", errors.New("no value today") }); err == nil {
		t.Error("Get of a loader that fails returned nil")
	}
	calls := []protocol.Call{
		protocol.FillCall(keys, "token:1", "v", time.Minute),
		protocol.ReleaseCall(keys, "token:1", protocol.NoMark, 0),
		protocol.InvalidateCall(keys, 0),
		protocol.DeleteCalls(keys)[0],
	}
	for _, call := range calls {
		admin.Set(t.Context(), prefix+"l:{k}", "token:1", time.Minute)
		if _, err := e.Eval(t.Context(), call.Script, call.Keys, call.Args); err != nil {
			t.Errorf("script %s: %v", call.Script.Name(), err)
		}
		if n := admin.Exists(t.Context(), prefix+"l:{k}").Val(); n != 0 {
			t.Errorf("script %s: the lease is left", call.Script.Name())
		}
	}
}

// unique returns a name that no other process uses on the server.
func unique(name string) string { return fmt.Sprintf("%s%d", name, os.Getpid()) }

// refusals returns how often the server refused something to a user.
func refusals(t *testing.T, admin *redis.Client, user string) int64 {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, entry := range entries {
		if entry.Username == user {
			n += entry.Count
		}
	}
	return n
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
