package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/leasecache/leasecache/internal/protocol"
)

const (
	// batchSize is how many values are read at once, and batchBlock how many times in a block.
	batchSize  = 100
	batchBlock = 4
)

// batchProbes compare hits by GetMany with a pipeline of as many GETs by the same client.
func (b *bench) batchProbes() ([]probe, error) {
	var keys, stored []string
	for i := range batchSize {
		keys = append(keys, "batch-"+strconv.Itoa(i)) // all clients read the same ones
		stored = append(stored, protocol.ValueKey(prefix, keys[i]))
	}
	fill := sync.OnceValue(func() error {
		_, err := b.raw.GetMany(b.ctx, keys, func(_ context.Context, missing []string) (map[string][]byte, error) {
			values := map[string][]byte{}
			for _, key := range missing {
				values[key] = b.bytes
			}
			return values, nil
		})
		return err
	})
	ours := side{op: func(int) error {
		got, err := b.raw.GetMany(b.ctx, keys, func(context.Context, []string) (map[string][]byte, error) { return nil, errMiss })
		if err != nil || len(got) != batchSize {
			return fmt.Errorf("read %d values, want %d; error: %w", len(got), batchSize, err)
		}
		return checkSize(len(got[keys[0]]), valueSize, nil)
	}}
	theirs := side{op: func(int) error {
		got, err := b.client.getMany(b.ctx, stored)
		if err != nil || len(got) != batchSize {
			return fmt.Errorf("read %d values, want %d; error: %w", len(got), batchSize, err)
		}
		return checkSize(len(got[0]), valueSize, nil)
	}}
	return []probe{one("batch/"+b.name+"/ratio", microseconds, b.batchBar, func(context.Context) (sample, error) {
		if err := fill(); err != nil {
			return sample{}, err
		}
		return latency(b.latencyPairs, batchBlock, [2]side{ours, theirs})
	})}, nil
}
