package tests

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

func TestFaultsUnderTraffic(t *testing.T) {
	t.Parallel()
	// All clients at once: what is done to the server is done to each of them.
	start := func(t *testing.T, addr, prefix string) fleet {
		return startFleet(t, trafficOptions{prefix: prefix, pace: time.Millisecond, readers: 2},
			func(l liveClient) driver.Evaler { return l.single(t, addr) })
	}
	for _, name := range liveServers {
		spec := servertest.Named(t, name)

		t.Run(name+": SCRIPT FLUSH disturbs nobody", func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, spec)
			admin := redisClient(t, server.Addr)
			f := start(t, server.Addr, "flush:")
			for range 10 {
				f.flows(t, 5)
				if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			f.flows(t, 5)
			f.stop(t, admin)
			f.each(func(name string, tr *traffic) {
				if n := tr.failed.Load() + tr.refused.Load(); n != 0 {
					t.Errorf("%s: %d reads and invalidations failed", name, n)
				}
			})
			noLeases(t, admin, "flush:")
		})

		t.Run(name+": a restart costs no more than the outage", func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, spec)
			f := start(t, server.Addr, "restart:")
			for range 2 {
				f.flows(t, 10)
				server.Kill()
				f.fails(t)
				server.Restart()
				f.recovers(t)
			}
			admin := redisClient(t, server.Addr)
			f.stop(t, admin)
			noLeases(t, admin, "restart:")
		})

		t.Run(name+": CLIENT KILL costs no more than calls that were on the wire", func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, spec)
			admin := redisClient(t, server.Addr)
			f := start(t, server.Addr, "kill:")
			const kills = 10
			for range kills {
				f.flows(t, 10)
				if err := admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
					t.Fatal(err)
				}
			}
			f.recovers(t)
			f.stop(t, admin)
			f.each(func(name string, tr *traffic) {
				if n := tr.failed.Load(); n > kills*int64(len(tr.readers)) {
					t.Errorf("%s: %d reads failed; want one of each reader for each time at the most", name, n)
				}
			})
			noLeases(t, admin, "kill:")
		})

		t.Run(name+": REPLICAOF costs no more than what has to be written", func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, spec)
			admin := redisClient(t, server.Addr)
			o := live("replicaof:")
			f := startFleet(t, o, func(l liveClient) driver.Evaler { return l.single(t, server.Addr) })
			for range 2 {
				f.flows(t, 10)
				// Of a primary that is not there, so that it keeps its data.
				do(t, admin, "REPLICAOF", "127.0.0.1", "1")
				f.all(t, "an invalidation is refused", func(tr *traffic) func() bool {
					refused := tr.refused.Load()
					return func() bool { return tr.refused.Load() > refused }
				})
				do(t, admin, "REPLICAOF", "NO", "ONE")
				f.serves(t, "a primary again", time.Now())
			}
			f.stop(t, admin)
			f.onlyReplies(t, "READONLY")
		})
	}
}

func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	server, admin := startOne(t)
	// So far apart that it shows which of them ended a call. The client's own
	// timeouts end none.
	const short, soon, long = time.Second, 15 * time.Second, longLease
	client := func() driver.Evaler {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: long, WriteTimeout: long, DialTimeout: long, PoolTimeout: long})
		t.Cleanup(func() { c.Close() })
		return goredis.New(c)
	}
	o := leasecache.Options{Prefix: "hang:", Lease: longLease, WaitBound: longLease}
	c := newCache(t, newStore(t, client(), short), o)
	patient := newCache(t, newStore(t, client(), long), o)
	o.OnUnavailable = leasecache.UnavailableLoad
	loads := newCache(t, newStore(t, client(), short), o)
	for _, c := range []*leasecache.Cache[string]{c, patient, loads} { // connections that are up when it hangs
		if _, err := c.Get(t.Context(), "hit", constant("v")); err != nil {
			t.Fatal(err)
		}
	}
	// One read waits for another process when it happens.
	if err := admin.Set(t.Context(), leaseKey("hang:", "held"), "another's", longLease).Err(); err != nil {
		t.Fatal(err)
	}
	waits := goRead(t, c, "held", noLoad(t))
	eventually(t, "a read waits", func() bool { return c.Stats().Waits == 1 })

	server.Pause()
	began := time.Now()
	var wg sync.WaitGroup
	ends := func(what string, want error, call func() error) {
		wg.Go(func() {
			err := call()
			if took := time.Since(began); took > soon {
				t.Errorf("%s took %v", what, took)
			}
			if !errors.Is(err, want) {
				t.Errorf("%s returned %v; want %v", what, err, want)
			}
		})
	}
	for _, key := range []string{"hit", "miss"} {
		ends("a read, bounded by CallTimeout", leasecache.ErrUnavailable, func() error {
			_, err := c.Get(context.Background(), key, noLoad(t))
			return err
		})
		ends("a read that loads without the server", nil, func() error {
			res, err := loads.Read(context.Background(), key, constant("from the source"))
			if res.Value != "from the source" || res.Uncached != leasecache.ServerDown {
				t.Errorf("a read that loads without the server got %q, uncached %q", res.Value, res.Uncached)
			}
			return err
		})
		ends("a read with a deadline", context.DeadlineExceeded, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), short)
			defer cancel()
			_, err := patient.Get(ctx, key, noLoad(t))
			return err
		})
	}
	for _, c := range []*leasecache.Cache[string]{c, patient} {
		ends("an invalidation with a deadline", context.DeadlineExceeded, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), short)
			defer cancel()
			err := c.Invalidate(ctx, "hit", "miss")
			var ie *leasecache.InvalidateError
			if !errors.As(err, &ie) || len(ie.Keys) != 2 {
				t.Errorf("Invalidate returned %v; want an InvalidateError with both keys", err)
			}
			return err
		})
	}
	ends("the read that waited", leasecache.ErrUnavailable, func() error {
		<-waits.done
		return waits.err
	})
	wg.Wait()

	server.Resume()
	for _, c := range []*leasecache.Cache[string]{c, patient, loads} {
		eventually(t, "reads succeed again", func() bool {
			v, err := c.Get(t.Context(), "back", constant("v"))
			return v == "v" && err == nil
		})
	}
	if err := admin.Del(t.Context(), leaseKey("hang:", "held")).Err(); err != nil {
		t.Fatal(err)
	}
	noLeases(t, admin, "hang:")
}

func TestPrimaryThatBecomesAReplica(t *testing.T) {
	t.Parallel()
	for _, name := range liveServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, servertest.Named(t, name))
			for _, l := range liveClients {
				t.Run(l.name, func(t *testing.T) { testBecomesAReplica(t, server, l) })
			}
		})
	}
}

func testBecomesAReplica(t *testing.T, server *servertest.Server, l liveClient) {
	admin := redisClient(t, server.Addr)
	replicaOf := func(args ...any) {
		t.Helper()
		do(t, admin, append([]any{"REPLICAOF"}, args...)...)
	}
	prefix := "replica:" + l.name + ":"
	o := leasecache.Options{Prefix: prefix, Lease: longLease, WaitBound: longLease}
	c := newCache(t, l.single(t, server.Addr), o)
	o.OnUnavailable = leasecache.UnavailableLoad
	loads := newCache(t, l.single(t, server.Addr), o)
	for _, key := range []string{"hit", "invalidated"} {
		if _, err := c.Get(t.Context(), key, constant("v")); err != nil {
			t.Fatal(err)
		}
	}
	g := newGate()
	loading := goRead(t, c, "loading", g.then(constant("v")))
	await(t, "the load begins", g.began)

	// Of a primary that is not there, so that it keeps its data.
	replicaOf("127.0.0.1", "1")
	_, err := c.Get(t.Context(), "miss", noLoad(t))
	if !errors.Is(err, leasecache.ErrUnavailable) || !strings.Contains(err.Error(), "point it at the primary") {
		t.Errorf("a read of a replica returned %v; want ErrUnavailable, and what to do", err)
	}
	var se *driver.ServerError
	if !errors.As(err, &se) || se.Code != "READONLY" {
		t.Errorf("a read of a replica returned %v; want the server's READONLY", err)
	}
	g.open()
	loading.want(t, "the read whose fill is refused", "v", leasecache.Loaded, leasecache.ServerDown)
	for range 2 { // nothing is cached
		goRead(t, loads, "miss", constant("v")).want(t, "a read of a replica with Load", "v", leasecache.Loaded, leasecache.ServerDown)
	}
	goRead(t, loads, "hit", noLoad(t)).want(t, "a hit on a replica", "v", leasecache.Hit, "")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = c.Invalidate(ctx, "hit")
	if !errors.Is(err, leasecache.ErrUnavailable) || !strings.Contains(errText(err), `"hit"`) {
		t.Errorf("an invalidation on a replica returned %v; want ErrUnavailable, and the key", err)
	}
	// One with time tries until the server takes it.
	confirmed := make(chan error, 1)
	tried := c.Stats().Invalidated
	go func() { confirmed <- c.Invalidate(context.Background(), "invalidated") }()
	if _, err := c.Get(t.Context(), "hit", noLoad(t)); err != nil {
		t.Errorf("a hit on a replica: %v", err)
	}
	select {
	case err := <-confirmed:
		t.Errorf("an invalidation on a replica returned %v", err)
	default:
	}
	replicaOf("NO", "ONE")
	if err := await(t, "the invalidation is confirmed", confirmed); err != nil {
		t.Error(err)
	}
	if n := c.Stats().Invalidated; n != tried+1 {
		t.Errorf("Stats: %d keys invalidated; want %d", n, tried+1)
	}
	wantStored(t, admin, prefix, "invalidated", "")
	goRead(t, c, "miss", constant("v")).want(t, "a read after the server is a primary again", "v", leasecache.Loaded, "")
	goRead(t, c, "hit", noLoad(t)).want(t, "a hit after the server is a primary again", "v", leasecache.Hit, "")
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	const right, wrong = "correct-horse", "battery-staple"
	server, admin := startOne(t)
	if err := admin.ConfigSet(t.Context(), "requirepass", right).Err(); err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, e driver.Evaler, code string) {
		t.Helper()
		c := newCache(t, e, leasecache.Options{Prefix: "auth:"})
		_, getErr := c.Get(t.Context(), "k", noLoad(t))
		_, refreshErr := c.Refresh(t.Context(), "k", noLoad(t))
		for _, err := range []error{getErr, refreshErr, c.Invalidate(t.Context(), "k")} {
			var se *driver.ServerError
			if !errors.As(err, &se) || se.Code != code || !strings.Contains(err.Error(), "user") {
				t.Errorf("got %v; want the server's %s, and what to do", err, code)
			}
			if text := errText(err); strings.Contains(text, wrong) || strings.Contains(text, right) {
				t.Errorf("the error prints the password: %v", err)
			}
		}
	}
	client := func(t *testing.T, addr, password string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr, Password: password})
		t.Cleanup(func() { c.Close() })
		return c
	}
	open := func(t *testing.T, password string) *leasecache.Store {
		t.Helper()
		dsn := url.URL{Scheme: "redis", Host: server.Addr, User: url.UserPassword("", password)}
		s, err := leasecache.Open("goredis", dsn.String(), leasecache.StoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	t.Run("of a client", func(t *testing.T) { check(t, goredis.New(client(t, server.Addr, wrong)), "WRONGPASS") })
	t.Run("in a DSN", func(t *testing.T) {
		s := open(t, wrong)
		check(t, s, "WRONGPASS")
		if err := s.Ping(t.Context()); err == nil || strings.Contains(err.Error(), wrong) {
			t.Errorf("Ping returned %v; want an error without the password", err)
		}
	})
	t.Run("none", func(t *testing.T) { check(t, goredis.New(client(t, server.Addr, "")), "NOAUTH") })
	t.Run("the right one", func(t *testing.T) {
		for _, e := range []driver.Evaler{goredis.New(client(t, server.Addr, right)), open(t, right)} {
			c := newCache(t, e, leasecache.Options{Prefix: "auth:"})
			if _, err := c.Get(t.Context(), "k", constant("v")); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("with nobody there", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		c := newCache(t, goredis.New(client(t, addr, wrong)), leasecache.Options{Prefix: "auth:"})
		_, err = c.Get(t.Context(), "k", noLoad(t))
		if !errors.Is(err, leasecache.ErrUnavailable) || strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v; want ErrUnavailable without the password", err)
		}
	})
}
