package scale

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// network is how long a request is under way, and a reply: as between two
// machines of one zone.
const network = 100 * time.Microsecond

// costs is for how long a command keeps the server from running another one.
type costs struct {
	get time.Duration

	// Scripts, by what they found.
	readValue, readLease, readWait time.Duration
	fill, release, invalidate      time.Duration

	subscribe, unsubscribe time.Duration
	message                time.Duration // for each receiver
}

// server models one server, which runs one command at a time in the order in
// which they arrive. It knows what caches without stale copies send it.
type server struct {
	costs costs

	mu    sync.Mutex
	keys  map[string]stored
	subs  map[string]map[*subscription]struct{} // by channel
	free  time.Time                             // when all that has arrived is done
	stats stats
}

type stored struct {
	value string
	until time.Time
}

// stats counts since the server was made, or reset.
type stats struct {
	sent     int            // commands of clients
	commands map[string]int // those, and those that scripts call, as INFO commandstats does
	busy     time.Duration
}

func newServer(c costs) *server {
	s := &server{costs: c, keys: map[string]stored{}, subs: map[string]map[*subscription]struct{}{}}
	s.reset()
	return s
}

func (s *server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats = stats{commands: map[string]int{}}
}

func (s *server) snapshot() stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.stats
	c.commands = maps.Clone(c.commands)
	return c
}

// do sends a command, and returns when its reply has come. run is called when it
// is the command's turn, and returns how long that takes.
func (s *server) do(ctx context.Context, bound time.Duration, name string, run func(now time.Time) time.Duration) error {
	if err := ctx.Err(); err != nil {
		return driver.NotSent(err)
	}
	deadline := time.Now().Add(bound)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	time.Sleep(network)
	s.mu.Lock()
	now := time.Now()
	if s.free.After(now) {
		now = s.free
	}
	s.stats.sent++
	s.called(name)
	took := run(now)
	s.stats.busy += took
	s.free = now.Add(took)
	replied := s.free.Add(network)
	s.mu.Unlock()
	if replied.After(deadline) {
		time.Sleep(time.Until(deadline))
		return driver.CallError(ctx, context.DeadlineExceeded)
	}
	time.Sleep(time.Until(replied))
	return nil
}

// What follows runs with the server locked.

func (s *server) called(names ...string) {
	for _, n := range names {
		s.stats.commands[n]++
	}
}

func (s *server) get(key string, now time.Time) (string, bool) {
	s.called("get")
	return s.look(key, now)
}

func (s *server) look(key string, now time.Time) (string, bool) {
	e, ok := s.keys[key]
	if !ok || !e.until.After(now) {
		return "", false
	}
	return e.value, true
}

func (s *server) set(key, value, ttl string, now time.Time) {
	s.called("set")
	ms, err := strconv.Atoi(ttl)
	if err != nil {
		panic(err)
	}
	s.keys[key] = stored{value, now.Add(time.Duration(ms) * time.Millisecond)}
}

func (s *server) pttl(key string, now time.Time) driver.Reply {
	s.called("pttl")
	return driver.Int(s.keys[key].until.Sub(now).Milliseconds())
}

func (s *server) del(keys ...string) {
	s.called("del")
	for _, k := range keys {
		delete(s.keys, k)
	}
}

// publish returns how long the receivers take, who get the message one after the
// other when the script of that length is done.
func (s *server) publish(channel string, now time.Time, script time.Duration) time.Duration {
	if channel == "" {
		return 0
	}
	s.called("spublish")
	took := time.Duration(0)
	for sub := range s.subs[channel] {
		took += s.costs.message
		time.AfterFunc(time.Until(now.Add(script+took+network)), func() { sub.hear(channel) })
	}
	return took
}

var errUnknown = errors.New("the model does not know this call")

// script runs a script as the ones in internal/protocol do.
func (s *server) script(name string, keys, args []string, now time.Time) (driver.Reply, time.Duration, error) {
	c := s.costs
	switch {
	case name == "read" && args[2] == "0" && args[3] != "1":
		if v, ok := s.get(keys[0], now); ok {
			return driver.List(driver.Int(1), driver.Str(v), s.pttl(keys[0], now)), c.readValue, nil
		}
		held, ok := s.get(keys[1], now)
		took := c.readWait
		if ok && held[0] == '!' { // the mark of a load that ended without a fill
			switch {
			case args[0] == "" || args[3] == "2":
				ok = false
			case held[1] == 'n':
				return driver.List(driver.Int(6), s.pttl(keys[1], now)), took, nil
			default:
				return driver.List(driver.Int(5), s.pttl(keys[1], now), driver.Str(held[2:])), took, nil
			}
		}
		if token := args[0]; token != "" {
			if !ok {
				s.called("time")
				held, ok = token+":"+strconv.FormatInt(now.UnixMicro(), 10), true
				s.set(keys[1], held, args[1], now)
				took = c.readLease
			}
			if nonce, mine := strings.CutPrefix(held, token+":"); mine {
				return driver.List(driver.Int(2), driver.Str(nonce)), took, nil
			}
		}
		if !ok {
			return driver.List(driver.Int(0)), took, nil
		}
		return driver.List(driver.Int(4), s.pttl(keys[1], now)), took, nil

	case name == "fill":
		ttl, err := strconv.Atoi(args[2])
		if err != nil {
			return driver.Reply{}, 0, err
		}
		if held, ok := s.get(keys[1], now); ok && held == args[0] {
			s.set(keys[0], args[1], args[2], now)
			s.del(keys[1], keys[2])
			return driver.List(driver.Int(1), driver.Int(int64(ttl))), c.fill + s.publish(args[3], now, c.fill), nil
		}
		if v, ok := s.get(keys[0], now); ok && v == args[1] {
			return driver.List(driver.Int(2), s.pttl(keys[0], now)), c.fill, nil
		}
		return driver.List(driver.Int(0)), c.fill, nil

	case name == "release":
		if held, ok := s.get(keys[0], now); ok && strings.HasPrefix(held, args[0]) {
			s.del(keys[0])
			if args[2] != "" {
				s.set(keys[0], args[2], args[3], now)
			}
			return driver.Int(1), c.release + s.publish(args[1], now, c.release), nil
		}
		return driver.Int(0), c.release, nil

	case name == "invalidate" && args[0] == "0":
		s.del(keys[1], keys[0])
		return driver.Int(1), c.invalidate + s.publish(args[2], now, c.invalidate), nil
	}
	return driver.Reply{}, 0, fmt.Errorf("%w: script %s with arguments %q", errUnknown, name, args)
}

// client is one process's client of the server.
type client struct {
	server *server
	bound  time.Duration
}

var (
	_ driver.Getter     = client{}
	_ driver.Bounder    = client{}
	_ driver.Subscriber = client{}
)

func (c client) Bound(d time.Duration) driver.Evaler { return client{c.server, d} }

func (c client) Eval(ctx context.Context, script *driver.Script, keys, args []string) (r driver.Reply, err error) {
	sendErr := c.server.do(ctx, c.bound, "evalsha", func(now time.Time) (took time.Duration) {
		r, took, err = c.server.script(script.Name(), keys, args, now)
		return took
	})
	if sendErr != nil {
		return driver.Reply{}, sendErr
	}
	return r, err
}

func (c client) Get(ctx context.Context, key string) (v string, ok bool, err error) {
	err = c.server.do(ctx, c.bound, "get", func(now time.Time) time.Duration {
		v, ok = c.server.look(key, now)
		return c.server.costs.get
	})
	return v, ok && err == nil, err
}

func (c client) Subscribe(notify func(string)) (driver.Subscription, error) {
	return &subscription{client: c, notify: notify, channels: map[string]struct{}{}}, nil
}

type subscription struct {
	client   client
	notify   func(string)
	channels map[string]struct{} // guarded by the server's lock
	closed   bool                // guarded by the server's lock
}

func (sub *subscription) Add(ctx context.Context, channel string) error {
	s := sub.client.server
	return s.do(ctx, time.Hour, "ssubscribe", func(time.Time) time.Duration {
		if s.subs[channel] == nil {
			s.subs[channel] = map[*subscription]struct{}{}
		}
		s.subs[channel][sub], sub.channels[channel] = struct{}{}, struct{}{}
		return s.costs.subscribe
	})
}

// hear takes a message in.
func (sub *subscription) hear(channel string) {
	s := sub.client.server
	s.mu.Lock()
	closed := sub.closed
	s.mu.Unlock()
	if !closed {
		sub.notify(channel)
	}
}

func (sub *subscription) Remove(channel string) {
	s := sub.client.server
	go func() {
		_ = s.do(context.Background(), time.Hour, "sunsubscribe", func(time.Time) time.Duration {
			delete(s.subs[channel], sub)
			delete(sub.channels, channel)
			return s.costs.unsubscribe
		})
	}()
}

// Close closes the connection, which is no command.
func (sub *subscription) Close() error {
	s := sub.client.server
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.closed = true
	for channel := range sub.channels {
		delete(s.subs[channel], sub)
	}
	return nil
}
