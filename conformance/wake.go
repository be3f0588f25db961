package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

func lacksWake(l Lacks) string { return l.Wake }

// canWake reports whether the driver, over this client, can subscribe.
func canWake(d driver.Evaler) bool {
	s, ok := d.(driver.Subscriber)
	if !ok {
		return false
	}
	sub, err := s.Subscribe(func(string) {})
	if err != nil {
		return !errors.Is(err, errors.ErrUnsupported)
	}
	sub.Close()
	return true
}

// ear counts what a subscription has heard.
type ear struct {
	mu    sync.Mutex
	heard map[string]int
}

func (h *ear) notify(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard[channel]++
}

func (h *ear) count(channel string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard[channel]
}

// subscribe returns a subscription of d.
func (e *env) subscribe(d driver.Evaler) (driver.Subscription, *ear) {
	e.Helper()
	h := &ear{heard: map[string]int{}}
	sub, err := d.(driver.Subscriber).Subscribe(h.notify)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { sub.Close() })
	return sub, h
}

func (e *env) mustAdd(sub driver.Subscription, channel string) {
	e.Helper()
	if err := sub.Add(e.ctx, channel); err != nil {
		e.Fatalf("Add: %v", err)
	}
}

func (e *env) channel(key string) string { return e.prefix + "w:{" + key + "}" }

// publish sends a message and returns how many have subscribed to the channel.
func (e *env) publish(channel string) int64 {
	e.Helper()
	v := e.do("SPUBLISH", channel, "x")
	if err := v.Err(); err != nil {
		e.Fatalf("SPUBLISH: %v", err)
	}
	return v.Int
}

// clients lists the connections of all primaries.
func (e *env) clients() string {
	e.Helper()
	var list strings.Builder
	for _, v := range e.doAll("CLIENT", "LIST") {
		list.WriteString(v.Str)
	}
	return list.String()
}

// watcher is a cache whose waiting reads do not poll within patience, on a store
// that ends with the case.
func (e *env) watcher(d driver.Evaler) *leasecache.Cache[string] {
	e.Helper()
	return e.cacheOn(e.store(d, patience), leasecache.Options{PollInterval: 10 * patience, WaitBound: 10 * patience})
}

// onlooker is the driver of a single read that waits. It lets it subscribe when
// its gate is opened, and tells how far it has come.
type onlooker struct {
	driver.Evaler
	driver.Subscriber
	gate   chan struct{}
	asked  chan struct{} // closed when it wants to subscribe
	looked chan struct{} // closed when it has looked once it had subscribed

	subscribed atomic.Bool
	once       sync.Once
}

func newOnlooker(d driver.Evaler) *onlooker {
	return &onlooker{
		Evaler: d, Subscriber: d.(driver.Subscriber),
		gate: make(chan struct{}), asked: make(chan struct{}), looked: make(chan struct{}),
	}
}

// Eval implements [driver.Evaler].
func (o *onlooker) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	after := o.subscribed.Load()
	r, err := o.Evaler.Eval(ctx, s, keys, args)
	if after {
		o.once.Do(func() { close(o.looked) })
	}
	return r, err
}

// Subscribe implements [driver.Subscriber].
func (o *onlooker) Subscribe(notify func(string)) (driver.Subscription, error) {
	sub, err := o.Subscriber.Subscribe(notify)
	return onlooking{sub, o}, err
}

type onlooking struct {
	driver.Subscription
	o *onlooker
}

func (l onlooking) Add(ctx context.Context, channel string) error {
	close(l.o.asked)
	select {
	case <-l.o.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := l.Subscription.Add(ctx, channel)
	l.o.subscribed.Store(err == nil)
	return err
}

var wakeCases = []testCase{
	{
		name: "SubscriptionHearsItsChannels", lacks: lacksWake,
		rule: "A subscription must call notify for every message on a channel from when Add has returned until Remove, and for no other channel.",
		run: func(e *env) {
			sub, h := e.subscribe(e.driver())
			one, two := e.channel("one"), e.channel("a\x00{b}\xff")
			e.mustAdd(sub, one)
			if n := e.publish(one); n != 1 {
				e.Fatalf("%d clients have the channel when Add has returned", n)
			}
			e.eventually("the message comes", func() bool { return h.count(one) == 1 })
			e.mustAdd(sub, two)
			if e.publish(two) != 1 || e.publish(one) != 1 {
				e.Fatal("one of two channels has no subscriber")
			}
			e.eventually("both messages come", func() bool { return h.count(one) == 2 && h.count(two) == 1 })
			sub.Remove(one)
			e.eventually("the server knows that it was removed", func() bool { return e.publish(one) == 0 })
			if e.publish(two) != 1 {
				e.Error("the other channel is gone as well")
			}
			e.eventually("the other's message comes", func() bool { return h.count(two) == 2 })
			e.mustAdd(sub, one)
			before := h.count(one)
			e.publish(one)
			e.eventually("a channel that was added again has messages", func() bool { return h.count(one) > before })
		},
	},
	{
		name: "SubscriptionsShareAConnection", lacks: lacksWake,
		rule: "The channels of a subscription must share one connection to each primary, which Close ends. After Close, Add must fail.",
		run: func(e *env) {
			sub, _ := e.subscribe(e.driver())
			// A number that tells it from the connections of others on this server.
			channels := 50 + rand.IntN(500)
			for i := range channels {
				// All in one slot, and so on one primary.
				e.mustAdd(sub, fmt.Sprintf("%sw:{k}%d", e.prefix, i))
			}
			if list := e.clients(); !strings.Contains(list, fmt.Sprintf(" ssub=%d ", channels)) {
				e.Errorf("no client has %d channels:\n%s", channels, list)
			}
			if err := sub.Close(); err != nil {
				e.Errorf("Close: %v", err)
			}
			e.eventually("the connection is closed", func() bool { return e.publish(e.prefix+"w:{k}1") == 0 })
			if err := sub.Add(e.ctx, e.channel("k")); err == nil {
				e.Error("Add after Close returned nil")
			}
		},
	},
	{
		name: "SubscriptionReconnects", lacks: lacksWake,
		rule: "When its connection is cut, a subscription must connect again, subscribe again, and call notify for each channel, because messages may have been missed.",
		run: func(e *env) {
			p := e.proxy()
			sub, h := e.subscribe(e.driverOn(p))
			channels := []string{e.channel("k"), e.prefix + "w:{k}2"}
			for i := range 10 { // in a cluster, on all of its primaries
				channels = append(channels, e.channel(fmt.Sprint(i)))
			}
			for _, channel := range channels {
				e.mustAdd(sub, channel)
			}
			p.CutAll()
			e.eventually("all channels are reported", func() bool {
				return !slices.ContainsFunc(channels, func(channel string) bool { return h.count(channel) == 0 })
			})
			for _, channel := range channels {
				before := h.count(channel)
				if n := e.publish(channel); n != 1 {
					e.Fatalf("%d clients have the channel %q after the reconnect", n, channel)
				}
				e.eventually("the message comes", func() bool { return h.count(channel) > before })
			}
		},
	},
	{
		name: "AddEndsByItsDeadline", lacks: lacksWake,
		rule: "Add must return an error by its context's deadline when the server does not answer.",
		run: func(e *env) {
			p := e.proxy()
			sub, _ := e.subscribe(e.driverOn(p))
			p.On(MatchCommand("SSUBSCRIBE"), -1, Hang)
			start := time.Now()
			inTime(e, "Add", func() {
				if sub.Add(e.deadline(200*time.Millisecond), e.channel("k")) == nil {
					e.Error("Add returned nil, though the server did not answer")
				}
			})
			if took := time.Since(start); took > patience/2 {
				e.Errorf("Add took %v, with a deadline of 200ms", took)
			}
		},
	},
	{
		name: "WaitersAreWoken", lacks: lacksWake,
		rule: "A read that waits for another process must be woken when that one's lease ends by a fill, a release or an invalidation.",
		run: func(e *env) {
			for _, end := range []string{"fill", "release", "failure", "invalidate", "delete"} {
				o := newOnlooker(e.driver())
				close(o.gate)
				c, other := e.watcher(o), e.cache(cacheOptions)
				if end == "release" {
					other = e.cache(repeatOptions) // without a mark
				}
				g := newGate()
				held := e.goRead(other, end, g.loaderOf(func(context.Context) (string, error) {
					if end == "release" || end == "failure" {
						return "", errors.New("no value today")
					}
					return "theirs", nil
				}))
				await(e, "the load begins", g.began)
				r := e.goRead(c, end, loaderOf("mine", nil))
				await(e, "the one who waits has subscribed, and looked since", o.looked)
				switch end {
				case "fill", "release", "failure":
					g.open()
				case "invalidate":
					e.mustInvalidate(other, end)
				case "delete":
					for _, call := range protocol.DeleteCalls(e.keys(end)) {
						e.call(e.driver(), call)
					}
				}
				switch end {
				case "fill":
					r.want(e, "theirs", leasecache.Hit, "")
				case "failure":
					await(e, "the read ends", r.done)
					wantHolderFailed(e, r.err, "no value today")
				default:
					r.want(e, "mine", leasecache.Loaded, "")
				}
				if end == "invalidate" || end == "delete" {
					g.open()
				}
				await(e, "the other's read ends", held.done)
			}
		},
	},
	{
		name: "WaitersLookOnceTheyAreSubscribed", lacks: lacksWake,
		rule: "A read that waits must look once more when its subscription is confirmed, because the lease may have ended before.",
		run: func(e *env) {
			o := newOnlooker(e.driver())
			c := e.watcher(o)
			g := newGate()
			held := e.goRead(e.cache(cacheOptions), "k", g.loaderOf(loaderOf("theirs", nil)))
			await(e, "the load begins", g.began)
			r := e.goRead(c, "k", loaderOf("mine", nil))
			await(e, "the one who waits subscribes", o.asked)
			g.open()
			await(e, "the other's read ends", held.done)
			close(o.gate)
			r.want(e, "theirs", leasecache.Hit, "")
		},
	},
}
