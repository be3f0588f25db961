package faults

import (
	"iter"
	"math/rand/v2"
	"slices"
)

// All returns the table of faults.
func All() []Fault {
	return slices.Concat(links, servers, memory(), processes, failovers, migrations, partitions)
}

// On returns the faults that exist on a topology.
func On(topology Topology) []Fault {
	return slices.DeleteFunc(All(), func(f Fault) bool { return !slices.Contains(f.Topologies, topology) })
}

// Plan returns, for ever, which fault comes next on a topology. The seed decides: first each comes once, in some order, then
// each once more, and so on.
func Plan(seed uint64, topology Topology) iter.Seq[Fault] {
	return func(yield func(Fault) bool) {
		r := rand.New(rand.NewPCG(seed, 2))
		for {
			all := On(topology)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, f := range all {
				if !yield(f) {
					return
				}
			}
		}
	}
}
