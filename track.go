package leasecache

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// trackRetry is the pause before a cache whose tracking was lost has it turned on
// again. It doubles with each attempt, up to mostTrackRetry.
const (
	trackRetry     = 50 * time.Millisecond
	mostTrackRetry = 5 * time.Second
)

// tracking has the server tell of values that change, for one near tier. It begins
// with the first read that could use it, and goes on until the cache is closed.
type tracking struct {
	tier    *nearTier
	tracker driver.Tracker
	prefix  string        // of the names that are tracked
	timeout time.Duration // of turning it on
	stats   *counters

	once   sync.Once
	mu     sync.Mutex
	on     *trackLink // whose generation is served; nil while there is none
	closed bool
	cancel context.CancelFunc // nil before it has begun
	done   chan struct{}
}

// trackLink is one successful, or pending, call of Track.
type trackLink struct {
	t    *tracking
	gone chan struct{} // closed when it was lost
	once sync.Once
}

// start begins, unless that was done before.
func (t *tracking) start() { t.once.Do(t.begin) }

func (t *tracking) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(context.Background())
	t.done = make(chan struct{})
	go t.run(ctx)
}

// stop ends the tracking, and waits for that, but not for a client that waits for
// a server that hangs.
func (t *tracking) stop() {
	t.mu.Lock()
	t.closed = true
	t.turnOff()
	cancel, done := t.cancel, t.done
	t.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// run is the goroutine of a cache with a near tier.
func (t *tracking) run(ctx context.Context) {
	defer close(t.done)
	for pause := trackRetry; ctx.Err() == nil; pause = min(2*pause, mostTrackRetry) {
		l := &trackLink{t: t, gone: make(chan struct{})}
		closer, err := t.track(ctx, l)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			t.stats.failed(ErrorTrack)
			return
		case err != nil && ctx.Err() == nil:
			t.stats.failed(ErrorTrack)
		case err == nil:
			if t.turnOn(l) {
				pause = trackRetry // it does work
			}
			select {
			case <-l.gone:
				t.stats.nearLosses.Add(1)
			case <-ctx.Done():
			}
			l.lost() // for what the driver may still call
			_ = closer.Close()
		}
		sleep(ctx, pause/2+rand.N(pause)) // with jitter, so that processes do not come back in step
	}
}

func (t *tracking) track(ctx context.Context, l *trackLink) (closer io.Closer, err error) {
	defer recovered("driver", &err)
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.tracker.Track(ctx, t.prefix, l.changed, l.lost)
}

// turnOn has entries kept and served from now on, unless the link was lost
// meanwhile.
func (t *tracking) turnOn(l *trackLink) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-l.gone:
		return false
	default:
	}
	if t.closed {
		return false
	}
	t.on = l
	t.tier.generation.Store(nearGenerations.Add(1))
	return true
}

// turnOff ends that. t is locked.
func (t *tracking) turnOff() {
	t.on = nil
	t.tier.generation.Store(0)
	t.tier.kept.Clear() // for the memory; what is in there is not found any more
}

// lost is what the driver calls when it may miss messages.
func (l *trackLink) lost() {
	l.once.Do(func() {
		l.t.mu.Lock()
		defer l.t.mu.Unlock()
		close(l.gone)
		if l.t.on == l {
			l.t.turnOff()
		}
	})
}

// changed is what the driver calls with the names of values that changed.
func (l *trackLink) changed(names []string) {
	t := l.t
	if names == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.on == l {
			t.turnOff()
			t.on = l
			t.tier.generation.Store(nearGenerations.Add(1))
		}
		return
	}
	for _, name := range names {
		// <prefix>v:{<key>}
		if tag, ok := strings.CutPrefix(name, t.prefix); ok && len(tag) > 2 && tag[0] == '{' && tag[len(tag)-1] == '}' {
			t.tier.drop(tag[1 : len(tag)-1])
		}
	}
}
