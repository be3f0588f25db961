package leasecache

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
)

const (
	// wokenPolls is how much longer than PollInterval a poller sleeps whom the
	// server wakes: its look is for messages that got lost.
	wokenPolls = 20
	// wakeLinger is for how long a channel that nobody waits for any more stays
	// subscribed: the next lease of a hot key is not far.
	wakeLinger = 5 * time.Second
	// wakeRetry is how long a Store polls after it could not subscribe.
	wakeRetry = 5 * time.Second
)

// wakeups subscribes to the channels of keys that are waited for. All caches of
// a Store share it. It connects when a read first waits, and disconnects when
// none has waited for a while.
type wakeups struct {
	subscriber driver.Subscriber // nil: all poll
	timeout    time.Duration     // of a subscription

	mu      sync.Mutex
	sub     driver.Subscription // nil while disconnected
	topics  map[string]*topic
	sweep   *time.Timer   // while connected
	retry   time.Time     // not before
	closing chan struct{} // closed when the last one is; nil if there was none
}

// topic is a channel that is subscribed to, or about to be.
type topic struct {
	waiters map[*func()]struct{} // the functions to call
	ready   chan struct{}        // closed when err is known
	err     error
	left    time.Time // when the last waiter left
}

// watch calls wake whenever the channel has a message, until stop is called. It
// returns when the server has confirmed it, so that whoever looks then has missed
// nothing; stop is nil when that cannot be had.
func (w *wakeups) watch(ctx context.Context, channel string, wake func()) (stop func(), err error) {
	w.mu.Lock()
	if w.subscriber == nil || channel == "" || time.Now().Before(w.retry) {
		w.mu.Unlock()
		return nil, nil
	}
	if w.sub == nil {
		sub, err := w.connect()
		if err != nil {
			if errors.Is(err, errors.ErrUnsupported) {
				w.subscriber, err = nil, nil
			} else {
				w.retry = time.Now().Add(wakeRetry)
			}
			w.mu.Unlock()
			return nil, err
		}
		w.sub, w.topics = sub, map[string]*topic{}
		w.sweep = time.AfterFunc(wakeLinger, w.tidy)
	}
	sub := w.sub
	t := w.topics[channel]
	isNew := t == nil
	if isNew {
		t = &topic{waiters: map[*func()]struct{}{}, ready: make(chan struct{})}
		w.topics[channel] = t
	}
	t.waiters[&wake] = struct{}{}
	w.mu.Unlock()

	if isNew {
		ctx, cancel := context.WithTimeout(ctx, w.timeout)
		t.err = add(ctx, sub, channel)
		cancel()
		if t.err != nil {
			w.mu.Lock()
			if w.topics[channel] == t {
				delete(w.topics, channel)
			}
			w.retry = time.Now().Add(wakeRetry)
			w.mu.Unlock()
			remove(sub, channel) // its outcome may be unknown
		}
		close(t.ready)
	}
	<-t.ready
	if t.err != nil {
		return nil, t.err
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(t.waiters, &wake)
		t.left = time.Now()
	}, nil
}

// wake calls those who wait for the channel.
func (w *wakeups) wake(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[channel]; t != nil {
		for wake := range t.waiters {
			(*wake)() // a nudge, which never blocks
		}
	}
}

// tidy unsubscribes what nobody has waited for in a while, and disconnects when
// nothing is left.
func (w *wakeups) tidy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub == nil {
		return
	}
	for channel, t := range w.topics {
		if len(t.waiters) == 0 && time.Since(t.left) >= wakeLinger {
			delete(w.topics, channel)
			remove(w.sub, channel)
		}
	}
	if len(w.topics) == 0 {
		w.disconnect()
	} else {
		w.sweep.Reset(wakeLinger)
	}
}

// close disconnects. Who waits from now on polls, or connects again.
func (w *wakeups) close() {
	w.mu.Lock()
	w.disconnect()
	closing := w.closing
	w.mu.Unlock()
	if closing == nil {
		return
	}
	// A client may be connecting to a server that hangs, and hear of nothing.
	t := time.NewTimer(w.timeout)
	defer t.Stop()
	select {
	case <-closing:
	case <-t.C:
	}
}

// disconnect closes the subscription, if there is one, in the background: to
// close it takes until a notification has returned, which locks w. w is locked.
func (w *wakeups) disconnect() {
	if w.sub == nil {
		return
	}
	sub, closing := w.sub, make(chan struct{})
	w.sub, w.topics, w.closing = nil, nil, closing
	w.sweep.Stop()
	go func() {
		defer close(closing)
		var err error // nothing more can be done about it
		defer recovered("driver", &err)
		err = sub.Close()
	}()
}

// The goroutines here have no caller, so a panic of the driver would end the
// process.

func (w *wakeups) connect() (sub driver.Subscription, err error) {
	defer recovered("driver", &err)
	return w.subscriber.Subscribe(w.wake)
}

func add(ctx context.Context, sub driver.Subscription, channel string) (err error) {
	defer recovered("driver", &err)
	return sub.Add(ctx, channel)
}

func remove(sub driver.Subscription, channel string) {
	var err error // nobody asks for it
	defer recovered("driver", &err)
	sub.Remove(channel)
}
