// Package faults makes things go wrong: on the wire, in servers and in processes.
//
// A fault is one entry of a table, [All], and has a file with others of its kind. It is told what it may break, a
// [Site], breaks it, and says how to mend it. Which faults come when is decided by a seed: see [Plan].
package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/servertest"
)

// A Topology is a kind of site. Faults say on which they exist.
type Topology string

// The topologies.
const (
	Standalone Topology = "standalone"
	Sentinel   Topology = "sentinel" // a primary, two replicas and a sentinel
	Cluster    Topology = "cluster"  // three primaries with a replica each
)

// A Site is what faults happen to: the servers, the links of the processes to them, and the processes.
type Site struct {
	T        testing.TB
	Topology Topology
	// One of them is set, by Topology.
	Standalone *servertest.Server
	Sentinel   *servertest.Sentinel
	Cluster    *servertest.Cluster
	// Links are the proxies between the processes and the servers: one for each process.
	Links []*conformance.Proxy
	// Processes read through the cache. Kill ends one, which is then started again by whoever runs the site.
	Processes []Process
	// Rand decides what a fault leaves open, such as which process. It comes from the seed of the run.
	Rand *rand.Rand
}

// A Process is one process of a site.
type Process interface {
	// Signal sends it a signal, such as os.Kill or syscall.SIGSTOP.
	Signal(os.Signal) error
}

// A Fault is one kind of thing that goes wrong.
type Fault struct {
	// Name is unique, in lower case with hyphens, as in "server-sigkill".
	Name string
	// Topologies on which it exists.
	Topologies []Topology
	// Promise is what the contract promises while it lasts and after it, in one sentence.
	Promise string
	// Loses is what the documentation says may be lost by it, in one sentence. Empty means: nothing.
	Loses string
	// Excuses tells that invalidations which were confirmed may be undone by it, as an asynchronous failover may: what
	// is read is not held against the cache until every key was invalidated again after the fault.
	Excuses bool
	// Lasts is for how long it should last before it is healed.
	Lasts time.Duration
	// Inject makes it happen, and returns when it has. What it returns ends it, and returns when everything is in its
	// place again; it is called once. It is nil for what ends by itself.
	Inject func(ctx context.Context, s *Site) (heal func(ctx context.Context) error, err error)
}
