package histories

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/tests/faults"
)

var (
	soakFor   = flag.Duration("soak", 25*time.Second, "how long the soak takes")
	soakKeys  = flag.Int("keys", 20000, "of the soak")
	faultEach = flag.Duration("faulteach", 3*time.Second, "the time between two faults of the soak")
)

// growth is what may be more in the last quarter of a soak than in the second, as
// a part and beyond that: what a process uses at a moment depends on its loads.
const growth = 1.25

// TestSoak lets processes with every option read many keys for long, with a fault
// now and then, and compares what they use in the end with what they used before.
func TestSoak(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	n := 0
	s := startSite(t, faults.Standalone, *seed, func(c *workerConfig) {
		c.Profile = soaking[n%len(soaking)]
		if c.Driver == "glide" { // it can have no near tier
			c.Profile = soaking[1]
		}
		n++
		c.Keys, c.Sample, c.Readers = *soakKeys, *soakFor/40, 8
	})
	// A process that was killed begins anew, and what it uses says nothing.
	plan := func(yield func(faults.Fault) bool) {
		for f := range faults.Plan(*seed, faults.Standalone) {
			if f.Name != "process-sigkill" && !yield(f) {
				return
			}
		}
	}
	var connections []use
	began := now()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for pause(ctx, *soakFor/40) {
			connections = append(connections, use{at: now(), files: clients(ctx, s.Standalone.Addr)})
		}
	}()
	happened := s.run(t, *soakFor, paced(t.Context(), plan))
	cancel()
	<-watched
	violations := s.check(t)
	total := now() - began
	quarter := func(uses []use, n int64, of func(use) int64) int64 {
		var values []int64
		for _, u := range uses {
			if q := (u.at - began) * 4 / total; q == n && of(u) > 0 {
				values = append(values, of(u))
			}
		}
		if len(values) == 0 {
			t.Errorf("nothing was measured in quarter %d", n+1)
			return 0
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	flat := true
	compare := func(whose, what string, uses []use, beyond int64, of func(use) int64) {
		was, is := quarter(uses, 1, of), quarter(uses, 3, of)
		fmt.Printf("%-10s %-12s %12d %12d\n", whose, what, was, is)
		if float64(is) > growth*float64(was)+float64(beyond) {
			flat = false
			t.Errorf("%s: %s grows: %d in the second quarter, %d in the last", whose, what, was, is)
		}
	}
	fmt.Printf("%-10s %-12s %12s %12s\n", "process", "", "2nd quarter", "last quarter")
	for _, p := range s.processes {
		compare(p.cfg.Driver, "live bytes", p.uses, 8<<20, func(u use) int64 { return u.heap })
		compare(p.cfg.Driver, "memory", p.uses, 16<<20, func(u use) int64 { return u.rss })
		compare(p.cfg.Driver, "goroutines", p.uses, 40, func(u use) int64 { return u.goroutines })
		compare(p.cfg.Driver, "open files", p.uses, 20, func(u use) int64 { return u.files })
	}
	compare("server", "connections", connections, 40, func(u use) int64 { return u.files })
	undocumented := 0
	for _, p := range s.processes {
		undocumented += len(p.wrong)
	}
	fmt.Printf("soak: minutes=%.1f operations=%d faults=%d errors_undocumented=%d violations=%d flat=%v\n",
		soakFor.Minutes(), s.operations, len(happened), undocumented, violations, flat)
	if s.operations < 2000 || len(happened) < 2 {
		t.Errorf("%d operations and %d faults; want more", s.operations, len(happened))
	}
}

// paced leaves time between two faults.
func paced(ctx context.Context, plan iter.Seq[faults.Fault]) iter.Seq[faults.Fault] {
	return func(yield func(faults.Fault) bool) {
		for f := range plan {
			if !pause(ctx, *faultEach) || !yield(f) {
				return
			}
		}
	}
}

// clients returns how many connections a server has; 0 if it does not answer.
func clients(ctx context.Context, addr string) (n int64) {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer c.Close()
	_, _ = fmt.Sscan(c.InfoMap(ctx, "clients").Item("Clients", "connected_clients"), &n)
	return n
}
