package leasecache

import (
	"fmt"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

// Options configure a [Cache]. Only TTL has to be set.
//
// The durations belong together. A holder that crashes keeps others waiting for
// what is left of its Lease; a waiter gives up after WaitBound, which should
// therefore be longer; a load that takes longer than Lease is not cached, so
// LoadTimeout is as long as Lease unless set.
//
//	LoadTimeout 5s = Lease 5s < WaitBound 6s;  CallTimeout 1s (see StoreOptions)
type Options struct {
	// Prefix begins the names of all Redis keys of this cache. It must not
	// contain '{'. Two caches with different types of values need different
	// prefixes. Default: none.
	Prefix string

	// TTL is for how long a value is cached: at least 1ms, cut to whole
	// milliseconds. A loader may choose another with [Load.SetTTL]. Required.
	TTL time.Duration

	// NotFoundTTL is for how long [ErrNotFound] is cached. Default: TTL, but
	// not more than a minute.
	NotFoundTTL time.Duration

	// Jitter shortens every TTL by a random part of it up to this fraction, so
	// that values cached together do not expire together. From 0, the default,
	// to below 1.
	Jitter float64

	// Stale is for how long a value that was invalidated may still be returned,
	// marked as stale, to reads that would otherwise wait for the next load, or get
	// [ErrHolderFailed]. It never outlives the TTL that the value had. Default: 0,
	// never.
	Stale time.Duration

	// Lease is how long a load may take to be cached, and how long others wait
	// for a holder that crashed. Default: 5s. At least 1ms.
	Lease time.Duration

	// LoadTimeout is when the context of a load ends. Default: Lease.
	LoadTimeout time.Duration

	// WaitBound is for how long a read waits for a load of another before it
	// loads without a lease. Default: Lease plus one second.
	WaitBound time.Duration

	// PollInterval is the longest time between two looks at the server of a read
	// that waits for another process. The first come sooner. It is 20 times as
	// long while the server wakes the read, which it is asked for when there is
	// CallTimeout left of WaitBound: see
	// [github.com/leasecache/leasecache/driver.Subscriber]. Default: 50ms.
	PollInterval time.Duration

	// ShareReads makes concurrent Gets of one key in this process share reads of
	// the server. A Get joins a read until it is sent, so that no guarantee is
	// weaker for it. It is for keys that are read many times at once; then a Get
	// waits for another's reply before its own is sent, and other keys cost a
	// little more. Default: false.
	ShareReads bool

	// Near, if set, keeps values in this process, so that a hit asks no server. A
	// value is kept after it was read from the server, for no longer than the server
	// does, and dropped by the server's message that it has changed. Invalidate drops
	// it in the caches of this prefix on this Store before it returns; other
	// processes drop it when the message arrives. While the server's messages are
	// lost nothing is kept. It takes one more connection to each primary, and a
	// driver that can: see [github.com/leasecache/leasecache/driver.Tracker]. Package
	// github.com/leasecache/leasecache/near has one, which caches may share.
	// Default: none.
	Near Near

	// MaxLoads limits how many loads of this cache run at a time in this
	// process. Others queue for a place before they take a lease, in no
	// particular order, and look for a value every 20 PollIntervals. Default: 0,
	// no limit.
	MaxLoads int

	// MaxUnleasedLoads limits how many loads without a lease run at a time in
	// this process: those of reads that have waited for WaitBound, or found the
	// server down under [UnavailableLoad]. A read above it gets [ErrOverloaded].
	// Default: 16.
	MaxUnleasedLoads int

	// MaxValueSize is the size in bytes above which an encoded value is
	// returned, but not cached. A larger one that is cached all the same is not
	// decoded, but treated as one that cannot be: it is dropped, and loaded afresh.
	// So caches that share a prefix need the same. Default: 64 MiB. At most 512
	// MiB, which is what a server takes.
	MaxValueSize int

	// OnUnavailable says what a read does when the server does not answer.
	// Default: [UnavailableFail].
	OnUnavailable OnUnavailable

	// OnLeaseLost says what a read gets whose load was not cached because its
	// lease ended first. Default: [LostReturn].
	OnLeaseLost OnLeaseLost

	// DropBackoff is the shortest time between two drops of values of one key
	// that cannot be decoded. Default: 1s.
	DropBackoff time.Duration

	// FailureBackoff is for how long a load that failed keeps other reads of its
	// key from repeating it: they get [ErrHolderFailed] with its error's text, or
	// the stale copy where there is one. After a load whose value was not stored
	// they load at once, each process by itself, as far as MaxUnleasedLoads goes.
	// Invalidate ends it; Refresh goes ahead. The text, up to 256 bytes, is kept
	// on the server for that time: it must not hold what others who may read there
	// should not see. Negative: none, and reads go ahead whatever others have left.
	// Default: 100ms. At least 1ms.
	FailureBackoff time.Duration

	// Codec turns values into bytes. Default: [JSON]; strings and byte slices
	// are stored as they are.
	Codec Codec

	// OnLoad, if set, is called after every load with its timeline, in a goroutine
	// of its own, after the load's readers were answered and before Close returns.
	// It must be safe for concurrent use.
	OnLoad func(LoadEvent)
}

// OnUnavailable is what a read does when the server does not answer.
type OnUnavailable uint8

const (
	// UnavailableFail returns an error that wraps [ErrUnavailable], so that an
	// outage of the cache does not become one of the source.
	UnavailableFail OnUnavailable = iota
	// UnavailableLoad loads without caching, limited by MaxUnleasedLoads.
	UnavailableLoad
)

// OnLeaseLost is what a read gets whose load was not cached because its lease
// ended first: by an invalidation, by its expiry or by eviction.
type OnLeaseLost uint8

const (
	// LostReturn returns what was loaded, marked as uncached. It was current when
	// the load began. Reads that came after that are never given it.
	LostReturn OnLeaseLost = iota
	// LostReread reads again, and loads again if need be, up to three times, and
	// then returns [ErrLeaseLost].
	LostReread
	// LostFail returns [ErrLeaseLost].
	LostFail
)

const (
	defaultLease        = 5 * time.Second
	defaultWaitMargin   = time.Second
	defaultPollInterval = 50 * time.Millisecond
	defaultUnleased     = 16
	defaultValueSize    = 64 << 20
	mostValueSize       = 512 << 20
	defaultNotFoundTTL  = time.Minute
	defaultDropBackoff  = time.Second
	defaultFailBackoff  = 100 * time.Millisecond
	firstPoll           = 2 * time.Millisecond
	maxRereads          = 3
	// queuedPolls is how many poll intervals pass between two looks of a read that
	// queues for a place of MaxLoads.
	queuedPolls = 20
	// maxKeyLoads is how many loads of one key a process runs at most: one that
	// an invalidation has overtaken, and the one after it.
	maxKeyLoads = 2
)

// withDefaults returns o with its defaults filled in, or an error that names
// the field, its value and its bound.
func (o Options) withDefaults() (Options, error) {
	if err := protocol.CheckPrefix(o.Prefix); err != nil {
		return o, err
	}
	if o.TTL == 0 {
		return o, fmt.Errorf("%w: Options.TTL is not set: set for how long values are cached", ErrTTL)
	}
	if err := checkTTL("Options.TTL", o.TTL); err != nil {
		return o, err
	}
	setDefault(&o.NotFoundTTL, min(o.TTL, defaultNotFoundTTL))
	if err := checkTTL("Options.NotFoundTTL", o.NotFoundTTL); err != nil {
		return o, err
	}
	if !(o.Jitter >= 0 && o.Jitter < 1) { // also refuses NaN
		return o, fmt.Errorf("leasecache: Options.Jitter is %v: it must be at least 0 and below 1", o.Jitter)
	}
	setDefault(&o.Lease, defaultLease)
	if err := checkDuration("Options.Lease", o.Lease); err != nil { // others follow from it
		return o, err
	}
	setDefault(&o.LoadTimeout, o.Lease)
	setDefault(&o.WaitBound, min(o.Lease+defaultWaitMargin, mostDuration))
	setDefault(&o.PollInterval, defaultPollInterval)
	setDefault(&o.DropBackoff, defaultDropBackoff)
	setDefault(&o.FailureBackoff, defaultFailBackoff)
	setDefault(&o.MaxUnleasedLoads, defaultUnleased)
	setDefault(&o.MaxValueSize, defaultValueSize)
	if o.Stale != 0 {
		if err := checkDuration("Options.Stale", o.Stale); err != nil {
			return o, err
		}
	}
	if o.FailureBackoff > 0 {
		if err := checkDuration("Options.FailureBackoff", o.FailureBackoff); err != nil {
			return o, err
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Options.LoadTimeout", o.LoadTimeout},
		{"Options.WaitBound", o.WaitBound},
		{"Options.PollInterval", o.PollInterval},
		{"Options.DropBackoff", o.DropBackoff},
	} {
		if err := checkDuration(d.name, d.value); err != nil {
			return o, err
		}
	}
	for _, n := range []struct {
		name              string
		value, low, bound int
	}{
		{"Options.MaxLoads", o.MaxLoads, 0, 1 << 30},
		{"Options.MaxUnleasedLoads", o.MaxUnleasedLoads, 1, 1 << 30},
		{"Options.MaxValueSize", o.MaxValueSize, 1, mostValueSize},
	} {
		if n.value < n.low || n.value > n.bound {
			return o, fmt.Errorf("leasecache: %s is %d: it must be from %d to %d", n.name, n.value, n.low, n.bound)
		}
	}
	if o.OnUnavailable > UnavailableLoad {
		return o, fmt.Errorf("leasecache: Options.OnUnavailable is %d: use UnavailableFail or UnavailableLoad", o.OnUnavailable)
	}
	if o.OnLeaseLost > LostFail {
		return o, fmt.Errorf("leasecache: Options.OnLeaseLost is %d: use LostReturn, LostReread or LostFail", o.OnLeaseLost)
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// mostDuration keeps sums of durations and moments from overflowing.
const mostDuration = 100 * 365 * 24 * time.Hour

func checkTTL(name string, d time.Duration) error {
	if d < time.Millisecond || d > mostDuration {
		return fmt.Errorf("%w: %s is %v: it must be at least 1ms, and at most 100 years", ErrTTL, name, d)
	}
	return nil
}

func checkDuration(name string, d time.Duration) error {
	if d < time.Millisecond || d > mostDuration {
		return fmt.Errorf("leasecache: %s is %v: it must be at least 1ms, and at most 100 years", name, d)
	}
	return nil
}
