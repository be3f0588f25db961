//go:build mutants

package drivermutants

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

// ears are the steps of a subscription, with the defaults of their names.
type ears struct {
	add    func(s *subscription, ctx context.Context, channel string) error
	remove func(s *subscription, channel string)
	hear   func(s *subscription, channel string) // a message
	lost   func(s *subscription)                 // its connection
	close  func(s *subscription)
}

func newEars() ears {
	return ears{
		add:    (*subscription).doAdd,
		remove: (*subscription).doRemove,
		hear:   func(s *subscription, channel string) { s.notify(channel) },
		lost:   (*subscription).reconnect,
		close:  (*subscription).doClose,
	}
}

// hearing makes a mutant of a step of subscriptions.
func hearing(change func(e *ears)) func(*client) {
	return func(c *client) { change(&c.ears) }
}

var errClosed = errors.New("the subscription is closed")

// subscription is an honest subscription, over one connection.
type subscription struct {
	c      *client
	notify func(channel string)
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	nc       net.Conn                 // nil until a channel is added
	channels map[string]chan struct{} // closed when the server has confirmed it
}

// Subscribe implements [driver.Subscriber].
func (c *client) Subscribe(notify func(channel string)) (driver.Subscription, error) {
	s := &subscription{c: c, notify: notify, channels: map[string]chan struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Add implements [driver.Subscription].
func (s *subscription) Add(ctx context.Context, channel string) error {
	return s.c.ears.add(s, ctx, channel)
}

// Remove implements [driver.Subscription].
func (s *subscription) Remove(channel string) { s.c.ears.remove(s, channel) }

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.c.ears.close(s)
	return nil
}

func (s *subscription) doAdd(ctx context.Context, channel string) error {
	confirmed, err := s.begin(ctx, channel)
	if err != nil {
		return err
	}
	select {
	case <-confirmed:
		return nil
	case <-s.ctx.Done():
		return errClosed
	case <-ctx.Done():
		s.doRemove(channel)
		return ctx.Err()
	}
}

// begin asks the server for the messages of a channel.
func (s *subscription) begin(ctx context.Context, channel string) (confirmed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	if s.nc == nil {
		if err := s.dial(ctx); err != nil {
			return nil, err
		}
	}
	c := make(chan struct{})
	s.channels[channel] = c
	s.write("SSUBSCRIBE", channel)
	return c, nil
}

// dial connects. s.mu is held.
func (s *subscription) dial(ctx context.Context) error {
	nc, err := s.c.pool.dial(ctx)
	if err != nil {
		return err
	}
	s.nc = nc
	s.wg.Go(func() { s.read(nc) })
	return nil
}

// write sends a command. What fails is seen by read. s.mu is held.
func (s *subscription) write(command ...string) {
	s.nc.Write(resp.AppendCommand(nil, command...))
}

// read takes what the server sends until the connection ends.
func (s *subscription) read(nc net.Conn) {
	for r := bufio.NewReader(nc); ; {
		v, err := resp.ReadValue(r)
		if err != nil {
			nc.Close()
			if s.ctx.Err() == nil {
				s.c.ears.lost(s)
			}
			return
		}
		if len(v.List) < 2 {
			continue
		}
		channel := v.List[1].Str
		switch v.List[0].Str {
		case "smessage":
			s.c.ears.hear(s, channel)
		case "ssubscribe":
			s.confirm(channel)
		}
	}
}

// confirm notes that the server sends the channel's messages.
func (s *subscription) confirm(channel string) {
	s.mu.Lock()
	c := s.channels[channel]
	again := false
	select {
	case <-c:
		again = c != nil
	default:
		if c != nil {
			close(c)
		}
	}
	s.mu.Unlock()
	if again { // after a reconnect: messages may have been missed
		s.c.ears.hear(s, channel)
	}
}

// reconnect connects again, and subscribes to all channels.
func (s *subscription) reconnect() {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		err := s.dial(s.ctx)
		if err == nil {
			for _, channel := range slices.Sorted(maps.Keys(s.channels)) {
				s.write("SSUBSCRIBE", channel)
			}
			if s.ctx.Err() != nil { // Close has seen the connection before
				s.nc.Close()
			}
		}
		s.mu.Unlock()
		if err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
		}
	}
}

func (s *subscription) doRemove(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.channels, channel)
	if s.nc != nil {
		s.write("SUNSUBSCRIBE", channel)
	}
}

func (s *subscription) doClose() {
	s.cancel()
	s.mu.Lock()
	if s.nc != nil {
		s.nc.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
