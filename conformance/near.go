package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of the near tier. Those of the ability that it rests on are in track.go.

// mapNear is a near tier without a bound.
type mapNear struct {
	mu      sync.Mutex
	m       map[leasecache.NearKey]*leasecache.NearEntry
	deleted []string
}

// Get implements [leasecache.Near].
func (n *mapNear) Get(k leasecache.NearKey) (*leasecache.NearEntry, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.m[k]
	return e, ok
}

// Set implements [leasecache.Near].
func (n *mapNear) Set(k leasecache.NearKey, e *leasecache.NearEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[leasecache.NearKey]*leasecache.NearEntry{}
	}
	n.m[k] = e
}

// Delete implements [leasecache.Near].
func (n *mapNear) Delete(k leasecache.NearKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, k)
	n.deleted = append(n.deleted, k.Key)
}

// isDeleted reports whether Delete was called for a key.
func (n *mapNear) isDeleted(key string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.deleted, key)
}

// Clear implements [leasecache.Near].
func (n *mapNear) Clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.m)
}

func (n *mapNear) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.m)
}

// listener is a driver with no more than Eval and Track, that can keep messages
// from the cache, make it lose them, and hold its calls up.
type listener struct {
	*holder

	mu      sync.Mutex
	deaf    bool
	refuse  bool
	changed func([]string)
	lost    func()
	heard   map[string]int
	closed  int
	before  func(script string)
}

// readOver reads a value and, when the server has answered and before the reply is
// there, has change invalidate it: what the read returns must not be kept.
func (e *env) readOver(l *listener, c *leasecache.Cache[string], change func()) {
	e.Helper()
	e.filled(l, c, "k", "old")
	l.hold(e.isLook("k"))
	r := e.goRead(c, "k", loaderOf("wrong", nil))
	await(e, "the read is executed", l.caught)
	change()
	l.release()
	r.want(e, "old", leasecache.Hit, "") // it began before
	e.wantRead(c, "k", "new", "new", leasecache.Loaded)
}

func (e *env) listener() *listener {
	e.Helper()
	return &listener{holder: e.holder(), heard: map[string]int{}}
}

// set changes l while it is in use.
func (l *listener) set(change func(l *listener)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// lose has the cache told that messages are missed. With refuse, it gets none from
// then on.
func (l *listener) lose(refuse bool) {
	l.mu.Lock()
	l.refuse = refuse
	lost := l.lost
	l.mu.Unlock()
	lost()
}

func (l *listener) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard[name]
}

// Eval implements [driver.Evaler].
func (l *listener) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	l.mu.Lock()
	before := l.before
	l.mu.Unlock()
	if before != nil {
		before(s.Name())
	}
	return l.holder.Eval(ctx, s, keys, args)
}

// Track implements [driver.Tracker].
func (l *listener) Track(ctx context.Context, prefix string, changed func([]string), lost func()) (io.Closer, error) {
	l.mu.Lock()
	refuse := l.refuse
	l.changed, l.lost = changed, lost
	l.mu.Unlock()
	if refuse {
		return nil, errors.New("conformance: no messages today")
	}
	c, err := l.d.(driver.Tracker).Track(ctx, prefix, func(names []string) {
		l.mu.Lock()
		deaf := l.deaf
		l.mu.Unlock()
		if !deaf {
			changed(names)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, name := range names {
			l.heard[name]++
		}
	}, lost)
	if err != nil {
		return nil, err
	}
	return closing{c, l}, nil
}

type closing struct {
	io.Closer
	l *listener
}

func (c closing) Close() error {
	c.l.set(func(l *listener) { l.closed++ })
	return c.Closer.Close()
}

// near returns a cache with a near tier, whose server tells what changes.
func (e *env) near(d driver.Evaler, o leasecache.Options) *leasecache.Cache[string] {
	e.Helper()
	if o.Near == nil {
		o.Near = &mapNear{}
	}
	c := e.cacheOn(d, o)
	e.tracked(c)
	return c
}

// tracked waits until c keeps what it reads.
func (e *env) tracked(c *leasecache.Cache[string]) {
	e.Helper()
	e.mustRead(c, "tracked", loaderOf("x", nil))
	e.kept(c, "tracked", "x")
}

// kept reads a key that is cached until it is kept in the process.
func (e *env) kept(c *leasecache.Cache[string], key, want string) {
	e.Helper()
	e.eventually(fmt.Sprintf("%q is kept in the process", key), func() bool {
		res, ok, err := c.Peek(e.ctx, key)
		if !ok || err != nil || res.Value != want {
			e.Fatalf("Peek of %q returned %+v, %v, %v; want %q", key, res, ok, err, want)
		}
		return res.Source == leasecache.NearHit
	})
}

// cached caches a value, and has it kept in the process.
func (e *env) cached(c *leasecache.Cache[string], key, value string) {
	e.Helper()
	e.mustRead(c, key, loaderOf(value, nil))
	e.kept(c, key, value)
}

// filled caches a value, and waits until l has heard of that: what is read from
// then on may be kept.
func (e *env) filled(l *listener, c *leasecache.Cache[string], key, value string) {
	e.Helper()
	e.mustRead(c, key, loaderOf(value, nil))
	e.eventually("the message of the fill comes", func() bool { return l.count(e.value(key)) > 0 })
}

// wantRead reads now.
func (e *env) wantRead(c *leasecache.Cache[string], key, ifLoaded, value string, source leasecache.Source) {
	e.Helper()
	if res := e.mustRead(c, key, loaderOf(ifLoaded, nil)); res.Value != value || res.Source != source {
		e.Fatalf("Read of %q returned %q from %v; want %q from %v", key, res.Value, res.Source, value, source)
	}
}

// isLook matches the first look at a key, which takes no lease.
func (e *env) isLook(key string) func([]string) bool {
	match := MatchScript(protocol.Read.SHA1(), protocol.Read.Source())
	return func(command []string) bool {
		return match(command) && command[3] == e.value(key) && command[6] == ""
	}
}

var nearCases = []testCase{
	{
		name: "NearHits", lacks: lacksNear,
		rule: "A value that is kept in the process must be served without the server, as a near hit with what is left of its TTL, and a not-found record as ErrNotFound.",
		run: func(e *env) {
			p := e.proxy()
			kept := &mapNear{}
			c := e.near(e.driverOn(p), leasecache.Options{Near: kept})
			none := func(context.Context) (string, error) { return "", leasecache.ErrNotFound }
			e.mustRead(c, "k", loaderOf("v", nil))
			if _, err := c.Get(e.ctx, "none", none); !errors.Is(err, leasecache.ErrNotFound) {
				e.Fatalf("Get returned %v; want ErrNotFound", err)
			}
			// The messages of the fills drop what is kept before they come.
			e.eventually("the messages of the fills come", func() bool { return kept.isDeleted("k") && kept.isDeleted("none") })
			e.kept(c, "k", "v")
			calls := func() int { n := p.Commands(); return n["GET"] + n["EVALSHA"] + n["EVAL"] }
			before, stats := calls(), c.Stats()
			for range 100 {
				res, err := c.Read(e.ctx, "k", loaderOf("other", nil))
				if err != nil || res.Value != "v" || res.Source != leasecache.NearHit || !res.Cached() || res.TTL <= 0 || res.TTL > 10*time.Minute {
					e.Fatalf("Read returned %+v, %v", res, err)
				}
				if v, err := c.Get(e.ctx, "k", loaderOf("other", nil)); v != "v" || err != nil {
					e.Fatalf("Get returned %q, %v", v, err)
				}
			}
			if n := calls() - before; n != 0 {
				e.Errorf("200 near hits took %d calls", n)
			}
			if s := c.Stats(); s.NearHits-stats.NearHits != 200 || s.Hits-stats.Hits != 200 || s.Misses != stats.Misses {
				e.Errorf("the statistics of 200 near hits: %+v, and before %+v", s, stats)
			}
			e.eventually("the not-found record is kept", func() bool {
				res, err := c.Read(e.ctx, "none", none)
				if !errors.Is(err, leasecache.ErrNotFound) {
					e.Fatalf("Read returned %+v, %v; want ErrNotFound", res, err)
				}
				return res.Source == leasecache.NearHit
			})
			if _, err := c.Get(e.ctx, "none", none); !errors.Is(err, leasecache.ErrNotFound) {
				e.Errorf("Get returned %v; want ErrNotFound", err)
			}
			before = p.Commands()["GET"]
			values, err := c.GetMany(e.ctx, []string{"k", "none"}, func(context.Context, []string) (map[string]string, error) {
				return nil, errors.New("nothing is to be loaded")
			})
			if err != nil || len(values) != 1 || values["k"] != "v" || p.Commands()["GET"] != before {
				e.Errorf("GetMany returned %v, %v, with %d GETs", values, err, p.Commands()["GET"]-before)
			}
		},
	},
	{
		name: "G4NearKeepsWhatTheServerReturned", lacks: lacksNear,
		rule: "The near tier must keep only what a read of the server found: not a load's value, not a stale copy, and nothing that is not cached.",
		run: func(e *env) {
			kept, l := &mapNear{}, e.listener()
			c := e.near(l, leasecache.Options{Near: kept, Stale: time.Minute})
			before := kept.len()
			// The server tells of the fill as well, which would drop it again.
			l.set(func(l *listener) { l.deaf = true })
			e.wantRead(c, "k", "v", "v", leasecache.Loaded)
			if kept.len() != before {
				e.Error("it keeps what was loaded and filled")
			}
			l.set(func(l *listener) { l.deaf = false })
			e.kept(c, "k", "v")
			e.mustInvalidate(c, "k")
			g := newGate()
			load := e.goRead(c, "k", g.loader("w"))
			await(e, "the load begins", g.began)
			e.wantRead(c, "k", "x", "v", leasecache.Stale)
			e.wantRead(c, "k", "x", "v", leasecache.Stale)
			g.open()
			await(e, "the load ends", load.done)
			for range 2 {
				res := e.mustRead(c, "uncached", func(ctx context.Context) (string, error) {
					leasecache.LoadFrom(ctx).DoNotStore()
					return "u", nil
				})
				if res.Source != leasecache.Loaded {
					e.Errorf("a value that is not stored came from %v", res.Source)
				}
			}
			// Another program's, without an expiry: nobody would drop it in the end.
			e.do("SET", e.value("forever"), "f")
			for range 3 {
				e.wantRead(c, "forever", "x", "f", leasecache.Hit)
			}
			e.do("DEL", e.value("forever"))
		},
	},
	{
		name: "G3NearInvalidate", lacks: lacksNear,
		rule: "Once Invalidate was called, its process must not serve what it keeps of the key; and once it has returned, nothing that was read before, also if no message comes.",
		run: func(e *env) {
			l := e.listener()
			c := e.near(l, cacheOptions)
			e.cached(c, "k", "old")
			sent, goOn := make(chan struct{}), make(chan struct{})
			l.set(func(l *listener) {
				l.deaf = true
				l.before = func(script string) {
					if script == protocol.Invalidate.Name() {
						close(sent)
						<-goOn
					}
				}
			})
			done := make(chan error, 1)
			go func() { done <- c.Invalidate(e.ctx, "k") }()
			await(e, "the invalidation is sent", sent)
			l.set(func(l *listener) { l.before = nil })
			// It is not executed yet: this read finds the old value, and keeps it.
			res, ok, err := c.Peek(e.ctx, "k")
			if !ok || err != nil || res.Source != leasecache.Hit {
				e.Errorf("while the invalidation is on its way, Peek returned %+v, %v, %v; want a hit of the server's", res, ok, err)
			}
			e.kept(c, "k", "old")
			close(goOn)
			if err := await(e, "the invalidation ends", done); err != nil {
				e.Fatal(err)
			}
			e.wantRead(c, "k", "new", "new", leasecache.Loaded)
		},
	},
	{
		name: "G3NearInvalidateInAnotherCache", lacks: lacksNear,
		rule: "Once Invalidate has returned, all caches of the prefix on that Store must have dropped the key.",
		run: func(e *env) {
			l := e.listener()
			s := e.store(l, patience)
			c, other := e.near(s, cacheOptions), e.cacheOn(s, cacheOptions)
			e.cached(c, "k", "old")
			l.set(func(l *listener) { l.deaf = true })
			e.mustInvalidate(other, "k")
			e.wantRead(c, "k", "new", "new", leasecache.Loaded)
		},
	},
	{
		name: "G3NearReadOverAnInvalidation", lacks: lacksNear,
		rule: "What a read returned that was sent before an invalidation of this process must not be kept, if its reply comes after it.",
		run: func(e *env) {
			l := e.listener()
			c := e.near(l, cacheOptions)
			e.readOver(l, c, func() {
				l.set(func(l *listener) { l.deaf = true })
				e.mustInvalidate(c, "k")
			})
		},
	},
	{
		name: "G3NearReadOverAMessage", lacks: lacksNear,
		rule: "What a read returned that was sent before a message about its key must not be kept, if its reply comes after it.",
		run: func(e *env) {
			l := e.listener()
			c, there := e.near(l, cacheOptions), e.cache(cacheOptions)
			e.readOver(l, c, func() {
				before := l.count(e.value("k"))
				e.mustInvalidate(there, "k")
				e.eventually("the message comes", func() bool { return l.count(e.value("k")) > before })
			})
		},
	},
	{
		name: "G3NearReadOverALoss", lacks: lacksNear,
		rule: "What a read returned that was sent before messages were lost must not be kept, also if they come again before its reply.",
		run: func(e *env) {
			l := e.listener()
			c, there := e.near(l, cacheOptions), e.cache(cacheOptions)
			e.readOver(l, c, func() {
				l.set(func(l *listener) { l.deaf = true })
				e.mustInvalidate(there, "k")
				l.lose(false)
				e.tracked(c)
			})
			if n := c.Stats().NearLosses; n != 1 {
				e.Errorf("NearLosses is %d; want 1", n)
			}
		},
	},
	{
		name: "G3NearWhileMessagesAreLost", lacks: lacksNear,
		rule: "While the server's messages are lost, nothing must be served from the process, and nothing be kept.",
		run: func(e *env) {
			l := e.listener()
			c, there := e.near(l, cacheOptions), e.cache(cacheOptions)
			e.cached(c, "k", "old")
			l.set(func(l *listener) { l.deaf = true })
			l.lose(true)
			e.mustInvalidate(there, "k")
			e.wantRead(c, "k", "new", "new", leasecache.Loaded)
			for range 3 {
				e.wantRead(c, "k", "wrong", "new", leasecache.Hit)
			}
			l.set(func(l *listener) { l.refuse, l.deaf = false, false })
			e.kept(c, "k", "new")
		},
	},
	{
		name: "G3NearAfterAFlush", lacks: lacksNear,
		rule: "When the server says that any key may have changed, all that is kept must be dropped.",
		run: func(e *env) {
			l := e.listener()
			c, there := e.near(l, cacheOptions), e.cache(cacheOptions)
			e.cached(c, "k", "old")
			l.set(func(l *listener) { l.deaf = true })
			e.mustInvalidate(there, "k")
			l.changed(nil)
			e.wantRead(c, "k", "new", "new", leasecache.Loaded)
			e.kept(c, "k", "new")
		},
	},
	{
		name: "G3NearInAnotherProcess", lacks: lacksNear,
		rule: "Another process must drop what it keeps as soon as the server's message has come, whoever has invalidated, also by DEL of lease and value; and a connection that was cut must not end that.",
		run: func(e *env) {
			p := e.proxy()
			here, there := e.near(e.driverOn(p), cacheOptions), e.near(e.driver(), cacheOptions)
			for i := range 20 {
				key, old, current := fmt.Sprintf("k%d", i), fmt.Sprintf("old%d", i), fmt.Sprintf("new%d", i)
				e.cached(here, key, old)
				switch i % 3 {
				case 0:
					e.mustInvalidate(there, key)
				case 1:
					e.do("DEL", e.lease(key))
					e.do("DEL", e.value(key))
				case 2:
					e.mustInvalidate(there, key)
					p.CutAll()
				}
				e.eventually("the old value is gone", func() bool {
					res, err := here.Read(e.ctx, key, loaderOf(current, nil))
					if err != nil {
						return false // of a connection that was cut
					}
					return res.Value == current
				})
				for range 3 {
					if res := e.mustRead(here, key, loaderOf("wrong", nil)); res.Value != current {
						e.Fatalf("after %q, Read returned %+v", current, res)
					}
				}
			}
		},
	},
	{
		name: "G6NearTTL", lacks: lacksNear,
		rule: "Nothing must be served from the process for longer than the server caches it, counted from before the read was sent, also if no message comes.",
		run: func(e *env) {
			l := e.listener()
			c := e.near(l, cacheOptions)
			l.set(func(l *listener) { l.deaf = true })
			const ttl = "300"
			e.do("SET", e.value("k"), "v", "PX", ttl)
			for e.exists(e.value("k")) { // kept, if the machine is fast enough
				if _, _, err := c.Peek(e.ctx, "k"); err != nil {
					e.Fatal(err)
				}
			}
			if res, ok, err := c.Peek(e.ctx, "k"); ok || err != nil {
				e.Errorf("after the value has expired, Peek returned %+v, %v, %v", res, ok, err)
			}

			l.hold(e.isLook("late"))
			e.do("SET", e.value("late"), "v", "PX", ttl)
			r := e.goRead(c, "late", loaderOf("new", nil))
			await(e, "the read is executed", l.caught)
			e.eventually("the value expires", func() bool { return !e.exists(e.value("late")) })
			l.release()
			await(e, "the read ends", r.done)
			if r.err != nil || r.res.Value != "v" || r.res.TTL != 0 {
				e.Errorf("the read that was on its way returned %+v, %v", r.res, r.err)
			}
			e.wantRead(c, "late", "new", "new", leasecache.Loaded)
		},
	},
	{
		name: "NearIsDroppedByRefresh", lacks: lacksNear,
		rule: "A read that starts after Refresh has returned must not get an older value from the process, also if no message comes.",
		run: func(e *env) {
			l := e.listener()
			c := e.near(l, cacheOptions)
			e.cached(c, "k", "old")
			l.set(func(l *listener) { l.deaf = true })
			if res, err := c.Refresh(e.ctx, "k", loaderOf("new", nil)); err != nil || res.Value != "new" {
				e.Fatalf("Refresh returned %+v, %v", res, err)
			}
			e.wantRead(c, "k", "wrong", "new", leasecache.Hit)
		},
	},
	{
		name: "NearIsSharedByCaches", lacks: lacksNear,
		rule: "Caches that share a near tier must not get each other's values.",
		run: func(e *env) {
			kept := &mapNear{}
			one := e.near(e.driver(), leasecache.Options{Near: kept})
			other := *e
			other.prefix += "other:"
			two := other.near(e.driver(), leasecache.Options{Near: kept})
			e.cached(one, "k", "one")
			other.cached(two, "k", "two")
			e.kept(one, "k", "one")
			e.mustInvalidate(one, "k")
			other.kept(two, "k", "two")
		},
	},
	{
		name: "NearValuesAreTheCallers", lacks: lacksNear,
		rule: "What a caller does to a value must not change what another gets from the process.",
		run: func(e *env) {
			d := e.driver()
			b := newCache[[]byte](e, d, leasecache.Options{Near: &mapNear{}})
			load := func(context.Context) ([]byte, error) { return []byte("value"), nil }
			e.eventually("the bytes are kept, and stay", func() bool {
				res, err := b.Read(e.ctx, "read", load)
				if err != nil || string(res.Value) != "value" {
					e.Fatalf("Read returned %q, %v", res.Value, err)
				}
				res.Value[0] = 'X'
				got, err := b.Get(e.ctx, "got", load)
				if err != nil || string(got) != "value" {
					e.Fatalf("Get returned %q, %v", got, err)
				}
				got[0] = 'X'
				return b.Stats().NearHits > 6
			})
			m := newCache[map[string]int](e, d, leasecache.Options{Near: &mapNear{}})
			e.eventually("the map is kept, and stays", func() bool {
				res, err := m.Read(e.ctx, "map", func(context.Context) (map[string]int, error) { return map[string]int{"a": 1}, nil })
				if err != nil || len(res.Value) != 1 || res.Value["a"] != 1 {
					e.Fatalf("Read returned %v, %v", res.Value, err)
				}
				res.Value["a"], res.Value["b"] = 2, 3
				return m.Stats().NearHits > 3
			})
		},
	},
	{
		name: "NearEndsWithTheCache", lacks: lacksNear,
		rule: "Close must end the server's messages.",
		run: func(e *env) {
			l := e.listener()
			kept := &mapNear{}
			c := e.near(l, leasecache.Options{Near: kept})
			if err := c.Close(e.ctx); err != nil {
				e.Fatal(err)
			}
			l.set(func(l *listener) {
				if l.closed != 1 {
					e.Errorf("what Track returned was closed %d times; want once", l.closed)
				}
			})
			if kept.len() != 0 {
				e.Errorf("%d values are kept after Close", kept.len())
			}
		},
	},
}
