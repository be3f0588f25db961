package goredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

const (
	// feedPing is for how long a connection may be silent before it is asked
	// whether it still works, and how long it has for an answer.
	feedPing = 3 * time.Second
	// feedRetry is the pause before a channel that was lost is subscribed to
	// again. It doubles with each attempt, up to feedPing.
	feedRetry = 100 * time.Millisecond
)

var errLost = errors.New("goredis: the connection for messages was lost")

// Subscribe implements [driver.Subscriber]. Clients of other types than go-redis's
// own have no connections for messages.
func (e evaler) Subscribe(notify func(channel string)) (driver.Subscription, error) {
	reload := func(context.Context) {}
	var route func(ctx context.Context, channel string) (*redis.Client, error)
	switch c := e.client.(type) {
	case *redis.Client:
		route = func(context.Context, string) (*redis.Client, error) { return c, nil }
	case *redis.ClusterClient:
		route, reload = c.MasterForKey, c.ReloadState
	case *redis.Ring:
		route = func(_ context.Context, channel string) (*redis.Client, error) { return c.GetShardClientForKey(channel) }
	default:
		return nil, fmt.Errorf("goredis: a %T cannot subscribe: %w", c, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &subscription{
		notify: notify, route: route, reload: reload, ctx: ctx, cancel: cancel,
		feeds: map[*redis.Client]*feed{}, on: map[string]*feed{},
	}, nil
}

// subscription has a feed for each server that has one of its channels.
type subscription struct {
	notify func(channel string)
	route  func(ctx context.Context, channel string) (*redis.Client, error)
	reload func(ctx context.Context) // has route learn anew, in the background
	ctx    context.Context           // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	feeds map[*redis.Client]*feed
	on    map[string]*feed // by channel; nil for one that was lost
}

// feed is a connection for messages. It ends when that breaks: go-redis would
// connect and subscribe again by itself, but to the same server, and with all
// channels in one command, which a cluster refuses when their slots differ.
type feed struct {
	s      *subscription
	client *redis.Client
	pubsub *redis.PubSub

	sending   sync.Mutex // so that replies come in the order of pending
	receiving bool       // guarded by it

	pending []pending // guarded by the subscription's mutex
}

// pending is a command that the server has not answered.
type pending struct {
	kind, channel string     // as in the answer
	done          chan error // has room for it; nil if nobody waits
}

// Add implements [driver.Subscription]. It works in a goroutine, because go-redis
// heeds no context while it connects.
func (s *subscription) Add(ctx context.Context, channel string) error {
	done := make(chan error, 1)
	if !s.start(func() { done <- s.add(ctx, channel) }) {
		return redis.ErrClosed
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.ctx.Done():
		return redis.ErrClosed
	}
	if err != nil {
		s.Remove(channel) // its outcome may be unknown
	}
	return err
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

// add subscribes to a channel, also when its slot has moved a moment ago.
func (s *subscription) add(ctx context.Context, channel string) error {
	for {
		err := s.attempt(ctx, channel, nil)
		if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != "MOVED" {
			return err
		}
		s.Remove(channel) // from there
		s.reload(ctx)
		if !s.pause(ctx, feedRetry) {
			return err
		}
	}
}

// attempt asks the server for a channel once, and waits for its answer. An
// attempt to restore one notes the feed in again, and needs a channel that was
// neither removed nor added by another meanwhile.
func (s *subscription) attempt(ctx context.Context, channel string, again *atomic.Pointer[feed]) error {
	client, err := s.route(ctx, channel)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if on, added := s.on[channel]; ctx.Err() != nil || s.ctx.Err() != nil || again != nil && (!added || on != nil) {
		s.mu.Unlock()
		return redis.ErrClosed
	}
	f := s.feeds[client]
	if f == nil {
		f = &feed{s: s, client: client, pubsub: client.SSubscribe(s.ctx)}
		s.feeds[client] = f
	}
	s.on[channel] = f
	if again != nil {
		again.Store(f)
	}
	s.mu.Unlock()

	done := make(chan error, 1)
	if err := f.subscribe(ctx, pending{"ssubscribe", channel, done}); err != nil {
		return err
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
		_ = f.pubsub.Close() // its error says that it is closed already
	}
	s.wg.Wait()
	return nil
}

// restore subscribes again to channels that were lost, until it has, or they are
// removed or added by another.
func (s *subscription) restore(channels []string) {
	for pause := feedRetry; len(channels) > 0; pause = min(2*pause, feedPing) {
		s.reload(s.ctx)
		if !s.pause(s.ctx, pause) {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, feedPing)
		var wg sync.WaitGroup
		lost := make([]bool, len(channels))
		for i, channel := range channels {
			wg.Go(func() { lost[i] = s.again(ctx, channel) })
		}
		wg.Wait()
		cancel()
		var left []string
		for i, channel := range channels {
			if lost[i] {
				left = append(left, channel)
			}
		}
		channels = left
	}
}

// again tries to subscribe again to a channel that was lost, and reports whether
// it still is. It ends with ctx, though go-redis may go on to connect to a node
// that is gone.
func (s *subscription) again(ctx context.Context, channel string) bool {
	var on atomic.Pointer[feed]
	done := make(chan error, 1)
	if !s.start(func() { done <- s.attempt(ctx, channel, &on) }) {
		return false
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		s.notify(channel) // some may have been missed
		return false
	}
	f := on.Load()
	lost := s.lose(channel, f)
	if lost && f != nil {
		s.start(func() { f.unsubscribe(channel) }) // its outcome may be unknown
	}
	return lost
}

// lose takes a channel off the feed by which it cannot be had, or cannot be had
// any more. It is false when the channel was removed, or is taken care of by
// another.
func (s *subscription) lose(channel string, f *feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	on, added := s.on[channel]
	if !added || on != f {
		return false
	}
	s.on[channel] = nil
	return true
}

// pause waits. It is false when the context, or the subscription, ends first.
func (s *subscription) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// subscribe asks the server for the channel of p. What it answers, receive hands
// on.
func (f *feed) subscribe(ctx context.Context, p pending) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	if err := ctx.Err(); err != nil {
		return err // of those who waited until a server did not accept
	}
	f.s.mu.Lock()
	if f.s.feeds[f.client] != f {
		f.s.mu.Unlock()
		return errLost
	}
	f.pending = append(f.pending, p)
	f.s.mu.Unlock()
	if err := f.pubsub.SSubscribe(ctx, p.channel); err != nil {
		f.answer(p.kind, p.channel, err)
		if !f.receiving {
			f.giveUp()
		}
		return err
	}
	if !f.receiving {
		// Not before: to receive connects as well, on a context that does not end.
		f.receiving = f.s.start(f.receive)
	}
	return nil
}

// giveUp ends a feed that has not got a connection. Those who tried to subscribe
// by it know.
func (f *feed) giveUp() {
	f.s.mu.Lock()
	if f.s.feeds[f.client] == f {
		delete(f.s.feeds, f.client)
	}
	f.s.mu.Unlock()
	_ = f.pubsub.Close()
}

// unsubscribe ends the messages of a channel, unless it was added again.
func (f *feed) unsubscribe(channel string) {
	if f.closeIfIdle() {
		return
	}
	f.sending.Lock()
	defer f.sending.Unlock()
	f.s.mu.Lock()
	again := f.s.on[channel] == f
	if !again {
		f.pending = append(f.pending, pending{kind: "sunsubscribe", channel: channel})
	}
	f.s.mu.Unlock()
	if !again {
		ctx, cancel := context.WithTimeout(f.s.ctx, feedPing)
		defer cancel()
		_ = f.pubsub.SUnsubscribe(ctx, channel) // who breaks it hears of it by receive
	}
}

// closeIfIdle ends a feed without channels, and reports whether it has.
func (f *feed) closeIfIdle() bool {
	f.s.mu.Lock()
	idle := f.s.feeds[f.client] == f
	for _, on := range f.s.on {
		idle = idle && on != f
	}
	if idle {
		delete(f.s.feeds, f.client)
	}
	f.s.mu.Unlock()
	if idle {
		_ = f.pubsub.Close()
	}
	return idle
}

// answer deals with the answer to the first command of that kind, or to the first
// of all if kind is "", and reports whether there is one.
func (f *feed) answer(kind, channel string, err error) bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	i := slices.IndexFunc(f.pending, func(p pending) bool { return kind == "" || p.kind == kind && p.channel == channel })
	if i < 0 {
		return false
	}
	if done := f.pending[i].done; done != nil {
		done <- err
	}
	f.pending = slices.Delete(f.pending, i, i+1)
	return true
}

// receive is the goroutine of a feed. It ends with it.
func (f *feed) receive() {
	asked := false // whether the connection still works
	for {
		m, err := f.pubsub.ReceiveTimeout(f.s.ctx, feedPing)
		timeout, isNet := errors.AsType[net.Error](err)
		_, isReply := errors.AsType[redis.Error](err)
		switch {
		case err == nil:
			asked = false
			f.handle(m)
		case isReply:
			asked = false
			f.answer("", "", driver.ParseServerError(err.Error(), err)) // in the order that they were asked
		case isNet && timeout.Timeout() && !asked:
			asked = true
			_ = f.pubsub.Ping(f.s.ctx)
		default:
			f.lost()
			return
		}
	}
}

// handle deals with what the server sent.
func (f *feed) handle(m any) {
	switch m := m.(type) {
	case *redis.Message:
		f.s.notify(m.Channel)
	case *redis.Subscription:
		if !f.answer(m.Kind, m.Channel, nil) {
			f.unasked(m.Kind, m.Channel)
		}
	}
}

// unasked deals with what the server says of a channel without a command of ours.
func (f *feed) unasked(kind, channel string) {
	switch kind {
	case "ssubscribe":
		f.s.notify(channel) // go-redis has replaced the connection for a server that is being moved
	case "sunsubscribe":
		// Its slot has another primary now.
		if f.s.lose(channel, f) {
			f.s.start(func() {
				f.closeIfIdle()
				f.s.restore([]string{channel})
			})
		}
	}
}

// lost ends a feed whose connection broke, or hangs, and has its channels
// restored. It does nothing to one that has ended already.
func (f *feed) lost() {
	f.s.mu.Lock()
	if f.s.feeds[f.client] != f || f.s.ctx.Err() != nil {
		f.s.mu.Unlock()
		return
	}
	delete(f.s.feeds, f.client)
	var channels []string
	for channel, on := range f.s.on {
		if on == f {
			f.s.on[channel] = nil
			channels = append(channels, channel)
		}
	}
	for _, p := range f.pending {
		if p.done != nil {
			p.done <- errLost
		}
	}
	f.pending = nil
	f.s.wg.Go(func() { f.s.restore(channels) })
	f.s.mu.Unlock()
	_ = f.pubsub.Close()
}
