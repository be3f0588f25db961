package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// bench is a client, with caches over it, and what is in them.
type bench struct {
	*env
	clientKind
	client bare

	raw    *leasecache.Cache[[]byte]
	shared *leasecache.Cache[[]byte] // with ShareReads
	json   *leasecache.Cache[product]

	bytes   []byte
	product product
}

// Keys of the caches, and those of the server that hold their values.
const (
	rawKey  = "raw"
	jsonKey = "json"
)

var (
	rawStored  = protocol.ValueKey(prefix, rawKey)
	jsonStored = protocol.ValueKey(prefix, jsonKey)
)

// newBench connects a client and fills its caches.
func newBench(e *env, k clientKind) (*bench, error) {
	c, err := k.dial(e.ctx, e.addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	e.onClose(c.close)
	b := &bench{env: e, clientKind: k, client: c, bytes: newBytes(valueSize)}
	if err := b.fill(); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return b, nil
}

func (b *bench) fill() (err error) {
	d := b.client.evaler()
	if b.raw, err = newCache[[]byte](b.env, d, leasecache.Options{}); err != nil {
		return err
	}
	if b.shared, err = newCache[[]byte](b.env, d, leasecache.Options{ShareReads: true}); err != nil {
		return err
	}
	if b.json, err = newCache[product](b.env, d, leasecache.Options{}); err != nil {
		return err
	}
	if b.product, err = newProduct(); err != nil {
		return err
	}
	got, err := b.raw.Get(b.ctx, rawKey, b.loadBytes)
	if err != nil || !bytes.Equal(got, b.bytes) {
		return fmt.Errorf("filling %s: got %d bytes, want the %d that were loaded; error: %w", rawKey, len(got), valueSize, err)
	}
	_, err = b.json.Get(b.ctx, jsonKey, func(context.Context) (product, error) { return b.product, nil })
	return err
}

// newCache returns a cache that is closed when all is measured.
func newCache[V any](e *env, d driver.Evaler, o leasecache.Options) (*leasecache.Cache[V], error) {
	// As long as go-redis's own timeout, so that a machine which stands still for a moment does not end the program. How
	// long the bound is makes no difference to what it costs.
	store, err := leasecache.NewStore(d, leasecache.StoreOptions{CallTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	o.Prefix, o.TTL = prefix, ttl
	c, err := leasecache.New[V](store, o)
	if err != nil {
		return nil, err
	}
	e.onClose(func() error { return errors.Join(c.Close(context.WithoutCancel(e.ctx)), store.Close()) })
	return c, nil
}

func (b *bench) loadBytes(context.Context) ([]byte, error) { return b.bytes, nil }

// errMiss ends a benchmark of hits that was none.
var errMiss = errors.New("a read that should have been a hit was a miss: has another program emptied the server?")

func missedBytes(context.Context) ([]byte, error) { return nil, errMiss }

// hit returns a side that reads the raw value, which is cached, through c.
func (b *bench) hit(c *leasecache.Cache[[]byte]) side {
	return side{op: func(int) error {
		got, err := c.Get(b.ctx, rawKey, missedBytes)
		return checkSize(len(got), valueSize, err)
	}}
}

// get returns a side that reads the raw value with the client alone.
func (b *bench) get() side {
	return side{op: func(int) error {
		got, err := b.client.get(b.ctx, rawStored)
		return checkSize(len(got), valueSize, err)
	}}
}

func checkSize(got, want int, err error) error {
	if err == nil && got != want {
		return fmt.Errorf("read %d bytes, want %d", got, want)
	}
	return err
}
