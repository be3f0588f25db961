package leasecache

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzOptions makes caches of any options: New never panics, and either names the
// option that is out of its bounds, or returns a cache within all of them.
func FuzzOptions(f *testing.F) {
	f.Add("p:", int64(time.Minute), int64(0), 0.0, int64(0), int64(0), int64(0), int64(0), int64(0), 0, 0, 0, byte(0), byte(0), int64(0), int64(0), int64(0))
	f.Add("{", int64(1), int64(-1), 1.0, int64(-1), int64(1), int64(-1), int64(1), int64(1), -1, -1, -1, byte(2), byte(3), int64(1), int64(1), int64(1))
	f.Add("", int64(math.MaxInt64), int64(math.MinInt64), math.NaN(), int64(math.MaxInt64), int64(math.MaxInt64), int64(0), int64(0), int64(0), math.MaxInt32, math.MaxInt32, math.MaxInt32, byte(255), byte(255), int64(math.MinInt64), int64(math.MinInt64), int64(math.MaxInt64))
	f.Add("", int64(mostDuration), int64(mostDuration), 0.999, int64(mostDuration), int64(mostDuration), int64(0), int64(0), int64(0), 1<<20, 1<<20, 512<<20, byte(1), byte(2), int64(mostDuration), int64(mostDuration), int64(mostDuration))
	f.Add("", int64(time.Millisecond), int64(time.Millisecond), math.SmallestNonzeroFloat64, int64(time.Millisecond), int64(time.Millisecond), int64(0), int64(0), int64(0), 0, 1, 1, byte(0), byte(0), int64(time.Millisecond), int64(-1), int64(time.Millisecond))
	over := int64(mostDuration + 1)
	f.Add("", over, int64(0), 0.0, int64(0), int64(0), int64(0), int64(0), int64(0), 0, 0, 0, byte(0), byte(0), int64(0), int64(0), int64(0))
	f.Add("", int64(1e9), int64(0), 0.0, int64(0), over, int64(0), int64(0), int64(0), 0, 0, 0, byte(0), byte(0), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, prefix string, ttl, notFound int64, jitter float64, stale, lease, loadTimeout, waitBound, poll int64,
		loads, unleased, size int, onUnavailable, onLost byte, drop, failure, call int64,
	) {
		given := Options{
			Prefix: prefix, TTL: time.Duration(ttl), NotFoundTTL: time.Duration(notFound), Jitter: jitter, Stale: time.Duration(stale),
			Lease: time.Duration(lease), LoadTimeout: time.Duration(loadTimeout), WaitBound: time.Duration(waitBound), PollInterval: time.Duration(poll),
			MaxLoads: loads, MaxUnleasedLoads: unleased, MaxValueSize: size, OnUnavailable: OnUnavailable(onUnavailable), OnLeaseLost: OnLeaseLost(onLost),
			DropBackoff: time.Duration(drop), FailureBackoff: time.Duration(failure),
		}
		store, err := NewStore(present{}, StoreOptions{CallTimeout: time.Duration(call)})
		if err != nil {
			if !strings.Contains(err.Error(), "StoreOptions.CallTimeout is "+time.Duration(call).String()) || within(time.Duration(call)) {
				t.Errorf("CallTimeout %v: %v", time.Duration(call), err)
			}
			return
		}
		c, err := New[string](store, given)
		if err != nil {
			checkRefused(t, given, err)
			return
		}
		defer c.Close(context.Background())
		o := c.opts
		for name, d := range map[string]time.Duration{
			"TTL": o.TTL, "NotFoundTTL": o.NotFoundTTL, "Lease": o.Lease, "LoadTimeout": o.LoadTimeout, "WaitBound": o.WaitBound,
			"PollInterval": o.PollInterval, "DropBackoff": o.DropBackoff, "CallTimeout": store.callTimeout,
		} {
			if !within(d) {
				t.Errorf("a cache has the %s %v", name, d)
			}
		}
		for name, d := range map[string]time.Duration{"Stale": o.Stale, "FailureBackoff": max(o.FailureBackoff, 0)} {
			if d != 0 && !within(d) {
				t.Errorf("a cache has the %s %v", name, d)
			}
		}
		if strings.Contains(o.Prefix, "{") || !(o.Jitter >= 0 && o.Jitter < 1) || o.MaxLoads < 0 || o.MaxUnleasedLoads < 1 ||
			o.MaxValueSize < 1 || o.MaxValueSize > 512<<20 || o.OnUnavailable > UnavailableLoad || o.OnLeaseLost > LostFail {
			t.Errorf("a cache has the options %+v", o)
		}
		if given.TTL != o.TTL || given.Prefix != o.Prefix || given.Lease != 0 && given.Lease != o.Lease {
			t.Errorf("%+v became %+v", given, o)
		}
	})
}

func within(d time.Duration) bool { return d >= time.Millisecond && d <= 100*365*24*time.Hour }

// checkRefused checks that err names an option whose value is out of its bounds.
func checkRefused(t *testing.T, o Options, err error) {
	t.Helper()
	durations := map[string]time.Duration{
		"TTL": o.TTL, "NotFoundTTL": o.NotFoundTTL, "Lease": o.Lease, "LoadTimeout": o.LoadTimeout, "WaitBound": o.WaitBound,
		"PollInterval": o.PollInterval, "DropBackoff": o.DropBackoff, "Stale": o.Stale, "FailureBackoff": o.FailureBackoff,
	}
	text := err.Error()
	if errors.Is(err, ErrPrefix) {
		if !strings.Contains(o.Prefix, "{") {
			t.Errorf("prefix %q: %v", o.Prefix, err)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(durations)) {
		if d := durations[name]; strings.Contains(text, "Options."+name+" is "+d.String()+":") {
			if within(d) {
				t.Errorf("%s %v is within bounds: %v", name, d, err)
			}
			return
		}
	}
	for _, name := range []string{"TTL is not set", "Jitter is ", "MaxLoads is ", "MaxUnleasedLoads is ", "MaxValueSize is ", "OnUnavailable is ", "OnLeaseLost is "} {
		if strings.Contains(text, "Options."+name) {
			return
		}
	}
	t.Errorf("%+v: %v; want an error that names an option", o, err)
}

// mapNear keeps everything.
type mapNear map[NearKey]*NearEntry

func (m mapNear) Get(k NearKey) (*NearEntry, bool) { e, ok := m[k]; return e, ok }
func (m mapNear) Set(k NearKey, e *NearEntry)      { m[k] = e }
func (m mapNear) Delete(k NearKey)                 { delete(m, k) }
func (m mapNear) Clear()                           { clear(m) }

// FuzzNearMessage tells a near tier of a name that changed, as a server does, or
// who forges its messages. The value of that name is forgotten, and no other; and
// a message never keeps anything.
func FuzzNearMessage(f *testing.F) {
	for _, name := range []string{"", "p:v:{k}", "p:v:{kept}", "p:v:{}", "p:v:{", "p:v:}", "p:l:{k}", "p:v:{k}x", "v:{k}", "p:v:{{k}}", "p:v:{a}b}", "p:v:{\x00}", "p:v:k"} {
		f.Add("p:", "k", name)
	}
	f.Add("", "kept2", "v:{kept2}")
	f.Fuzz(func(t *testing.T, prefix, key, name string) {
		const other = "kept"
		if strings.Contains(prefix, "{") || key == "" || key[0] == '}' || key == other {
			return // none of these comes so far
		}
		kept := mapNear{}
		n := newNearTier(kept, nil, prefix, time.Second, &counters{})
		l := &trackLink{t: &n.tracking, gone: make(chan struct{})}
		if !n.tracking.turnOn(l) {
			t.Fatal("the tier is not on")
		}
		generation := n.generation.Load()
		for _, k := range []string{key, other} {
			kept.Set(NearKey{generation, k}, &NearEntry{"v", time.Now().Add(time.Hour)})
		}
		reading := n.begin(key)
		l.changed([]string{name})
		for _, k := range []string{key, other} {
			e, _ := n.get(k)
			if changed := name == prefix+"v:{"+k+"}"; (e == nil) != changed {
				t.Errorf("after a message of %q, what is kept of %q is %v", name, k, e)
			}
			if k == key && (reading.read.changes > 0) != (name == prefix+"v:{"+k+"}") {
				t.Errorf("a message of %q counts as %d changes of %q", name, reading.read.changes, k)
			}
		}
		if len(kept) > 2 {
			t.Errorf("a message of %q left %d entries", name, len(kept))
		}
		l.changed(nil) // all may have changed
		for _, k := range []string{key, other} {
			if e, _ := n.get(k); e != nil {
				t.Errorf("%q is kept although all may have changed", k)
			}
		}
	})
}
