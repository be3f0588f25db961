package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// goRedisProbes compare further ways to a hit, and what the hook that leasecache adds to a client costs the service's own
// commands.
func (b *bench) goRedisProbes() ([]probe, error) {
	c, ok := b.client.(*bareGoRedis)
	if !ok {
		return nil, nil
	}
	d := c.evaler()
	bounder, ok := d.(driver.Bounder)
	if !ok {
		return nil, fmt.Errorf("the driver %T has no Bound", d)
	}
	byBoundEval, err := newCache[[]byte](b.env, boundEval{d, bounder}, leasecache.Options{})
	if err != nil {
		return nil, err
	}
	byEvalOnly, err := newCache[[]byte](b.env, evalOnly{d}, leasecache.Options{})
	if err != nil {
		return nil, err
	}
	sha, err := b.admin.ScriptLoad(b.ctx, "return redis.call('GET', KEYS[1])").Result()
	if err != nil {
		return nil, err
	}
	evalsha := side{op: func(int) error {
		got, err := c.client.EvalSha(b.ctx, sha, []string{rawStored}).Text()
		return checkSize(len(got), valueSize, err)
	}}
	getBy := func(c *redis.Client) side {
		return side{op: func(int) error {
			got, err := c.Get(b.ctx, rawStored).Bytes()
			return checkSize(len(got), valueSize, err)
		}}
	}
	name := "hit/" + b.name + "/"
	return []probe{
		b.latency(name+"evalsha_ratio", bar{}, b.hit(b.raw), evalsha),
		b.latency(name+"bound_eval_ratio", bar{}, b.hit(byBoundEval), evalsha),
		b.latency(name+"eval_only_ratio", bar{}, b.hit(byEvalOnly), evalsha),
		b.latency(name+"hook_ratio", bar{}, getBy(c.client), getBy(c.plain)),
	}, nil
}

// evalOnly is what a driver without optional abilities is: whoever wraps the Evaler hides them.
type evalOnly struct{ driver.Evaler }

// boundEval has no plain GET, but ends its calls by itself, as the adapter does over a cluster client that reads from
// replicas.
type boundEval struct {
	driver.Evaler
	bounder driver.Bounder
}

// Bound implements [driver.Bounder].
func (e boundEval) Bound(d time.Duration) driver.Evaler { return evalOnly{e.bounder.Bound(d)} }
