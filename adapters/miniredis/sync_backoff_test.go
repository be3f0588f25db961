package miniredis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
)

// fails is a loader that fails after that long.
func fails(err error, after time.Duration) leasecache.Loader[string] {
	return func(context.Context) (string, error) {
		time.Sleep(after)
		return "", err
	}
}

// notStored is a loader of a value that is not to be stored.
func notStored(v string, after time.Duration) leasecache.Loader[string] {
	return func(ctx context.Context) (string, error) {
		leasecache.LoadFrom(ctx).DoNotStore()
		time.Sleep(after)
		return v, nil
	}
}

const (
	processes = 20
	// onePoll is the longest time between two looks of one who waits, and backoff
	// that of a mark, with the defaults.
	onePoll = 50 * time.Millisecond
	backoff = 100 * time.Millisecond
)

// waitElsewhere starts a read in each of many processes other than the one that
// loads.
func (b *bubble) waitElsewhere(load leasecache.Loader[string]) (reads []*call) {
	b.Helper()
	for range processes {
		reads = append(reads, b.goRead(b.cache(leasecache.Options{}).Read, "k", load))
	}
	for _, r := range reads {
		r.wantPending(b)
	}
	return reads
}

func loadsOf(reads []*call) (n int32) {
	for _, r := range reads {
		n += r.loads.Load()
	}
	return n
}

func TestThoseWhoWaitForALoadThatFailsDoNotRepeatItOneAfterAnother(t *testing.T) {
	inBubble(t, func(b *bubble) {
		boom := errors.New("boom")
		c := b.cache(leasecache.Options{})
		leader := b.goRead(c.Read, "k", fails(boom, time.Second))
		reads := b.waitElsewhere(fails(errors.New("wrong"), time.Second))
		b.at(500 * time.Millisecond)
		joined := b.goRead(c.Read, "k", fails(errors.New("wrong"), time.Second))
		b.at(time.Second)
		leader.wantError(b, time.Second, boom)
		b.at(time.Second + onePoll)
		for _, r := range append(reads, joined) {
			r.wantError(b, r.ended(), leasecache.ErrHolderFailed)
			if r.end < time.Second || r.end > time.Second+onePoll || errors.Is(r.err, boom) {
				b.Errorf("a read ended after %v with %v; want one poll after the load at the latest, and the text alone", r.end, r.err)
			}
		}
		// Who comes during the back-off learns of it at once, and does not make it longer.
		b.at(time.Second + backoff - 1)
		late := b.goRead(b.cache(leasecache.Options{}).Read, "k", returns("wrong", 0))
		late.wantError(b, time.Second+backoff-1, leasecache.ErrHolderFailed)
		if n := loadsOf(reads) + joined.loads.Load() + late.loads.Load(); n != 0 {
			b.Errorf("%d loads ran beside the one that failed", n)
		}
		b.at(time.Second + backoff)
		b.goRead(c.Read, "k", returns("v", 0)).want(b, time.Second+backoff, "v", leasecache.Loaded, "")
	})
}

func TestThoseWhoWaitForALoadThatIsNotStoredLoadTogether(t *testing.T) {
	inBubble(t, func(b *bubble) {
		leader := b.goRead(b.cache(leasecache.Options{}).Read, "k", notStored("v", time.Second))
		reads := b.waitElsewhere(notStored("w", time.Second))
		b.at(time.Second)
		leader.want(b, time.Second, "v", leasecache.Loaded, leasecache.NotStored)
		b.at(2*time.Second + onePoll)
		for _, r := range reads {
			r.want(b, r.ended(), "w", leasecache.Loaded, leasecache.HolderNotStored)
			if r.end > 2*time.Second+onePoll {
				b.Errorf("a read ended after %v; want a poll and a load after the first one", r.end)
			}
		}
		// A load without a lease leaves no mark: the next one takes the lease.
		b.goRead(b.cache(leasecache.Options{}).Read, "k", returns("x", 0)).want(b, b.now(), "x", leasecache.Loaded, "")
	})
}

// TestACacheWhoseLoadsAreNotStoredWorksAtAnyLoad has more keys under way than
// there are places for loads without a lease.
func TestACacheWhoseLoadsAreNotStoredWorksAtAnyLoad(t *testing.T) {
	inBubble(t, func(b *bubble) {
		const keys = 50
		c := b.cache(leasecache.Options{MaxUnleasedLoads: 2, FailureBackoff: time.Hour})
		for round := range 3 {
			var reads []*call
			for i := range keys {
				for range 3 {
					reads = append(reads, b.goRead(c.Read, fmt.Sprint("k", i), notStored("v", 10*time.Millisecond)))
				}
			}
			for _, r := range reads {
				<-r.done
				if r.err != nil || r.res.Value != "v" || r.res.Cached() {
					b.Errorf("round %d: a read returned %+v, %v", round, r.res, r.err)
				}
			}
			time.Sleep(time.Second)
		}
		if st := c.Stats(); st.Overloads != 0 || st.UnleasedLoads == 0 || st.Loads == st.UnleasedLoads {
			b.Errorf("%d overloads, %d loads, %d of them without a lease; want no overload, and both kinds of loads", st.Overloads, st.Loads, st.UnleasedLoads)
		}
	})
}

func TestAMarkLivesForFailureBackoff(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, time.Second, time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.cache(leasecache.Options{FailureBackoff: d})
				b.goRead(c.Read, "k", fails(errors.New("boom"), 0))
				b.wantExists("l", "k", true)
				b.at(d.Truncate(time.Millisecond) - 1)
				b.wantExists("l", "k", true)
				b.goRead(c.Read, "k", returns("wrong", 0)).wantError(b, b.now(), leasecache.ErrHolderFailed)
				b.at(d.Truncate(time.Millisecond))
				b.wantExists("l", "k", false)
				b.goRead(c.Read, "k", returns("v", 0)).want(b, b.now(), "v", leasecache.Loaded, "")
			})
		})
	}
}

func TestALoadThatIsCancelledByCloseLeavesNoMark(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{})
		r := b.goRead(c.Read, "k", heeds("wrong", time.Second))
		ctx, cancel := context.WithTimeout(b.Context(), time.Millisecond)
		defer cancel()
		_ = c.Close(ctx)
		r.wantError(b, time.Millisecond, leasecache.ErrClosed)
		b.wantExists("l", "k", false)
	})
}

func TestNoBackoffLeavesNoMark(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.cache(leasecache.Options{FailureBackoff: -1})
		b.goRead(c.Read, "k", fails(errors.New("boom"), 0))
		b.wantExists("l", "k", false)
		b.goRead(c.Read, "k", returns("v", 0)).want(b, 0, "v", leasecache.Loaded, "")
	})
}
