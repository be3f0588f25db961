package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// probe measures one or more figures at a time, once per run.
type probe struct {
	specs []spec
	// measure returns a sample of each.
	measure func(ctx context.Context) ([]sample, error)
}

// spec is what is known of a figure before it is measured.
type spec struct {
	name string
	unit unit // of the two sides; empty if there are none
	bar  bar
}

// one returns a probe of one figure.
func one(name string, u unit, b bar, measure func(ctx context.Context) (sample, error)) probe {
	return probe{[]spec{{name, u, b}}, func(ctx context.Context) ([]sample, error) {
		s, err := measure(ctx)
		return []sample{s}, err
	}}
}

// env is what probes are made from.
type env struct {
	plan
	// ctx is what all commands are sent with: it can be cancelled and has a deadline, as that of a request. The deadline
	// is far, so that the bound on every call is not spared.
	ctx        context.Context
	addr       string
	wakeClient string
	admin      *redis.Client // for what is not measured
	closers    []func() error
}

// onClose runs f when all is measured.
func (e *env) onClose(f func() error) { e.closers = append(e.closers, f) }

func (e *env) close() error {
	// The context of the measurements may have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 10*time.Second)
	defer cancel()
	errs := []error{e.deleteAll(ctx)}
	for _, f := range e.closers {
		errs = append(errs, f())
	}
	return errors.Join(append(errs, e.admin.Close())...)
}

// deleteAll removes what this program has cached, in this run or an earlier one.
func (e *env) deleteAll(ctx context.Context) error {
	var keys []string
	scan := e.admin.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for scan.Next(ctx) {
		keys = append(keys, scan.Val())
	}
	if err := scan.Err(); err != nil || len(keys) == 0 {
		return err
	}
	return e.admin.Unlink(ctx, keys...).Err()
}

// latency returns a probe of what one operation takes.
func (e *env) latency(name string, b bar, ours, theirs side) probe {
	return one(name, microseconds, b, func(context.Context) (sample, error) {
		return latency(e.latencyPairs, blockOps, [2]side{ours, theirs})
	})
}

// throughput returns a probe of how many operations many goroutines finish.
func (e *env) throughput(name string, b bar, ours, theirs side) probe {
	return one(name, perSecond, b, func(ctx context.Context) (sample, error) {
		return throughput(ctx, e.throughputPairs, [2]side{ours, theirs})
	})
}

// probes returns all there are, in the order of the report.
func (e *env) probes() ([]probe, error) {
	if err := e.deleteAll(e.ctx); err != nil {
		return nil, err
	}
	var benches []*bench
	for _, k := range clientKinds {
		b, err := newBench(e, k)
		if err != nil {
			return nil, err
		}
		benches = append(benches, b)
	}
	var ps []probe
	for _, group := range []func(b *bench) ([]probe, error){
		(*bench).hitProbes,
		(*bench).goRedisProbes,
		(*bench).missProbes,
		(*bench).hotKeyProbes,
		(*bench).batchProbes,
		(*bench).largeProbes,
		(*bench).noiseProbes,
	} {
		for _, b := range benches {
			more, err := group(b)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.name, err)
			}
			ps = append(ps, more...)
		}
	}
	for _, group := range []func(e *env) ([]probe, error){
		(*env).nearProbes,
		(*env).wakeProbes,
		(*env).peerProbes,
	} {
		more, err := group(e)
		if err != nil {
			return nil, err
		}
		ps = append(ps, more...)
	}
	return ps, nil
}
