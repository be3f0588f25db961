package scale

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/leasecache/leasecache"
)

// measured is what BenchmarkCommands printed for Valkey 9.1.2 on an AMD EPYC, the lowest
// of three runs, in whole microseconds. To unsubscribe, which plays no part here, is
// taken to cost as much as a GET.
var measured = costs{
	get:         11 * time.Microsecond,
	readValue:   14 * time.Microsecond,
	readLease:   26 * time.Microsecond,
	readWait:    16 * time.Microsecond,
	fill:        18 * time.Microsecond,
	release:     18 * time.Microsecond,
	invalidate:  14 * time.Microsecond,
	subscribe:   75 * time.Microsecond,
	unsubscribe: 11 * time.Microsecond,
	message:     7 * time.Microsecond,
}

var processesFlag = flag.String("processes", "10,100", "the numbers of processes to simulate")

// numbers returns those of a list with commas.
func numbers(t *testing.T, list string) (all []int) {
	t.Helper()
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// row is a line of the table.
type row struct {
	scenario  scenario
	processes int
	woken     bool
	report
	stats
	invalidations int
	took          time.Duration
}

func (r row) mode() string {
	if r.woken {
		return "woken"
	}
	return "polling"
}

// TestScale prints what each scenario costs. What it checks is what must hold of
// any number of processes.
func TestScale(t *testing.T) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\tprocesses\tmode\treads\tfailed\tloads\tcommands\tslowest read, ms\tserver busy, %\t")
	for _, sc := range scenarios {
		for _, n := range numbers(t, *processesFlag) {
			var polling row
			for _, woken := range []bool{false, true} {
				r := simulate(t, sc, n, woken)
				fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%.0f\t%.1f\t\n", r.scenario, r.processes, r.mode(), r.Reads, r.Failed, r.Loads, r.sent,
					float64(r.Slowest)/float64(time.Millisecond), 100*float64(r.busy)/float64(r.took))
				if r.Failed > 0 {
					t.Logf("%s, %d processes, %s: the first error: %s", sc, n, r.mode(), r.Example)
				}
				r.check(t)
				if !woken {
					polling = r
				} else if sc == crashed && 2*r.sent > polling.sent {
					t.Errorf("%s, %d processes: %d commands woken, and %d polling; want less than half", sc, n, r.sent, polling.sent)
				}
			}
		}
	}
	w.Flush()
}

func (r row) check(t *testing.T) {
	if r.processes > 100 {
		return // the server may be overloaded, and that is what the table is to show
	}
	name := fmt.Sprintf("%s, %d processes, %s", r.scenario, r.processes, r.mode())
	if r.Failed > 0 {
		t.Errorf("%s: %d reads failed", name, r.Failed)
	}
	if r.scenario != storm && (r.Loads != 1 || r.Reads != r.processes*readers) {
		t.Errorf("%s: %d reads caused %d loads; want one", name, r.Reads, r.Loads)
	}
	if r.scenario == crashed && (r.Slowest < lease || r.Slowest > lease+time.Second) {
		t.Errorf("%s: the slowest read took %v; want about the lease, %v", name, r.Slowest, lease)
	}
}

// simulate runs a scenario on virtual time.
func simulate(t *testing.T, sc scenario, processes int, woken bool) row {
	r := row{scenario: sc, processes: processes, woken: woken}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(measured)
		open := func() *leasecache.Cache[string] {
			c, err := newCache(client{server: s}, woken, 0)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		caches := make([]*leasecache.Cache[string], processes)
		for i := range caches {
			caches[i] = open()
		}
		writer := open()
		if sc == crashed {
			if err := crash(t.Context(), client{s, time.Second}); err != nil {
				t.Fatal(err)
			}
			s.reset()
		}

		began := time.Now()
		reports := make([]report, processes)
		var wg sync.WaitGroup
		for i, c := range caches {
			wg.Go(func() { reports[i] = process(c, sc) })
		}
		if sc == storm {
			wg.Go(func() {
				var err error
				if r.invalidations, err = invalidate(t.Context(), writer); err != nil {
					t.Errorf("the writer: %v", err)
				}
			})
		}
		wg.Wait()
		r.took, r.stats = time.Since(began), s.snapshot()
		for _, p := range reports {
			r.add(p)
		}
		for _, c := range append(caches, writer) {
			wg.Go(func() {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	return r
}
