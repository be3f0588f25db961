package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// A slot that moves key by key, stopped half-way: some of a key's Redis keys are
// on the node that the slot comes from, others on the one that it goes to, and
// scripts with several keys are refused for as long as that takes.
func TestSlotThatMigratesKeyByKey(t *testing.T) {
	t.Parallel()
	settle(t)
	const primaries = 2
	for _, name := range liveServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := servertest.StartCluster(t, servertest.Named(t, name), primaries, 0)
			for _, l := range liveClients {
				if l.cluster == nil {
					continue
				}
				for _, moved := range []struct{ name, kinds string }{
					{"nothing", ""}, {"the value", "v"}, {"the lease", "l"}, {"value and lease", "vl"},
				} {
					t.Run(l.name+", after "+moved.name+" moved", func(t *testing.T) {
						testHalfMigrated(t, cluster, l, moved.kinds)
					})
				}
			}
		})
	}
}

// testHalfMigrated moves the keys of these kinds, out of value and lease.
func testHalfMigrated(t *testing.T, cluster *servertest.Cluster, l liveClient, kinds string) {
	const prefix = "move:"
	// A cluster hashes a name up to the first brace that closes, so all keys of
	// the test share a slot.
	tag := l.name + "-" + kinds
	key := func(name string) string { return tag + "}" + name }
	admin := clusterClient(t, cluster.Addrs())
	slot, err := admin.ClusterKeySlot(t.Context(), tag).Result()
	if err != nil {
		t.Fatal(err)
	}
	from := slotOwner(slot, len(cluster.Nodes))
	to := 1 - from

	cache := func(policy leasecache.OnUnavailable) *leasecache.Cache[string] {
		return newCache(t, newStore(t, l.cluster(t, cluster.Addrs()), patience), leasecache.Options{
			Prefix: prefix, Stale: time.Minute, Lease: longLease, LoadTimeout: longLease, WaitBound: longLease, OnUnavailable: policy,
		})
	}
	c, elsewhere, loads := cache(leasecache.UnavailableFail), cache(leasecache.UnavailableFail), cache(leasecache.UnavailableLoad)

	// Values, and loads that begin before the invalidation: two that hold the
	// lease beside a value, two that hold it alone.
	for _, name := range []string{"hit", "waits", "cut1", "cut3", "refreshed", "refreshed late"} {
		goRead(t, c, key(name), constant("old")).want(t, "the first read", "old", leasecache.Loaded, "")
	}
	refreshed, refreshedLate, loadedLate, unharmed := newGate(), newGate(), newGate(), newGate()
	refresh := goRefresh(t, c, key("refreshed"), refreshed.then(constant("overtaken")))
	refreshLate := goRefresh(t, c, key("refreshed late"), refreshedLate.then(constant("overtaken")))
	loadLate := goRead(t, c, key("loaded late"), loadedLate.then(constant("overtaken")))
	loadUnharmed := goRead(t, c, key("unharmed"), unharmed.then(constant("loaded across")))
	for _, g := range []*gate{refreshed, refreshedLate, loadedLate, unharmed} {
		await(t, "the load begins", g.began)
	}

	m := beginMove(t, cluster.Nodes, slot, from, to)
	for _, name := range []string{"hit", "waits", "cut1", "cut3", "refreshed", "refreshed late", "loaded late", "unharmed"} {
		for _, kind := range kinds {
			m.move(fmt.Sprintf("%s%c:{%s}", prefix, kind, key(name)))
		}
	}
	// It is as the test says: the server refuses scripts with the three keys, and
	// the node that the slot comes from does not have what moved.
	three := []string{valueKey(prefix, key("refreshed")), leaseKey(prefix, key("refreshed")), staleKey(prefix, key("refreshed"))}
	if err := m.from.Eval(t.Context(), "return 1", three).Err(); !hasCode(err, "TRYAGAIN") && !hasCode(err, "ASK") {
		t.Fatalf("the server answers a script with three keys with %v; want TRYAGAIN or ASK", err)
	}
	if err := m.from.Get(t.Context(), valueKey(prefix, key("hit"))).Err(); strings.Contains(kinds, "v") != hasCode(err, "ASK") {
		t.Fatalf("the server answers a GET of the value with %v", err)
	}

	t.Run("hits go on", func(t *testing.T) {
		for _, name := range []string{"hit", "refreshed"} {
			for who, c := range map[string]*leasecache.Cache[string]{"here": c, "elsewhere": elsewhere, "with Load": loads} {
				if v, err := c.Get(t.Context(), key(name), noLoad(t)); v != "old" || err != nil {
					t.Errorf("Get of %s %s got %q, %v", name, who, v, err)
				}
				goRead(t, c, key(name), noLoad(t)).want(t, "Read of "+name+" "+who, "old", leasecache.Hit, "")
				if res, ok, err := c.Peek(t.Context(), key(name)); res.Value != "old" || !ok || err != nil {
					t.Errorf("Peek of %s %s got %q, %v, %v", name, who, res.Value, ok, err)
				}
			}
		}
		if res, ok, err := c.Peek(t.Context(), key("miss")); ok || err != nil {
			t.Errorf("Peek of what is not cached got %q, %v, %v", res.Value, ok, err)
		}
	})

	unavailable := func(t *testing.T, what string, err error) {
		t.Helper()
		var se *driver.ServerError
		if !errors.Is(err, leasecache.ErrUnavailable) || !errors.As(err, &se) || se.Code != "TRYAGAIN" && se.Code != "ASK" {
			t.Errorf("%s: %v; want ErrUnavailable, and the server's TRYAGAIN or ASK", what, err)
		}
	}
	misses := func(t *testing.T, name string) {
		t.Helper()
		_, err := c.Get(t.Context(), key(name), noLoad(t))
		unavailable(t, "Get of "+name, err)
		_, err = c.Read(t.Context(), key(name), noLoad(t))
		unavailable(t, "Read of "+name, err)
		for range 2 { // nothing is cached
			goRead(t, loads, key(name), constant("from the source")).want(t, "Read of "+name+" with Load", "from the source", leasecache.Loaded, leasecache.ServerDown)
		}
	}
	// stored returns which of a key's Redis keys there are, on either node.
	stored := func(name string) (kinds string) {
		var all []string
		all = append(all, m.has(m.from)...)
		all = append(all, m.has(m.to)...)
		for _, kind := range []string{"v", "l", "s"} {
			if slices.Contains(all, prefix+kind+":{"+key(name)+"}") {
				kinds += kind
			}
		}
		return kinds
	}
	t.Run("misses are unavailable", func(t *testing.T) {
		misses(t, "miss")
		_, err := c.Refresh(t.Context(), key("hit"), noLoad(t))
		unavailable(t, "Refresh", err)
		if kinds := stored("miss"); kinds != "" {
			t.Errorf("of a key that was loaded without caching there is %q", kinds)
		}
	})

	waits := make(chan error, 1)
	go func() { waits <- elsewhere.Invalidate(context.Background(), key("waits")) }()

	invalidated := []string{"refreshed", "refreshed late", "loaded late"}
	t.Run("an invalidation gets through when its context ends", func(t *testing.T) {
		seen := []*monitor{startMonitor(t, cluster.Nodes[from].Addr), startMonitor(t, cluster.Nodes[to].Addr)}
		const within = 300 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		began := time.Now()
		if err := elsewhere.Invalidate(ctx, key("refreshed"), key("refreshed late"), key("loaded late")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); ctx.Err() == nil {
			t.Errorf("Invalidate ended after %v, before its context", took)
		}
		for _, name := range invalidated {
			if kinds := stored(name); kinds != "" {
				t.Errorf("of %s there is %q after its invalidation", name, kinds)
			}
		}
		// One moment of one clock comes with each line.
		lines := slices.Concat(seen[0].until(t, m.from), seen[1].until(t, m.to))
		slices.Sort(lines)
		for _, name := range invalidated {
			deleted := func(redisKey string) int {
				return slices.IndexFunc(lines, func(line string) bool {
					return strings.Contains(line, `"DEL" "`+redisKey+`"`)
				})
			}
			lease, value := deleted(leaseKey(prefix, key(name))), deleted(valueKey(prefix, key(name)))
			if lease < 0 || value < 0 || lease > value {
				t.Errorf("of %s the lease was deleted in line %d and the value in line %d; want the lease first:\n%s",
					name, lease, value, strings.Join(lines, "\n"))
			}
		}
	})

	t.Run("also when its context ends while an attempt is on the wire", func(t *testing.T) {
		for n, name := range map[int]string{1: "cut1", 3: "cut3"} { // of the first call, and of the second
			c := newCache(t, &cutShort{Evaler: l.cluster(t, cluster.Addrs()), after: n}, leasecache.Options{Prefix: prefix})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := c.Invalidate(ctx, key(name)); err != nil {
				t.Errorf("after %d replies: %v", n, err)
			}
			if kinds := stored(name); kinds != "" {
				t.Errorf("after %d replies there is %q", n, kinds)
			}
		}
	})

	t.Run("what was loaded before is not cached", func(t *testing.T) {
		misses(t, "refreshed")
		refreshed.open()
		refresh.want(t, "Refresh that was overtaken", "overtaken", leasecache.Loaded, leasecache.ServerDown)
		for _, name := range invalidated {
			if kinds := stored(name); kinds != "" {
				t.Errorf("of %s there is %q after a load that began before its invalidation", name, kinds)
			}
		}
	})
	select {
	case err := <-waits:
		t.Errorf("an invalidation with time left ended with %v while the slot migrates", err)
	default:
	}

	m.finish()

	t.Run("all is well after the migration", func(t *testing.T) {
		if err := await(t, "the invalidation with time left ends", waits); err != nil {
			t.Error(err)
		}
		if kinds := stored("waits"); kinds != "s" { // so it was the script
			t.Errorf("of a key that was invalidated after the migration there is %q; want its stale copy", kinds)
		}
		refreshedLate.open()
		loadedLate.open()
		refreshLate.want(t, "Refresh that was overtaken", "overtaken", leasecache.Loaded, leasecache.LeaseLost)
		loadLate.want(t, "a load that was overtaken", "overtaken", leasecache.Loaded, leasecache.LeaseLost)
		unharmed.open()
		loadUnharmed.want(t, "a load whose lease moved along", "loaded across", leasecache.Loaded, "")
		for _, name := range invalidated {
			if kinds := stored(name); kinds != "" {
				t.Errorf("of %s there is %q after the loads that began before its invalidation", name, kinds)
			}
		}
		for _, name := range []string{"refreshed", "refreshed late", "loaded late", "miss", "waits"} {
			goRead(t, elsewhere, key(name), constant("new")).want(t, "a read of "+name, "new", leasecache.Loaded, "")
			for who, c := range map[string]*leasecache.Cache[string]{"here": c, "with Load": loads} {
				goRead(t, c, key(name), noLoad(t)).want(t, "a read of "+name+" "+who, "new", leasecache.Hit, "")
			}
		}
		goRead(t, c, key("hit"), noLoad(t)).want(t, "a hit", "old", leasecache.Hit, "")
		if err := c.Invalidate(t.Context(), key("hit")); err != nil {
			t.Error(err)
		}
		if kinds := stored("hit"); kinds != "s" {
			t.Errorf("of a key that was invalidated there is %q; want its stale copy", kinds)
		}
		if left := m.has(m.from); len(left) > 0 {
			t.Errorf("the node that the slot came from has %q", left)
		}
	})
}

// cutShort is a driver whose calls of the invalidate script get no reply, but
// for the first ones.
type cutShort struct {
	driver.Evaler
	after int // so many get one
}

func (e *cutShort) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if s.Name() == "invalidate" {
		if e.after == 0 {
			<-ctx.Done()
			return driver.Reply{}, ctx.Err()
		}
		e.after--
	}
	return e.Evaler.Eval(ctx, s, keys, args)
}

// hasCode reports whether err is an error reply with that code, as a go-redis
// client that looks at the servers returns it.
func hasCode(err error, code string) bool {
	return err != nil && err != redis.Nil && strings.HasPrefix(err.Error(), code+" ") //nolint:errorlint // go-redis returns it as it is
}

// goRefresh is [goRead] for a Refresh.
func goRefresh(t testing.TB, c *leasecache.Cache[string], key string, load leasecache.Loader[string]) *read {
	r := &read{done: make(chan struct{})}
	ctx := t.Context()
	go func() {
		defer close(r.done)
		r.res, r.err = c.Refresh(ctx, key, load)
	}()
	return r
}

// Slots that move forth and back while all clients read and invalidate. Nothing
// of that is excused: a migration loses nothing.
func TestSlotsThatMigrateUnderTraffic(t *testing.T) {
	t.Parallel()
	settle(t)
	start := func(t *testing.T, server, prefix string) (*servertest.Cluster, *redis.ClusterClient, fleet, []int64) {
		t.Helper()
		cluster := servertest.StartCluster(t, servertest.Named(t, server), 3, 0)
		f := startFleet(t, live(prefix), func(l liveClient) driver.Evaler {
			if l.cluster == nil {
				return nil
			}
			return l.cluster(t, cluster.Addrs())
		})
		admin := clusterClient(t, cluster.Addrs())
		return cluster, admin, f, trafficSlots(t, admin)
	}

	for _, name := range liveServers {
		t.Run(name+", key by key", func(t *testing.T) {
			t.Parallel()
			cluster, admin, f, slots := start(t, name, "keybykey:")
			f.flows(t, 16)
			for _, round := range []int{1, 2} { // to the next node, and on to the one after it
				for _, slot := range slots[:3] {
					owner := slotOwner(slot, 3)
					m := beginMove(t, cluster.Nodes, slot, (owner+round-1)%3, (owner+round)%3)
					m.move(m.has(m.from)...) // some; more may come
					// Invalidations go on, and have deleted a key of this slot one by one.
					f.all(t, "an invalidation gets through", func(tr *traffic) func() bool {
						n := tr.invalidations.Load()
						return func() bool { return tr.invalidations.Load() >= n+int64(2*len(tr.rows)) }
					})
					m.finish()
				}
			}
			f.serves(t, "after the last migration", time.Now())
			f.stop(t, admin)
			f.onlyReplies(t, "TRYAGAIN", "ASK", "MOVED")
			f.each(func(name string, tr *traffic) {
				for _, code := range []string{"TRYAGAIN", "ASK", "MOVED"} {
					if n := tr.errors["invalidation: "+code]; n > 0 {
						t.Errorf("%s: %d invalidations failed with %s", name, n, code)
					}
				}
				if tr.failed.Load() == 0 {
					t.Errorf("%s: no read met the migration", name)
				}
			})
		})
	}

	t.Run("valkey-9, atomically", func(t *testing.T) {
		t.Parallel()
		cluster, admin, f, slots := start(t, "valkey-9", "atomic:")
		var nodes []*redis.Client
		var ids []any
		for _, n := range cluster.Nodes {
			c := redisClient(t, n.Addr)
			nodes, ids = append(nodes, c), append(ids, do(t, c, "CLUSTER", "MYID"))
		}
		f.flows(t, 16)
		for round := range 6 { // every slot twice around
			for i, c := range nodes {
				var ranges []any
				for _, slot := range slots {
					if (slotOwner(slot, 3)+round)%3 == i {
						ranges = append(ranges, slot, slot)
					}
				}
				if len(ranges) == 0 {
					continue
				}
				args := append(append([]any{"CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"}, ranges...), "NODE", ids[(i+1)%3])
				do(t, c, args...)
				eventually(t, "the slots have moved", func() bool {
					var states []string
					for _, job := range do(t, c, "CLUSTER", "GETSLOTMIGRATIONS").([]any) {
						states = append(states, jobState(job))
					}
					if slices.ContainsFunc(states, func(s string) bool { return s == "failed" || s == "cancelled" }) {
						t.Fatalf("the migrations are %q", states)
					}
					return len(states) > 0 && !slices.ContainsFunc(states, func(s string) bool { return s != "success" })
				})
			}
			for n := range len(traffic{}.rows) {
				slot, err := admin.ClusterKeySlot(t.Context(), trafficKey(n)).Result()
				if err != nil {
					t.Fatal(err)
				}
				owner := nodes[(slotOwner(slot, 3)+round+1)%3]
				eventually(t, "the node that the slot went to serves it", func() bool {
					return owner.Exists(t.Context(), valueKey("atomic:", trafficKey(n))).Err() == nil
				})
			}
			f.flows(t, 8)
		}
		f.serves(t, "after the last migration", time.Now())
		f.stop(t, admin)
		f.onlyReplies(t, "MOVED", "TRYAGAIN")
	})
}

// jobState returns the state of a slot migration as the server lists it.
func jobState(job any) string {
	switch job := job.(type) {
	case map[any]any: // RESP3
		return fmt.Sprint(job["state"])
	case []any:
		for i := 0; i+1 < len(job); i += 2 {
			if job[i] == "state" {
				return fmt.Sprint(job[i+1])
			}
		}
	}
	return fmt.Sprintf("unknown: %v", job)
}
