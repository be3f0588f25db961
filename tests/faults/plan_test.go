package faults

import (
	"slices"
	"testing"
)

func names(seed uint64, topology Topology, n int) (names []string) {
	for f := range Plan(seed, topology) {
		if names = append(names, f.Name); len(names) == n {
			break
		}
	}
	return names
}

func TestASeedGivesTheSamePlan(t *testing.T) {
	for _, topology := range everywhere {
		n := 2 * len(On(topology))
		plan := names(7, topology, n)
		if again := names(7, topology, n); !slices.Equal(plan, again) {
			t.Errorf("%s: %q, and with the same seed %q", topology, plan, again)
		}
		if other := names(8, topology, n); slices.Equal(plan, other) {
			t.Errorf("%s: two seeds give the same plan: %q", topology, plan)
		}
		for _, half := range [][]string{plan[:n/2], plan[n/2:]} {
			seen := map[string]bool{}
			for _, name := range half {
				seen[name] = true
			}
			if len(seen) != len(On(topology)) {
				t.Errorf("%s: not every fault comes once before any comes again: %q", topology, plan)
			}
		}
	}
}

func TestEveryFaultSaysWhatItIs(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All() {
		if f.Name == "" || seen[f.Name] || f.Promise == "" || f.Inject == nil || len(f.Topologies) == 0 {
			t.Errorf("%+v: want a name of its own, a promise, topologies and Inject", f)
		}
		if f.Excuses && f.Loses == "" {
			t.Errorf("%s excuses what it does not say to be lost", f.Name)
		}
		seen[f.Name] = true
	}
	for _, topology := range everywhere {
		if len(On(topology)) < 5 {
			t.Errorf("%s has %d faults", topology, len(On(topology)))
		}
	}
}
