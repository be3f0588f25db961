package glide

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"

	"github.com/leasecache/leasecache/driver"
)

func init() { driver.Register("glide", registered{}) }

// registered is the driver's entry in the registry.
type registered struct{}

// Open implements [driver.Driver].
func (registered) Open(dsn string) (driver.Evaler, error) {
	o, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return open(o)
}

// Adopt implements [driver.Adopter].
func (registered) Adopt(client any) (driver.Evaler, bool, error) {
	var e driver.Evaler
	switch c := client.(type) {
	case standaloneClient:
		e = New(c)
	case clusterClient:
		e = New(c)
	default:
		return nil, false, nil
	}
	if isNil(client) {
		return nil, true, errNil
	}
	return e, true, nil
}

// opened is over a client that this package made.
type opened struct {
	evaler
	owned *owned
}

type owned struct {
	close  func()
	closed atomic.Bool
}

// open makes a client and connects it.
func open(o options) (driver.Evaler, error) {
	if o.cluster {
		c, err := glide.NewClusterClient(o.clusterConfig())
		if err != nil {
			return nil, fmt.Errorf("glide: connect: %w", err)
		}
		return opened{evaler{client: cluster{c}, doubtful: new(atomic.Bool)}, &owned{close: c.Close}}, nil
	}
	c, err := glide.NewClient(o.config())
	if err != nil {
		return nil, fmt.Errorf("glide: connect: %w", err)
	}
	return opened{evaler{client: standalone{c}, doubtful: new(atomic.Bool)}, &owned{close: c.Close}}, nil
}

// Close implements [driver.Closer].
func (e opened) Close() error {
	if !e.owned.closed.Swap(true) {
		e.owned.close()
	}
	return nil
}

// check returns an error after Close. Without it nobody could tell whether the
// client's ClosingError means that a command was not sent.
func (e opened) check() error {
	if e.owned.closed.Load() {
		return driver.NotSent(glide.NewClosingError("the client is closed"))
	}
	return nil
}

// Eval implements [driver.Evaler].
func (e opened) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if err := e.check(); err != nil {
		return driver.Reply{}, err
	}
	return e.evaler.Eval(ctx, s, keys, args)
}

// Get implements [driver.Getter].
func (e opened) Get(ctx context.Context, key string) (string, bool, error) {
	if err := e.check(); err != nil {
		return "", false, err
	}
	return e.evaler.Get(ctx, key)
}

// GetBytes implements [driver.BytesGetter].
func (e opened) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	if err := e.check(); err != nil {
		return nil, false, err
	}
	return e.evaler.GetBytes(ctx, key)
}

// Ping implements [driver.Pinger].
func (e opened) Ping(ctx context.Context) error {
	if err := e.check(); err != nil {
		return err
	}
	return e.evaler.Ping(ctx)
}

// Bound implements [driver.Bounder].
func (e opened) Bound(d time.Duration) driver.Evaler {
	return opened{e.bounded(d), e.owned}
}
