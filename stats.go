package leasecache

import (
	"maps"
	"sync/atomic"
)

// Stats are counts since a cache was made. Each read counts under Hits or
// Misses; what then happened to it counts under the others.
type Stats struct {
	// Hits are reads that found a value, or a not-found record, at first look.
	Hits uint64
	// NearHits are those of Hits that were answered in the process: see
	// [Options.Near].
	NearHits uint64
	// NearLosses are how often the server's messages for the near tier were lost, and
	// what was kept with them.
	NearLosses uint64
	// Misses are reads that did not.
	Misses uint64
	// Refreshes are calls of Refresh. They count under neither.
	Refreshes uint64
	// Loads are calls of a loader, with and without a lease.
	Loads uint64
	// UnleasedLoads are those without one.
	UnleasedLoads uint64
	// Joined are reads that were answered by the load of another read in this
	// process.
	Joined uint64
	// SharedReads are reads that were answered, at first look, by a read of the
	// server that they shared. See [Options.ShareReads].
	SharedReads uint64
	// Waits are reads that waited for a load of another process.
	Waits uint64
	// WaitTimeouts are reads that waited for as long as WaitBound.
	WaitTimeouts uint64
	// StaleServed are reads that got a stale copy.
	StaleServed uint64
	// FillsAccepted are loads that were cached.
	FillsAccepted uint64
	// FillsRejected are loads that were not, because their lease ended first. A
	// rising count says that the lease is shorter than the loads take, or that
	// keys are invalidated more often than they can be loaded.
	FillsRejected uint64
	// FillsPresent are loads whose lease had ended, but whose value was cached
	// already, byte for byte.
	FillsPresent uint64
	// Overloads are reads that got ErrOverloaded.
	Overloads uint64
	// HolderFailed are reads that got ErrHolderFailed.
	HolderFailed uint64
	// Undecodable are cached values that could not be decoded.
	Undecodable uint64
	// Invalidated are keys that the server confirmed as invalidated.
	Invalidated uint64
	// Errors are counts of what went wrong, by reason. Reasons that never came
	// up are left out.
	Errors map[ErrorReason]uint64
}

// ErrorReason sorts errors for counting.
type ErrorReason string

// The reasons that errors are counted under.
const (
	// ErrorLoader: a loader returned an error other than ErrNotFound.
	ErrorLoader ErrorReason = "loader"
	// ErrorLoaderPanic: a loader panicked or called runtime.Goexit.
	ErrorLoaderPanic ErrorReason = "loader_panic"
	// ErrorLoadTimeout: a load took longer than LoadTimeout.
	ErrorLoadTimeout ErrorReason = "load_timeout"
	// ErrorTTL: a loader chose a TTL out of range.
	ErrorTTL ErrorReason = "ttl"
	// ErrorEncode: the codec could not encode a value.
	ErrorEncode ErrorReason = "encode"
	// ErrorTooLarge: a value was larger than MaxValueSize.
	ErrorTooLarge ErrorReason = "too_large"
	// ErrorRead: a read of the server failed.
	ErrorRead ErrorReason = "read"
	// ErrorFill: a fill failed: it was refused, or its outcome is unknown.
	ErrorFill ErrorReason = "fill"
	// ErrorRelease: a lease could not be released, and runs out by itself.
	ErrorRelease ErrorReason = "release"
	// ErrorInvalidate: a key could not be invalidated.
	ErrorInvalidate ErrorReason = "invalidate"
	// ErrorDrop: a value that cannot be decoded could not be dropped.
	ErrorDrop ErrorReason = "drop"
	// ErrorWatch: a read that waits could not subscribe, and polls.
	ErrorWatch ErrorReason = "watch"
	// ErrorTrack: the server does not tell the near tier what changes, so that it
	// keeps nothing.
	ErrorTrack ErrorReason = "track"
)

var errorReasons = [...]ErrorReason{
	ErrorLoader, ErrorLoaderPanic, ErrorLoadTimeout, ErrorTTL, ErrorEncode, ErrorTooLarge,
	ErrorRead, ErrorFill, ErrorRelease, ErrorInvalidate, ErrorDrop, ErrorWatch, ErrorTrack,
}

type counters struct {
	hits, misses, refreshes, loads, unleasedLoads, joined, shared, waits, waitTimeouts, staleServed,
	fillsAccepted, fillsRejected, fillsPresent, overloads, holderFailed, undecodable, invalidated,
	nearHits, nearLosses atomic.Uint64
	errors [len(errorReasons)]atomic.Uint64
}

func (c *counters) failed(reason ErrorReason) {
	for i, r := range errorReasons {
		if r == reason {
			c.errors[i].Add(1)
		}
	}
}

func (c *counters) snapshot() Stats {
	s := Stats{
		NearHits:      c.nearHits.Load(), // before Hits, of which they are a part
		NearLosses:    c.nearLosses.Load(),
		Misses:        c.misses.Load(),
		Refreshes:     c.refreshes.Load(),
		Loads:         c.loads.Load(),
		UnleasedLoads: c.unleasedLoads.Load(),
		Joined:        c.joined.Load(),
		SharedReads:   c.shared.Load(),
		Waits:         c.waits.Load(),
		WaitTimeouts:  c.waitTimeouts.Load(),
		StaleServed:   c.staleServed.Load(),
		FillsAccepted: c.fillsAccepted.Load(),
		FillsRejected: c.fillsRejected.Load(),
		FillsPresent:  c.fillsPresent.Load(),
		Overloads:     c.overloads.Load(),
		HolderFailed:  c.holderFailed.Load(),
		Undecodable:   c.undecodable.Load(),
		Invalidated:   c.invalidated.Load(),
		Errors:        map[ErrorReason]uint64{},
	}
	s.Hits = c.hits.Load() + s.NearHits
	for i, r := range errorReasons {
		if n := c.errors[i].Load(); n > 0 {
			s.Errors[r] = n
		}
	}
	return s
}

func (s Stats) clone() Stats {
	s.Errors = maps.Clone(s.Errors)
	return s
}

func (s *Stats) add(o Stats) {
	s.Hits += o.Hits
	s.NearHits += o.NearHits
	s.NearLosses += o.NearLosses
	s.Misses += o.Misses
	s.Refreshes += o.Refreshes
	s.Loads += o.Loads
	s.UnleasedLoads += o.UnleasedLoads
	s.Joined += o.Joined
	s.SharedReads += o.SharedReads
	s.Waits += o.Waits
	s.WaitTimeouts += o.WaitTimeouts
	s.StaleServed += o.StaleServed
	s.FillsAccepted += o.FillsAccepted
	s.FillsRejected += o.FillsRejected
	s.FillsPresent += o.FillsPresent
	s.Overloads += o.Overloads
	s.HolderFailed += o.HolderFailed
	s.Undecodable += o.Undecodable
	s.Invalidated += o.Invalidated
	if s.Errors == nil {
		s.Errors = map[ErrorReason]uint64{}
	}
	for r, n := range o.Errors {
		s.Errors[r] += n
	}
}
