package demo

import (
	"strings"
	"testing"
)

// shown returns what a demo shows in which all goes as it should.
func shown() []shownAct {
	return []shownAct{
		{"stampede", outcome{Loads: 8, SlowestMS: 300}, outcome{Loads: 1, SlowestMS: 80}},
		{"late_fill", outcome{Loads: 8, StaleReads: 225, CachedStale: true}, outcome{Loads: 2, rejected: 1}},
		{"expired_lease", outcome{Loads: 2, StaleReads: 200, CachedStale: true}, outcome{Loads: 2, rejected: 1}},
		{"crashed_holder", outcome{Loads: 2, SlowestMS: 820}, outcome{Loads: 2, SlowestMS: 810}},
	}
}

func TestVerdict(t *testing.T) {
	const stampede, late, expired, crashed = 0, 1, 2, 3
	bound := shortLease.Milliseconds() + margin
	for _, test := range []struct {
		name   string
		change func(a []shownAct) []shownAct
		want   []string // the beginnings of the failures
	}{
		{"all went as it should", nil, nil},
		{
			"a second load with leases in the stampede",
			func(a []shownAct) []shownAct { a[stampede].Leases.Loads = 2; return a },
			[]string{"stampede: with leases, there were 2 loads instead of 1"},
		},
		{
			"no load with leases in the stampede",
			func(a []shownAct) []shownAct { a[stampede].Leases.Loads = 0; return a },
			[]string{"stampede: with leases, there were 0 loads instead of 1"},
		},
		{
			"no stampede without leases",
			func(a []shownAct) []shownAct { a[stampede].Naive.Loads = 1; return a },
			[]string{"stampede: the naive side made 1 loads"},
		},
		{
			"two loads are a stampede",
			func(a []shownAct) []shownAct { a[stampede].Naive.Loads = 2; return a },
			nil,
		},
		{
			"a stale read with leases in each act",
			func(a []shownAct) []shownAct {
				for i := range a {
					a[i].Leases.StaleReads = 1
				}
				return a
			},
			[]string{
				"stampede: with leases, 1 reads got a stale value", "late_fill: with leases, 1 reads got a stale value",
				"expired_lease: with leases, 1 reads got a stale value", "crashed_holder: with leases, 1 reads got a stale value",
			},
		},
		{
			"a stale value cached with leases in each act",
			func(a []shownAct) []shownAct {
				for i := range a {
					a[i].Leases.CachedStale = true
				}
				return a
			},
			[]string{
				"stampede: with leases, a stale value is cached", "late_fill: with leases, a stale value is cached",
				"expired_lease: with leases, a stale value is cached", "crashed_holder: with leases, a stale value is cached",
			},
		},
		{
			"no late fill with leases",
			func(a []shownAct) []shownAct { a[late].Leases.rejected = 0; return a },
			[]string{"late_fill: with leases, no late value was rejected"},
		},
		{
			"no late fill without leases",
			func(a []shownAct) []shownAct { a[late].Naive.CachedStale = false; return a },
			[]string{"late_fill: the naive side has no stale value cached"},
		},
		{
			"no late writer with leases",
			func(a []shownAct) []shownAct { a[expired].Leases.rejected = 0; return a },
			[]string{"expired_lease: with leases, no late value was rejected"},
		},
		{
			"no late writer without leases",
			func(a []shownAct) []shownAct { a[expired].Naive.CachedStale = false; return a },
			[]string{"expired_lease: the naive side has no stale value cached"},
		},
		{
			"a reader that waits a lease and the margin after a crash",
			func(a []shownAct) []shownAct { a[crashed].Leases.SlowestMS = bound; return a },
			nil,
		},
		{
			"a reader that waits longer",
			func(a []shownAct) []shownAct { a[crashed].Leases.SlowestMS = bound + 1; return a },
			[]string{"crashed_holder: with leases, a reader took 4001 ms"},
		},
		{
			"an act that is missing",
			func(a []shownAct) []shownAct { return a[:crashed] },
			[]string{"crashed_holder: was not played"},
		},
		{
			"no act at all",
			func([]shownAct) []shownAct { return nil },
			[]string{"stampede: was not", "late_fill: was not", "expired_lease: was not", "crashed_holder: was not"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := shown()
			if test.change != nil {
				a = test.change(a)
			}
			got := verdict(a)
			ok := len(got) == len(test.want)
			for i := range min(len(got), len(test.want)) {
				ok = ok && strings.HasPrefix(got[i], test.want[i])
			}
			if !ok {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestTheReportForPeopleSaysWhatIsStaleAndWhetherAllIsWell(t *testing.T) {
	for _, test := range []struct {
		ok   bool
		want []string
	}{
		{true, []string{"STALE", "OK. With leases, the 200 readers in 8 processes caused 1 load (8 without)", "425 did without", "within 810 ms"}},
		{false, []string{"STALE", "NOT OK"}},
	} {
		var b strings.Builder
		if err := (report{shown(), test.ok}).print(&b, Options{Workers: 8, Readers: 25}); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("ok is %v: %q is missing in:\n%s", test.ok, want, &b)
			}
		}
	}
}
