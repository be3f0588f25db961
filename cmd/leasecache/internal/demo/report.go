package demo

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// report is the result of a demo, as --json prints it.
type report struct {
	Acts []shownAct `json:"acts"`
	OK   bool       `json:"ok"`
}

// shownAct is what an act showed on each side.
type shownAct struct {
	Name   string  `json:"name"`
	Naive  outcome `json:"naive"`
	Leases outcome `json:"leases"`
}

// outcome is what an act showed on one side.
type outcome struct {
	Loads       int   `json:"loads"`        // at the source
	StaleReads  int   `json:"stale_reads"`  // by reads that started after the invalidation
	CachedStale bool  `json:"cached_stale"` // what is cached at the end is older than the source
	SlowestMS   int64 `json:"slowest_ms"`   // the slowest reader, in milliseconds

	rejected int // fills, of the process whose load was paused
}

// margin is what a reader may take beyond what it has to wait for: a load, and
// the pauses of a machine that has more to do than it can.
const margin = 3000 // milliseconds

// verdict returns what the acts did not show that they should: promises of the
// leases that were not kept, and situations that the naive side got away with,
// in which case the acts have proved nothing.
func verdict(shown []shownAct) []string {
	var failures []string
	fail := func(a shownAct, format string, args ...any) {
		failures = append(failures, a.Name+": "+fmt.Sprintf(format, args...))
	}
	found := map[string]bool{}
	for _, a := range shown {
		found[a.Name] = true
		if n := a.Leases.StaleReads; n > 0 {
			fail(a, "with leases, %d reads got a stale value; none may", n)
		}
		if a.Leases.CachedStale {
			fail(a, "with leases, a stale value is cached at the end")
		}
		switch a.Name {
		case "stampede":
			if n := a.Leases.Loads; n != 1 {
				fail(a, "with leases, there were %d loads instead of 1", n)
			}
			if n := a.Naive.Loads; n < 2 {
				fail(a, "the naive side made %d loads: the readers did not meet, which proves nothing; try more workers", n)
			}
		case "late_fill", "expired_lease":
			if a.Leases.rejected == 0 {
				fail(a, "with leases, no late value was rejected")
			}
			if !a.Naive.CachedStale {
				fail(a, "the naive side has no stale value cached: the late one did not come, which proves nothing")
			}
		case "crashed_holder":
			if lease := shortLease.Milliseconds(); a.Leases.SlowestMS > lease+margin {
				fail(a, "with leases, a reader took %d ms; a lease of %d ms and %d ms more are allowed", a.Leases.SlowestMS, lease, margin)
			}
		}
	}
	for _, a := range acts() {
		if !found[a.name] {
			failures = append(failures, a.name+": was not played")
		}
	}
	return failures
}

// print prints the report for people.
func (r report) print(w io.Writer, o Options) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Options.SeparateRows = false
	t.AppendHeader(table.Row{"act", "side", "loads", "stale reads", "cached at the end", "slowest reader"})
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, Align: text.AlignRight},
		{Number: 4, Align: text.AlignRight},
		{Number: 6, Align: text.AlignRight},
	})
	for _, a := range r.Acts {
		t.AppendSeparator()
		t.AppendRow(a.Naive.row(a.Name, naiveSide))
		t.AppendRow(a.Leases.row("", leasesSide))
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s\n", t.Render(), r.summary(o))
	return err
}

func (o outcome) row(act, side string) table.Row {
	cached := "current"
	if o.CachedStale {
		cached = "STALE"
	}
	return table.Row{act, side, o.Loads, o.StaleReads, cached, fmt.Sprintf("%d ms", o.SlowestMS)}
}

// summary is the verdict for people.
func (r report) summary(o Options) string {
	if !r.OK {
		return "NOT OK: see above what was not shown."
	}
	of := map[string]shownAct{}
	stale := 0
	for _, a := range r.Acts {
		of[a.Name] = a
		stale += a.Naive.StaleReads
	}
	return fmt.Sprintf("OK. With leases, the %d readers in %d processes caused %d load (%d without).\n"+
		"No read got a stale value (%d did without), and none is cached at the end.\n"+
		"After the crash of a holder all readers went on within %d ms.",
		o.Workers*o.Readers, o.Workers, of["stampede"].Leases.Loads, of["stampede"].Naive.Loads,
		stale, of["crashed_holder"].Leases.SlowestMS)
}
