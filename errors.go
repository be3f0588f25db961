package leasecache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

var (
	// ErrNotFound is returned by a loader for a key that the source does not
	// have, as it is or wrapped. The answer is cached for [Options.NotFoundTTL],
	// and reads of the key return ErrNotFound meanwhile.
	ErrNotFound = errors.New("leasecache: not found")

	// ErrKey is returned for a key that is empty or starts with '}'. Every other
	// string of bytes is a key.
	ErrKey = protocol.ErrKey

	// ErrPrefix is returned by [New] for a prefix that contains '{'.
	ErrPrefix = protocol.ErrPrefix

	// ErrTTL is returned for a TTL below a millisecond, in [Options] or chosen
	// by a loader.
	ErrTTL = errors.New("leasecache: invalid TTL")

	// ErrUnavailable is wrapped when the server could not be reached, did not
	// answer in time, or could not serve the call for now (LOADING, CLUSTERDOWN,
	// READONLY and their like). The client's own error is wrapped beside it.
	ErrUnavailable = errors.New("leasecache: server unavailable")

	// ErrOverloaded is returned to a read that has to load without a lease, when
	// the limit on such loads is reached: see [Options.MaxUnleasedLoads].
	ErrOverloaded = errors.New("leasecache: too many loads without a lease; try again later, or raise MaxUnleasedLoads if the source can take more")

	// ErrLeaseLost is returned under [LostFail], and under [LostReread] after the
	// last try, when a load's lease ended before its value was cached.
	ErrLeaseLost = errors.New("leasecache: the lease was lost during the load (invalidated, expired or evicted); what was loaded is not cached")

	// ErrHolderFailed is wrapped when another read's load of the key failed a
	// moment ago, in this process or another: see [Options.FailureBackoff]. The
	// error says what that load's error said, and does not wrap it, because it may
	// come from another process. Those who waited for a load in the process that
	// ran it get its error itself.
	ErrHolderFailed = errors.New("leasecache: another read's load failed a moment ago")

	// ErrLoadTimeout is returned when a load took longer than
	// [Options.LoadTimeout]. It wraps [context.DeadlineExceeded].
	ErrLoadTimeout = fmt.Errorf("leasecache: the load took longer than LoadTimeout: %w", context.DeadlineExceeded)

	// ErrNotLoaded is the error of a key that a [BatchLoader] neither returned nor
	// reported as not found.
	ErrNotLoaded = errors.New("leasecache: the loader did not return this key; use Load.NotFound for one that the source does not have")

	// ErrClosed is returned by calls on a closed [Cache] or [Store].
	ErrClosed = errors.New("leasecache: closed")
)

// errGoexit is what those who waited for a load get when its loader left by
// runtime.Goexit, as testing.T.FailNow does.
var errGoexit = errors.New("leasecache: the loader called runtime.Goexit")

// PanicError is the panic of a loader. The caller whose loader it was panics
// with it; others who waited for that load get it as an error.
type PanicError struct {
	// Value is what the loader panicked with.
	Value any
	// Stack is the stack of the loader's goroutine.
	Stack []byte
}

// Error returns the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("leasecache: the loader panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value that the loader panicked with, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// InvalidateError is returned by [Cache.Invalidate] when the server did not
// confirm all of it.
type InvalidateError struct {
	// Keys are those that may still be cached, in the order they were given.
	// Invalidate them again.
	Keys []string
	// Err is the error of the first of them.
	Err error
}

// Error names the keys, cut where they are many.
func (e *InvalidateError) Error() string {
	return fmt.Sprintf("leasecache: not invalidated, may still be cached: %s: %v", quoteKeys(e.Keys), e.Err)
}

// quoteKeys names keys in a message, cut where they are many.
func quoteKeys(keys []string) string {
	const most = 10
	names := make([]string, 0, most+1)
	for _, key := range keys[:min(len(keys), most)] {
		names = append(names, protocol.Quote(key))
	}
	if more := len(keys) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Unwrap returns the first error.
func (e *InvalidateError) Unwrap() error { return e.Err }

// BatchError is returned by [Cache.GetMany] when it could not read every key.
type BatchError struct {
	// Keys are those that could not be read, in the order they were given, each
	// once.
	Keys []string
	// Errs are their errors.
	Errs map[string]error
}

// Error names the keys, cut where they are many, and tells the error of the first.
func (e *BatchError) Error() string {
	if len(e.Keys) == 0 {
		return "leasecache: not read: no key"
	}
	return fmt.Sprintf("leasecache: not read: %s: %v", quoteKeys(e.Keys), e.Errs[e.Keys[0]])
}

// Unwrap returns the errors of the keys, in their order.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Keys))
	for i, key := range e.Keys {
		errs[i] = e.Errs[key]
	}
	return errs
}

// stepError is the error of a step on the server: what was done to which key,
// what came back, and what to do about it.
type stepError struct {
	step string
	key  string
	err  error
	// unknown is set when the step may have been done all the same, or may be
	// done later.
	unknown bool
	// refusal is the server's last error reply, after which further attempts may
	// have ended without one. It is nil when there was none.
	refusal error
}

func (e *stepError) Error() string {
	msg := fmt.Sprintf("leasecache: %s %s: %v", e.step, protocol.Quote(e.key), e.err)
	if hint := hint(e.err); hint != "" {
		msg += "; " + hint
	}
	return msg
}

func (e *stepError) Unwrap() []error {
	if isUnavailable(e.err) {
		return []error{ErrUnavailable, e.err}
	}
	return []error{e.err}
}

// serverCode returns the code of the server's error reply in err, or "".
func serverCode(err error) string {
	if se, ok := errors.AsType[*driver.ServerError](err); ok {
		return se.Code
	}
	return ""
}

// transient holds the codes with which a server says "not now", having done
// nothing.
var transient = map[string]bool{
	"LOADING": true, "CLUSTERDOWN": true, "TRYAGAIN": true, "MASTERDOWN": true,
	"READONLY": true, "BUSY": true, "NOREPLICAS": true, "MOVED": true, "ASK": true,
	"UNKILLABLE": true, "FAILOVER": true, "REDIRECT": true,
}

// isMigrating reports whether err says that the slot of the keys migrates key by
// key: then scripts with several keys are refused, those with one are not.
func isMigrating(err error) bool {
	code := serverCode(err)
	return code == "TRYAGAIN" || code == "ASK"
}

// isUnavailable reports whether err, the error of a call, says that the server
// cannot be used for now, rather than that the call is wrong.
func isUnavailable(err error) bool {
	if errors.Is(err, protocol.ErrReply) || errors.Is(err, ErrClosed) {
		return false
	}
	switch code := serverCode(err); code {
	case "":
		return true
	case "ERR":
		// What a script writes in a cluster that is down and serves reads is
		// refused without a code of its own.
		text := err.Error()
		return strings.Contains(text, "max number of clients") || strings.Contains(text, "while the cluster is down")
	default:
		return transient[code]
	}
}

// reasonOf returns why a value is not cached when a step failed with err.
func reasonOf(err error) Reason {
	if isUnavailable(err) {
		return ServerDown
	}
	return Refused
}

// hints say what to do about an error reply.
var hints = map[string]string{
	"NOAUTH":      "give the client a user and password",
	"WRONGPASS":   "check the client's user and password",
	"NOPERM":      "grant the user the commands and key patterns that docs/protocol.md lists",
	"WRONGTYPE":   "another program keeps something else under this name: choose a prefix of the cache's own, or Invalidate the key, which deletes it whatever its type",
	"OOM":         "raise the server's maxmemory, or set a maxmemory-policy that evicts",
	"READONLY":    "the client talks to a replica: point it at the primary",
	"REDIRECT":    "the client talks to a replica: point it at the primary",
	"MOVED":       "the server is a cluster: use a cluster client",
	"ASK":         "the server is a cluster: use a cluster client",
	"TRYAGAIN":    "the slot of this key is being migrated: try again later",
	"CROSSSLOT":   "the driver changed the keys: check it with the conformance suite",
	"BUSY":        "a script of another program blocks the server: see SCRIPT KILL",
	"LOADING":     "the server is reading its data from disk: try again later",
	"CLUSTERDOWN": "part of the cluster has no primary: see CLUSTER INFO",
	"MASTERDOWN":  "the replica has lost its primary: point the client at the primary",
	"MISCONF":     "the server cannot write its snapshot: see its log",
}

func hint(err error) string {
	code := serverCode(err)
	if code == "" && errors.Is(err, io.EOF) {
		// Clients that greet the server first may lose what it says to one client
		// too many.
		return "the server closed the connection: it may have restarted, or have reached its maxclients"
	}
	if code == "ERR" {
		text := err.Error()
		switch {
		case strings.Contains(text, "unknown command"):
			return "the server does not know EVAL or EVALSHA, or has them renamed: leasecache needs Redis 7.0 or later, or Valkey"
		case strings.Contains(text, "ACL failure in script"), strings.Contains(text, "can't run this command or subcommand"):
			return hints["NOPERM"]
		case strings.Contains(text, "non deterministic"):
			return "the server is too old: leasecache needs Redis 7.0 or later, or Valkey"
		case strings.Contains(text, "while the cluster is down"):
			return hints["CLUSTERDOWN"]
		case strings.Contains(text, "max number of clients"):
			return "raise the server's maxclients, or make the pools of its clients smaller"
		}
	}
	return hints[code]
}

// recovered turns a panic of something that the service has plugged in into an
// error, because it may happen in a goroutine that serves other callers as well.
// It has to be deferred itself.
func recovered(who string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("leasecache: the %s panicked: %v\n\n%s", who, p, debug.Stack())
	}
}
