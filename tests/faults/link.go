package faults

import (
	"context"
	"strings"
	"time"

	"github.com/leasecache/leasecache/conformance"
)

var links = []Fault{
	{
		Name: "link-cut", Topologies: []Topology{Standalone},
		Promise: "Calls that were on the wire fail as unavailable or are sent again; no load is cached twice, no invalidation is taken for done.",
		Inject: func(_ context.Context, s *Site) (func(context.Context) error, error) {
			s.link().CutAll()
			return nil, nil //nolint:nilnil // there is nothing to heal
		},
	},
	{
		Name: "link-down", Topologies: []Topology{Standalone}, Lasts: 500 * time.Millisecond,
		Promise: "Reads of the process behind it fail as unavailable, or load without caching where that is asked for.",
		Inject: func(_ context.Context, s *Site) (func(context.Context) error, error) {
			p := s.link()
			p.Down()
			return func(context.Context) error { p.Up(); return nil }, nil
		},
	},
	{
		Name: "link-delay", Topologies: []Topology{Standalone}, Lasts: time.Second,
		Promise: "Reads are slower, and fail as unavailable after CallTimeout at the latest.",
		Inject:  rule(conformance.Delay(30*time.Millisecond), -1),
	},
	{
		Name: "link-hang", Topologies: []Topology{Standalone}, Lasts: 1500 * time.Millisecond,
		Promise: "A half-open connection: each call ends after CallTimeout, and so does each read by its own bound.",
		Inject:  rule(conformance.Hang, -1),
	},
	{
		Name: "link-cut-before-execution", Topologies: []Topology{Standalone}, Lasts: 500 * time.Millisecond,
		Promise: "A request that was not executed is not taken for done.",
		Inject:  rule(conformance.CutBefore, 3),
	},
	{
		Name: "link-drop-after-execution", Topologies: []Topology{Standalone}, Lasts: 500 * time.Millisecond,
		Promise: "A step whose reply was lost is done once more, or given up; what it left runs out with its lease.",
		Inject:  rule(conformance.DropReply, 3),
	},
	{
		Name: "link-late-copy", Topologies: []Topology{Standalone}, Lasts: 500 * time.Millisecond,
		Promise: "A request that arrives after its retry, and after an invalidation, revives nothing.",
		Inject: func(_ context.Context, s *Site) (func(context.Context) error, error) {
			r := s.link().On(isScript, 3, conformance.LateCopy)
			return func(ctx context.Context) error {
				err := caught(ctx, r)
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				for range r.Hits() {
					_, _ = r.Release(ctx) // the server may refuse it, as any copy
				}
				r.Remove()
				return err
			}, nil
		},
	},
}

// link returns the link of one of the processes.
func (s *Site) link() *conformance.Proxy { return s.Links[s.Rand.IntN(len(s.Links))] }

func isScript(command []string) bool {
	return strings.EqualFold(command[0], "EVALSHA") || strings.EqualFold(command[0], "EVAL")
}

// rule returns an Inject that does something to scripts and reads of one process, n of them or all.
func rule(action conformance.Action, n int) func(context.Context, *Site) (func(context.Context) error, error) {
	return func(_ context.Context, s *Site) (func(context.Context) error, error) {
		r := s.link().On(func(command []string) bool { return isScript(command) || strings.EqualFold(command[0], "GET") }, n, action)
		return func(ctx context.Context) error {
			defer r.Remove()
			return caught(ctx, r)
		}, nil
	}
}

// caught waits until a rule has caught something: a fault that nothing met is none.
func caught(ctx context.Context, r *conformance.Rule) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return r.Wait(ctx, 1)
}
