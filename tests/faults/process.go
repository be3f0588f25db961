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
		Inject: func(_ context.Context, s *Site) (func(context.Context) error, error) {
			_ = s.process().Signal(os.Kill) // it may just have been started again
			return nil, nil                 //nolint:nilnil // there is nothing to heal
		},
	},
	{
		Name: "process-sigstop", Topologies: everywhere, Lasts: time.Second, // above the lease of those who use this
		Promise: "What it loaded before it was stopped is not cached when it goes on, nor returned to those who come then.",
		Inject: func(_ context.Context, s *Site) (func(context.Context) error, error) {
			p := s.process()
			_ = p.Signal(syscall.SIGSTOP)
			return func(context.Context) error {
				_ = p.Signal(syscall.SIGCONT)
				return nil
			}, nil
		},
	},
}

func (s *Site) process() Process { return s.Processes[s.Rand.IntN(len(s.Processes))] }
