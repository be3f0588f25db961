package main

import (
	"context"
	"runtime"
	"sync"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/internal/protocol"
)

// largeSizes are the sizes of large values, and how many reads of one are a block.
var largeSizes = []struct {
	name  string
	bytes int
	block int
}{
	{"1MiB", 1 << 20, 8},
	{"16MiB", 16 << 20, 1},
}

// copyOps is over how many reads of a large value allocated bytes are averaged.
const copyOps = 5

// largeProbes compare hits of large values with GET, and count how many more times the size of the value they allocate.
func (b *bench) largeProbes() ([]probe, error) {
	if b.name == goRedisCtx { // as goRedis
		return nil, nil
	}
	strs, err := newCache[string](b.env, b.client.evaler(), leasecache.Options{})
	if err != nil {
		return nil, err
	}
	var ps []probe
	for _, size := range largeSizes {
		key := "large-" + size.name // all clients read the same one
		stored := protocol.ValueKey(prefix, key)
		fill := sync.OnceValue(func() error {
			_, err := b.raw.Get(b.ctx, key, func(context.Context) ([]byte, error) { return newBytes(size.bytes), nil })
			return err
		})
		name := "large/" + b.name + "/" + size.name + "_"
		add := func(name string, sides [2]side) {
			ps = append(ps,
				one(name+"ratio", microseconds, bar{}, func(context.Context) (sample, error) {
					if err := fill(); err != nil {
						return sample{}, err
					}
					return latency(b.largePairs, size.block, sides)
				}),
				one(name+"extra_copies", "", bar{}, func(context.Context) (sample, error) {
					if err := fill(); err != nil {
						return sample{}, err
					}
					return extraCopies(size.bytes, sides)
				}))
		}
		add(name, [2]side{
			{op: func(int) error {
				got, err := b.raw.Get(b.ctx, key, missedBytes)
				return checkSize(len(got), size.bytes, err)
			}},
			{op: func(int) error {
				got, err := b.client.get(b.ctx, stored)
				return checkSize(len(got), size.bytes, err)
			}},
		})
		add(name+"string_", [2]side{
			{op: func(int) error {
				got, err := strs.Get(b.ctx, key, func(context.Context) (string, error) { return "", errMiss })
				return checkSize(len(got), size.bytes, err)
			}},
			{op: func(int) error {
				got, err := b.client.getString(b.ctx, stored)
				return checkSize(len(got), size.bytes, err)
			}},
		})
	}
	return ps, nil
}

// extraCopies counts how many more bytes an operation of the first side allocates, in sizes of the value.
func extraCopies(size int, sides [2]side) (sample, error) {
	var copies [2]float64
	for s, side := range sides {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range copyOps {
			if err := side.op(i); err != nil {
				return sample{}, err
			}
		}
		runtime.ReadMemStats(&after)
		copies[s] = float64(after.TotalAlloc-before.TotalAlloc) / copyOps / float64(size)
	}
	return sample{value: copies[0] - copies[1], ours: copies[0], theirs: copies[1]}, nil
}
