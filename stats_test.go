package leasecache

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver"
)

// TestEveryCountIsInTheSnapshotAndInTheSum finds a field that was added to
// Stats, and forgotten elsewhere.
func TestEveryCountIsInTheSnapshotAndInTheSum(t *testing.T) {
	c := &counters{}
	// Each count gets a number of its own, so that no two can be mixed up.
	n := uint64(0)
	for i, field := range []interface{ Store(uint64) }{
		&c.hits, &c.misses, &c.refreshes, &c.loads, &c.unleasedLoads, &c.joined, &c.shared, &c.waits, &c.waitTimeouts,
		&c.staleServed, &c.fillsAccepted, &c.fillsRejected, &c.fillsPresent, &c.overloads, &c.holderFailed, &c.undecodable, &c.invalidated,
		&c.nearHits, &c.nearLosses,
	} {
		n = uint64(i + 1)
		field.Store(n)
	}
	for i, reason := range errorReasons {
		for range i + 1 {
			c.failed(reason)
		}
	}
	c.failed("a reason that is not listed")
	want := Stats{
		// A near hit is a hit as well.
		Hits: 1 + 18, Misses: 2, Refreshes: 3, Loads: 4, UnleasedLoads: 5, Joined: 6, SharedReads: 7, Waits: 8, WaitTimeouts: 9,
		StaleServed: 10, FillsAccepted: 11, FillsRejected: 12, FillsPresent: 13, Overloads: 14, HolderFailed: 15,
		Undecodable: 16, Invalidated: 17, NearHits: 18, NearLosses: 19,
		Errors: map[ErrorReason]uint64{
			ErrorLoader: 1, ErrorLoaderPanic: 2, ErrorLoadTimeout: 3, ErrorTTL: 4, ErrorEncode: 5, ErrorTooLarge: 6,
			ErrorRead: 7, ErrorFill: 8, ErrorRelease: 9, ErrorInvalidate: 10, ErrorDrop: 11, ErrorWatch: 12, ErrorTrack: 13,
		},
	}
	got := c.snapshot()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	if fields := reflect.TypeFor[Stats]().NumField(); fields != int(n)+1 {
		t.Errorf("Stats has %d fields, this test knows %d and Errors", fields, n)
	}

	var sum Stats
	sum.add(got)
	sum.add(got)
	v, w := reflect.ValueOf(sum), reflect.ValueOf(want)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Errors" {
			for reason, n := range want.Errors {
				if sum.Errors[reason] != 2*n {
					t.Errorf("the sum of Errors[%s] is %d, want %d", reason, sum.Errors[reason], 2*n)
				}
			}
			continue
		}
		if got, want := v.Field(i).Uint(), 2*w.Field(i).Uint(); got != want {
			t.Errorf("the sum of %s is %d, want %d", name, got, want)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summing changed what was summed (-want +got):\n%s", diff)
	}
}

func TestAStoreSumsTheStatisticsOfOpenAndClosedCaches(t *testing.T) {
	s := mustStore(t, present{}, time.Second)
	a, b, other := mustCache(t, s, Options{Prefix: "a:"}), mustCache(t, s, Options{Prefix: "b:"}), mustCache(t, present{}, Options{})
	use := func(c *Cache[string], hits, invalidated int) {
		t.Helper()
		for range hits {
			if _, err := c.Get(t.Context(), "k", never); err != nil {
				t.Fatal(err)
			}
		}
		for range invalidated {
			if err := c.Invalidate(t.Context(), "k", "l"); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(hits, invalidated uint64) {
		t.Helper()
		if got := s.Stats(); got.Hits != hits || got.Invalidated != invalidated {
			t.Errorf("the Store counts %d hits and %d invalidated, want %d and %d", got.Hits, got.Invalidated, hits, invalidated)
		}
	}
	want(0, 0)
	use(a, 3, 1)
	use(b, 4, 0)
	use(other, 100, 100) // is on a Store of its own
	want(7, 2)
	for range 2 { // closing again must not count again
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(7, 2)
	}
	use(b, 1, 1)
	want(8, 4)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(8, 4)
	if got := a.Stats(); got.Hits != 3 {
		t.Errorf("a closed cache counts %d hits, want 3", got.Hits)
	}
	use(mustCache(t, s, Options{}), 1, 0)
	want(9, 4)
}

func TestStatisticsAreTheCallersOwn(t *testing.T) {
	refused := present{fail: driver.ParseServerError("OOM no", nil)}
	s := mustStore(t, refused, time.Second)
	c := mustCache(t, s, Options{})
	if _, _, err := c.Peek(t.Context(), "k"); err == nil {
		t.Fatal("Peek returned no error")
	}
	for range 2 {
		for name, stats := range map[string]Stats{"Cache": c.Stats(), "Store": s.Stats()} {
			if n := stats.Errors[ErrorRead]; n != 1 || len(stats.Errors) != 1 {
				t.Errorf("the errors of the %s are %v, want one read", name, stats.Errors)
			}
			stats.Errors[ErrorRead] = 99
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		stats := s.Stats()
		if n := stats.Errors[ErrorRead]; n != 1 {
			t.Errorf("after Close the Store counts %d errors, want 1", n)
		}
		stats.Errors[ErrorRead] = 99
	}
}

func TestReasonsThatNeverCameUpAreLeftOut(t *testing.T) {
	s := mustStore(t, present{}, time.Second)
	for name, stats := range map[string]Stats{"Cache": mustCache(t, s, Options{}).Stats(), "Store": s.Stats()} {
		if len(stats.Errors) != 0 || stats.Errors == nil {
			t.Errorf("the errors of a new %s are %v, want an empty map", name, stats.Errors)
		}
	}
}
