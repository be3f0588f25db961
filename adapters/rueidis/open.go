package rueidis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// Open implements [driver.Driver].
func (registered) Open(dsn string) (driver.Evaler, error) {
	o, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return open(o)
}

// opened is over a client that this package made.
type opened struct {
	full
	owned *owned
}

type owned struct {
	rueidis.Client
	closed atomic.Bool
}

// open makes a client and connects it.
func open(o rueidis.ClientOption) (driver.Evaler, error) {
	c, err := rueidis.NewClient(o)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, fmt.Errorf("rueidis: connect: %w", err)
	}
	return opened{full{evaler{client: c}}, &owned{Client: c}}, nil
}

// Close implements [driver.Closer].
func (e opened) Close() error {
	if !e.owned.closed.Swap(true) {
		e.owned.Close()
	}
	return nil
}

// check returns an error after Close. Without it nobody could tell whether the
// client's ErrClosing means that a command was not sent.
func (e opened) check() error {
	if e.owned.closed.Load() {
		return driver.NotSent(rueidis.ErrClosing)
	}
	return nil
}

// Eval implements [driver.Evaler].
func (e opened) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if err := e.check(); err != nil {
		return driver.Reply{}, err
	}
	return e.full.Eval(ctx, s, keys, args)
}

// Get implements [driver.Getter].
func (e opened) Get(ctx context.Context, key string) (string, bool, error) {
	if err := e.check(); err != nil {
		return "", false, err
	}
	return e.full.Get(ctx, key)
}

// GetBytes implements [driver.BytesGetter].
func (e opened) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	if err := e.check(); err != nil {
		return nil, false, err
	}
	return e.full.GetBytes(ctx, key)
}

// Ping implements [driver.Pinger].
func (e opened) Ping(ctx context.Context) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.full.Ping(ctx)
}

// Bound implements [driver.Bounder].
func (e opened) Bound(d time.Duration) driver.Evaler {
	return opened{full{e.bounded(d)}, e.owned}
}
