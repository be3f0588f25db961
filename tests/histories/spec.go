package histories

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Kind is a kind of operation.
type Kind byte

// The kinds of operations.
const (
	Read       Kind = 'R' // returned a version
	StaleRead  Kind = 'S' // returned a version, marked as stale
	NearRead   Kind = 'N' // returned a version, in a process that keeps values itself
	Write      Kind = 'W' // made a version at the source
	Invalidate Kind = 'I' // returned nil, or what it did is not known
)

// An Operation is something that a process did to one key, from a call to a return.
type Operation struct {
	Kind    Kind
	Key     string
	Process int // which of the processes; the source is one too
	// Version is what was read or written. For an invalidation [prepare] finds it: what the source certainly had when it was
	// called, and thus what nobody may go below who reads after it has returned.
	Version int64
	// Call and Return are nanoseconds on the machine's monotonic clock, which all processes share.
	Call, Return int64
}

// unknown is the return of an operation that may have happened, may happen later, or never.
const unknown = math.MaxInt64

// state is a key: what version the source has, and what reads may not go below.
type state struct{ version, floor int64 }

// spec is what a cache of one key may do. A read returns a version that the source has, and none that was superseded by an
// invalidation which had returned nil before the read began. Where an operation takes place between its call and its return is
// for porcupine to find.
var spec = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		s, o := before.(state), input.(Operation)
		switch o.Kind {
		case Write:
			return o.Version == s.version+1, state{o.Version, s.floor}
		case Invalidate:
			return true, state{s.version, max(s.floor, o.Version)}
		case StaleRead, NearRead: // for how long, checkStale looks at; others' invalidations reach a near tier by message
			return o.Version <= s.version, s
		default:
			return s.floor <= o.Version && o.Version <= s.version, s
		}
	},
	DescribeOperation: func(input, _ any) string {
		switch o := input.(Operation); o.Kind {
		case Write:
			return fmt.Sprint("write ", o.Version)
		case Invalidate:
			return fmt.Sprint("invalidate below ", o.Version)
		case StaleRead:
			return fmt.Sprint("stale ", o.Version)
		case NearRead:
			return fmt.Sprint("near ", o.Version)
		default:
			return fmt.Sprint("read ", o.Version)
		}
	},
	DescribeState: func(s any) string { return fmt.Sprintf("%+v", s) },
}

// A Violation is a key whose history cannot be.
type Violation struct {
	Key  string
	Why  string
	info *porcupine.LinearizationInfo // nil if there is nothing to draw
}

// Draw writes a picture of the history to a file of HTML. It returns false if there is none.
func (v Violation) Draw(file string) (bool, error) {
	if v.info == nil {
		return false, nil
	}
	return true, porcupine.VisualizePath(spec, *v.info, file)
}

// prepare makes of what was recorded of a key what [spec] is about.
//
// An invalidation whose outcome is unknown may have happened, or may happen at any later time, or never. A history in which
// it is left out allows all that one with it does, so it is left out. One that returned nil promises something to those who
// begin to read after that, and so takes place when it returns: nothing that is read before can be held against it.
func prepare(recorded []Operation) []Operation {
	var history, writes []Operation
	for _, o := range recorded {
		if o.Kind == Write {
			writes = append(writes, o)
		}
	}
	slices.SortFunc(writes, func(a, b Operation) int { return cmp.Compare(a.Version, b.Version) })
	for _, o := range recorded {
		if o.Kind == Invalidate {
			if o.Return == unknown {
				continue
			}
			n, _ := slices.BinarySearchFunc(writes, o.Call, func(w Operation, call int64) int { return cmp.Compare(w.Return, call) })
			o.Version = int64(n) // they are numbered from 1
			o.Call = o.Return - 1
		}
		history = append(history, o)
	}
	return history
}

// checkKey checks what was recorded of one key. stale is for how long copies may be served. A search that takes longer than
// limit is a violation too: nothing was shown.
func checkKey(key string, recorded []Operation, stale, limit time.Duration) *Violation {
	if why := checkStale(recorded, stale); why != "" {
		return &Violation{Key: key, Why: why}
	}
	history := prepare(recorded)
	ops := make([]porcupine.Operation, len(history))
	for i, o := range history {
		ops[i] = porcupine.Operation{ClientId: o.Process, Input: o, Call: o.Call, Return: o.Return}
	}
	result := porcupine.CheckOperationsTimeout(spec, ops, limit)
	if result == porcupine.Ok {
		return nil
	}
	// The picture costs more than the check, and most keys need none.
	_, info := porcupine.CheckOperationsVerbose(spec, ops, limit)
	v := &Violation{Key: key, Why: "no order of its operations explains what was read", info: &info}
	if result == porcupine.Unknown {
		v.Why = fmt.Sprintf("no order of its operations was found in %v", limit)
	}
	return v
}

// serverTick is how exact servers are about the end of a key: they count whole milliseconds, and keep it to the end of its last.
const serverTick = 2 * time.Millisecond

// checkStale says what is wrong with reads that are marked as stale: a copy may be served for the time that Options.Stale
// says, counted from the invalidation that made it one. A later invalidation does not make it younger.
func checkStale(history []Operation, stale time.Duration) string {
	written := map[int64]int64{} // when a version was certainly there
	var invalidations []Operation
	for _, o := range history {
		switch {
		case o.Kind == Write:
			written[o.Version] = o.Return
		case o.Kind == Invalidate && o.Return != unknown:
			invalidations = append(invalidations, o)
		}
	}
	slices.SortFunc(invalidations, func(a, b Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, o := range history {
		if o.Kind != StaleRead {
			continue
		}
		next, ok := written[o.Version+1]
		if !ok {
			continue
		}
		i := slices.IndexFunc(invalidations, func(i Operation) bool { return i.Call >= next })
		if i >= 0 && o.Call > invalidations[i].Return+int64(stale+serverTick) {
			return fmt.Sprintf("version %d was read as stale %v after it was invalidated", o.Version,
				time.Duration(o.Call-invalidations[i].Return))
		}
	}
	return ""
}
