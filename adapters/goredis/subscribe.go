package goredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

const (
	// feedPing is for how long a connection may be silent before it is asked
	// whether it still works, and how long it has for an answer.
	feedPing = 3 * time.Second
	// feedRetry is the pause before a broken connection is replaced.
	feedRetry = 100 * time.Millisecond
)

// Subscribe implements [driver.Subscriber]. Clients of other types than go-redis's
// own have no connections for messages.
func (e evaler) Subscribe(notify func(channel string)) (driver.Subscription, error) {
	var route func(ctx context.Context, channel string) (*redis.Client, error)
	switch c := e.client.(type) {
	case *redis.Client:
		route = func(context.Context, string) (*redis.Client, error) { return c, nil }
	case *redis.ClusterClient:
		route = c.MasterForKey
	case *redis.Ring:
		route = func(_ context.Context, channel string) (*redis.Client, error) { return c.GetShardClientForKey(channel) }
	default:
		return nil, fmt.Errorf("goredis: a %T cannot subscribe: %w", c, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &subscription{
		notify: notify, route: route, ctx: ctx, cancel: cancel,
		feeds: map[*redis.Client]*feed{}, on: map[string]*feed{},
	}, nil
}

// subscription has a feed for each server that has one of its channels.
type subscription struct {
	notify func(channel string)
	route  func(ctx context.Context, channel string) (*redis.Client, error)
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	feeds map[*redis.Client]*feed
	on    map[string]*feed // by channel
}

// feed is a connection for messages.
type feed struct {
	s      *subscription
	client *redis.Client

	sending   sync.Mutex // so that replies come in the order of pending
	receiving bool       // guarded by it

	// Guarded by the subscription's mutex.
	pubsub  *redis.PubSub
	pending []pending
}

// pending is an Add that waits for the server.
type pending struct {
	channel string
	done    chan error // has room for it
}

// Add implements [driver.Subscription]. It works in a goroutine, because go-redis
// heeds no context while it connects.
func (s *subscription) Add(ctx context.Context, channel string) error {
	done := make(chan error, 1)
	if !s.start(func() { s.add(ctx, pending{channel, done}) }) {
		return redis.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return redis.ErrClosed
	}
}

// start runs what Close waits for. It is false after Close.
func (s *subscription) start(what func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Go(what)
	return true
}

func (s *subscription) add(ctx context.Context, p pending) {
	client, err := s.route(ctx, p.channel)
	if err != nil {
		p.done <- err
		return
	}
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		p.done <- redis.ErrClosed
		return
	}
	f := s.feeds[client]
	if f == nil {
		f = &feed{s: s, client: client, pubsub: client.SSubscribe(s.ctx)}
		s.feeds[client] = f
	}
	s.on[p.channel] = f
	s.mu.Unlock()
	f.subscribe(ctx, p)
}

// Remove implements [driver.Subscription].
func (s *subscription) Remove(channel string) {
	s.mu.Lock()
	f := s.on[channel]
	delete(s.on, channel)
	s.mu.Unlock()
	if f != nil {
		s.start(func() { f.unsubscribe(channel) })
	}
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.mu.Lock()
	s.cancel()
	feeds := slices.Collect(maps.Values(s.feeds))
	s.mu.Unlock()
	for _, f := range feeds {
		f.close()
	}
	s.wg.Wait()
	return nil
}

// close ends the connection, and by that the receiving.
func (f *feed) close() {
	f.s.mu.Lock()
	pubsub := f.pubsub
	f.s.mu.Unlock()
	_ = pubsub.Close() // its error says that it is closed already
}

// subscribe asks the server for the channel of p. What it answers, receive hands
// on.
func (f *feed) subscribe(ctx context.Context, p pending) {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.s.mu.Lock()
	pubsub := f.pubsub
	f.pending = append(f.pending, p)
	f.s.mu.Unlock()
	if err := pubsub.SSubscribe(ctx, p.channel); err != nil {
		f.answer(p.channel, err)
		return
	}
	if !f.receiving {
		// Not before: to receive connects as well, on a context that does not end.
		f.receiving = f.s.start(f.receive)
	}
}

// unsubscribe ends the messages of a channel, unless it was added again. A feed
// without channels ends.
func (f *feed) unsubscribe(channel string) {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.s.mu.Lock()
	_, again := f.s.on[channel]
	idle := true
	for _, other := range f.s.on {
		idle = idle && other != f
	}
	pubsub := f.pubsub
	if idle && f.s.feeds[f.client] == f {
		delete(f.s.feeds, f.client)
	}
	f.s.mu.Unlock()
	switch {
	case idle:
		_ = pubsub.Close()
	case !again:
		ctx, cancel := context.WithTimeout(f.s.ctx, feedPing)
		defer cancel()
		_ = pubsub.SUnsubscribe(ctx, channel) // it reconnects without it
	}
}

// answer tells the first Add that waits for the channel, or for any if it is "",
// and reports whether one did.
func (f *feed) answer(channel string, err error) bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	i := slices.IndexFunc(f.pending, func(p pending) bool { return channel == "" || p.channel == channel })
	if i < 0 {
		return false
	}
	f.pending[i].done <- err
	f.pending = slices.Delete(f.pending, i, i+1)
	return true
}

// receive is the goroutine of a feed. It ends when the feed is closed.
func (f *feed) receive() {
	asked := false // whether the connection still works
	for {
		f.s.mu.Lock()
		pubsub := f.pubsub
		f.s.mu.Unlock()
		m, err := pubsub.ReceiveTimeout(f.s.ctx, feedPing)
		if err == nil {
			asked = false
			f.handle(m)
			continue
		}
		timeout, isNet := errors.AsType[net.Error](err)
		_, isReply := errors.AsType[redis.Error](err)
		switch {
		case f.s.ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
			return
		case isReply:
			f.answer("", driver.ParseServerError(err.Error(), err)) // in the order that they were asked
		case isNet && timeout.Timeout() && !asked:
			asked = true
			_ = pubsub.Ping(f.s.ctx)
		case isNet && timeout.Timeout():
			if !f.replace(pubsub) {
				return
			}
			asked = false
		default:
			// It reconnects at the next call, and subscribes again.
			f.pause()
		}
	}
}

// handle deals with what the server sent.
func (f *feed) handle(m any) {
	switch m := m.(type) {
	case *redis.Message:
		f.s.notify(m.Channel)
	case *redis.Subscription:
		switch m.Kind {
		case "ssubscribe":
			if !f.answer(m.Channel, nil) {
				f.s.notify(m.Channel) // after a reconnect: some may have been missed
			}
		case "sunsubscribe":
			f.moved(m.Channel)
		}
	}
}

// moved deals with the end of a channel that nobody has removed: its slot has
// another primary now.
func (f *feed) moved(channel string) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.on[channel] != f || f.s.ctx.Err() != nil {
		return
	}
	delete(f.s.on, channel)
	f.s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(f.s.ctx, feedPing)
		defer cancel()
		_ = f.s.Add(ctx, channel) // without it, who waits looks by himself
		f.s.notify(channel)
	})
}

// replace gives the feed a new connection, because the old one hangs, and
// reports whether the feed is still of use.
func (f *feed) replace(old *redis.PubSub) bool {
	f.sending.Lock()
	defer f.sending.Unlock()
	_ = old.Close()
	f.s.mu.Lock()
	if f.s.ctx.Err() != nil || f.s.feeds[f.client] != f {
		f.s.mu.Unlock()
		return false
	}
	f.pubsub = f.client.SSubscribe(f.s.ctx)
	pubsub := f.pubsub
	var channels []string
	for channel, on := range f.s.on {
		if on == f {
			channels = append(channels, channel)
		}
	}
	f.s.mu.Unlock()
	ctx, cancel := context.WithTimeout(f.s.ctx, feedPing)
	defer cancel()
	_ = pubsub.SSubscribe(ctx, channels...) // they are noted, and sent when it connects
	return true
}

// pause waits before the next attempt.
func (f *feed) pause() {
	t := time.NewTimer(feedRetry)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.s.ctx.Done():
	}
}
