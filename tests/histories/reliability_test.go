package histories

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecache/leasecache/tests/faults"
)

var (
	named  = flag.String("fault", "", "of the reliability test: only the fault of that name")
	update = flag.Bool("update", false, "of the reliability test: write what was seen into docs/reliability.md, if it was all")
)

// onceWithin bounds a run in which every fault happens once.
const onceWithin = 20 * time.Minute

// TestReliability lets each fault happen once, on each topology that has it, and
// measures for how long a process reads nothing, from its beginning until all read
// again after its end.
func TestReliability(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	happened, sites, violations := 0, 0, 0
	observed := map[string][]string{}
	for _, topology := range chosen(t) {
		planned := slices.DeleteFunc(faults.On(topology), func(f faults.Fault) bool { return *named != "" && *named != f.Name })
		if len(planned) == 0 {
			continue
		}
		t.Run(string(topology), func(t *testing.T) {
			s := startSite(t, topology, *seed, func(*workerConfig) {})
			s.once = true
			those := s.run(t, onceWithin, slices.Values(planned))
			found := s.check(t)
			promise := "promise held"
			if t.Failed() {
				promise = "PROMISE BROKEN, by this or another"
			}
			for _, i := range those {
				ms := s.outage(i.span).Milliseconds()
				fmt.Printf("fault: %s on %s: %s, no process was without a read for more than %d ms\n", i.fault.Name, topology, promise, ms)
				observed[i.fault.Name] = append(observed[i.fault.Name], fmt.Sprintf("%s %d ms", topology, ms))
			}
			if len(those) < len(planned) {
				t.Errorf("%d of %d faults happened", len(those), len(planned))
			}
			happened += len(those)
			sites++
			violations += found
		})
	}
	fmt.Printf("reliability: faults=%d sites=%d violations=%d\n", happened, sites, violations)
	if happened == 0 {
		t.Errorf("no fault happened: is -fault=%q the name of one?", *named)
	}
	if *update && *all && *named == "" && !t.Failed() {
		page := tablePage(t)
		before, _, after := cut(t, page)
		if err := os.WriteFile(reliabilityPage, []byte(before+table(observed)+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// reliabilityPage holds the table of faults.
const (
	reliabilityPage = "../../docs/reliability.md"
	tableHead       = "| Fault | Promise | May be lost | Longest time without a read |\n|---|---|---|---|\n"
)

func tablePage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(reliabilityPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// cut returns what the page has before, as and after its table.
func cut(t *testing.T, page string) (before, rows, after string) {
	t.Helper()
	before, rest, ok := strings.Cut(page, tableHead)
	if !ok {
		t.Fatalf("%s has no table that begins with %q", reliabilityPage, tableHead)
	}
	rows, after, _ = strings.Cut(rest, "\n\n")
	return before, rows, "\n" + after
}

// table is the table of all faults, with what was observed.
func table(observed map[string][]string) string {
	var b strings.Builder
	b.WriteString(tableHead)
	for _, f := range faults.All() {
		b.WriteString(row(f) + strings.Join(observed[f.Name], ", ") + " |\n")
	}
	return b.String()
}

// row is the row of a fault without what was observed.
func row(f faults.Fault) string {
	loses := f.Loses
	if loses == "" {
		loses = "nothing"
	}
	return fmt.Sprintf("| `%s` | %s | %s | ", f.Name, f.Promise, loses)
}

func TestTheDocumentedTableHasEveryFault(t *testing.T) {
	_, rows, _ := cut(t, tablePage(t))
	lines := strings.Split(rows, "\n")
	all := faults.All()
	if len(lines) != len(all) {
		t.Errorf("%s has %d faults; want %d", reliabilityPage, len(lines), len(all))
	}
	for _, f := range all {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, row(f)) })
		switch {
		case i < 0:
			t.Errorf("%s has no row that begins with %q: make reliability writes it", reliabilityPage, row(f))
		case strings.Count(lines[i], " ms") != len(f.Topologies):
			t.Errorf("%s: %s was not observed on each of %q: %s", reliabilityPage, f.Name, f.Topologies, lines[i])
		}
	}
}
