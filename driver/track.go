package driver

import (
	"context"
	"io"
	"time"
)

// TrackSilence is for how long a primary that is tracked may be silent before
// [Tracker] must take its connection for lost.
const TrackSilence = 3 * time.Second

// Tracker is an optional ability: the server's own messages about keys that have
// changed (CLIENT TRACKING ON BCAST PREFIX). Without it there is no near tier:
// see leasecache.Options.Near.
//
// Track has every primary track the names that begin with prefix, on connections
// of its own, and returns when each has confirmed it, or an error by ctx's
// deadline. ctx bounds Track alone. From when it has returned until Close:
//
//   - changed is called with the names of keys that were written, deleted,
//     evicted, or that the server saw to have expired; with nil when any may have
//     been, as after FLUSHALL. It is called as soon as the message has arrived, and
//     for names with other prefixes not at all. It must not keep the slice.
//   - lost is called when messages may be missed from now on, and before others are
//     lost where that can be known: when a connection broke; when a server has been
//     silent for [TrackSilence], though it was asked; within TrackSilence when a
//     primary has come that is not tracked. It may also stand for changed(nil).
//     Tracking is not resumed: whoever wants it calls Track again.
//
// Both return soon, and may be called concurrently, and before Track has returned.
// Close ends all, leaves no goroutine and no connection behind, and returns when
// neither is called any more; when the server hangs it may take as long as the
// client needs to give up. It is called after lost as well.
//
// A client that has no connections for messages returns an error that wraps
// errors.ErrUnsupported.
//
// Unlike a wake-up, a message that is lost without a call of lost is a fault: a
// value that was invalidated is served until its TTL ends.
type Tracker interface {
	Track(ctx context.Context, prefix string, changed func(names []string), lost func()) (io.Closer, error)
}
