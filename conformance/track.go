package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Cases of driver.Tracker.

func lacksNear(l Lacks) string { return l.Near }

// canTrack reports whether the driver, over this client, can have the server tell
// what changes.
func canTrack(ctx context.Context, d driver.Evaler) bool {
	t, ok := d.(driver.Tracker)
	if !ok {
		return false
	}
	c, err := t.Track(ctx, "conformance:", func([]string) {}, func() {})
	if err != nil {
		return !errors.Is(err, errors.ErrUnsupported)
	}
	c.Close()
	return true
}

// witness notes what a driver tells of changes.
type witness struct {
	mu    sync.Mutex
	names map[string]int
	all   int // changed(nil)
	lost  atomic.Int32
}

func (w *witness) changed(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if names == nil {
		w.all++
	}
	if w.names == nil {
		w.names = map[string]int{}
	}
	for _, name := range names {
		w.names[name]++
	}
}

func (w *witness) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[name]
}

// track tracks the values of the case, as soon as the driver can.
func (e *env) track(d driver.Evaler) (*witness, io.Closer) {
	e.Helper()
	w := &witness{}
	var c io.Closer
	e.eventually("Track returns nil", func() bool {
		var err error
		c, err = d.(driver.Tracker).Track(e.ctx, e.value("")[:len(e.value(""))-2], w.changed, func() { w.lost.Add(1) })
		if err != nil {
			e.Logf("Track: %v", err)
		}
		return err == nil
	})
	e.Cleanup(func() { c.Close() })
	return w, c
}

var trackCases = []testCase{
	{
		name: "TrackHearsWhatChanges", lacks: lacksNear,
		rule: "From when Track has returned, changed must be called with the name of every key with the prefix that is written, deleted or expires, also by a script, and for no other key.",
		run: func(e *env) {
			d := e.driver()
			w, _ := e.track(d)
			for i := range 20 { // in a cluster, on all of its primaries
				key := fmt.Sprintf("k%d\x00}\xff", i)
				name := e.value(key)
				n := 0
				hears := func(what string) {
					e.Helper()
					e.eventually("it hears of a key that was "+what, func() bool { return w.count(name) > n })
					n = w.count(name)
				}
				e.do("SET", name, "v")
				hears("written")
				e.do("DEL", name)
				hears("deleted")
				e.mustEval(d, e.script("return redis.call('SET', KEYS[1], 'v')"), []string{name}, nil)
				hears("written by a script")
				e.do("PEXPIRE", name, "1")
				hears("given a TTL")
				e.eventually("the key expires", func() bool { return !e.exists(name) })
				e.do("SET", e.lease(key), "v")
				e.do("DEL", e.lease(key))
				e.do("SET", name, "v")
				hears("written after others")
				if w.count(e.lease(key)) != 0 {
					e.Error("it hears of a key without the prefix")
				}
				e.do("DEL", name)
			}
			if w.lost.Load() != 0 {
				e.Error("lost was called, though nothing was")
			}
		},
	},
	{
		name: "TrackTellsOfACut", lacks: lacksNear,
		rule: "When a connection of Track is cut, lost must be called. After that, Track must work again.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			w, c := e.track(d)
			p.CutAll()
			e.eventually("lost is called", func() bool { return w.lost.Load() > 0 })
			if err := c.Close(); err != nil {
				e.Logf("Close: %v", err)
			}
			again, _ := e.track(d)
			e.do("SET", e.value("k"), "v")
			e.eventually("it hears again", func() bool { return again.count(e.value("k")) > 0 })
			e.do("DEL", e.value("k"))
		},
	},
	{
		name: "TrackTellsOfAHang", lacks: lacksNear,
		rule: "When a server is silent for driver.TrackSilence on a connection of Track, lost must be called.",
		run: func(e *env) {
			p := e.proxy()
			w, _ := e.track(e.driverOn(p))
			r := p.On(func([]string) bool { return true }, -1, Hang)
			defer r.Remove()
			e.eventually("lost is called", func() bool { return w.lost.Load() > 0 })
		},
	},
	{
		name: "TrackEndsByItsDeadline", lacks: lacksNear,
		rule: "Track must return an error by its context's deadline when the server does not answer.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			r := p.On(func(c []string) bool { return len(c) > 1 && c[1] == "TRACKING" && slices.Contains(c, "BCAST") }, -1, Hang)
			defer r.Remove()
			start := time.Now()
			var c io.Closer
			var err error
			if !inTime(e, "Track", func() {
				c, err = d.(driver.Tracker).Track(e.deadline(500*time.Millisecond), e.prefix, func([]string) {}, func() {})
			}) {
				return
			}
			if err == nil {
				c.Close()
				e.Error("Track returned nil, though the server did not answer")
			}
			if took := time.Since(start); took > patience/2 {
				e.Errorf("Track took %v, with a deadline of 500ms", took)
			}
		},
	},
	{
		name: "TrackCloses", lacks: lacksNear,
		rule: "After Close of what Track has returned, neither changed nor lost may be called.",
		run: func(e *env) {
			p := e.proxy()
			d := e.driverOn(p)
			w, c := e.track(d)
			other, _ := e.track(e.driver())
			if err := c.Close(); err != nil {
				e.Errorf("Close: %v", err)
			}
			for i := range 20 {
				name := e.value(fmt.Sprint(i))
				e.do("SET", name, "v")
				e.eventually("the other hears", func() bool { return other.count(name) > 0 })
				if w.count(name) != 0 {
					e.Fatal("changed was called after Close")
				}
				e.do("DEL", name)
			}
			p.CutAll()
			if w.lost.Load() != 0 {
				e.Error("lost was called after Close")
			}
		},
	},
}
