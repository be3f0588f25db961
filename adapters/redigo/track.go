package redigo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

const (
	// The server is asked every trackPing whether the connection still works, and is
	// heard of within driver.TrackSilence, or it is lost.
	trackPing = driver.TrackSilence / 4
	// With RESP2 messages come by this channel.
	trackChannel = "__redis__:invalidate"
)

// Track implements [driver.Tracker]. It holds a connection of the pool until it is
// closed.
func (e evaler) Track(ctx context.Context, prefix string, changed func([]string), lost func()) (io.Closer, error) {
	if p, ok := e.client.(*redis.Pool); ok && p.MaxActive == 1 {
		return nil, fmt.Errorf("redigo: a pool with MaxActive 1 has no connection for messages to spare: %w", errors.ErrUnsupported)
	}
	conn, err := new(bound).conn(ctx, e.client)
	if err != nil {
		return nil, fmt.Errorf("redigo: track: %w", err)
	}
	t := &tracking{conn: conn}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if err := t.open(ctx, prefix); err != nil {
		t.Close()
		return nil, err
	}
	t.wg.Go(t.ping)
	t.wg.Go(func() {
		t.receive(changed)
		if t.ctx.Err() == nil {
			lost()
		}
	})
	return t, nil
}

// tracking is a connection that the server tells by what has changed. redigo knows
// RESP2 only, in which a connection can have the messages sent to itself, and waits
// for them as for those of a channel.
type tracking struct {
	conn   redis.Conn
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Close implements [io.Closer].
func (t *tracking) Close() error {
	t.cancel()
	t.wg.Wait()
	// The pool keeps a connection without an error, and the server still tracks for
	// this one. Who receives on a context that has ended breaks it, unless a message
	// is there first.
	for t.conn.Err() == nil {
		_, _ = redis.ReceiveContext(t.conn, t.ctx)
	}
	t.conn.Close() // its error is that it is broken
	return nil
}

// open turns tracking on.
func (t *tracking) open(ctx context.Context, prefix string) error {
	id, err := redis.Int64(redis.DoContext(t.conn, ctx, "CLIENT", "ID"))
	if err == nil {
		_, err = redis.DoContext(t.conn, ctx, "CLIENT", "TRACKING", "ON", "REDIRECT", id, "BCAST", "PREFIX", prefix)
	}
	if err == nil {
		// Its reply is that of a command. What comes before and after it are messages.
		_, err = redis.DoContext(t.conn, ctx, "SUBSCRIBE", trackChannel)
	}
	if re, ok := errors.AsType[redis.Error](err); ok {
		return driver.ParseServerError(string(re), err)
	}
	if err != nil {
		return fmt.Errorf("redigo: track: %w", err)
	}
	return nil
}

// ping asks the server from time to time. What it answers, receive hears.
func (t *tracking) ping() {
	tick := time.NewTicker(trackPing)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return
		}
		if t.conn.Send("PING") != nil || t.conn.Flush() != nil {
			return // it is broken, and receive hears of it
		}
	}
}

// receive returns when messages may be lost.
func (t *tracking) receive(changed func(names []string)) {
	for {
		ctx, cancel := context.WithTimeout(t.ctx, driver.TrackSilence-trackPing)
		v, err := redis.ReceiveContext(t.conn, ctx)
		cancel()
		if _, replied := errors.AsType[redis.Error](err); err != nil && !replied {
			return
		}
		// message, channel, names
		m, ok := v.([]any)
		if !ok || len(m) != 3 {
			continue
		}
		switch names := m[2].(type) {
		case nil:
			changed(nil)
		case []any:
			changed(texts(names))
		}
	}
}

func texts(list []any) []string {
	all := make([]string, len(list))
	for i, v := range list {
		b, _ := v.([]byte)
		all[i] = string(b)
	}
	return all
}
