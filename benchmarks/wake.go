package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"
)

const (
	wakeProcesses = 20
	wakeReaders   = 50 // in each of them
	wakeLoad      = 50 * time.Millisecond
	// wakePatience is for how long a process may be silent.
	wakePatience = 30 * time.Second
)

// wakeMode is how the processes of a round wait.
type wakeMode string

const (
	wakeOurs    wakeMode = "ours"
	wakePolling wakeMode = "polling" // with NoWakeUps
	wakeBare    wakeMode = "bare"    // the client alone: subscribe, GET, wait for the message, GET
)

// task tells a process to read a key that is not cached, with all its readers at once.
type task struct {
	Mode wakeMode
	Key  string
	Load bool // the one process that loads, in the mode wakeBare
	Cold bool // the subscription has to be opened first
}

// roundReport is what a process says after a round. It says an empty one when it is ready. Instants are in nanoseconds of
// the system's clock, which all processes share.
type roundReport struct {
	Loads  int   // that ran in this process
	Loaded int64 // when the last of them ended, and its fill was about to be sent
	Last   int64 // when the last reader had the value
	Err    string
}

// wakeProbes measure processes that read one key at once, of which one loads it.
func (e *env) wakeProbes() ([]probe, error) {
	if err := e.admin.ScriptLoad(e.ctx, fillAndTell.Source()).Err(); err != nil {
		return nil, err
	}
	specs := []spec{
		{"wake/loads", "", exactly(1)},
		{"wake/slowest_ratio", milliseconds, atMost(1.3)},
		{"wake/slowest_ms", "", bar{}},
		{"wake/bare_slowest_ms", "", bar{}},
		{"wake/polling_slowest_ms", "", bar{}},
		{"wake/commands_per_process", "", atMost(4)},
		{"wake/commands_per_process_cold", "", atMost(7)},
	}
	return []probe{{specs, func(ctx context.Context) (_ []sample, err error) {
		ps, err := startProcesses(ctx, e.wakeClient, e.addr)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ps.stop()) }()
		r := &wakeRun{env: e, ps: ps, mostLoads: 1}
		// The first rounds fill pools and caches.
		for _, m := range []wakeMode{wakeOurs, wakePolling, wakeBare} {
			if _, err := r.round(task{Mode: m}); err != nil {
				return nil, err
			}
		}
		cold, err := r.commands(task{Mode: wakeOurs, Cold: true})
		if err != nil {
			return nil, err
		}
		var ours, bare, polling, commands []float64
		for i := range e.wakeRounds {
			measure := []func() error{
				func() error { return r.slowest(&ours, wakeOurs) },
				func() error { return r.slowest(&bare, wakeBare) },
			}
			if i%2 == 1 { // who goes first changes, as everywhere
				slices.Reverse(measure)
			}
			measure = append(measure, func() error { return r.slowest(&polling, wakePolling) })
			for _, m := range measure {
				if err := m(); err != nil {
					return nil, err
				}
			}
			n, err := r.commands(task{Mode: wakeOurs})
			if err != nil {
				return nil, err
			}
			commands = append(commands, n)
		}
		ratio, err := compare(ours, bare)
		if err != nil {
			return nil, err
		}
		return []sample{
			{value: float64(r.mostLoads)},
			ratio,
			{value: median(ours)},
			{value: median(bare)},
			{value: median(polling)},
			{value: median(commands)},
			{value: cold},
		}, nil
	}}}, nil
}

// wakeRun is what one run of the probe has under way.
type wakeRun struct {
	*env
	ps        processes
	mostLoads int // in a round of ours
}

// lastWakeKey counts keys over all runs: what an earlier one has cached may still be there.
var lastWakeKey atomic.Int64

// round lets all processes read a new key, and returns what they report.
func (r *wakeRun) round(to task) ([]roundReport, error) {
	to.Key = fmt.Sprintf("wake-%d", lastWakeKey.Add(1))
	for i, p := range r.ps {
		to.Load = i == 0
		if err := p.in.Encode(to); err != nil {
			return nil, err
		}
	}
	var reports []roundReport
	loads := 0
	for _, p := range r.ps {
		report, err := p.next()
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
		loads += report.Loads
	}
	if loads == 0 {
		return nil, errors.New("nobody has loaded a key that was not cached")
	}
	if to.Mode == wakeOurs {
		r.mostLoads = max(r.mostLoads, loads)
	}
	return reports, nil
}

// slowest appends how long after the load the last reader of all processes had the value, in milliseconds.
func (r *wakeRun) slowest(to *[]float64, m wakeMode) error {
	reports, err := r.round(task{Mode: m})
	if err != nil {
		return err
	}
	var loaded, last int64
	for _, p := range reports {
		loaded, last = max(loaded, p.Loaded), max(last, p.Last)
	}
	*to = append(*to, float64(last-loaded)/1e6)
	return nil
}

// commands returns how many commands each of the processes that waited has sent for it.
func (r *wakeRun) commands(to task) (float64, error) {
	before, err := commandCalls(r.ctx, r.admin)
	if err != nil {
		return 0, err
	}
	if _, err := r.round(to); err != nil {
		return 0, err
	}
	after, err := commandCalls(r.ctx, r.admin)
	if err != nil {
		return 0, err
	}
	sent := -2.0 // the lease and the fill of the process that loaded
	for name, n := range after {
		if !notForWaiting[name] {
			sent += float64(n - before[name])
		}
	}
	// On a busy machine a process may come so late that it does not wait.
	waited := min(after["ssubscribe"]-before["ssubscribe"], wakeProcesses-1)
	if waited < 1 {
		return 0, errors.New("no process has waited: the machine is too busy to measure wake-ups")
	}
	return sent / float64(waited), nil
}

// notForWaiting are commands that a round runs beside those of the processes that wait: GET is also the first look of each
// reader, most others are called by scripts, and a channel that nobody waits for any more is left seconds later.
var notForWaiting = map[string]bool{
	"get": true, "set": true, "del": true, "pttl": true, "time": true, "spublish": true,
	"sunsubscribe": true, "info": true, "ping": true,
}

// process is this program, started again.
type process struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out chan roundReport // closed when the process has ended
}

type processes []*process

// startProcesses returns when all of them are ready.
func startProcesses(ctx context.Context, client, addr string) (_ processes, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ps processes
	defer func() {
		if err != nil {
			err = errors.Join(err, ps.stop())
		}
	}()
	for range wakeProcesses {
		p := &process{cmd: exec.CommandContext(ctx, self, client, addr), out: make(chan roundReport, 1)}
		p.cmd.Env = append(os.Environ(), workerEnv+"=1")
		p.cmd.Stderr = os.Stderr
		in, err := p.cmd.StdinPipe()
		if err != nil {
			return ps, err
		}
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			return ps, err
		}
		if err := p.cmd.Start(); err != nil {
			return ps, err
		}
		p.in = json.NewEncoder(in)
		go func() {
			defer close(p.out)
			dec := json.NewDecoder(bufio.NewReader(out))
			for {
				var r roundReport
				if dec.Decode(&r) != nil {
					return
				}
				p.out <- r
			}
		}()
		ps = append(ps, p)
	}
	for _, p := range ps {
		if _, err := p.next(); err != nil {
			return ps, err
		}
	}
	return ps, nil
}

// next waits for the next report.
func (p *process) next() (roundReport, error) {
	select {
	case r, ok := <-p.out:
		switch {
		case !ok:
			return r, errors.New("a process of the wake-ups has ended")
		case r.Err != "":
			return r, fmt.Errorf("a process of the wake-ups: %s", r.Err)
		}
		return r, nil
	case <-time.After(wakePatience):
		return roundReport{}, fmt.Errorf("a process of the wake-ups has said nothing for %v", wakePatience)
	}
}

// stop kills the processes and waits until they are gone.
func (ps processes) stop() error {
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.cmd.Process.Kill())
	}
	for _, p := range ps {
		for range p.out { // until it is closed: Wait closes the pipe
		}
		_ = p.cmd.Wait() // killed, so never nil
	}
	return errors.Join(errs...)
}
