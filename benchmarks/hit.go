package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// hitProbes compare hits with GET by the same client.
func (b *bench) hitProbes() ([]probe, error) {
	hit, get, sides := b.hit(b.raw), b.get(), b.jsonSides()
	name := "hit/" + b.name + "/"
	return []probe{
		b.latency(name+"latency_ratio", b.latencyBar, hit, get),
		b.throughput(name+"throughput_ratio", b.throughputBar, hit, get),
		one(name+"extra_allocs", allocs, b.allocsBar, func(context.Context) (sample, error) {
			return extraAllocs([2]side{hit, get})
		}),
		one(name+"commands_per_hit", "", exactly(1), func(ctx context.Context) (sample, error) {
			return commandsPer(ctx, b.admin, hit)
		}),
		b.latency(name+"json_ratio", b.latencyBar, sides[0], sides[1]),
	}, nil
}

// jsonSides read the JSON value, which is cached.
func (b *bench) jsonSides() [2]side {
	check := func(p product, err error) error {
		if err == nil && p.ID != b.product.ID {
			return fmt.Errorf("read product %d, want %d", p.ID, b.product.ID)
		}
		return err
	}
	return [2]side{
		{op: func(int) error {
			return check(b.json.Get(b.ctx, jsonKey, func(context.Context) (product, error) { return product{}, errMiss }))
		}},
		{op: func(int) error {
			var p product
			data, err := b.client.get(b.ctx, jsonStored)
			if err == nil {
				err = json.Unmarshal(data, &p)
			}
			return check(p, err)
		}},
	}
}
