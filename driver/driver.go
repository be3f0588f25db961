// Package driver defines the interfaces that a client of Valkey or Redis
// implements to be used by package leasecache, and the registry in which
// adapters enter themselves. Most code should use package leasecache.
//
// # Writing an adapter
//
//  1. Write a type with one method, [Evaler.Eval]: run this script with these
//     keys and arguments, return the reply in one of four shapes ([Nil], [Int],
//     [Str], [List]). Everything works with that alone.
//  2. Return at once, without sending, when ctx is already done: wrap its error
//     with [NotSent].
//  3. Send EVALSHA with [Script.SHA1]. Only when the server replied with an
//     error whose code is NOSCRIPT, send EVAL with [Script.Source], once. Look
//     at the error's code, not for a word somewhere in its text.
//  4. Turn off the client's own retries for these calls. A client that resends
//     a script whose reply was lost runs it twice. The protocol stays right
//     when it does, but needless loads follow.
//  5. Send every script to the primary. A replica does not know the lease.
//  6. Sort errors into three: the server replied with an error
//     ([ParseServerError]); the command certainly was not sent ([NotSent]);
//     anything else, which means that nobody knows ([CallError]). When in
//     doubt leave it at "anything else": a wrong [ErrNotSent] breaks promises,
//     a missing one costs a little time.
//  7. Add abilities, each an interface of its own in this package, found by
//     type assertion: [Getter], [Bounder], [Batcher], [BatchGetter], [Pinger],
//     [Subscriber], [Tracker], [Closer], [Validator].
//     A wrapper around an Evaler hides those it does not forward.
//  8. Optionally [Register] a [Driver], so that the adapter can be opened by
//     name and DSN and can adopt the client that a service already has.
//  9. Run conformance.Run against real servers. Each rule below is a case with
//     the same name, which prints the rule when it fails.
//
// Strings in, few shapes out: keys and arguments are strings of any bytes,
// because clients format every other type in a way of their own.
package driver

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"time"
)

// Evaler runs scripts on one Valkey or Redis server, or on a cluster of them.
// It is the only interface that a driver has to implement.
//
// An Evaler must be safe for concurrent use by multiple goroutines.
type Evaler interface {
	// Eval runs s once, atomically, and returns its reply.
	//
	// Eval must:
	//   - pass keys and args unchanged, whatever bytes they hold;
	//   - send s at most once, except once more by source after a NOSCRIPT reply;
	//   - send it to the primary that owns the keys;
	//   - return without sending if ctx is already done;
	//   - return when ctx's deadline passes, or implement [Bounder], or accept
	//     that package leasecache spends a goroutine per call to leave in time;
	//   - not keep or change keys and args after it has returned;
	//   - return the reply to this call: one that comes too late is dropped, and
	//     none changes after it was returned;
	//   - leave no goroutine and no connection behind, also after an error;
	//   - report an error reply of the server as a [*ServerError], and nothing
	//     else as one, also when the error is an element of a list;
	//   - wrap [ErrNotSent] only if the command certainly did not reach the server,
	//     and never will;
	//   - return errors that satisfy errors.Is with ctx's error, when ctx ended
	//     the call, and errors.As with the client's own.
	//
	// Any other error means that the outcome is unknown: the script may have
	// run, may run later, or never.
	//
	// All keys share a hash tag, so a cluster finds them on one node. There is
	// always at least one key.
	Eval(ctx context.Context, s *Script, keys, args []string) (Reply, error)
}

// Getter is an optional ability: a plain GET, which costs the server a fifth of
// a script. Without it a hit is answered by a script.
//
// Get returns the value of key; ok is false when there is none. The rules of
// [Evaler.Eval] hold, and one more: the reply comes from the primary. A client
// that sends reads to replicas must not offer this ability. The string that is
// returned must not be shared with anything that may change it.
type Getter interface {
	Get(ctx context.Context, key string) (value string, ok bool, err error)
}

// BytesGetter is an optional ability beside [Getter]: a plain GET whose value the
// caller may change. Without it, package leasecache copies the value of each hit
// of a cache of byte slices.
//
// GetBytes is Get in all else. The client and the driver must not use the bytes
// again, and nothing else may share them.
type BytesGetter interface {
	GetBytes(ctx context.Context, key string) (value []byte, ok bool, err error)
}

// Bounder is an optional ability: calls that end in time without help.
//
// Bound returns an Evaler over the same client, with the same abilities, whose
// calls end by their reply, by their context's deadline, or d after they began,
// whichever comes first, even if the server or the network hangs. They need
// not end when a context is cancelled. d is positive. The driver, and what it
// returned for another d, stay as they were.
//
// Without it, package leasecache runs each call in a goroutine of its own and
// leaves it behind when the time is over.
type Bounder interface {
	Bound(d time.Duration) Evaler
}

// Pinger is an optional ability: a round trip to the server that tells whether
// it answers. Without it a script that does nothing is run.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Subscriber is an optional ability: messages on shard channels (SSUBSCRIBE), by
// which whoever waits for another process learns that it need not wait any
// longer. Without it, package leasecache polls.
//
// Subscribe returns an empty subscription, and need not connect. It calls notify
// with the channel of every message, and with each channel on which messages may
// have been missed, after a reconnect or because its slot has moved. notify
// returns soon, and may be called concurrently. A client that has no connections
// for messages returns an error that wraps errors.ErrUnsupported.
//
// It is for speed alone: a message that never comes costs its waiters some time.
type Subscriber interface {
	Subscribe(notify func(channel string)) (Subscription, error)
}

// Subscription is a set of channels, over at most one connection to each primary
// that has one of them. It reconnects by itself. It is safe for concurrent use.
type Subscription interface {
	// Add returns nil when the server has confirmed that it sends the channel's
	// messages, and otherwise an error by ctx's deadline. Then the channel is not
	// part of the subscription.
	Add(ctx context.Context, channel string) error
	// Remove ends the messages of a channel. It does not wait for the server.
	Remove(channel string)
	// Close ends all, and leaves no goroutine and no connection behind. When the
	// server hangs it may take as long as the client needs to give up.
	Close() error
}

// Closer is an optional ability of what [Driver.Open] returns: it closes the
// client that Open made. An Evaler over a client that was handed in has no
// Closer: who opened a client closes it.
type Closer interface {
	Close() error
}

// Validator is an optional ability: it reports at construction what would make
// every call fail, such as a nil client.
type Validator interface {
	Validate() error
}

// Script is a Lua script. It is immutable and safe for concurrent use.
type Script struct {
	name, source, sha1 string
}

// NewScript returns a script of that source. The name is for messages.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{name: name, source: source, sha1: hex.EncodeToString(sum[:])}
}

// Name returns the name that the script was made with.
func (s *Script) Name() string { return s.name }

// Source returns the Lua source, for EVAL.
func (s *Script) Source() string { return s.source }

// SHA1 returns the digest of the source in lower-case hexadecimal, for EVALSHA.
func (s *Script) SHA1() string { return s.sha1 }

// Invalid returns an Evaler whose every call, and whose [Validator] ability,
// returns err. A constructor that has no error result returns it for a nil or
// unusable client, and leasecache.New then reports err.
func Invalid(err error) Evaler { return invalid{err} }

type invalid struct{ err error }

func (e invalid) Validate() error { return e.err }

func (e invalid) Eval(context.Context, *Script, []string, []string) (Reply, error) {
	return Reply{}, NotSent(e.err)
}
