package faults

import (
	"context"
	"os"
	"syscall"
	"time"
)

var everywhere = []Topology{Standalone, Sentinel, Cluster}

var processes = []Fault{
	{
		Name: "process-sigkill", Topologies: everywhere,
		Promise: "Readers elsewhere go on after what is left of its leases at most.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			return nil, signal(ctx, s.process(), os.Kill)
		},
	},
	{
		Name: "process-sigstop", Topologies: everywhere, Lasts: time.Second, // above the lease of those who use this
		Promise: "What it loaded before it was stopped is not cached when it goes on, nor returned to those who come then.",
		Inject: func(ctx context.Context, s *Site) (func(context.Context) error, error) {
			p := s.process()
			if err := signal(ctx, p, syscall.SIGSTOP); err != nil {
				return nil, err
			}
			return func(context.Context) error { return p.Signal(syscall.SIGCONT) }, nil
		},
	},
}

// signal sends a signal to a process, which may just be starting.
func signal(ctx context.Context, p Process, sig os.Signal) error {
	return until(ctx, "the process takes a signal", func(context.Context) bool { return p.Signal(sig) == nil })
}

func (s *Site) process() Process { return s.Processes[s.Rand.IntN(len(s.Processes))] }
