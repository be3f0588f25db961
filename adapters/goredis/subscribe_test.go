package goredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// subscribe returns a subscription over c, and how often it notified.
func subscribe(t *testing.T, c Client) (driver.Subscription, *atomic.Int64) {
	t.Helper()
	return adaptertest.Subscribe(t, New(c))
}

func TestASubscriptionEndsWhenTheServerHangs(t *testing.T) {
	for _, name := range []string{"ssubscribe", "sunsubscribe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(args []string) string {
				if args[0] == name {
					return hang
				}
				return confirm(args)
			})
			sub, _ := subscribe(t, s.client(t, redis.Options{}))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := sub.Add(ctx, "a")
			if ok := name == "sunsubscribe"; ok != (err == nil) {
				t.Errorf("Add: %v", err)
			}
			sub.Remove("a")
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > tooLong {
				t.Errorf("Add and Close took %v", took)
			}
			if err := sub.Add(t.Context(), "c"); err == nil {
				t.Error("Add after Close returned nil")
			}
		})
	}
}

func TestCloseEndsAnAddWithoutADeadline(t *testing.T) {
	s := serve(t, func(args []string) string {
		if args[0] == "ssubscribe" {
			return hang
		}
		return confirm(args)
	})
	sub, _ := subscribe(t, s.client(t, redis.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // lest the test hangs when it fails
	added := make(chan error, 1)
	go func() { added <- sub.Add(ctx, "a") }()
	eventually(t, "the server is asked", func() bool { return s.Count("ssubscribe") == 1 })
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(tooLong):
		t.Errorf("Close has not returned after %v", tooLong)
	}
	if err := <-added; err == nil {
		t.Error("Add returned nil")
	}
}

func TestAConnectionToWhereASlotWasIsClosed(t *testing.T) {
	old := serve(t, func(args []string) string {
		if args[0] == "ssubscribe" && args[1] == "a" {
			return "-MOVED 1 127.0.0.1:1\r\n"
		}
		return confirm(args)
	}).client(t, redis.Options{})
	owner := serve(t, confirm).client(t, redis.Options{})
	var moved atomic.Bool
	sub, _ := subscribe(t, old)
	s := sub.(*subscription)
	s.route = func(_ context.Context, channel string) (*redis.Client, error) {
		if channel == "b" || !moved.Load() {
			return old, nil
		}
		return owner, nil
	}
	s.reload = func(context.Context) { moved.Store(true) }
	feeds := func() (on []*redis.Client) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Collect(maps.Keys(s.feeds))
	}
	mustAdd(t, sub, "a")
	eventually(t, "there is a connection to the owner alone", func() bool { return slices.Equal(feeds(), []*redis.Client{owner}) })

	moved.Store(false)
	mustAdd(t, sub, "b")
	sub.Remove("a")
	eventually(t, "there is a connection to the other server alone", func() bool { return slices.Equal(feeds(), []*redis.Client{old}) })
	mustAdd(t, sub, "a")
	if n := len(feeds()); n != 2 {
		t.Errorf("there are %d connections, want one for each channel", n)
	}
}

func TestAConnectionForMessagesThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	s := serve(t, func(args []string) string {
		if args[0] == "ping" && hangs.CompareAndSwap(true, false) {
			return hang
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.client(t, redis.Options{}))
	mustAdd(t, sub, "a")
	mustAdd(t, sub, "b")
	hangs.Store(true)
	eventually(t, "both channels are subscribed to again, and said to have missed some", func() bool { return heard.Load() == 2 })
}

func TestAServerThatRefusesToBePingedIsThere(t *testing.T) {
	t.Parallel()
	s := serve(t, func(args []string) string {
		if args[0] == "ping" {
			return "-NOPERM User has no permissions to run the 'ping' command\r\n"
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.client(t, redis.Options{}))
	mustAdd(t, sub, "a")
	eventually(t, "it is asked three times", func() bool { return s.Count("ping") == 3 })
	if n := heard.Load(); n != 0 {
		t.Errorf("it notified %d times; want none, because its connection works", n)
	}
}

func TestAChannelThatIsRefusedIsAnErrorOfItsOwn(t *testing.T) {
	s := serve(t, func(args []string) string {
		if len(args) > 1 && args[1] == "theirs" || args[0] == "sunsubscribe" {
			return "-NOPERM No permissions to access a channel\r\n"
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.client(t, redis.Options{}))
	mustAdd(t, sub, "stays")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			channel := fmt.Sprint(i)
			if err := sub.Add(t.Context(), channel); err != nil {
				t.Error(err)
			}
			sub.Remove(channel) // refused as well
		})
		wg.Go(func() {
			se, ok := errors.AsType[*driver.ServerError](sub.Add(t.Context(), "theirs"))
			if !ok || se.Code != "NOPERM" {
				t.Errorf("got %v; want the server's NOPERM", se)
			}
		})
	}
	wg.Wait()
	if heard.Load() != 0 {
		t.Error("it notified, though no message came")
	}
}

func TestAChannelWhoseSlotMovesIsSubscribedToAgain(t *testing.T) {
	var moved atomic.Bool
	s := serve(t, func(args []string) string {
		if len(args) > 1 && args[1] == "b" && moved.CompareAndSwap(false, true) {
			return push("sunsubscribe", "a") + confirm(args)
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.client(t, redis.Options{}))
	mustAdd(t, sub, "a")
	mustAdd(t, sub, "b")
	eventually(t, "it may have missed some", func() bool { return heard.Load() == 1 && s.Count("ssubscribe") == 3 })
	sub.Remove("a")
	eventually(t, "the server is told of the removal", func() bool { return s.Count("sunsubscribe") == 1 })
	mustAdd(t, sub, "a")
	if n := heard.Load(); n != 1 {
		t.Errorf("it notified %d times; a channel that was removed has not moved", n)
	}
}
