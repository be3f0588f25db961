package leasecache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// model is a driver with a server in it. The server understands the scripts of
// package protocol by their names, and does in Go what they do in Lua: it takes
// a hundredth of the time, and what a stress test finds is a matter of numbers.
// That the scripts themselves do it is for the conformance suite to say.
//
// A call is held up on its way there and back, at random. One reply in faults is
// lost, and a copy of one call in 50 is executed later; neither if it is 0.
type model struct {
	faults int
	late   sync.WaitGroup // copies under way

	mu     sync.Mutex
	stored map[string]storedValue
	nonce  int64
}

type storedValue struct {
	value string
	ends  time.Time
}

func newModel(faults int) *model { return &model{faults: faults, stored: map[string]storedValue{}} }

func (m *model) Bound(time.Duration) driver.Evaler { return m }

// dawdle lets others run, most often for no longer than that.
func dawdle() {
	switch rand.N(8) {
	case 0, 1:
		time.Sleep(time.Duration(rand.N(400)) * time.Microsecond)
	case 2, 3:
		runtime.Gosched()
	}
}

func (m *model) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(err)
	}
	dawdle()
	reply := m.run(s.Name(), keys, args)
	dawdle()
	if m.faults > 0 && rand.N(50) == 0 {
		m.late.Go(func() {
			time.Sleep(time.Duration(rand.N(5000)) * time.Microsecond)
			m.run(s.Name(), keys, args)
		})
	}
	if m.faults > 0 && rand.N(m.faults) == 0 {
		return driver.Reply{}, errBroken
	}
	return reply, nil
}

func (m *model) Get(ctx context.Context, key string) (string, bool, error) {
	if err := ctx.Err(); err != nil {
		return "", false, driver.NotSent(err)
	}
	dawdle()
	m.mu.Lock()
	value, _, ok := m.get(key)
	m.mu.Unlock()
	dawdle()
	return value, ok, nil
}

// get returns what is stored, and what PTTL says. The model is locked.
func (m *model) get(key string) (value string, pttl int64, ok bool) {
	v, ok := m.stored[key]
	if left := time.Until(v.ends); ok && left > 0 {
		return v.value, left.Milliseconds(), true
	}
	delete(m.stored, key)
	return "", -2, false
}

func (m *model) set(key, value, millis string) {
	ms, err := strconv.Atoi(millis)
	if err != nil || ms < 1 {
		panic("model: TTL " + millis)
	}
	m.stored[key] = storedValue{value, time.Now().Add(time.Duration(ms) * time.Millisecond)}
}

func (m *model) run(script string, keys, args []string) driver.Reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, num, str := driver.List, driver.Int, driver.Str
	switch script {
	case "read":
		if value, pttl, ok := m.get(keys[0]); ok && args[3] != "1" {
			return list(num(1), str(value), num(pttl))
		}
		stale, _, hasStale := m.get(keys[2])
		hasStale = hasStale && args[2] == "1"
		held, left, ok := m.get(keys[1])
		if args[0] != "" {
			if !ok {
				m.nonce++
				held, ok = fmt.Sprintf("%s:%d", args[0], m.nonce), true
				m.set(keys[1], held, args[1])
			}
			if nonce, mine := strings.CutPrefix(held, args[0]+":"); mine && hasStale {
				return list(num(2), str(nonce), str(stale))
			} else if mine {
				return list(num(2), str(nonce))
			}
		}
		switch {
		case !ok:
			return list(num(0))
		case hasStale:
			return list(num(3), num(left), str(stale))
		}
		return list(num(4), num(left))
	case "fill":
		if held, _, ok := m.get(keys[1]); ok && held == args[0] {
			m.set(keys[0], args[1], args[2])
			delete(m.stored, keys[1])
			delete(m.stored, keys[2])
			_, pttl, _ := m.get(keys[0])
			return list(num(1), num(max(pttl, 0)))
		}
		if value, pttl, ok := m.get(keys[0]); ok && value == args[1] {
			return list(num(2), num(pttl))
		}
		return list(num(0))
	case "release":
		if held, _, ok := m.get(keys[0]); ok && strings.HasPrefix(held, args[0]) {
			delete(m.stored, keys[0])
			return num(1)
		}
		return num(0)
	case "invalidate":
		value, pttl, ok := m.get(keys[0])
		window, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			panic("model: window " + args[0])
		}
		if ok && window > 0 && pttl > 0 && !strings.HasPrefix(value, args[1]) {
			m.set(keys[2], value, strconv.FormatInt(min(pttl, window), 10))
		}
		delete(m.stored, keys[0])
		delete(m.stored, keys[1])
		return num(1)
	}
	panic("model: unknown script " + script)
}

// source is what the loaders of the stress test read: a row for each key, whose
// versions only grow.
type source struct{ rows [2]row }

type row struct {
	mu        sync.Mutex // a change and its invalidation, one after the other
	committed atomic.Int64
	confirmed atomic.Int64 // the last whose invalidation returned nil

	loading [processes]atomic.Int32 // loaders that run
	most    atomic.Int32
}

const processes = 2

func rowKey(i int) string { return fmt.Sprint("row", i) }

var errLoad = errors.New("the source failed")

// load returns a loader that does what loaders do, at random.
func (s *source) load(process, i int) Loader[string] {
	return func(ctx context.Context) (string, error) {
		r := &s.rows[i]
		n := r.loading[process].Add(1)
		defer r.loading[process].Add(-1)
		for {
			most := r.most.Load()
			if n <= most || r.most.CompareAndSwap(most, n) {
				break
			}
		}
		dawdle()
		version := r.committed.Load()
		dawdle()
		switch rand.N(80) {
		case 0:
			return "", fmt.Errorf("version %d: %w", version, errLoad)
		case 1, 2:
			return "", fmt.Errorf("version %d: %w", version, ErrNotFound)
		case 3:
			panic(fmt.Sprintf("version %d: stress", version))
		case 4:
			runtime.Goexit()
		case 5, 6, 7, 8:
			LoadFrom(ctx).DoNotStore()
		case 9, 10:
			LoadFrom(ctx).SetTTL(time.Millisecond)
		case 11:
			if rand.N(10) == 0 {
				<-ctx.Done()
				return "", ctx.Err()
			}
		}
		return strconv.FormatInt(version, 10), nil
	}
}

// change commits a version and invalidates its key.
func (s *source) change(ctx context.Context, c *Cache[string], i int) error {
	r := &s.rows[i]
	r.mu.Lock()
	defer r.mu.Unlock()
	version := r.committed.Add(1)
	err := c.Invalidate(ctx, rowKey(i))
	if err == nil {
		r.confirmed.Store(version)
	}
	return err
}

// apart runs f where a panic or Goexit ends nothing else, and returns the panic.
func apart(f func()) (returned bool, panicked any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		f()
		returned = true
	}()
	<-done
	return returned, panicked
}

// TestNoReadEverReturnsAVersionFromBeforeAnInvalidation lets two processes read,
// refresh, peek, change, leave and fail at random on two keys, also on both
// together. It checks that no
// read returns a version older than the last one that was confirmed as
// invalidated before it started (G3), unless marked as stale; that no process
// runs more than two loads of a key (G2); that what is cached in the end is not
// old (G1); and that nothing is left (G8).
func TestNoReadEverReturnsAVersionFromBeforeAnInvalidation(t *testing.T) {
	for _, test := range []struct {
		name   string
		faults int
		o      Options
	}{
		{"defaults", 0, Options{}},
		{"stale copies", 0, Options{Stale: time.Minute}},
		{"limits", 0, Options{MaxLoads: 1, MaxUnleasedLoads: 1, WaitBound: 2 * time.Millisecond, OnLeaseLost: LostReread}},
		{"leases that end", 0, Options{Lease: time.Millisecond, WaitBound: 3 * time.Millisecond}},
		{"faults", 50, Options{Lease: 20 * time.Millisecond}},
		{"faults and stale copies", 50, Options{Lease: 20 * time.Millisecond, Stale: time.Minute}},
		{"an outage, and loads while it lasts", 2, Options{Lease: 20 * time.Millisecond, OnUnavailable: UnavailableLoad, OnLeaseLost: LostFail}},
	} {
		t.Run(test.name, func(t *testing.T) { stress(t, newModel(test.faults), test.o) })
	}
}

func stress(t *testing.T, m *model, o Options) {
	// The seed draws the calls. What a loader or the model does depends on how the
	// goroutines are scheduled, and cannot be drawn again.
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("LEASECACHE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("LEASECACHE_SEED=%d", seed)
	before := runtime.NumGoroutine()
	o.PollInterval, o.LoadTimeout = time.Millisecond, 10*time.Millisecond
	src := &source{}
	var caches [processes]*Cache[string]
	for i := range caches {
		caches[i] = mustCache(t, []driver.Evaler{m, batched{m}}[i%2], o)
	}

	runFor := 700 * time.Millisecond
	if testing.Short() {
		runFor = 100 * time.Millisecond
	}
	end := time.Now().Add(runFor)
	var checked atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 * processes {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			for time.Now().Before(end) && !t.Failed() {
				if oneCall(t, src, caches[:], worker%processes, rng, o.Stale > 0) {
					checked.Add(1)
				}
			}
		})
	}
	wg.Wait()

	for i := range src.rows {
		if most := src.rows[i].most.Load(); most > 2 {
			t.Errorf("a process ran %d loads of %s at a time", most, rowKey(i))
		}
	}
	for i, c := range caches {
		// A load that is not stored leaves no lease, not even for a moment longer
		// than its release takes.
		for k := range src.rows {
			_, err := c.Refresh(t.Context(), rowKey(k), func(ctx context.Context) (string, error) {
				LoadFrom(ctx).DoNotStore()
				return strconv.FormatInt(src.rows[k].committed.Load(), 10), nil
			})
			// A load that its caller has left may still take the only place, and a
			// machine that is busy with other things may take all of LoadTimeout.
			if err != nil && m.faults == 0 && !errors.Is(err, ErrOverloaded) && !errors.Is(err, ErrLoadTimeout) {
				t.Errorf("Refresh by process %d in the end: %v", i, err)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := c.Stats().Errors[ErrorRelease]; n > 0 && m.faults == 0 {
			t.Errorf("%d leases were not released", n)
		}
	}
	m.late.Wait()
	for i := range src.rows {
		k := protocol.NewKeys("", rowKey(i))
		m.mu.Lock()
		value, _, cached := m.get(k.Value)
		lease, _, held := m.get(k.Lease)
		m.mu.Unlock()
		if version, err := strconv.ParseInt(value, 10, 64); cached && err == nil && version < src.rows[i].confirmed.Load() {
			t.Errorf("cached is version %d of %s, though %d was invalidated", version, rowKey(i), src.rows[i].confirmed.Load())
		}
		if held && m.faults == 0 { // a late copy leaves a lease that nobody owns
			t.Errorf("the lease %q of %s is left", lease, rowKey(i))
		}
	}
	// A loader returns, and a goroutine ends, a moment after what it did is seen.
	deadline := time.Now().Add(10 * time.Second)
	for _, c := range caches {
		for c.underWay() > 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n := c.underWay(); n > 0 {
			t.Errorf("%d keys are left in the table of flights", n)
		}
		if n, u := len(c.loads), len(c.unleased); n > 0 || u > 0 {
			t.Errorf("%d places of MaxLoads and %d of MaxUnleasedLoads are left taken", n, u)
		}
	}
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines are left, there were %d", n, before)
	}
	if checked.Load() == 0 {
		t.Error("no version was checked")
	}
	t.Logf("%d versions checked, %d changes; %+v", checked.Load(), src.rows[0].committed.Load(), caches[0].Stats())
}

// underWay counts the keys in the table of flights.
func (c *Cache[V]) underWay() (n int) {
	for i := range c.shards {
		c.shards[i].mu.Lock()
		n += len(c.shards[i].entries)
		c.shards[i].mu.Unlock()
	}
	return n
}

// oneCall makes a call of process at random, and reports whether it brought a
// version, which was checked.
func oneCall(t *testing.T, src *source, caches []*Cache[string], process int, rng *rand.Rand, stale bool) bool {
	c, i := caches[process], rng.IntN(len(src.rows))
	ctx, cancel := context.WithCancel(t.Context())
	if rng.IntN(6) == 0 {
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(600))*time.Microsecond)
	}
	defer cancel()
	if rng.IntN(8) == 0 {
		if err := src.change(ctx, c, i); err != nil && ctx.Err() == nil {
			t.Errorf("Invalidate: %v", err)
		}
		return false
	}

	if rng.IntN(4) == 0 {
		return manyCall(t, ctx, src, c, process, stale)
	}

	confirmed, load := src.rows[i].confirmed.Load(), src.load(process, i)
	var res Result[string]
	var err error
	found, call := true, rng.IntN(12)
	returned, panicked := apart(func() {
		switch call {
		case 0:
			res, err = c.Refresh(ctx, rowKey(i), load)
		case 1:
			res, found, err = c.Peek(ctx, rowKey(i))
		case 2, 3:
			if res.Value, err = c.Get(ctx, rowKey(i), load); stale {
				res.Source = Stale // for all that Get tells
			}
		default:
			res, err = c.Read(ctx, rowKey(i), load)
		}
	})
	text := res.Value
	switch {
	case panicked != nil:
		p, ok := panicked.(*PanicError)
		if !ok {
			t.Errorf("a read panicked with %v", panicked)
			return false
		}
		text = fmt.Sprint(p.Value)
	case !returned || !found || err == nil && res.Source == Stale:
		return false
	case err != nil:
		if text = versionIn(t, ctx, err); text == "" {
			return false
		}
	}
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "version "), ":")
	if version, perr := strconv.ParseInt(text, 10, 64); perr != nil || version < confirmed {
		t.Errorf("call %d of process %d for %s returned %+v, %v, %v; version %d was confirmed before it started",
			call, process, rowKey(i), res, err, panicked, confirmed)
	}
	return true
}

// versionIn returns the version that err brings from a loader: a loader's error
// says as much about the source as its value does.
func versionIn(t *testing.T, ctx context.Context, err error) string { //nolint:revive // t is the context of a test
	t.Helper()
	if p, ok := errors.AsType[*PanicError](err); ok && p.Value == "batch" {
		return "" // of several keys, like the first two errors below
	} else if ok {
		return fmt.Sprint(p.Value)
	}
	if strings.HasPrefix(err.Error(), "version ") {
		return err.Error()
	}
	if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
		return ""
	}
	for _, may := range []error{errLoad, ErrNotLoaded, ErrNotFound, ErrLoadTimeout, ErrLeaseLost, ErrOverloaded, ErrUnavailable, errGoexit, context.DeadlineExceeded} {
		if errors.Is(err, may) {
			return ""
		}
	}
	t.Errorf("a read returned %v", err)
	return ""
}
