package tests

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/conformance"
)

// crowd is how many readers wait for one key.
const crowd = 1000

// gather starts a crowd of reads of key and returns when all of them wait. The
// channel is closed when all have ended.
func gather(t *testing.T, c *leasecache.Cache[string], key, want string, load leasecache.Loader[string]) <-chan struct{} {
	t.Helper()
	before := c.Stats().Misses
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() {
			if v, err := c.Get(t.Context(), key, load); v != want || err != nil {
				t.Errorf("a read of %s got %q, %v; want %q", key, v, err, want)
			}
		})
	}
	eventually(t, "all wait", func() bool { return c.Stats().Misses >= before+crowd })
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func inUse(c *redis.Client) int {
	s := c.PoolStats()
	return int(s.TotalConns) - int(s.IdleConns)
}

// commandsFor returns a proxy in front of addr, and a count of the commands
// through it that name key. The rule that counts them catches none.
func commandsFor(t *testing.T, addr, key string) (*conformance.Proxy, *atomic.Int64) {
	p := conformance.NewProxy(t, dialer(addr))
	var n atomic.Int64
	p.On(func(command []string) bool {
		for _, arg := range command {
			if strings.HasSuffix(arg, "{"+key+"}") {
				n.Add(1)
				break
			}
		}
		return false
	}, -1, conformance.Hang)
	return p, &n
}

func TestSlowLoadDisturbsNobodyElse(t *testing.T) {
	server, admin := startOne(t)
	rdb := redisClient(t, server.Addr)
	c := newCache(t, goredis.New(rdb), leasecache.Options{Prefix: "slow:", Lease: longLease, WaitBound: longLease})
	if _, err := c.Get(t.Context(), "hot", constant("v")); err != nil {
		t.Fatal(err)
	}

	// A load takes as long as the source that it asks. Rounds with a crowd that
	// waits for one alternate with rounds without, so that whatever else the
	// machine does hits both alike.
	const (
		rounds = 2
		slow   = 5 * time.Second
	)
	hits, loads := map[bool][]time.Duration{}, map[bool][]time.Duration{}
	for round := range 2 * rounds {
		waiting := round%2 == 1
		var (
			calls  atomic.Int64
			loaded = make(chan struct{})
			done   <-chan struct{}
			end    = time.Now().Add(slow)
		)
		if waiting {
			began := make(chan struct{})
			done = gather(t, c, fmt.Sprint("slow", round), "at last", func(context.Context) (string, error) {
				calls.Add(1)
				close(began)
				time.Sleep(slow)
				close(loaded)
				return "at last", nil
			})
			await(t, "the load begins", began)
			end = time.Now().Add(slow * 9 / 10)
			eventually(t, "no connection is held", func() bool { return inUse(rdb) == 0 })
		}
		for i := 0; time.Now().Before(end); i++ {
			began := time.Now()
			if _, err := c.Get(t.Context(), "hot", noLoad(t)); err != nil {
				t.Fatal(err)
			}
			hit := time.Now()
			if _, err := c.Get(t.Context(), fmt.Sprint("cold", round, "-", i), constant("v")); err != nil {
				t.Fatal(err)
			}
			if waiting && isClosed(loaded) {
				break // nobody waits any more
			}
			hits[waiting] = append(hits[waiting], hit.Sub(began))
			loads[waiting] = append(loads[waiting], time.Since(hit))
		}
		if waiting {
			if n := inUse(rdb); n != 0 && !isClosed(loaded) {
				t.Errorf("%d connections are in use while %d readers wait and nobody reads", n, crowd)
			}
			await(t, "all reads end", done)
			if n := calls.Load(); n != 1 {
				t.Errorf("%d loads ran", n)
			}
		}
	}
	for what, took := range map[string]map[bool][]time.Duration{"hits": hits, "loads": loads} {
		for _, q := range []struct {
			name     string
			q, times float64
			slack    time.Duration
		}{{"median", 0.5, 3, time.Millisecond}, {"99th percentile", 0.99, 5, 20 * time.Millisecond}} {
			alone, beside := quantile(took[false], q.q), quantile(took[true], q.q)
			t.Logf("%s of other keys, %s: %v alone, %v beside %d readers that wait", what, q.name, alone, beside, crowd)
			if beside > time.Duration(q.times*float64(alone))+q.slack {
				t.Errorf("%s of other keys: the %s is %v beside %d readers that wait, %v without them", what, q.name, beside, crowd, alone)
			}
		}
	}
	noLeases(t, admin, "slow:")
}

func TestReadersThatWait(t *testing.T) {
	server, admin := startOne(t)

	t.Run("for a load in their process send nothing", func(t *testing.T) {
		t.Parallel()
		p, sent := commandsFor(t, server.Addr, "k")
		rdb := redisClient(t, p.Addr())
		c := newCache(t, goredis.New(rdb), leasecache.Options{Prefix: "own:", Lease: longLease, WaitBound: longLease})
		g := newGate()
		done := gather(t, c, "k", "v", g.then(constant("v")))
		await(t, "the load begins", g.began)
		// Each looked once, and one took the lease; by source, if the server did
		// not know the script.
		n := sent.Load()
		if n < crowd+1 || n > crowd+2 {
			t.Errorf("%d readers sent %d commands; want a GET each, and one EVALSHA with perhaps an EVAL", crowd, n)
		}
		eventually(t, "no connection is held", func() bool { return inUse(rdb) == 0 })
		// What has happened by the time that another process has polled twenty
		// times or more would have happened here.
		polls := polls(t, server.Addr, "own:", 20)
		if now := sent.Load(); now != n {
			t.Errorf("they sent %d commands more while another process polled %d times", now-n, polls)
		}
		if n := inUse(rdb); n != 0 {
			t.Errorf("%d connections are in use", n)
		}
		g.open()
		await(t, "all reads end", done)
	})

	t.Run("for a load in another process have one poller", func(t *testing.T) {
		t.Parallel()
		const poll = 50 * time.Millisecond
		p, sent := commandsFor(t, server.Addr, "k")
		rdb := redisClient(t, p.Addr())
		// Without wake-ups, with which there would be nothing to count.
		store, err := leasecache.NewStore(goredis.New(rdb), leasecache.StoreOptions{CallTimeout: patience, NoWakeUps: true})
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, store, leasecache.Options{Prefix: "other:", PollInterval: poll, WaitBound: longLease})
		holder := newCache(t, goredis.New(redisClient(t, server.Addr)), leasecache.Options{Prefix: "other:", Lease: longLease})
		g := newGate()
		held := goRead(t, holder, "k", g.then(constant("v")))
		await(t, "the load begins", g.began)

		// A refresh waits for the same lease, and shares the poller.
		refresh := make(chan error, 1)
		go func() {
			_, err := c.Refresh(t.Context(), "k", constant("v"))
			refresh <- err
		}()
		eventually(t, "the refresh waits", func() bool { return c.Stats().Waits == 1 })
		done := gather(t, c, "k", "v", noLoad(t))
		eventually(t, "all wait", func() bool { return c.Stats().Waits == crowd+1 })
		eventually(t, "one connection is in use at the most", func() bool { return inUse(rdb) <= 1 })
		before, began := sent.Load(), time.Now()
		eventually(t, "sixty polls", func() bool { return sent.Load() >= before+60 })
		n, took := sent.Load()-before, time.Since(began)
		// A poller sleeps for at least half of 2, 4, 8, 16, 32 and 50 ms, and then
		// of 50 ms each time.
		if limit := int64(8 + took/(poll/2)); n > limit {
			t.Errorf("%d readers polled %d times in %v; one poller can do it %d times at the most", crowd, n, took, limit)
		}
		t.Logf("%d readers polled %d times in %v", crowd, n, took)
		for range 100 {
			if n := inUse(rdb); n > 1 {
				t.Errorf("%d connections are in use while %d readers wait; want one at the most", n, crowd)
				break
			}
			if err := admin.Ping(t.Context()).Err(); err != nil { // lets a moment pass
				t.Fatal(err)
			}
		}
		g.open()
		held.want(t, "the holder", "v", leasecache.Loaded, "")
		await(t, "all reads end", done)
		if err := await(t, "the refresh ends", refresh); err != nil {
			t.Errorf("Refresh: %v", err)
		}
		if s := c.Stats(); s.Loads != 1 || s.Waits != crowd+1 {
			t.Errorf("Stats: %d loads, %d waits; want that of the refresh, and %d", s.Loads, s.Waits, crowd+1)
		}
	})
}

// polls has another process poll k of prefix, of which the lease is held, and
// returns how often it did when that is n times or more.
func polls(t *testing.T, addr, prefix string, n int64) int64 {
	t.Helper()
	p, sent := commandsFor(t, addr, "k")
	store, err := leasecache.NewStore(goredis.New(redisClient(t, p.Addr())), leasecache.StoreOptions{CallTimeout: patience, NoWakeUps: true})
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, store, leasecache.Options{Prefix: prefix, PollInterval: 50 * time.Millisecond, WaitBound: longLease})
	goRead(t, c, "k", noLoad(t))
	eventually(t, "another process polls", func() bool { return sent.Load() >= n })
	return sent.Load()
}
