package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// blockOps is how many operations run on one side before the other has its turn: long enough for the clock, short
	// enough for both sides to meet the same state of the machine.
	blockOps = 32
	// goroutines is how many run in a measurement of throughput.
	goroutines = 64
	// turn is how long a side has all of them, and settle the first part of it, which is not counted: until then
	// operations of the other side are under way.
	turn   = 20 * time.Millisecond
	settle = 4 * time.Millisecond
	// allocOps is over how many operations allocations are averaged, and commands counted.
	allocOps = 1000
)

// side is one of the two things that are compared.
type side struct {
	// op runs the operation once. i counts from 0 in each block.
	op func(i int) error
	// reset, if set, runs before each block and is not timed.
	reset func() error
}

// alternate measures the sides 0 and 1 in turn, in pairs. Who goes first changes from pair to pair, so that what follows a
// side's end (garbage to collect, a cache that was emptied) meets both.
func alternate(pairs int, measure func(side int) (float64, error)) (ours, theirs []float64, err error) {
	var series [2][]float64
	for pair := range pairs {
		for turn := range 2 {
			s := (pair + turn) % 2
			x, err := measure(s)
			if err != nil {
				return nil, nil, err
			}
			series[s] = append(series[s], x)
		}
	}
	return series[0], series[1], nil
}

// latency compares what one operation takes, one after the other in one goroutine, in microseconds. ops of them are a block.
func latency(pairs, ops int, sides [2]side) (sample, error) {
	block := func(s int) (float64, error) {
		if reset := sides[s].reset; reset != nil {
			if err := reset(); err != nil {
				return 0, err
			}
		}
		op := sides[s].op
		start := time.Now()
		for i := range ops {
			if err := op(i); err != nil {
				return 0, err
			}
		}
		return time.Since(start).Seconds() * 1e6 / float64(ops), nil
	}
	runtime.GC()
	if _, _, err := alternate(2, block); err != nil { // connections and processor caches become warm
		return sample{}, err
	}
	ours, theirs, err := alternate(pairs, block)
	if err != nil {
		return sample{}, err
	}
	return compare(ours, theirs)
}

// stopped stands for a side when the goroutines of throughput have to end.
const stopped = -1

// throughput compares how many operations a second goroutines finish that stay up while the side changes.
func throughput(ctx context.Context, pairs int, sides [2]side) (sample, error) {
	var (
		current  atomic.Int32
		finished atomic.Int64
		failed   = make(chan error, goroutines)
		wg       sync.WaitGroup
	)
	runtime.GC()
	for range goroutines {
		wg.Go(func() {
			for {
				s := current.Load()
				if s == stopped {
					return
				}
				if err := sides[s].op(0); err != nil {
					failed <- err
					return
				}
				finished.Add(1)
			}
		})
	}
	defer func() {
		current.Store(stopped)
		wg.Wait()
	}()
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	rate := func(s int) (float64, error) {
		current.Store(int32(s))
		if err := wait(settle); err != nil {
			return 0, err
		}
		before, start := finished.Load(), time.Now()
		err := wait(turn - settle)
		return float64(finished.Load()-before) / time.Since(start).Seconds(), err
	}
	if _, _, err := alternate(4, rate); err != nil { // the pool fills
		return sample{}, err
	}
	ours, theirs, err := alternate(pairs, rate)
	if err != nil {
		return sample{}, err
	}
	return compare(ours, theirs)
}

// extraAllocs counts how many more allocations an operation of the first side makes.
func extraAllocs(sides [2]side) (sample, error) {
	var counts [2]float64
	for s, side := range sides {
		var failed error
		counts[s] = testing.AllocsPerRun(allocOps, func() {
			if err := side.op(0); err != nil {
				failed = err
			}
		})
		if failed != nil {
			return sample{}, failed
		}
	}
	return sample{value: counts[0] - counts[1], ours: counts[0], theirs: counts[1]}, nil
}
