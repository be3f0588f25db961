package protocol

import (
	"crypto/rand"
	_ "embed" // the scripts are files of their own
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/leasecache/leasecache/driver"
)

var (
	//go:embed read.lua
	readSource string
	//go:embed fill.lua
	fillSource string
	//go:embed release.lua
	releaseSource string
	//go:embed invalidate.lua
	invalidateSource string
	//go:embed delete.lua
	deleteSource string
	//go:embed drop.lua
	dropSource string
)

// The scripts, one for each step.
var (
	Read       = driver.NewScript("read", readSource)
	Fill       = driver.NewScript("fill", fillSource)
	Release    = driver.NewScript("release", releaseSource)
	Invalidate = driver.NewScript("invalidate", invalidateSource)
	Delete     = driver.NewScript("delete", deleteSource)
	Drop       = driver.NewScript("drop", dropSource)
)

// Scripts are all of them.
var Scripts = []*driver.Script{Read, Fill, Release, Invalidate, Delete, Drop}

// Call is a script with its keys and arguments, ready to be run, as often as it
// takes: every script may run twice with the same arguments.
type Call struct {
	Script *driver.Script
	Keys   []string
	Args   []string
}

// ErrReply is wrapped when a reply is not of the form that its script returns.
var ErrReply = errors.New("leasecache: unexpected reply")

// Token identifies one acquisition of a lease: 128 random bits in hexadecimal,
// new for every acquisition. The zero Token takes no lease.
type Token string

// NewToken returns a token that has never been used.
func NewToken() Token {
	var b [16]byte
	rand.Read(b[:]) // never fails: see crypto/rand
	return Token(hex.EncodeToString(b[:]))
}

// Lease is what the lease key holds while it is this acquisition's: the token
// and the nonce that the server added when it set it. Without a nonce it is an
// acquisition whose outcome is unknown, which can only be released.
type Lease string

// Unknown returns the lease of a token whose acquisition got no reply.
func (t Token) Unknown() Lease { return Lease(t + ":") }

// ReadOptions are the arguments of the read script beside keys and token.
type ReadOptions struct {
	Lease    time.Duration // how long the lease is set for
	Stale    bool          // return the stale copy to a reader that would wait
	Refresh  bool          // leave the value aside, and a mark
	OverMark bool          // take the lease in place of a mark
}

// ReadCall returns the call of read or lease. With the zero Token it only reads.
func ReadCall(k Keys, t Token, o ReadOptions) Call {
	// One argument for both: with one more, the command would be longer than what a
	// server takes from a client that is not logged in, and the user would be told
	// of a malformed command instead of a missing password.
	aside := "0"
	switch {
	case o.Refresh:
		aside = "1"
	case o.OverMark:
		aside = "2"
	}
	return Call{Read, []string{k.Value, k.Lease, k.Stale}, []string{string(t), millis(o.Lease), flag(o.Stale), aside}}
}

// State is what a read found.
type State int64

// The states that a read can find a key in.
const (
	StateMiss     State = 0 // no value, no lease, and none was asked for
	StateValue    State = 1 // the value
	StateLeased   State = 2 // the lease is the caller's
	StateStale    State = 3 // another holds the lease, and there is a stale copy
	StateWait     State = 4 // another holds the lease
	StateFailed   State = 5 // a load failed a moment ago
	StateUnstored State = 6 // a load was not stored a moment ago
)

// ReadReply is the reply of the read script.
type ReadReply struct {
	State State
	// Value is the stored value (StateValue), or the stale copy (StateStale, and
	// StateLeased with HasStale), as it is stored.
	Value    string
	HasStale bool
	// TTL is how long the server still caches the value, 0 if it has no expiry
	// or less than a millisecond to live.
	TTL time.Duration
	// Lease is what to fill and release with (StateLeased).
	Lease Lease
	// Left is for how long the other's lease is held (StateStale, StateWait), or
	// the mark lives (StateFailed, StateUnstored), 0 if it has no expiry.
	Left time.Duration
	// Text is what the error of the failed load said (StateFailed).
	Text string
}

// ParseRead parses the reply to the read script, called with t.
func ParseRead(r driver.Reply, t Token) (ReadReply, error) {
	state, _ := r.At(0).Int()
	out := ReadReply{State: State(state)}
	ok := r.Kind() == driver.KindList && r.Len() > 0 && r.At(0).Kind() == driver.KindInt
	var okA, okB bool
	switch out.State {
	case StateMiss:
		okA, okB = r.Len() == 1, t == ""
	case StateValue:
		out.Value, okA = r.At(1).Str()
		out.TTL, okB = parseMillis(r.At(2))
		ok = ok && r.Len() == 3
	case StateLeased:
		var nonce string
		nonce, okA = r.At(1).Str()
		out.Lease = Lease(string(t) + ":" + nonce)
		okA = okA && t != "" && nonce != ""
		if okB = r.Len() == 2; !okB {
			out.HasStale = true
			out.Value, okB = r.At(2).Str()
			ok = ok && r.Len() == 3
		}
	case StateStale:
		out.HasStale = true
		out.Left, okA = parseMillis(r.At(1))
		out.Value, okB = r.At(2).Str()
		ok = ok && r.Len() == 3
	case StateWait:
		out.Left, okA = parseMillis(r.At(1))
		okB = r.Len() == 2
	case StateFailed:
		out.Left, okA = parseMillis(r.At(1))
		out.Text, okB = r.At(2).Str()
		out.Text = markText(out.Text)
		ok = ok && r.Len() == 3 && t != ""
	case StateUnstored:
		out.Left, okA = parseMillis(r.At(1))
		okB = r.Len() == 2 && t != ""
	}
	if !ok || !okA || !okB {
		return ReadReply{}, badReply(Read, r)
	}
	return out, nil
}

// FillCall returns the call that caches stored for ttl while l is held.
func FillCall(k Keys, l Lease, stored string, ttl time.Duration) Call {
	return Call{Fill, []string{k.Value, k.Lease, k.Stale}, []string{string(l), stored, millis(ttl), k.Wake}}
}

// Outcome is what a fill did.
type Outcome int64

// The outcomes of a fill.
const (
	Rejected Outcome = 0 // the lease is not the filler's any more
	Accepted Outcome = 1 // cached
	Present  Outcome = 2 // not the filler's any more, but the same bytes are cached
)

// ParseFill parses the reply to the fill script: what it did, and for how long
// the value is cached.
func ParseFill(r driver.Reply) (Outcome, time.Duration, error) {
	n, ok := r.At(0).Int()
	switch Outcome(n) {
	case Rejected:
		if ok && r.Len() == 1 {
			return Rejected, 0, nil
		}
	case Accepted, Present:
		if ttl, ok := parseMillis(r.At(1)); ok && r.Len() == 2 {
			return Outcome(n), ttl, nil
		}
	}
	return Rejected, 0, badReply(Fill, r)
}

// ReleaseCall returns the call that frees l if it is still held. Unless m is
// NoMark, m takes its place for life.
func ReleaseCall(k Keys, l Lease, m Mark, life time.Duration) Call {
	return Call{Release, []string{k.Lease}, []string{string(l), k.Wake, string(m), millis(life)}}
}

// InvalidateCall returns the call that deletes value and lease, and keeps the
// value as the stale copy for window, if that is positive.
func InvalidateCall(k Keys, window time.Duration) Call {
	return Call{Invalidate, []string{k.Value, k.Lease, k.Stale}, []string{millis(window), RecordNotFound, k.Wake}}
}

// DeleteCalls return the calls that delete the lease, and then the value.
func DeleteCalls(k Keys) [2]Call {
	return [2]Call{{Delete, []string{k.Lease}, []string{k.Wake}}, {Delete, []string{k.Value}, []string{""}}}
}

// ParseOne checks the reply of a script that answers 1 when it did its work.
func ParseOne(s *driver.Script, r driver.Reply) error {
	if n, ok := r.Int(); !ok || n != 1 {
		return badReply(s, r)
	}
	return nil
}

// DropCall returns the call that deletes stored, unless one was dropped for
// this key less than backoff ago.
func DropCall(k Keys, stored string, backoff time.Duration) Call {
	return Call{Drop, []string{k.Value, k.Drop}, []string{stored, millis(backoff)}}
}

// ParseDrop parses the reply to the drop script: whether the key may be loaded
// under a lease now, and not if one was dropped a moment ago.
func ParseDrop(r driver.Reply) (again bool, err error) {
	switch n, ok := r.Int(); {
	case ok && (n == 0 || n == 1):
		return true, nil
	case ok && n == 2:
		return false, nil
	}
	return false, badReply(Drop, r)
}

func badReply(s *driver.Script, r driver.Reply) error {
	return fmt.Errorf("%w to script %s: %v; check the driver with the conformance suite", ErrReply, s.Name(), r)
}

// parseMillis reads a duration as PTTL answers it; below 0 means none.
func parseMillis(r driver.Reply) (time.Duration, bool) {
	n, ok := r.Int()
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, 0), most)) * time.Millisecond, ok
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// ParseRelease parses the reply to the release script: whether there was a
// lease to free.
func ParseRelease(r driver.Reply) (freed bool, err error) {
	n, ok := r.Int()
	if !ok || n != 0 && n != 1 {
		return false, badReply(Release, r)
	}
	return n == 1, nil
}
