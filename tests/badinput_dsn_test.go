package tests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/servertest"
)

// Passwords as they are, and as a DSN has to write them.
var passwords = []string{"s3cret", "s3cret/+ %@:#?&=é"}

// noSecret fails the test if what is printed holds the password, as it is or as a
// DSN has it, in any of the ways in which programs print.
func noSecret(t testing.TB, what string, printed ...any) {
	t.Helper()
	for _, p := range printed {
		for _, text := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", p), fmt.Sprintf("%q", fmt.Sprint(p))} {
			if strings.Contains(strings.ToLower(text), "s3cret") {
				t.Errorf("%s prints the password: %s", what, text)
			}
		}
	}
}

func TestNoErrorOfAnOpenedClientPrintsThePassword(t *testing.T) {
	const acl = "user default on nopass ~* &* +@all\n" + "user " + "user on >another ~* &* +@all\n"
	locked := servertest.Start(t, servertest.Named(t, "valkey-9"), servertest.File("users.acl", acl), servertest.Args("--aclfile", "users.acl"))
	refused := refusedAddr(t)
	for _, drv := range []string{"goredis", "redigo", "rueidis", "valkeygo", "glide"} {
		for _, password := range passwords {
			for where, addr := range map[string]string{"wrong password": locked.Addr, "unreachable": refused, "unknown host": "no-such-host.invalid:6379"} {
				t.Run(drv+" "+where+" "+url.QueryEscape(password), func(t *testing.T) {
					t.Parallel()
					dsn := (&url.URL{Scheme: "redis", User: url.UserPassword("user", password), Host: addr, Path: "/0"}).String()
					store, err := leasecache.Open(drv, dsn, leasecache.StoreOptions{CallTimeout: patience})
					if err != nil { // a client that connects at once
						checkConnectError(t, "Open", where, err)
						noSecret(t, "Open", err)
						return
					}
					defer store.Close()
					err = ends(t, "Ping", store.Ping)
					checkConnectError(t, "Ping", where, err)
					noSecret(t, "Ping", err, store.Stats())

					var (
						mu     sync.Mutex
						events []leasecache.LoadEvent
					)
					c := newCache(t, store, leasecache.Options{
						Prefix: "secret:", OnUnavailable: leasecache.UnavailableLoad,
						OnLoad: func(ev leasecache.LoadEvent) {
							mu.Lock()
							defer mu.Unlock()
							events = append(events, ev)
						},
					})
					for name, call := range operations(c, constant("v")) {
						err := ends(t, name, func(ctx context.Context) error {
							if name == "Invalidate" { // which goes on for as long as it may
								var cancel context.CancelFunc
								ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
								defer cancel()
							}
							return call(ctx, name)
						})
						if err != nil {
							checkConnectError(t, name, where, err)
							noSecret(t, name, err)
						}
					}
					noSecret(t, "Stats", c.Stats(), store.Stats())
					mu.Lock()
					defer mu.Unlock()
					noSecret(t, "OnLoad", events)
					for _, ev := range events {
						noSecret(t, "OnLoad", ev.Err)
					}
				})
			}
		}
	}
}

// checkConnectError checks that err says why there is no connection.
func checkConnectError(t testing.TB, what, where string, err error) {
	t.Helper()
	want := map[string][]string{
		"wrong password": {"WRONGPASS"},
		"unreachable":    {"refused"},
		"unknown host":   {"no-such-host", "no such host"},
	}[where]
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, w := range want {
		if strings.Contains(err.Error(), w) {
			return
		}
	}
	// A name server that does not answer takes all the time there is.
	if where == "unknown host" && errors.Is(err, leasecache.ErrUnavailable) {
		return
	}
	t.Errorf("%s: %v; want one that contains one of %q", what, err, want)
}

// refusedAddr returns an address at which nothing listens.
func refusedAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestADatabaseThatTheServerDoesNotHaveIsAnErrorThatSaysSo(t *testing.T) {
	server, _ := startOne(t)
	for _, drv := range []string{"goredis", "redigo", "rueidis", "valkeygo", "glide"} {
		t.Run(drv, func(t *testing.T) {
			store, err := leasecache.Open(drv, "redis://user:s3cret@"+server.Addr+"/99999", leasecache.StoreOptions{})
			if err == nil {
				defer store.Close()
				err = ends(t, "Ping", store.Ping)
			}
			noSecret(t, "the error", err)
			// The password is looked at first, so it is the one that has to be right.
			if !strings.Contains(errText(err), "WRONGPASS") {
				t.Errorf("with a wrong password: %v; want WRONGPASS", err)
			}
			store, err = leasecache.Open(drv, "redis://"+server.Addr+"/99999", leasecache.StoreOptions{CallTimeout: patience})
			if err == nil {
				defer store.Close()
				c := newCache(t, store, leasecache.Options{})
				_, err = c.Get(t.Context(), "k", constant("v"))
			}
			want := "DB index is out of range"
			if drv == "glide" { // which says it in its own words
				want = "server refused to switch database"
			}
			if !strings.Contains(errText(err), want) {
				t.Errorf("got %v; want that %s", err, want)
			}
		})
	}
}
