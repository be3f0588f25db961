package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rueidisclient "github.com/redis/rueidis"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/internal/protocol"
	"github.com/leasecache/leasecache/near"
)

const (
	nearBytes = 64 << 20
	// nearBlock is how many reads in memory are a block: they take less than the clock can tell.
	nearBlock = 4096
	nearKey   = "near"
	// nearPatience is for how long a message of the server may take.
	nearPatience = 5 * time.Second
)

// nearBench has two caches with a near tier over one client, and a client that keeps values by itself.
type nearBench struct {
	*env
	client rueidisclient.Client // with its own cache
	raw    *leasecache.Cache[[]byte]
	strs   *leasecache.Cache[string]
	stored string
}

// nearProbes compare hits in memory with those of the client's own cache, and measure how fast they are dropped.
func (e *env) nearProbes() ([]probe, error) {
	b := &nearBench{env: e, stored: protocol.ValueKey(prefix, nearKey)}
	ready := sync.OnceValue(b.open)
	string2 := [2]side{
		{op: func(int) error {
			got, err := b.strs.Get(e.ctx, nearKey, missedString)
			return checkSize(len(got), valueSize, err)
		}},
		{op: func(int) error {
			got, err := b.doCache().ToString()
			return checkSize(len(got), valueSize, err)
		}},
	}
	bytes2 := [2]side{
		{op: func(int) error {
			got, err := b.raw.Get(e.ctx, nearKey, missedBytes)
			return checkSize(len(got), valueSize, err)
		}},
		{op: func(int) error {
			got, err := b.doCache().AsBytes()
			return checkSize(len(got), valueSize, err)
		}},
	}
	ratio := func(name string, limit float64, sides [2]side) probe {
		return one(name, nanoseconds, atMost(limit), func(context.Context) (sample, error) {
			if err := ready(); err != nil {
				return sample{}, err
			}
			s, err := latency(e.latencyPairs, nearBlock, sides)
			s.ours, s.theirs = s.ours*1e3, s.theirs*1e3
			return s, err
		})
	}
	allocations := func(name string, want float64, sides [2]side) probe {
		return one(name, allocs, exactly(want), func(context.Context) (sample, error) {
			if err := ready(); err != nil {
				return sample{}, err
			}
			s, err := extraAllocs(sides)
			s.value = s.ours
			return s, err
		})
	}
	return []probe{
		ratio("near/string_ratio", 0.5, string2),
		allocations("near/string_allocs", 0, string2),
		ratio("near/bytes_ratio", 1.2, bytes2),
		allocations("near/bytes_allocs", 1, bytes2),
		{[]spec{{"near/drop_median_us", "", bar{}}, {"near/drop_worst_us", "", bar{}}}, b.drops},
	}, nil
}

func missedString(context.Context) (string, error) { return "", errMiss }

// open fills the caches, and waits until they answer from memory.
func (b *nearBench) open() error {
	c, err := rueidisclient.NewClient(rueidisclient.ClientOption{InitAddress: []string{b.addr}, ForceSingleClient: true})
	if err != nil {
		return err
	}
	b.onClose(func() error { c.Close(); return nil })
	b.client = c
	ours, err := dialRueidis(b.ctx, b.addr)
	if err != nil {
		return err
	}
	b.onClose(ours.close)
	kept := near.New(nearBytes)
	if b.raw, err = newCache[[]byte](b.env, ours.evaler(), leasecache.Options{Near: kept}); err != nil {
		return err
	}
	if b.strs, err = newCache[string](b.env, ours.evaler(), leasecache.Options{Near: kept}); err != nil {
		return err
	}
	value := newBytes(valueSize)
	if err := warm(b.ctx, b.raw, nearKey, value); err != nil {
		return err
	}
	if err := warm(b.ctx, b.strs, nearKey, string(value)); err != nil {
		return err
	}
	for range 2 {
		if err := b.doCache().Error(); err != nil {
			return err
		}
	}
	if !b.doCache().IsCacheHit() {
		return errors.New("the client does not keep what it has read")
	}
	return nil
}

func (b *nearBench) doCache() rueidisclient.RedisResult {
	return b.client.DoCache(b.ctx, b.client.B().Get().Key(b.stored).Cache(), ttl)
}

// warm reads until the value comes from memory.
func warm[V any](ctx context.Context, c *leasecache.Cache[V], key string, v V) error {
	for end := time.Now().Add(nearPatience); time.Now().Before(end); {
		r, err := c.Read(ctx, key, func(context.Context) (V, error) { return v, nil })
		if err != nil || r.Source == leasecache.NearHit {
			return err
		}
	}
	return fmt.Errorf("%s is not kept in memory after %v", key, nearPatience)
}

// noted is a near tier that tells when a value was dropped.
type noted struct {
	leasecache.Near
	dropped chan time.Time
}

// Delete implements [leasecache.Near].
func (n noted) Delete(k leasecache.NearKey) {
	n.Near.Delete(k)
	n.dropped <- time.Now()
}

// droppedSince returns the first drop that was not before an instant: the fill is a change as well.
func (n noted) droppedSince(t time.Time) (time.Time, error) {
	patience := time.After(nearPatience)
	for {
		select {
		case at := <-n.dropped:
			if !at.Before(t) {
				return at, nil
			}
		case <-patience:
			return time.Time{}, fmt.Errorf("an invalidation elsewhere has dropped nothing for %v", nearPatience)
		}
	}
}

// drops measures how long after an invalidation has returned another Store has dropped the value, in microseconds.
func (b *nearBench) drops(ctx context.Context) (_ []sample, err error) {
	reader, err := dialRueidis(ctx, b.addr)
	if err != nil {
		return nil, err
	}
	writer, err := dialRueidis(ctx, b.addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.close(), writer.close()) }()
	kept := noted{near.New(nearBytes), make(chan time.Time, 1024)}
	o := leasecache.Options{Prefix: prefix, TTL: ttl}
	writes, err := leasecache.New[string](writer.evaler(), o)
	if err != nil {
		return nil, err
	}
	o.Near = kept
	reads, err := leasecache.New[string](reader.evaler(), o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reads.Close(ctx), writes.Close(ctx)) }()
	var took []float64
	worst := 0.0
	for range b.nearDrops {
		if err := warm(ctx, reads, "near-drop", "value"); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := writes.Invalidate(ctx, "near-drop"); err != nil {
			return nil, err
		}
		returned := time.Now()
		at, err := kept.droppedSince(began)
		if err != nil {
			return nil, err
		}
		us := max(at.Sub(returned).Seconds()*1e6, 0) // it may come before the reply
		took, worst = append(took, us), max(worst, us)
	}
	return []sample{{value: median(took)}, {value: worst}}, nil
}
