//go:build mutants

package drivermutants

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

// Track implements [driver.Tracker].
func (c *client) Track(ctx context.Context, prefix string, changed func([]string), lost func()) (io.Closer, error) {
	return c.track(c, ctx, &tracked{prefix: prefix, changed: changed, lost: lost, silence: driver.TrackSilence})
}

// tracked is a connection that the server tells by what has changed.
type tracked struct {
	prefix  string
	changed func(names []string)
	lost    func()
	silence time.Duration // 0: for ever

	nc     net.Conn
	closed atomic.Bool
	wg     sync.WaitGroup
}

func (c *client) doTrack(ctx context.Context, t *tracked) (io.Closer, error) {
	nc, err := c.pool.dial(ctx)
	if err != nil {
		return nil, err
	}
	t.nc = nc
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	r := bufio.NewReader(nc)
	for _, command := range [][]string{{"HELLO", "3"}, {"CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", t.prefix}} {
		_, err = nc.Write(resp.AppendCommand(nil, command...))
		var v resp.Value
		if err == nil {
			v, err = resp.ReadValue(r)
		}
		if err == nil {
			err = v.Err()
		}
		if err != nil {
			break
		}
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	t.wg.Go(func() { t.receive(r) })
	t.wg.Go(t.ping)
	return t, nil
}

func (t *tracked) receive(r *bufio.Reader) {
	for {
		if t.silence > 0 {
			t.nc.SetReadDeadline(time.Now().Add(t.silence))
		}
		v, err := resp.ReadValue(r)
		if err != nil {
			if !t.closed.Load() {
				t.lost()
			}
			t.nc.Close()
			return
		}
		if v.Kind != resp.Push || len(v.List) != 2 || v.List[0].Str != "invalidate" {
			continue
		}
		if v.List[1].Null {
			t.changed(nil)
			continue
		}
		var names []string
		for _, name := range v.List[1].List {
			names = append(names, name.Str)
		}
		t.changed(names)
	}
}

// ping asks the server whether it is there, until the connection is closed.
func (t *tracked) ping() {
	for t.silence > 0 {
		if _, err := t.nc.Write(resp.AppendCommand(nil, "PING")); err != nil {
			return
		}
		for range 10 {
			time.Sleep(t.silence / 40)
			if t.closed.Load() {
				return
			}
		}
	}
}

// Close implements [io.Closer].
func (t *tracked) Close() error {
	t.closed.Store(true)
	t.nc.Close()
	t.wg.Wait()
	return nil
}

// tracks is a fault of what Track is called with.
func tracks(fault func(ctx context.Context, t *tracked) context.Context) func(*client) {
	return func(c *client) {
		honest := c.track
		c.track = func(c *client, ctx context.Context, t *tracked) (io.Closer, error) {
			return honest(c, fault(ctx, t), t)
		}
	}
}

// unclosed is what Track returns, without a Close.
type unclosed struct{}

// Close implements [io.Closer].
func (unclosed) Close() error { return nil }
