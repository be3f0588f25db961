package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

const (
	// The server is asked that often whether the connection for messages works,
	// and has three times as long to be heard of. A connection with a shorter read
	// timeout ends by that, and the next one asks twice as often, up to minPing.
	firstPing = time.Second
	minPing   = 100 * time.Millisecond
	// connectTimeout is for getting a connection that works.
	connectTimeout = 3 * time.Second
	// The pause before a broken connection is replaced: the first one, and the
	// longest.
	firstPause = 100 * time.Millisecond
	lastPause  = 3 * time.Second
)

var errClosed = errors.New("redigo: the subscription is closed")

// Subscribe implements [driver.Subscriber].
func (e evaler) Subscribe(notify func(channel string)) (driver.Subscription, error) {
	if p, ok := e.client.(*redis.Pool); ok && p.MaxActive == 1 {
		return nil, fmt.Errorf("redigo: a pool with MaxActive 1 has no connection for messages to spare: %w", errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &subscription{
		client: e.client, notify: notify, ctx: ctx, cancel: cancel,
		channels: map[string]*channel{}, ping: firstPing,
	}, nil
}

// subscription has a goroutine while it has channels, which holds a connection
// of the pool.
type subscription struct {
	client Client
	notify func(channel string)
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ping   time.Duration // used by the goroutine

	mu       sync.Mutex
	running  bool
	channels map[string]*channel
	link     *link // nil while there is no connection
}

// channel is one that was added, and not removed.
type channel struct {
	has  bool          // the server has had it
	done chan struct{} // closed when that, or err, is known
	err  error
}

// link is a connection, and what was sent through it.
type link struct {
	conn   redis.Conn
	signal chan struct{} // there is something in out

	// Guarded by the subscription's mutex.
	out   []command // not sent yet
	asked []command // not answered yet
}

// command is one that is answered by a reply, in order.
type command struct{ name, channel string }

func (c command) send(conn redis.Conn) error {
	if c.channel == "" {
		return conn.Send(c.name)
	}
	return conn.Send(c.name, c.channel)
}

// Add implements [driver.Subscription].
func (s *subscription) Add(ctx context.Context, name string) error {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return errClosed
	}
	c := s.channels[name]
	if c == nil {
		c = &channel{done: make(chan struct{})}
		s.channels[name] = c
		if s.link != nil {
			s.link.put("SSUBSCRIBE", name)
		}
	}
	if !s.running {
		s.running = true
		s.wg.Go(s.run)
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		s.Remove(name)
		return ctx.Err()
	case <-s.ctx.Done():
		return errClosed
	}
}

// Remove implements [driver.Subscription].
func (s *subscription) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[name] == nil {
		return
	}
	delete(s.channels, name)
	if s.link != nil {
		s.link.put("SUNSUBSCRIBE", name)
	}
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// put has a command sent. The subscription is locked.
func (l *link) put(name, channel string) {
	l.out = append(l.out, command{name, channel})
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// run holds a connection for as long as there are channels, and replaces it when
// it breaks.
func (s *subscription) run() {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		conn, err := s.connect()
		if err == nil {
			err = s.serve(conn)
		}
		s.mu.Lock()
		s.link = nil
		for name, c := range s.channels {
			if !c.has {
				delete(s.channels, name)
				c.err = err
				close(c.done)
			}
		}
		if len(s.channels) == 0 || s.ctx.Err() != nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if time.Since(began) > lastPause {
			pause = firstPause // it did work
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
		}
	}
}

// connect gets a connection that works. A pool may hand out one that the server
// has closed.
func (s *subscription) connect() (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
	defer cancel()
	for {
		conn, err := new(bound).conn(ctx, s.client)
		if err != nil {
			return nil, fmt.Errorf("redigo: subscribe: %w", err)
		}
		_, err = redis.DoContext(conn, ctx, "PING")
		if _, replied := errors.AsType[redis.Error](err); err == nil || replied {
			return conn, nil
		}
		broken := conn.Err() != nil
		conn.Close()
		if !broken || ctx.Err() != nil {
			return nil, fmt.Errorf("redigo: subscribe: %w", err)
		}
	}
}

// serve subscribes to all channels on a connection, and reads from it until it
// breaks or the subscription is closed.
func (s *subscription) serve(conn redis.Conn) error {
	l := &link{conn: conn, signal: make(chan struct{}, 1)}
	s.mu.Lock()
	s.link = l
	for name := range s.channels {
		l.put("SSUBSCRIBE", name)
	}
	s.mu.Unlock()

	ctx, cancel := context.WithCancel(s.ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(ctx, l)
	}()
	err := s.read(ctx, l)
	cancel()
	// The pool keeps a connection without an error, and this one may still have
	// channels. Who receives on a context that has ended breaks it, unless a
	// message is there first.
	for conn.Err() == nil {
		_, _ = redis.ReceiveContext(conn, ctx)
	}
	<-written
	conn.Close()
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		s.ping = max(s.ping/2, minPing)
	}
	return fmt.Errorf("redigo: subscribe: %w", err)
}

// write sends what is put into l, and pings.
func (s *subscription) write(ctx context.Context, l *link) {
	t := time.NewTicker(s.ping)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.signal:
		case <-t.C:
			s.mu.Lock()
			l.put("PING", "")
			s.mu.Unlock()
		}
		s.mu.Lock()
		out := l.out
		l.out = nil
		l.asked = append(l.asked, out...)
		s.mu.Unlock()
		for _, c := range out {
			if c.send(l.conn) != nil {
				return // it is broken, and read hears of it
			}
		}
		if l.conn.Flush() != nil {
			return
		}
	}
}

// read deals with what the server sends.
func (s *subscription) read(ctx context.Context, l *link) error {
	for {
		ctx, cancel := context.WithTimeout(ctx, 3*s.ping)
		v, err := redis.ReceiveContext(l.conn, ctx)
		silent := isOver(ctx)
		cancel()
		_, replied := errors.AsType[redis.Error](err)
		if err != nil && !replied {
			if silent && s.ctx.Err() == nil {
				// Lest serve takes it for a read timeout of the connection.
				err = fmt.Errorf("no word from the server for %v", 3*s.ping)
			}
			return err
		}
		kind, channel := push(v)
		if kind == "smessage" {
			s.notify(channel)
		} else if err := s.answer(l, err); err != nil {
			return err
		}
	}
}

// push returns the kind and the channel of what a subscribed connection receives.
func push(v any) (kind, channel string) {
	if list, ok := v.([]any); ok && len(list) > 1 {
		k, _ := list[0].([]byte)
		c, _ := list[1].([]byte)
		return string(k), string(c)
	}
	return "", ""
}

// answer deals with the reply to the command that was sent first of those without
// one. It returns an error when the connection is of no use.
func (s *subscription) answer(l *link, err error) error {
	s.mu.Lock()
	if len(l.asked) == 0 {
		s.mu.Unlock()
		return errors.New("the server replied to nothing")
	}
	asked := l.asked[0]
	l.asked = l.asked[1:]
	c := s.channels[asked.channel]
	switch {
	case asked.name != "SSUBSCRIBE" || c == nil:
		err = nil // it was removed, or no answer matters
	case c.has && err == nil:
		s.mu.Unlock()
		s.notify(asked.channel) // some may have been missed
		return nil
	case !c.has:
		if err != nil {
			delete(s.channels, asked.channel)
			c.err = driver.ParseServerError(err.Error(), err)
			err = nil
		}
		c.has = c.err == nil
		close(c.done)
	}
	s.mu.Unlock()
	return err
}
