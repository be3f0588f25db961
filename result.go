package leasecache

import "time"

// Source says where a value came from.
type Source uint8

const (
	// Hit is a value that the server had cached.
	Hit Source = iota + 1
	// Loaded is a value that this call's own loader returned.
	Loaded
	// Joined is a value that another call in this process loaded.
	Joined
	// Stale is a value from before an invalidation, returned because the read
	// would otherwise have waited: see [Options.Stale].
	Stale
	// NearHit is a value that this process has kept: see [Options.Near].
	NearHit
)

var sourceNames = [...]string{"none", "hit", "loaded", "joined", "stale", "near"}

// String returns the name of the source in lower case.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "invalid"
}

// Reason says why the server does not cache a value that a read returned. It is
// empty if the server does.
type Reason string

const (
	// LeaseLost: the lease ended before the load did.
	LeaseLost Reason = "lease lost"
	// NotStored: the loader asked for it, with [Load.DoNotStore].
	NotStored Reason = "do not store"
	// TooLarge: the encoded value is larger than [Options.MaxValueSize].
	TooLarge Reason = "too large"
	// EncodeFailed: the codec could not encode the value.
	EncodeFailed Reason = "encode failed"
	// Refused: the server refused a step, for want of memory or of a right.
	Refused Reason = "refused by the server"
	// WaitedTooLong: the read waited for [Options.WaitBound] and then loaded
	// without a lease.
	WaitedTooLong Reason = "wait bound passed"
	// HolderNotStored: another's load of the key was not stored a moment ago, so
	// this one ran without a lease. See [Options.FailureBackoff].
	HolderNotStored Reason = "another's load was not stored"
	// ServerDown: the server did not answer.
	ServerDown Reason = "server unavailable"
	// CannotDecode: what is cached cannot be decoded, and was dropped for this
	// key a moment ago: see [Options.DropBackoff].
	CannotDecode Reason = "cached value cannot be decoded"
	// StaleCopy: it is a copy from before an invalidation.
	StaleCopy Reason = "stale copy"
)

// Result is what a read returned.
type Result[V any] struct {
	// Value is the value. It is the caller's own, except that callers of one load
	// whose value cannot be encoded share it.
	Value V
	// Source says where the value came from.
	Source Source
	// Uncached says why the server does not cache this value. A tier in front
	// must not keep such a value.
	Uncached Reason
	// TTL is for how long the server still caches the value, counted from before
	// its request was sent, so that a tier in front which keeps the value no
	// longer never outlives it. It is 0 when the value is not cached, when no
	// time is left, when another program cached it without an expiry, and when it
	// is not known: while a cluster moves the key's slot key by key.
	TTL time.Duration
}

// Cached reports whether the server cached the value when it answered.
func (r Result[V]) Cached() bool { return r.Source != 0 && r.Uncached == "" }
