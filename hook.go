package leasecache

import "time"

// LoadEvent is the timeline of one load, for [Options.OnLoad]. A load of several
// keys has one for each.
type LoadEvent struct {
	// Key is the key that was loaded.
	Key string
	// Leased is false for a load without a lease, which is never cached.
	Leased bool
	// Refresh is true for a load by [Cache.Refresh].
	Refresh bool
	// Began is when the loader was called, Loaded when it had returned or its
	// time was over.
	Began, Loaded time.Time
	// FillSent is when the value was sent to be cached. It is zero when it was not.
	FillSent time.Time
	// Ended is when the outcome was known.
	Ended time.Time
	// Outcome says what became of it.
	Outcome LoadOutcome
	// Err is the loader's error, or the fill's, or for a load without a lease the
	// error of the server for which it ran without one.
	Err error
}

// LoadOutcome is what became of a load.
type LoadOutcome uint8

const (
	// LoadAccepted: the value was cached.
	LoadAccepted LoadOutcome = iota + 1
	// LoadRejected: the lease had ended, nothing was cached.
	LoadRejected
	// LoadPresent: the lease had ended, but the same bytes were cached already.
	LoadPresent
	// LoadFillFailed: the server refused the value, or its reply was lost.
	LoadFillFailed
	// LoadNotStored: the load succeeded, and there was nothing to cache: no
	// lease, do not store, too large, not encodable.
	LoadNotStored
	// LoadFailed: the loader returned an error, panicked, or took too long.
	LoadFailed
)

var loadOutcomeNames = [...]string{"none", "accepted", "rejected", "present", "fill failed", "not stored", "failed"}

// String returns the name of the outcome in lower case.
func (o LoadOutcome) String() string {
	if int(o) < len(loadOutcomeNames) {
		return loadOutcomeNames[o]
	}
	return "invalid"
}

// report tells the hook, in a goroutine of its own: this one may be a caller's.
func (f *flight[V]) report(ev LoadEvent) {
	if f.c.opts.OnLoad == nil {
		return
	}
	ev.Ended = time.Now()
	f.c.work.extend()
	go func() {
		defer f.c.work.end()
		f.c.opts.OnLoad(ev)
	}()
}
