package leasecache

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

// Loads that end without a fill leave a mark in place of their lease, for
// FailureBackoff. Without it, those who wait would repeat a load that fails one
// after another, each in his own time.

// mark returns what a load under a lease leaves that has nothing to fill.
func (f *flight[V]) mark(o outcome[V]) protocol.Mark {
	switch {
	case f.c.loadsCtx.Err() != nil:
		return protocol.NoMark // it was cancelled, which says nothing of the source
	case o.err == nil || o.notFound:
		return protocol.MarkUnstored
	case o.panicked != nil:
		return protocol.MarkFailed(fmt.Sprintf("the loader panicked: %v", o.panicked.Value))
	}
	return protocol.MarkFailed(fmt.Sprint(o.err)) // also of an error whose Error panics
}

// markAfter returns what a load leaves whose fill failed with err: only if the
// server refused the value for good does it say something about the next one.
func markAfter(err error) protocol.Mark {
	if se, ok := errors.AsType[*stepError](err); ok && !se.unknown && reasonOf(err) == Refused {
		return protocol.MarkUnstored
	}
	return protocol.NoMark
}

// failedElsewhere hands out the error that a mark tells of. Those who came after
// the read was sent look again: an invalidation may have ended it before they came.
func (f *flight[V]) failedElsewhere(text string) (wait time.Duration, ended bool) {
	err := ErrHolderFailed
	if text != "" {
		err = fmt.Errorf("%w: %s", ErrHolderFailed, text)
	}
	f.shard.mu.Lock()
	ws := f.take(f.before)
	f.shard.mu.Unlock()
	f.c.stats.holderFailed.Add(uint64(len(ws)))
	deliver(ws, outcome[V]{err: err})
	return 0, false
}

// unstoredElsewhere loads without a lease at once, for all who wait here: under
// one they would wait for each other, and have nothing of it. The reservation of
// the read is the load's. When there is no place, they queue for the lease.
func (f *flight[V]) unstoredElsewhere() (wait time.Duration, ended bool) {
	c := f.c
	if c.work.closed.Load() { // no new loads
		f.abandon(true, "")
		f.end(everyone, outcome[V]{err: ErrClosed})
		return 0, true
	}
	select {
	case c.unleased <- struct{}{}:
	default:
		f.abandon(true, "")
		f.overMark = true
		return 0, false
	}
	f.shard.mu.Lock()
	f.detach()
	u := f.split(nil, HolderNotStored)
	f.shard.mu.Unlock()
	c.work.extend()
	go func() {
		defer c.work.end()
		u.loadUnleased()
	}()
	return 0, true
}
