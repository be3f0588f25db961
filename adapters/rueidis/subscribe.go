package rueidis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

const (
	// The pause before a channel is subscribed to again: the first one, and the
	// longest.
	firstPause = 100 * time.Millisecond
	lastPause  = 3 * time.Second
	// unsubscribeTimeout is how long the server has for ending a channel.
	unsubscribeTimeout = 2 * time.Second
)

// receiver is what a client needs beside to subscribe. Every rueidis.Client has
// it.
type receiver interface {
	Receive(ctx context.Context, subscribe rueidis.Completed, fn func(msg rueidis.PubSubMessage)) error
}

// Subscribe implements [driver.Subscriber].
func (e evaler) Subscribe(notify func(channel string)) (driver.Subscription, error) {
	r, ok := e.client.(receiver)
	if !ok {
		return nil, fmt.Errorf("rueidis: a %T cannot subscribe, because it has no Receive: %w", e.client, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &subscription{
		client: e.client, receiver: r, notify: notify,
		ctx: ctx, cancel: cancel, channels: map[string]*channel{},
	}, nil
}

// subscription has a goroutine for each channel. The client carries all of them
// over the connection to each primary that it has anyway; with RESP2, over one
// more.
type subscription struct {
	client   Client
	receiver receiver
	notify   func(channel string)
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	channels map[string]*channel // until their goroutines end
}

// channel is one that was added.
type channel struct {
	s      *subscription
	name   string
	ctx    context.Context // ends when it is removed
	cancel context.CancelFunc

	once      sync.Once
	confirmed chan struct{} // closed when the server has it
	ended     chan struct{} // closed when its goroutine has ended
	err       error         // why that was, known then
}

// Add implements [driver.Subscription].
func (s *subscription) Add(ctx context.Context, name string) error {
	c, err := s.channel(name)
	if err != nil {
		return err
	}
	select {
	case <-c.confirmed:
		return nil
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		c.cancel()
		return ctx.Err()
	}
}

// channel returns the channel, and begins to subscribe to it if that is new.
func (s *subscription) channel(name string) (*channel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, rueidis.ErrClosing
	}
	before := s.channels[name]
	if before != nil && before.ctx.Err() == nil {
		return before, nil
	}
	c := &channel{s: s, name: name, confirmed: make(chan struct{}), ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	s.channels[name] = c
	s.wg.Go(func() { c.run(before) })
	return c, nil
}

// Remove implements [driver.Subscription].
func (s *subscription) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[name]; c != nil {
		c.cancel()
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

// run is the goroutine of a channel. before is the one that was removed and may
// still have to be unsubscribed from.
func (c *channel) run(before *channel) {
	defer func() {
		c.cancel()
		c.s.mu.Lock()
		if c.s.channels[c.name] == c {
			delete(c.s.channels, c.name)
		}
		c.s.mu.Unlock()
		close(c.ended)
	}()
	if before != nil {
		<-before.ended
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		conn, err := c.receive()
		switch {
		case c.ctx.Err() != nil:
			c.err = c.ctx.Err()
			if conn != nil {
				c.unsubscribe(conn)
			}
			return
		case !c.isConfirmed():
			c.err = subscribeError(err)
			return
		case time.Since(began) > lastPause:
			pause = firstPause // it did work
		}
		// The connection broke, or the slot has another primary now.
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
		}
	}
}

func (c *channel) isConfirmed() bool {
	select {
	case <-c.confirmed:
		return true
	default:
		return false
	}
}

// receive subscribes, and calls notify for messages until the subscription ends.
// conn is the connection that may still have it, if there is one.
func (c *channel) receive() (conn rueidis.CommandClient, err error) {
	defer func() {
		// A panic here would end the process, and there is no caller to reach.
		if p := recover(); p != nil {
			err = fmt.Errorf("rueidis: the client panicked: %v", p)
		}
	}()
	ctx := rueidis.WithOnSubscriptionHook(c.ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind != "ssubscribe" {
			return
		}
		again := true
		c.once.Do(func() {
			again = false
			close(c.confirmed)
		})
		if again {
			c.s.notify(c.name) // some may have been missed
		}
	})
	ctx = rueidis.WithOnReceiveReturnHook(ctx, func(err error, on rueidis.CommandClient) error {
		conn = on // to be used later, when nobody has to take messages any more
		return err
	})
	subscribe := c.s.client.B().Ssubscribe().Channel(c.name).Build()
	err = c.s.receiver.Receive(ctx, subscribe, func(rueidis.PubSubMessage) { c.s.notify(c.name) })
	return conn, err
}

// unsubscribe ends the channel on the server: Receive leaves it behind.
func (c *channel) unsubscribe(conn rueidis.CommandClient) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), unsubscribeTimeout)
	defer cancel()
	conn.Do(ctx, conn.B().Sunsubscribe().Channel(c.name).Build())
}

// subscribeError is what Add returns when Receive ended with err before the
// server had confirmed anything.
func subscribeError(err error) error {
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok {
		return driver.ParseServerError(re.Error(), err)
	}
	if err == nil {
		err = errors.New("somebody else has unsubscribed")
	}
	return fmt.Errorf("rueidis: subscribe: %w", err)
}
