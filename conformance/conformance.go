// Package conformance tests that a driver, together with package leasecache and
// a real server, keeps what they promise. Authors of adapters and of custom
// clients run it in a test of their own:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Driver: "myclient",
//			Dial:   func(ctx context.Context) (net.Conn, error) { ... }, // to the server
//			Open:   func(t testing.TB, addr string) driver.Evaler { ... }, // over a new client
//		})
//	}
//
// There is a case for each rule of [driver.Evaler] and of its optional
// abilities, and for each guarantee of package leasecache. A case that fails
// prints its rule as a sentence. Cases run in parallel on one server, under keys
// of their own; none flushes it.
package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
	"github.com/leasecache/leasecache/internal/resp"
)

// Harness tells the suite how to reach a server and the driver under test.
type Harness struct {
	// Driver is the name of the driver, for the report.
	Driver string

	// Server describes the server, for the report. Default: what INFO says.
	Server string

	// Dial opens a raw connection to the server, logged in if need be, with all
	// rights. The suite looks at what is stored through it, and unless DialNode
	// is set its fault proxy forwards to it. In a cluster it may be any node;
	// under a Sentinel it is the primary.
	Dial func(ctx context.Context) (net.Conn, error)

	// Open returns a driver over a new client, as a constructor makes it for a
	// client that was handed in, that connects to addr: in plain TCP, or as
	// ProxyTLS says. Whatever has to be closed is closed in t.Cleanup. Open is
	// called many times, also concurrently; each call stands for another process.
	Open func(t testing.TB, addr string) driver.Evaler

	// DialReplica opens a raw connection, logged in if need be, to a replica of
	// the server that Dial connects to. Set it when the client that Open makes
	// knows of replicas: the suite then sees to it that they answer no call.
	DialReplica func(ctx context.Context) (net.Conn, error)

	// ClientError tells whether err is, or wraps, an error of the client's own
	// type for an error reply of the server. Set it when the client has one, for
	// which callers may ask by errors.As.
	ClientError func(err error) bool

	// OpenRouted takes the place of Open for servers that tell the client of each
	// other: the nodes of a cluster, or a sentinel and the servers it watches. The
	// client must dial route(addr) wherever it would dial addr, for the addresses
	// it was given and those it learns. Most clients take a function that dials.
	OpenRouted func(t testing.TB, route func(addr string) string) driver.Evaler

	// DialNode opens a raw connection to the server at addr, as Dial does. It is
	// required with OpenRouted. With Open it is for clients of a cluster that take
	// no function to dial: the proxy puts its own addresses into the replies to
	// CLUSTER SLOTS and into redirections, but not into other replies.
	DialNode func(ctx context.Context, addr string) (net.Conn, error)

	// ProxyTLS, when set, is the server's side of the TLS that the client speaks.
	// Name and certificate are the suite's, since a client meets its fault proxy
	// at 127.0.0.1. What Dial returns is up to Dial. Default: plain TCP.
	ProxyTLS *tls.Config

	// Lacks names the optional abilities that the driver does not have, with
	// the reason. What is not named has to be there and to work.
	Lacks Lacks
}

// Lacks are the abilities that a driver lacks: for each the reason, in a
// sentence, or "" if it has it. No rule of [driver.Evaler] and no guarantee can
// be lacked, but for a part of one: Redial.
type Lacks struct {
	// Get: hits cost a script instead of a plain GET. See [driver.Getter].
	Get string
	// GetBytes: a hit of a cache of byte slices is copied. See [driver.BytesGetter].
	GetBytes string
	// Bound: each call costs a goroutine. See [driver.Bounder].
	Bound string
	// Ping: a health check costs a script. See [driver.Pinger].
	Ping string
	// Batch: the calls of a batch go each by itself. See [driver.Batcher].
	Batch string
	// BatchGet: so do the hits of a batch, or they cost scripts. See
	// [driver.BatchGetter].
	BatchGet string
	// Wake: reads that wait for another process poll. See [driver.Subscriber].
	Wake string
	// Near: there is no near tier. See [driver.Tracker].
	Near string
	// Redial: the client has one connection for all calls, and keeps it when it
	// gets no reply there, so that calls fail until the server answers or closes
	// it. The suite then asks that they work after that, and not before.
	Redial string
}

// Report counts what Run has run.
type Report struct {
	Driver, Server string
	Passed, Failed int
	// Lacked are the cases of abilities that the driver lacks, and those that the
	// harness does not make possible, with the reasons. A case that lacks a part
	// has run too.
	Lacked map[string]string
}

// String returns the report in a line.
func (r Report) String() string {
	s := fmt.Sprintf("conformance: %s on %s: %d passed, %d lacked", r.Driver, r.Server, r.Passed, len(r.Lacked))
	if r.Failed > 0 {
		s += fmt.Sprintf(", %d FAILED", r.Failed)
	}
	return s
}

// testCase is one rule and the check of it.
type testCase struct {
	name  string
	rule  string
	lacks func(Lacks) string   // for cases of an optional ability
	part  func(Lacks) string   // for cases of a rule of which a part can be lacked
	needs func(Harness) string // for cases that a harness need not make possible
	run   func(e *env)
	// cache is set for cases that use caches. They run once with all the
	// abilities of the driver, and once with its Eval alone.
	cache bool
	// alone is set for cases that must not run beside others.
	alone bool
	// own is set for cases that run scripts of their own, beside those of package
	// leasecache: they need more rights than a cache does.
	own bool
}

// Run runs every case as a subtest of t and returns the counts. It also appends
// them, as a line, to the file that the environment names in LEASECACHE_REPORT.
//
// What is expected to happen is waited for, 30s at the most: where that is not
// enough, set LEASECACHE_PATIENCE to another duration, such as 2m.
func Run(t *testing.T, h Harness) Report {
	t.Helper()
	switch {
	case h.Dial == nil || (h.Open == nil) == (h.OpenRouted == nil):
		t.Fatal("conformance: Harness.Dial and one of Harness.Open and Harness.OpenRouted must be set")
	case h.OpenRouted != nil && h.DialNode == nil:
		t.Fatal("conformance: Harness.OpenRouted needs Harness.DialNode")
	}
	if errPatience != nil {
		t.Fatalf("conformance: LEASECACHE_PATIENCE: %v", errPatience)
	}
	r := Report{Driver: h.Driver, Server: h.Server, Lacked: map[string]string{}}
	if r.Server == "" {
		r.Server = describeServer(t, h)
	}
	checkDeclaration(t, h)
	var mu sync.Mutex
	count := func(t *testing.T) {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			r.Failed++
		} else {
			r.Passed++
		}
	}
	start := func(t *testing.T, c testCase, name string, evalOnly bool) {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() {
				count(t)
				if t.Failed() {
					t.Logf("rule: %s", c.rule)
				}
			})
			if !c.alone {
				t.Parallel()
			}
			e := newEnv(t, h, evalOnly)
			if c.own {
				e.prefix = strings.Replace(e.prefix, cachePrefix, ownPrefix, 1)
			}
			c.run(e)
		})
	}
	t.Run("cases", func(t *testing.T) {
		warm := false
		for _, c := range cases() {
			if !c.alone && !warm {
				// A fault on the first EVALSHA would meet a NOSCRIPT reply.
				warm = true
				e := newEnv(t, h, false)
				for _, s := range protocol.Scripts {
					e.do("SCRIPT", "LOAD", s.Source())
				}
			}
			if c.part != nil && c.part(h.Lacks) != "" {
				r.Lacked[c.name+", in part"] = c.part(h.Lacks)
			}
			switch {
			case c.lacks != nil && c.lacks(h.Lacks) != "":
				r.Lacked[c.name] = c.lacks(h.Lacks)
			case c.needs != nil && c.needs(h) != "":
				r.Lacked[c.name] = c.needs(h)
			case c.cache:
				start(t, c, c.name, false)
				start(t, c, c.name+"/eval_only", true)
			default:
				start(t, c, c.name, false)
			}
		}
	})
	names := make([]string, 0, len(r.Lacked))
	for name := range r.Lacked {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Logf("lacked: %s: %s", name, r.Lacked[name])
	}
	t.Log(r)
	if err := r.append(os.Getenv("LEASECACHE_REPORT")); err != nil {
		t.Errorf("conformance: LEASECACHE_REPORT: %v", err)
	}
	return r
}

// append adds the report to a file, which a run of several packages shares.
func (r Report) append(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r)
	return errors.Join(err, f.Close())
}

// cases returns all cases: first those that must run alone.
func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{evalCases, abilityCases, batchCases} {
		for _, c := range group {
			c.own = !c.cache
			all = append(all, c)
		}
	}
	for _, group := range [][]testCase{
		scriptCases, fillCases, loadCases, joinCases,
		staleCases, invalidateCases, endCases, backoffCases, valueCases, wakeCases, manyCases, trackCases, nearCases,
	} {
		all = append(all, group...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].alone && !all[j].alone })
	return all
}

// checkDeclaration fails when the driver has what it is said to lack: a wrong
// declaration would hide cases.
func checkDeclaration(t *testing.T, h Harness) {
	t.Helper()
	e := newEnv(t, h, false)
	d := e.driver()
	_, get := d.(driver.Getter)
	_, getBytes := d.(driver.BytesGetter)
	_, bound := d.(driver.Bounder)
	_, ping := d.(driver.Pinger)
	_, batch := d.(driver.Batcher)
	_, batchGet := d.(driver.BatchGetter)
	for _, a := range []struct {
		name string
		has  bool
		why  string
	}{
		{"Get", get, h.Lacks.Get},
		{"GetBytes", getBytes, h.Lacks.GetBytes},
		{"Bound", bound, h.Lacks.Bound},
		{"Ping", ping, h.Lacks.Ping},
		{"Wake", canWake(d), h.Lacks.Wake},
		{"Batch", batch, h.Lacks.Batch},
		{"BatchGet", batchGet, h.Lacks.BatchGet},
		{"Near", canTrack(e.ctx, d), h.Lacks.Near},
	} {
		if a.has && a.why != "" {
			t.Fatalf("conformance: Lacks.%s is %q, but the driver has the ability: leave it empty", a.name, a.why)
		}
		if !a.has && a.why == "" {
			t.Fatalf("conformance: the driver has no %s: say why in Lacks.%s", a.name, a.name)
		}
	}
}

// describeServer returns what INFO says, such as "valkey-9.1.2 standalone".
func describeServer(t *testing.T, h Harness) string {
	t.Helper()
	e := newEnv(t, h, false)
	info := map[string]string{}
	for line := range strings.Lines(e.do("INFO").Str) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	vendor, version := "redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		vendor, version = "valkey", v
	}
	if version == "" {
		vendor, version = "unknown", "unknown"
	}
	mode := info["redis_mode"]
	if m := info["server_mode"]; m != "" {
		mode = m
	}
	if mode == "" {
		mode = "standalone"
	}
	return vendor + "-" + version + " " + mode
}

// env is what a case works with.
type env struct {
	*testing.T
	h        Harness
	evalOnly bool
	prefix   string // of the case's own keys; it ends with ':'
	ctx      context.Context
	control  *control
}

// What the names of all keys begin with. Under an ACL, a user needs no more than
// the documented rights on the keys of caches: see docs/adapters.md.
const (
	cachePrefix = "conformance:cache:"
	ownPrefix   = "conformance:driver:"
)

// patience bounds everything that is expected to happen. It is generous, so
// that a loaded machine does not fail a case; nothing waits for it to pass. The
// environment may set another, as a duration, in LEASECACHE_PATIENCE.
var patience, errPatience = parsePatience(os.Getenv("LEASECACHE_PATIENCE"))

func parsePatience(s string) (time.Duration, error) {
	if s == "" {
		return 30 * time.Second, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%v is no time to wait", d)
	}
	return d, err
}

func newEnv(t *testing.T, h Harness, evalOnly bool) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	control, err := newControl(ctx, h)
	if err != nil {
		t.Fatalf("conformance: Harness.Dial: %v", err)
	}
	t.Cleanup(control.close)
	return &env{
		T: t, h: h, evalOnly: evalOnly, ctx: ctx, control: control,
		prefix: fmt.Sprintf("%s%08x:", cachePrefix, rand.Uint32()) + strings.NewReplacer("{", "(", "}", ")").Replace(t.Name()) + ":",
	}
}

// do runs a command on the control connection: in a cluster, on the primary that
// owns the key, which must be the first argument. SCRIPT is for every primary,
// and the reply is that of one.
func (e *env) do(args ...string) resp.Value {
	e.Helper()
	if args[0] == "SCRIPT" {
		return e.doAll(args...)[0]
	}
	v, err := e.control.do(e.ctx, args)
	if err != nil {
		e.Fatalf("%s on the control connection: %v", args[0], err)
	}
	return v
}

// doAll runs a command on every primary, and returns the replies, one for each.
// Whoever counts what servers did has to add them up.
func (e *env) doAll(args ...string) []resp.Value {
	e.Helper()
	vs, err := e.control.doAll(e.ctx, args)
	if err != nil {
		e.Fatalf("%s on the control connections: %v", args[0], err)
	}
	return vs
}

// stored returns what the value's Redis key holds.
func (e *env) stored(key string) (value string, ok bool) {
	e.Helper()
	v := e.do("GET", e.value(key))
	return v.Str, !v.Null
}

func (e *env) wantStored(key, want string) {
	e.Helper()
	if got, ok := e.stored(key); !ok || got != want {
		e.Errorf("stored value of %q = %q, %v; want %q", key, got, ok, want)
	}
}

func (e *env) wantNotStored(key string) {
	e.Helper()
	if got, ok := e.stored(key); ok {
		e.Errorf("stored value of %q = %q; want none", key, got)
	}
}

func (e *env) exists(redisKey string) bool {
	e.Helper()
	return e.do("EXISTS", redisKey).Int == 1
}

func (e *env) value(key string) string { return e.prefix + "v:{" + key + "}" }
func (e *env) lease(key string) string { return e.prefix + "l:{" + key + "}" }
func (e *env) stale(key string) string { return e.prefix + "s:{" + key + "}" }

// eventually waits until ok reports true.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			e.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// proxy returns a fault proxy in front of the server.
func (e *env) proxy() *Proxy {
	e.Helper()
	p := newProxy(e.T, e.h.ProxyTLS, func(ctx context.Context, node string) (net.Conn, error) {
		if node == single {
			return e.h.Dial(ctx)
		}
		return e.h.DialNode(ctx, node)
	})
	p.rewrite = e.h.DialNode != nil && e.h.OpenRouted == nil
	return p
}

// driver returns a driver over a client of its own, through a proxy that does
// nothing.
func (e *env) driver() driver.Evaler {
	e.Helper()
	return e.driverOn(e.proxy())
}

func (e *env) driverOn(p *Proxy) driver.Evaler {
	e.Helper()
	var d driver.Evaler
	if e.h.OpenRouted != nil {
		d = e.h.OpenRouted(e.T, p.Route)
	} else {
		d = e.h.Open(e.T, p.Addr())
	}
	if d == nil {
		e.Fatal("conformance: Harness.Open returned nil")
	}
	if e.evalOnly {
		return evalOnly{d}
	}
	return d
}

// warm returns d after a call to the server that has key, for cases that give a
// call little time: to connect may take longer.
func (e *env) warm(d driver.Evaler, key string) driver.Evaler {
	e.Helper()
	e.readOrLease(d, key, "", protocol.ReadOptions{})
	return d
}

// evalOnly hides the optional abilities of a driver.
type evalOnly struct{ e driver.Evaler }

func (o evalOnly) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	return o.e.Eval(ctx, s, keys, args)
}

// cache returns a cache of strings on a driver of its own: another process.
// Unless set, its durations are long, so that nothing runs out by itself.
func (e *env) cache(o leasecache.Options) *leasecache.Cache[string] {
	e.Helper()
	return e.cacheOn(e.driver(), o)
}

func (e *env) cacheOn(d driver.Evaler, o leasecache.Options) *leasecache.Cache[string] {
	e.Helper()
	return newCache[string](e, d, o)
}

func newCache[V any](e *env, d driver.Evaler, o leasecache.Options) *leasecache.Cache[V] {
	e.Helper()
	o.Prefix = e.prefix
	if o.TTL == 0 {
		o.TTL = 10 * time.Minute
	}
	if o.Lease == 0 {
		o.Lease = 5 * time.Minute
	}
	if o.FailureBackoff == 0 {
		o.FailureBackoff = 5 * time.Minute
	}
	if o.PollInterval == 0 {
		o.PollInterval = 10 * time.Millisecond
	}
	if _, shared := d.(*leasecache.Store); !shared {
		store, err := leasecache.NewStore(d, leasecache.StoreOptions{CallTimeout: patience})
		if err != nil {
			e.Fatal(err)
		}
		d = store
	}
	c, err := leasecache.New[V](d, o)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx) // what the case left running is cancelled
	})
	return c
}

// loaderOf returns a loader that returns v at once, and counts.
func loaderOf(v string, calls *counter) leasecache.Loader[string] {
	return func(context.Context) (string, error) {
		calls.add()
		return v, nil
	}
}

// counter counts calls, and remembers how many ran at a time.
type counter struct {
	mu              sync.Mutex
	n, running, top int
}

func (c *counter) add() {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n++
	}
}

func (c *counter) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.running++
	c.top = max(c.top, c.running)
}

func (c *counter) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.top
}

// gate is a loader that waits until it is opened.
type gate struct {
	counter
	began  chan struct{} // closed when the first call began
	opened chan struct{}
	once   sync.Once
}

func newGate() *gate { return &gate{began: make(chan struct{}), opened: make(chan struct{})} }

func (g *gate) open() { close(g.opened) }

// loader returns a loader that begins, waits for the gate, and returns v. It
// also ends with its context.
func (g *gate) loader(v string) leasecache.Loader[string] {
	return g.loaderOf(func(context.Context) (string, error) { return v, nil })
}

func (g *gate) loaderOf(end leasecache.Loader[string]) leasecache.Loader[string] {
	return func(ctx context.Context) (string, error) {
		g.enter()
		defer g.leave()
		g.once.Do(func() { close(g.began) })
		select {
		case <-g.opened:
			return end(ctx)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// await waits for a channel that is expected to be closed or sent to.
func await[T any](e *env, what string, c <-chan T) T {
	e.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		e.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// read is a Read that runs in the background.
type read struct {
	done chan struct{}
	res  leasecache.Result[string]
	err  error
}

// goRead starts a Read. Unless it is the first one to miss, the caller has to
// wait with joined until it is under way.
func (e *env) goRead(c *leasecache.Cache[string], key string, load leasecache.Loader[string]) *read {
	return e.goReadContext(e.ctx, c, key, load)
}

func (e *env) goReadContext(ctx context.Context, c *leasecache.Cache[string], key string, load leasecache.Loader[string]) *read {
	r := &read{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.res, r.err = c.Read(ctx, key, load)
	}()
	return r
}

// misses waits until n reads of c have missed and joined a flight.
func (e *env) misses(c *leasecache.Cache[string], n uint64) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d reads have missed", n), func() bool { return c.Stats().Misses >= n })
}

// want waits for the read, and checks what it returned.
func (r *read) want(e *env, value string, source leasecache.Source, uncached leasecache.Reason) {
	e.Helper()
	await(e, "the read ends", r.done)
	if r.err != nil {
		e.Fatalf("Read returned the error %v; want %q", r.err, value)
	}
	if r.res.Value != value || r.res.Source != source || r.res.Uncached != uncached {
		e.Fatalf("Read returned %q, source %v, uncached %q; want %q, %v, %q",
			r.res.Value, r.res.Source, r.res.Uncached, value, source, uncached)
	}
	if r.res.Cached() != (r.res.TTL > 0) {
		e.Fatalf("Read returned cached %v and TTL %v; want both or none", r.res.Cached(), r.res.TTL)
	}
}

// mustRead reads now, and fails if that fails.
func (e *env) mustRead(c *leasecache.Cache[string], key string, load leasecache.Loader[string]) leasecache.Result[string] {
	e.Helper()
	res, err := c.Read(e.ctx, key, load)
	if err != nil {
		e.Fatalf("Read: %v", err)
	}
	return res
}

func (e *env) mustInvalidate(c *leasecache.Cache[string], keys ...string) {
	e.Helper()
	if err := c.Invalidate(e.ctx, keys...); err != nil {
		e.Fatalf("Invalidate: %v", err)
	}
}
