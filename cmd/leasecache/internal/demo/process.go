package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is a worker as the demo sees it. It is safe for concurrent use.
type process struct {
	number int
	cmd    *exec.Cmd
	stop   context.CancelFunc
	gone   chan struct{} // closed when the process has ended and was waited for
	ended  error         // how, once gone is closed

	mu     sync.Mutex
	in     *json.Encoder
	last   int // the number of the last round
	rounds map[int]*round
}

// round is a round of reads in one process.
type round struct {
	p      *process
	number int
	events chan event // has room for all of them
}

// spawn starts this program again, as a worker. Its standard error is the
// demo's. The process ends when ctx does, and must be waited for by close.
func spawn(ctx context.Context, s setup, stderr io.Writer) (*process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file, to start workers: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &process{number: s.Number, stop: stop, gone: make(chan struct{}), rounds: map[int]*round{}}
	if err := p.start(ctx, path, stderr); err != nil {
		stop()
		return nil, fmt.Errorf("start worker %d: %w", s.Number, err)
	}
	up := p.newRound()
	if err := p.send(s); err != nil {
		p.close()
		return nil, fmt.Errorf("set up worker %d: %w", s.Number, err)
	}
	if _, err := up.await(ctx, isUp); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *process) start(ctx context.Context, path string, stderr io.Writer) error {
	p.cmd = exec.CommandContext(ctx, path, WorkerCommand)
	p.cmd.Stderr = stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// A worker ends when its input does; one that does not is killed.
	p.cmd.Cancel = in.Close
	p.cmd.WaitDelay = 2 * time.Second
	p.in = json.NewEncoder(in)
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go p.listen(json.NewDecoder(out))
	return nil
}

// listen hands the events to their rounds, until the process ends.
func (p *process) listen(out *json.Decoder) {
	defer close(p.gone)
	for {
		var e event
		err := out.Decode(&e)
		if err == nil {
			err = p.deliver(e)
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			p.stop() // what it says makes no sense
		}
		p.ended = errors.New("exit status 0")
		if err := p.cmd.Wait(); err != nil {
			p.ended = err
		}
		return
	}
}

func (p *process) deliver(e event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rounds[e.Round]
	if r == nil {
		return fmt.Errorf("event %s of an unknown round %d", e.Is, e.Round)
	}
	select {
	case r.events <- e:
		return nil
	default:
		return fmt.Errorf("round %d has too many events", e.Round)
	}
}

func (p *process) send(line any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in.Encode(line)
}

func (p *process) newRound() *round {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &round{p, p.last, make(chan event, mostEvents)}
	p.rounds[r.number] = r
	p.last++
	return r
}

// read prepares a round of reads, and returns when its readers are ready.
func (p *process) read(ctx context.Context, c command) (*round, error) {
	r := p.newRound()
	c.Do = doRead
	if err := r.tell(c); err != nil {
		return nil, err
	}
	_, err := r.await(ctx, isReady)
	return r, err
}

// kill ends the process as nothing can prevent (SIGKILL).
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill worker %d: %w", p.number, err)
	}
	p.close()
	return nil
}

// close ends the process in good order, and waits for it.
func (p *process) close() {
	p.stop()
	<-p.gone
}

// isGone reports whether the process has ended.
func (p *process) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// tell sends a command of the round.
func (r *round) tell(c command) error {
	c.Round = r.number
	if err := r.p.send(c); err != nil {
		return fmt.Errorf("worker %d: %s: %w", r.p.number, c.Do, err)
	}
	return nil
}

// await waits for the next event of the round, which has to be of that kind.
func (r *round) await(ctx context.Context, kind string) (event, error) {
	select {
	case e := <-r.events:
		switch e.Is {
		case kind:
			return e, nil
		case isFailed:
			return e, fmt.Errorf("worker %d: %s", r.p.number, e.Error)
		}
		return e, fmt.Errorf("worker %d is %s, but should be %s", r.p.number, e.Is, kind)
	case <-r.p.gone:
		if ctx.Err() == nil {
			return event{}, fmt.Errorf("worker %d ended: %w", r.p.number, r.p.ended)
		}
	case <-ctx.Done():
	}
	return event{}, fmt.Errorf("while worker %d should be %s: %w", r.p.number, kind, context.Cause(ctx))
}
