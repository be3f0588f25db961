package tests

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/miniredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// What must never be printed. Each is looked for in everything.
const (
	plantedPassword = "planted-s3cret-password"
	plantedValue    = "planted-value-of-a-customer"
	plantedEnd      = "planted-end-of-a-long-key" // beyond what errors show of a key
)

// longKey is a key of which errors show the beginning only.
var longKey = strings.Repeat("k", 128) + plantedEnd

// ledger is a value that says what it holds when it cannot be encoded.
type ledger struct{ N int }

func (l ledger) MarshalJSON() ([]byte, error) {
	if l.N < 0 {
		return nil, errors.New("cannot encode " + plantedValue)
	}
	return json.Marshal(l.N)
}

func (l *ledger) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &l.N); err != nil {
		return fmt.Errorf("cannot decode %s: %w", b, err)
	}
	return nil
}

// printed is everything that was printed, with where it came from.
type printed struct {
	mu   sync.Mutex
	text map[string]string
}

func (p *printed) add(what string, things ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil {
		p.text = map[string]string{}
	}
	for _, v := range things {
		p.text[what] += fmt.Sprintf("%v\n%+v\n%#v\n%q\n", v, v, v, fmt.Sprint(v))
	}
}

// err adds what the error says, and nothing of what it wraps by itself: that is
// the client's own.
func (p *printed) err(what string, err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil {
		p.text = map[string]string{}
	}
	p.text[what] += fmt.Sprintf("%v\n%+v\n%q\n", err, err, err)
}

// check fails the test if anything planted was printed, or if nothing at all was.
func (p *printed) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.text) == 0 {
		t.Error("nothing was printed")
	}
	for what, text := range p.text {
		for _, planted := range []string{plantedPassword, url.QueryEscape(plantedPassword), plantedValue, plantedEnd} {
			if i := strings.Index(text, planted); i >= 0 {
				t.Errorf("%s prints %q: %s", what, planted, text[max(0, i-300):min(len(text), i+100)])
			}
		}
	}
}

// use does everything with a cache, and collects what it prints.
func (p *printed) use(t *testing.T, e driver.Evaler, prefix string) {
	t.Helper()
	p.add("the driver", e)
	store, ok := e.(*leasecache.Store)
	if !ok {
		store = newStore(t, e, 2*time.Second)
	}
	o := leasecache.Options{
		Prefix: prefix, TTL: time.Minute, MaxValueSize: 1 << 10, Stale: time.Minute, OnUnavailable: leasecache.UnavailableLoad, WaitBound: time.Second,
		Lease: 500 * time.Millisecond,
		OnLoad: func(ev leasecache.LoadEvent) {
			p.err("OnLoad of "+ev.Outcome.String(), ev.Err)
			ev.Key, ev.Err = "", nil // the key is told as it is, and the error is above
			p.add("OnLoad", ev)
		},
	}
	c, err := leasecache.New[ledger](store, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := leasecache.New[string](store, o)
	if err != nil {
		t.Fatal(err)
	}
	// Before they are used: to print them goes past their locks.
	o.OnLoad = nil
	p.add("what there is", c, text, store, o)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	give := func(n int) leasecache.Loader[ledger] {
		return func(context.Context) (ledger, error) { return ledger{n}, nil }
	}
	p.err("Ping", store.Ping(ctx))
	for _, key := range []string{"k", "poisoned", "list", longKey} {
		_, err := c.Get(ctx, key, give(1))
		p.err("Get", err)
		_, err = c.Read(ctx, key, give(-1)) // cannot be encoded
		p.err("Read", err)
		_, _, err = c.Peek(ctx, key)
		p.err("Peek", err)
		_, err = c.Refresh(ctx, key, give(-1))
		p.err("Refresh", err)
		_, err = c.GetMany(ctx, []string{key, "other"}, func(context.Context, []string) (map[string]ledger, error) {
			return map[string]ledger{key: {-1}}, nil
		})
		p.err("GetMany", err)
		short, end := context.WithTimeout(ctx, 2*time.Second)
		p.err("Invalidate", c.Invalidate(short, key))
		end()
		for _, v := range []string{plantedValue, strings.Repeat(plantedValue, 100)} { // too large
			_, err := text.Get(ctx, "text"+key, constant(v))
			p.err("Get of a string", err)
			_, err = text.Refresh(ctx, "text"+key, constant(v))
			p.err("Refresh of a string", err)
		}
	}
	for _, key := range []string{"", "}" + longKey} {
		_, err := c.Get(ctx, key, give(1))
		p.err("Get of a bad key", err)
	}
	closing, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	p.err("Close", c.Close(closing))
	p.err("Close", text.Close(closing))
	_, err = c.Get(ctx, longKey, give(1))
	p.err("Get when closed", err)
	p.add("the statistics", c.Stats(), text.Stats(), store.Stats())
}

// poison puts what a cache cannot read where it looks.
func poison(t *testing.T, admin *redis.Client, prefix string) {
	t.Helper()
	if admin == nil {
		return
	}
	ctx := t.Context()
	for _, key := range []string{"k", "poisoned"} {
		if err := admin.Set(ctx, valueKey(prefix, key), `"`+plantedValue+`"`, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.RPush(ctx, valueKey(prefix, "list"), plantedValue).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestNoSecretIsEverPrinted plants passwords, values and the ends of long keys, has
// everything go wrong with every client, and looks for them in all that the library
// prints.
func TestNoSecretIsEverPrinted(t *testing.T) {
	const login = "user default on nopass ~* &* +@all\nuser app on >" + plantedPassword + " ~* &* +@all\nuser reader on >" + plantedPassword + " ~* &* +@read +ping +hello +auth\n"
	withLogin := func(args ...string) []servertest.Option {
		return []servertest.Option{servertest.File("users.acl", login), servertest.Args(append([]string{"--aclfile", "users.acl"}, args...)...)}
	}
	normal := servertest.Start(t, servertest.Named(t, "valkey-9"), withLogin()...)
	full := servertest.Start(t, servertest.Named(t, "valkey-9"), withLogin("--maxmemory", "1", "--maxmemory-policy", "noeviction")...)
	// Servers that do not know a command tell what came with it.
	unknown := servertest.Start(t, servertest.Named(t, "valkey-9"), withLogin("--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "")...)
	noLogin := servertest.Start(t, servertest.Named(t, "valkey-9"), withLogin("--rename-command", "AUTH", "", "--rename-command", "HELLO", "")...)
	admin, adminOfUnknown := redisClient(t, normal.Addr), redisClient(t, unknown.Addr)

	var runs atomic.Int64
	faults := []struct {
		name  string
		to    connect
		admin *redis.Client // of a server that can be poisoned
	}{
		{"no fault", connect{addr: normal.Addr, user: "app", password: plantedPassword}, admin},
		{"no memory", connect{addr: full.Addr, user: "app", password: plantedPassword}, nil},
		{"no scripts", connect{addr: unknown.Addr, user: "app", password: plantedPassword}, adminOfUnknown},
		{"no AUTH", connect{addr: noLogin.Addr, user: "app", password: plantedPassword}, nil},
		{"no rights", connect{addr: normal.Addr, user: "reader", password: plantedPassword}, admin},
		{"wrong password", connect{addr: normal.Addr, user: "app", password: plantedPassword + "x"}, admin},
		{"unknown user", connect{addr: normal.Addr, user: "nobody", password: plantedPassword}, admin},
		{"refused", connect{addr: refusedAddr(t), user: "app", password: plantedPassword}, nil},
		{"no TLS", connect{addr: normal.Addr, user: "app", password: plantedPassword, tls: &tls.Config{MinVersion: tls.VersionTLS12}}, admin},
	}
	for _, client := range serviceClients {
		for _, fault := range faults {
			if fault.to.tls != nil && client.ownTLS {
				continue
			}
			t.Run(client.name+" "+fault.name, func(t *testing.T) {
				t.Parallel()
				prefix := fmt.Sprintf("%d:", runs.Add(1)) // short, or the server would cut what it repeats
				poison(t, fault.admin, prefix)
				var p printed
				svc, err := client.dial(fault.to)
				if err != nil { // the client's own error, which this library has not seen
					p.add("the fault", fault.name)
				} else {
					defer svc.close()
					p.use(t, svc.driver, prefix)
				}
				p.check(t)
			})
			t.Run(client.name+" by DSN "+fault.name, func(t *testing.T) {
				t.Parallel()
				prefix := fmt.Sprintf("%d:", runs.Add(1)) // short, or the server would cut what it repeats
				poison(t, fault.admin, prefix)
				var p printed
				scheme := "redis"
				if fault.to.tls != nil {
					scheme = "rediss"
				}
				dsn := (&url.URL{Scheme: scheme, User: url.UserPassword(fault.to.user, fault.to.password), Host: fault.to.addr, Path: "/0"}).String()
				store, err := leasecache.Open(client.name, dsn, leasecache.StoreOptions{CallTimeout: 2 * time.Second})
				p.add("Open", store)
				p.err("Open", err)
				if err == nil {
					p.use(t, store, prefix)
					p.err("Close of the store", store.Close())
					p.err("Ping when closed", store.Ping(t.Context()))
				}
				p.check(t)
			})
		}
		t.Run(client.name+" bad DSN", func(t *testing.T) {
			var p printed
			for _, dsn := range []string{
				"redis://app:%s@host:port", "redis://app:%s@", "http://app:%s@host", "app:%s@host:1", "redis://host:1?password=%s", "redis://host:1?dial_timeout=%s",
				"redis://app:%s@host:1/x", "redis://app:%s@host:1?colour=red", "%s", "redis://app:%s %%@host",
			} {
				_, err := leasecache.Open(client.name, fmt.Sprintf(dsn, plantedPassword), leasecache.StoreOptions{})
				if err == nil {
					t.Errorf("%s was opened", dsn)
				}
				p.err(dsn, err)
			}
			p.check(t)
		})
	}
	t.Run("miniredis", func(t *testing.T) {
		var p printed
		s := miniredis.New()
		defer s.Close()
		m := s.Miniredis()
		m.Set(valueKey("secret:", "poisoned"), `"`+plantedValue+`"`)
		m.Lpush(valueKey("secret:", "list"), plantedValue)
		p.use(t, s, "secret:")
		m.RequireUserAuth("app", plantedPassword)
		p.use(t, miniredis.Wrap(m), "secret:")
		p.check(t)
	})
}

// TestALoadersErrorIsOnTheServerOnlyIfItMayBe is about what a loader's error says:
// it is its caller's, and goes to others for FailureBackoff only.
func TestALoadersErrorIsOnTheServerOnlyIfItMayBe(t *testing.T) {
	const planted = "planted-text-of-a-loader"
	_, admin := startOne(t)
	for backoff, want := range map[time.Duration]bool{time.Minute: true, -1: false} {
		c := newCache(t, goredis.New(admin), leasecache.Options{Prefix: "loader:", FailureBackoff: backoff})
		_, err := c.Get(t.Context(), "k", func(context.Context) (string, error) { return "", errors.New(planted) })
		if err == nil || err.Error() != planted {
			t.Fatalf("Get: %v; want the loader's error as it is", err)
		}
		closing(t, c)
		found := false
		for _, key := range admin.Keys(t.Context(), "*").Val() {
			found = found || strings.Contains(admin.Get(t.Context(), key).Val(), planted)
		}
		if found != want {
			t.Errorf("with a FailureBackoff of %v the text is on the server: %v, want %v", backoff, found, want)
		}
		if stats := fmt.Sprintf("%#v", c.Stats()); strings.Contains(stats, planted) {
			t.Errorf("the statistics hold it: %s", stats)
		}
		admin.FlushAll(t.Context())
	}
}

// closing closes a cache, which waits for what it still has to send.
func closing(t *testing.T, c *leasecache.Cache[string]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
