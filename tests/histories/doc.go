// Package histories records what processes do to a cache on real servers while faults happen, and checks that it could
// have happened in a cache that keeps its promises: see docs/correctness.md.
//
// What is checked is in spec.go. A run is made of sites, each a topology with processes of every client that has it:
// run_test.go. A process is the test binary, started again: worker_test.go. Its processes load from one source, which is
// in the runner: source_test.go. What they did comes back in lines: record.go.
package histories
