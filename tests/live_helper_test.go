package tests

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// A liveClient opens clients for one adapter, as a service would configure
// them. Every call is another process. A nil function is a topology for which
// the client does not exist, and cannot says why.
type liveClient struct {
	name     string
	single   func(t testing.TB, addr string) driver.Evaler
	cluster  func(t testing.TB, addrs []string) driver.Evaler
	sentinel func(t testing.TB, s *servertest.Sentinel) driver.Evaler
	cannot   map[string]string
	// callTimeout of the caches, for traffic that leaves it to the clients: for one
	// whose calls take all of it when there is no connection.
	callTimeout time.Duration
}

var liveClients = []liveClient{
	{
		name:   "goredis",
		single: toOne(openGoredis),
		cluster: func(t testing.TB, addrs []string) driver.Evaler {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
			t.Cleanup(func() { c.Close() })
			return goredis.New(c)
		},
		sentinel: func(t testing.TB, s *servertest.Sentinel) driver.Evaler {
			c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.PrimaryName, SentinelAddrs: []string{s.Sentinel.Addr}})
			t.Cleanup(func() { c.Close() })
			return goredis.New(c)
		},
	},
	{
		name:   "rueidis",
		single: toOne(openRueidis),
		cluster: func(t testing.TB, addrs []string) driver.Evaler {
			return rueidis.New(rueidisOf(t, rueidisclient.ClientOption{InitAddress: addrs}))
		},
		sentinel: func(t testing.TB, s *servertest.Sentinel) driver.Evaler {
			return rueidis.New(rueidisOf(t, rueidisclient.ClientOption{
				InitAddress: []string{s.Sentinel.Addr}, Sentinel: rueidisclient.SentinelOption{MasterSet: s.PrimaryName, TopologyRefreshInterval: time.Second},
			}))
		},
	},
	{
		name:   "valkeygo",
		single: toOne(openValkeygo),
		cluster: func(t testing.TB, addrs []string) driver.Evaler {
			return valkeygo.New(valkeyOf(t, valkey.ClientOption{InitAddress: addrs}))
		},
		sentinel: func(t testing.TB, s *servertest.Sentinel) driver.Evaler {
			return valkeygo.New(valkeyOf(t, valkey.ClientOption{
				InitAddress: []string{s.Sentinel.Addr}, Sentinel: valkey.SentinelOption{MasterSet: s.PrimaryName, TopologyRefreshInterval: time.Second},
			}))
		},
	},
	{
		name: "redigo", single: toOne(openRedigo),
		cannot: map[string]string{cluster: "redigo follows no redirections", sentinel: "redigo does not ask sentinels by itself"},
	},
	{
		name: "glide",
		// By DSN, for the delays before it connects again: its own are of seconds.
		single: func(t testing.TB, addr string) driver.Evaler {
			e, err := driver.Open("glide", "redis://"+addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.(driver.Closer).Close() })
			return e
		},
		cluster: func(t testing.TB, addrs []string) driver.Evaler {
			return openGlide(t, target{topology: cluster, protocol: 3, addrs: addrs})
		},
		cannot: map[string]string{sentinel: "glide does not ask sentinels"},
		// glide does not say that it has no connection: it tries until the time of the
		// call is over. With patience for that, no test could wait for a failure.
		callTimeout: patience / 3,
	},
}

func TestEveryClientIsLiveOrSaysWhyNot(t *testing.T) {
	for _, c := range clients {
		i := slices.IndexFunc(liveClients, func(l liveClient) bool { return l.name == c.name })
		if i < 0 {
			t.Errorf("%s is in the matrix, and not among the live clients", c.name)
			continue
		}
		l := liveClients[i]
		for topology, has := range map[string]bool{standalone: l.single != nil, cluster: l.cluster != nil, sentinel: l.sentinel != nil} {
			why := l.cannot[topology]
			if has == (why != "") {
				t.Errorf("%s has a live client for %s: %v; it cannot, because %q", c.name, topology, has, why)
			}
			if has && c.cannot[topology] != "" {
				t.Errorf("%s is live on %s, and the matrix says that it cannot be: %s", c.name, topology, c.cannot[topology])
			}
		}
	}
}

// toOne opens clients of one server, with the newest protocol that they have.
func toOne(open func(testing.TB, target) driver.Evaler) func(testing.TB, string) driver.Evaler {
	return func(t testing.TB, addr string) driver.Evaler {
		return open(t, target{topology: standalone, protocol: 3, addrs: []string{addr}})
	}
}

// liveServers is one server of each vendor.
var liveServers = []string{"valkey-9", "redis-7"}

func rueidisOf(t testing.TB, o rueidisclient.ClientOption) rueidisclient.Client {
	t.Helper()
	c, err := rueidisclient.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func valkeyOf(t testing.TB, o valkey.ClientOption) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// settle waits, when the test has ended, for what rueidis and valkey-go leave
// behind when the topology changes: a goroutine that closes the connections to
// nodes that are gone after five seconds, whether or not the client is closed.
// Only the check for leaks needs it.
func settle(t testing.TB) {
	t.Cleanup(func() {
		stacks := make([]byte, 8<<20)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if s := string(stacks[:runtime.Stack(stacks, true)]); !strings.Contains(s, "(*clusterClient)._refresh.func") && !strings.Contains(s, "(*standalone).redirectToPrimary.func") {
				return
			}
		}
	})
}

// ---- traffic ----

// traffic is readers of a few keys in several caches, each with a client of its
// own, and one writer that invalidates the keys in turn. The source is a row for
// each key, with a version that only grows. What is checked all the time:
//
//   - a read or an invalidation that fails does so with ErrUnavailable, and an
//     invalidation names the key;
//   - what a read returns is a version of that row, and of no other;
//   - no read returns a version older than the last invalidation that was
//     confirmed when it began (G3), except for reads that touch a span that
//     [traffic.excuse] began.
type traffic struct {
	t       *testing.T
	o       trafficOptions
	rows    [8]row
	readers []*reader
	wg      sync.WaitGroup
	stopped atomic.Bool

	invalidations atomic.Int64 // confirmed
	refused       atomic.Int64 // invalidations that failed
	failed        atomic.Int64 // reads that failed

	// epoch is odd while what was confirmed may be lost. It changes with mu held,
	// and so does what is confirmed.
	mu     sync.Mutex
	epoch  atomic.Int64
	errors map[string]int // how often each kind of error was met

	lastFailure time.Time
}

// row is a row of the source.
type row struct{ version, confirmed atomic.Int64 }

// reader counts the reads of one of the readers.
type reader struct{ read, failed atomic.Int64 }

const (
	trafficCaches  = 3
	trafficReaders = 4 // of each cache
)

// trafficOptions configure traffic. Only prefix has to be set.
type trafficOptions struct {
	prefix string
	// Of the caches. By default nothing ends by one of them within a test.
	lease, callTimeout time.Duration
	// invalidateFor is the deadline of an invalidation. Default: the cache's own.
	invalidateFor time.Duration
	// pace is what a reader waits between two reads, and a quarter of what the
	// writer waits, so that traffic which goes on for long leaves the processors
	// to the servers. Default: nothing.
	pace time.Duration
	// readers is how many read through each cache. Default: trafficReaders.
	readers int
}

// live are the options for what takes seconds: with the timeouts that a service
// would have.
func live(prefix string) trafficOptions {
	return trafficOptions{
		prefix: prefix, lease: 2 * time.Second, callTimeout: time.Second, invalidateFor: 500 * time.Millisecond,
		pace: 5 * time.Millisecond, readers: 2,
	}
}

// startTraffic starts traffic through the clients that open makes. It ends with
// stop, or with the test.
func startTraffic(t *testing.T, open func() driver.Evaler, o trafficOptions) *traffic {
	t.Helper()
	if o.lease == 0 {
		o.lease = longLease
	}
	if o.callTimeout == 0 {
		o.callTimeout = patience
	}
	tr := &traffic{t: t, o: o, errors: map[string]int{}}
	cache := func() *leasecache.Cache[string] {
		return newCache(t, newStore(t, open(), o.callTimeout),
			leasecache.Options{Prefix: o.prefix, Lease: o.lease, WaitBound: 2 * o.lease})
	}
	for range trafficCaches {
		c := cache()
		for range cmp.Or(o.readers, trafficReaders) {
			r := &reader{}
			tr.readers = append(tr.readers, r)
			tr.wg.Go(func() { tr.read(c, r) })
		}
	}
	writer := cache()
	tr.wg.Go(func() { tr.write(writer) })
	t.Cleanup(func() {
		tr.stop()
		if t.Failed() {
			tr.log()
		}
	})
	return tr
}

// A fleet is traffic through several kinds of clients at once, each with a
// prefix of its own, so that no client's values are another's.
type fleet map[string]*traffic

// startFleet starts traffic through every client for which open returns one.
func startFleet(t *testing.T, o trafficOptions, open func(liveClient) driver.Evaler) fleet {
	t.Helper()
	f := fleet{}
	for _, l := range liveClients {
		if first := open(l); first != nil {
			o := o
			o.prefix += l.name + ":"
			o.callTimeout = cmp.Or(o.callTimeout, l.callTimeout)
			f[l.name] = startTraffic(t, func() (e driver.Evaler) {
				if e, first = first, nil; e == nil {
					e = open(l)
				}
				return e
			}, o)
		}
	}
	return f
}

// each runs do for every client's traffic.
func (f fleet) each(do func(name string, tr *traffic)) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		do(name, f[name])
	}
}

// all waits until what begin returned for each of them reports true.
func (f fleet) all(t testing.TB, what string, begin func(*traffic) func() bool) {
	t.Helper()
	done := map[string]func() bool{}
	f.each(func(name string, tr *traffic) { done[name] = begin(tr) })
	f.each(func(name string, _ *traffic) { eventually(t, name+": "+what, done[name]) })
}

// flows waits until every reader has read n times more, and every writer has
// invalidated as often.
func (f fleet) flows(t testing.TB, n int64) {
	t.Helper()
	f.all(t, fmt.Sprintf("all have read and invalidated %d times", n), func(tr *traffic) func() bool { return tr.flowed(n) })
}

// fails waits until a read of every reader has failed.
func (f fleet) fails(t testing.TB) {
	t.Helper()
	f.all(t, "a read of each has failed", func(tr *traffic) func() bool {
		return tr.more(1, func(r *reader) int64 { return r.failed.Load() })
	})
}

// recovers waits until reads succeed again, and checks that they go on to.
func (f fleet) recovers(t testing.TB) {
	t.Helper()
	f.flows(t, 10)
	failed := map[string]int64{}
	f.each(func(name string, tr *traffic) { failed[name] = tr.failed.Load() })
	f.flows(t, 30)
	f.each(func(name string, tr *traffic) {
		if n := tr.failed.Load() - failed[name]; n > 0 {
			t.Errorf("%s: %d reads failed after the server was back and every reader had read ten times", name, n)
		}
	})
}

// serves waits until all serve again, and logs how long each of them took.
func (f fleet) serves(t testing.TB, what string, since time.Time) {
	t.Helper()
	f.each(func(name string, tr *traffic) {
		took := tr.serves(since)
		t.Logf("%s: %s served again after %v", what, name, took.Round(time.Millisecond))
	})
}

// excuse is [traffic.excuse] for all.
func (f fleet) excuse() (end func()) {
	var ends []func()
	f.each(func(_ string, tr *traffic) { ends = append(ends, tr.excuse()) })
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// stop ends all, and checks what they leave behind.
func (f fleet) stop(t testing.TB, admin redis.Cmdable) {
	t.Helper()
	f.each(func(name string, tr *traffic) {
		tr.stop()
		t.Logf("%s: %s", name, tr)
		tr.stored(admin)
	})
}

func trafficKey(n int) string { return fmt.Sprint("k", n) }

// rowVersion returns the version that v, a value of key n, has.
func rowVersion(n int, v string) (int64, error) {
	text, ok := strings.CutPrefix(v, trafficKey(n)+"@")
	if !ok {
		return 0, fmt.Errorf("it is no value of %s", trafficKey(n))
	}
	return strconv.ParseInt(text, 10, 64)
}

func (tr *traffic) read(c *leasecache.Cache[string], r *reader) {
	for i := 0; !tr.stopped.Load(); i++ {
		n := i % len(tr.rows)
		row := &tr.rows[n]
		epoch := tr.epoch.Load() // before what is confirmed
		confirmed := row.confirmed.Load()
		load := func(context.Context) (string, error) {
			return fmt.Sprintf("%s@%d", trafficKey(n), row.version.Load()), nil
		}
		var (
			v   string
			err error
		)
		if i/len(tr.rows)%2 == 0 { // by GET and by script
			v, err = c.Get(context.Background(), trafficKey(n), load)
		} else {
			var res leasecache.Result[string]
			res, err = c.Read(context.Background(), trafficKey(n), load)
			v = res.Value
		}
		switch {
		case errors.Is(err, leasecache.ErrUnavailable):
			tr.note("read", err)
			tr.failed.Add(1)
			r.failed.Add(1)
		case err != nil:
			tr.t.Errorf("a read failed with something else than ErrUnavailable: %v", err)
		default:
			version, err := rowVersion(n, v)
			switch {
			case err != nil || version > row.version.Load():
				tr.t.Errorf("a read of k%d returned %q, which its row never was: %v", n, v, err)
			case version < confirmed && epoch%2 == 0 && epoch == tr.epoch.Load():
				tr.t.Errorf("a read returned %s, after the invalidation of version %d was confirmed", v, confirmed)
			}
			r.read.Add(1)
		}
		time.Sleep(tr.o.pace)
	}
}

func (tr *traffic) write(c *leasecache.Cache[string]) {
	for i := 0; !tr.stopped.Load(); i++ {
		n := i % len(tr.rows)
		row := &tr.rows[n]
		epoch := tr.epoch.Load()
		v := row.version.Add(1) // the commit
		err := tr.invalidate(c, trafficKey(n))
		var ie *leasecache.InvalidateError
		switch {
		case err == nil:
			tr.mu.Lock()
			if epoch%2 == 0 && epoch == tr.epoch.Load() {
				row.confirmed.Store(v)
			}
			tr.mu.Unlock()
			tr.invalidations.Add(1)
		case !errors.Is(err, leasecache.ErrUnavailable):
			tr.t.Errorf("an invalidation failed with something else than ErrUnavailable: %v", err)
		case !errors.As(err, &ie) || !slices.Equal(ie.Keys, []string{trafficKey(n)}):
			tr.t.Errorf("an invalidation of %s failed with %v, which does not name it", trafficKey(n), err)
		default:
			tr.note("invalidation", err)
			tr.refused.Add(1)
		}
		time.Sleep(4 * tr.o.pace) // or nothing is ever cached
	}
}

func (tr *traffic) invalidate(c *leasecache.Cache[string], key string) error {
	ctx := context.Background()
	if tr.o.invalidateFor > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tr.o.invalidateFor)
		defer cancel()
	}
	return c.Invalidate(ctx, key)
}

// note counts an error by what it was.
func (tr *traffic) note(what string, err error) {
	kind := "no reply"
	var se *driver.ServerError
	switch {
	case errors.As(err, &se):
		kind = se.Code
	case errors.Is(err, driver.ErrNotSent):
		kind = "not sent"
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.errors[what+": "+kind]++
	tr.lastFailure = time.Now()
}

// excuse begins a span in which the contract promises nothing about what was
// confirmed, and returns what ends it. Reads and invalidations that touch it are
// not compared, and what was confirmed before it counts for nothing afterwards.
// What is confirmed after it counts again.
func (tr *traffic) excuse() (end func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.epoch.Add(1)
	return func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for i := range tr.rows {
			tr.rows[i].confirmed.Store(0)
		}
		tr.epoch.Add(1)
	}
}

// flowed reports whether by now every reader has read n times more than when
// flowed was called, and the writer has invalidated as often.
func (tr *traffic) flowed(n int64) func() bool {
	read := tr.more(n, func(r *reader) int64 { return r.read.Load() })
	invalidated := tr.invalidations.Load()
	return func() bool { return read() && tr.invalidations.Load() >= invalidated+n }
}

// more reports whether by now each reader's count is n higher.
func (tr *traffic) more(n int64, count func(*reader) int64) func() bool {
	before := make([]int64, len(tr.readers))
	for i, r := range tr.readers {
		before[i] = count(r)
	}
	return func() bool {
		for i, r := range tr.readers {
			if count(r) < before[i]+n {
				return false
			}
		}
		return true
	}
}

// serves waits until every key has been read twice by every reader, and
// invalidated twice, and nothing failed meanwhile. It returns how long after
// since the last failure was.
func (tr *traffic) serves(since time.Time) time.Duration {
	tr.t.Helper()
	bad, flowed := int64(-1), func() bool { return false }
	eventually(tr.t, "reads and invalidations succeed again", func() bool {
		if now := tr.failed.Load() + tr.refused.Load(); now != bad {
			bad, flowed = now, tr.flowed(int64(2*len(tr.rows)))
		}
		return flowed()
	})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return max(tr.lastFailure.Sub(since), 0)
}

// stop returns when the last read has ended.
func (tr *traffic) stop() {
	tr.stopped.Store(true)
	tr.wg.Wait()
}

// stored checks what is cached when traffic has stopped: no version that is
// older than what was confirmed (G1).
func (tr *traffic) stored(admin redis.Cmdable) {
	tr.t.Helper()
	for n := range tr.rows {
		v, err := admin.Get(tr.t.Context(), valueKey(tr.o.prefix, trafficKey(n))).Result()
		if err == redis.Nil { //nolint:errorlint // go-redis returns it as it is
			continue
		}
		if err != nil {
			tr.t.Fatal(err)
		}
		row := &tr.rows[n]
		if version, err := rowVersion(n, v); err != nil || version < row.confirmed.Load() || version > row.version.Load() {
			tr.t.Errorf("%q is cached for %s; its row is at %d, and the invalidation of %d was confirmed", v, trafficKey(n), row.version.Load(), row.confirmed.Load())
		}
	}
}

// String says how much there was.
func (tr *traffic) String() string {
	var reads int64
	for _, r := range tr.readers {
		reads += r.read.Load()
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	s := fmt.Sprintf("%d reads and %d more that failed, %d invalidations and %d more that failed",
		reads, tr.failed.Load(), tr.invalidations.Load(), tr.refused.Load())
	for _, kind := range slices.Sorted(maps.Keys(tr.errors)) {
		s += fmt.Sprintf("; %s %d", kind, tr.errors[kind])
	}
	return s
}

func (tr *traffic) log() {
	tr.t.Helper()
	tr.t.Log(tr)
}

// onlyReplies checks that no call failed with another reply of the server than
// these. Calls that got no reply are left out.
func (f fleet) onlyReplies(t testing.TB, codes ...string) {
	t.Helper()
	f.each(func(name string, tr *traffic) {
		for kind, n := range tr.errors {
			_, code, _ := strings.Cut(kind, ": ")
			if !slices.Contains(codes, code) && code != "no reply" && code != "not sent" {
				t.Errorf("%s: %d times %s; want %q alone", name, n, kind, codes)
			}
		}
	})
}

// trafficSlots returns the slots of traffic's keys, without repetition.
func trafficSlots(t testing.TB, admin *redis.ClusterClient) []int64 {
	t.Helper()
	var slots []int64
	for n := range len(traffic{}.rows) {
		slot, err := admin.ClusterKeySlot(t.Context(), trafficKey(n)).Result()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(slots, slot) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// ---- servers ----

// clusterClient returns a client that looks at what a cluster stores.
func clusterClient(t testing.TB, addrs []string) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { c.Close() })
	return c
}

// do runs a command that must succeed.
func do(t testing.TB, c *redis.Client, args ...any) any {
	t.Helper()
	v, err := c.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// role returns what the server says that it is: "master" or "slave".
func role(t testing.TB, c *redis.Client) string {
	t.Helper()
	list, err := c.Do(t.Context(), "ROLE").Slice()
	if err != nil {
		return ""
	}
	return fmt.Sprint(list[0])
}

// linkIsUp reports whether the replica c has all data of its primary, and follows it.
func linkIsUp(t testing.TB, c *redis.Client) bool {
	t.Helper()
	return c.InfoMap(t.Context(), "replication").Item("Replication", "master_link_status") == "up"
}

// slotOwner returns which of the primaries of a new cluster has the slot.
func slotOwner(slot int64, primaries int) int {
	for i := range primaries {
		if slot < int64((i+1)*16384/primaries) {
			return i
		}
	}
	panic("no such slot")
}

// A slotMove is the migration of a slot, key by key.
type slotMove struct {
	t        testing.TB
	slot     int64
	nodes    []*redis.Client // all primaries
	from, to *redis.Client
	host     string // of to
	port     string
	toID     string
}

// beginMove begins to move the slot from one node of the cluster to another.
func beginMove(t testing.TB, nodes []*servertest.Server, slot int64, from, to int) *slotMove {
	t.Helper()
	m := &slotMove{t: t, slot: slot}
	for _, n := range nodes {
		m.nodes = append(m.nodes, redisClient(t, n.Addr))
	}
	m.from, m.to = m.nodes[from], m.nodes[to]
	var err error
	if m.host, m.port, err = net.SplitHostPort(nodes[to].Addr); err != nil {
		t.Fatal(err)
	}
	m.toID = fmt.Sprint(do(t, m.to, "CLUSTER", "MYID"))
	do(t, m.to, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(t, m.from, "CLUSTER", "MYID"))
	do(t, m.from, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.toID)
	return m
}

// move moves keys. Those that do not exist are left out.
func (m *slotMove) move(keys ...string) {
	m.t.Helper()
	for _, key := range keys {
		do(m.t, m.from, "MIGRATE", m.host, m.port, key, 0, 5000)
	}
}

// has returns the names of the slot's keys on a node, whoever owns it.
func (m *slotMove) has(node *redis.Client) []string {
	m.t.Helper()
	keys, err := node.ClusterGetKeysInSlot(m.t.Context(), int(m.slot), 1000).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	return keys
}

// finish moves the rest and ends the migration.
func (m *slotMove) finish() {
	m.t.Helper()
	for keys := m.has(m.from); len(keys) > 0; keys = m.has(m.from) {
		m.move(keys...)
	}
	// The new owner first, as the servers' documentation has it: then no node
	// sends a client back to one that does not have the slot any more.
	do(m.t, m.to, "CLUSTER", "SETSLOT", m.slot, "NODE", m.toID)
	for _, n := range m.nodes {
		if n != m.to {
			do(m.t, n, "CLUSTER", "SETSLOT", m.slot, "NODE", m.toID)
		}
	}
}

// A monitor records what a server executes.
type monitor struct {
	mu    sync.Mutex
	lines []string
}

// startMonitor records from now on, until the test ends.
func startMonitor(t testing.TB, addr string) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", line, err)
	}
	m := &monitor{}
	go func() {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			m.mu.Lock()
			m.lines = append(m.lines, strings.TrimPrefix(strings.TrimSpace(line), "+"))
			m.mu.Unlock()
		}
	}()
	return m
}

// until returns the lines up to now. Each begins with the server's time.
func (m *monitor) until(t testing.TB, c *redis.Client) []string {
	t.Helper()
	mark := fmt.Sprintf("mark%d", time.Now().UnixNano())
	do(t, c, "ECHO", mark)
	var lines []string
	eventually(t, "the monitor shows the mark", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		lines = slices.Clone(m.lines)
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, mark) })
	})
	return lines
}
