package redigo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// tooLong is far above the times that these tests wait for.
const tooLong = 5 * time.Second

// subscribe returns a subscription over c, and how often it notified.
func subscribe(t *testing.T, c Client) (driver.Subscription, *atomic.Int64) {
	t.Helper()
	return adaptertest.Subscribe(t, New(c))
}

func mustClose(t *testing.T, sub driver.Subscription) {
	t.Helper()
	began := time.Now()
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > tooLong {
		t.Errorf("Close took %v", took)
	}
}

func TestThePoolNeverGetsASubscribedConnectionBack(t *testing.T) {
	s := serve(t, confirm)
	p := s.pool(t)
	sub, _ := subscribe(t, p)
	mustAdd(t, sub, "a")
	mustAdd(t, sub, "b")
	if stats := p.Stats(); stats.ActiveCount != 1 || stats.IdleCount != 0 {
		t.Errorf("%+v; want one connection in use", stats)
	}
	mustClose(t, sub)
	if stats := p.Stats(); stats.ActiveCount != 0 {
		t.Errorf("%+v after Close; want no connection", stats)
	}
	if err := sub.Add(t.Context(), "c"); err == nil {
		t.Error("Add after Close returned nil")
	}
}

func TestAConnectionThatHasOnlySomeOfTheChannelsIsClosed(t *testing.T) {
	t.Parallel()
	var cuts, refuses atomic.Bool
	s := serve(t, func(args []string) string {
		switch {
		case args[0] == "PING" && cuts.CompareAndSwap(true, false):
			refuses.Store(true)
			return cut
		case len(args) > 1 && args[1] == "b" && refuses.CompareAndSwap(true, false):
			return "-LOADING the server is loading\r\n"
		}
		return confirm(args)
	})
	p := s.pool(t)
	p.TestOnBorrow = func(redis.Conn, time.Time) error {
		t.Error("the pool had one")
		return nil
	}
	sub, heard := subscribe(t, p)
	mustAdd(t, sub, "a")
	mustAdd(t, sub, "b")
	cuts.Store(true)
	eventually(t, "both channels are there again", func() bool { return heard.Load() >= 2 && s.Count("SSUBSCRIBE") >= 6 })
}

func TestASubscriptionEndsWhenTheServerHangs(t *testing.T) {
	for _, name := range []string{"PING", "SSUBSCRIBE", "SUNSUBSCRIBE"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(args []string) string {
				if args[0] == name {
					return hang
				}
				return confirm(args)
			})
			p := s.pool(t)
			sub, _ := subscribe(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := sub.Add(ctx, "a")
			if ok := name == "SUNSUBSCRIBE"; ok != (err == nil) {
				t.Errorf("Add: %v", err)
			}
			if took := time.Since(began); took > tooLong {
				t.Errorf("Add took %v", took)
			}
			sub.Remove("a")
			mustClose(t, sub)
			eventually(t, "the pool has no connection any more", func() bool { return p.ActiveCount() == 0 })
		})
	}
}

func TestAConnectionForMessagesThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	s := serve(t, func(args []string) string {
		if args[0] == "PING" && hangs.CompareAndSwap(true, false) {
			return hang
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.pool(t))
	mustAdd(t, sub, "a")
	mustAdd(t, sub, "b")
	hangs.Store(true)
	eventually(t, "both channels are subscribed to again, and said to have missed some", func() bool {
		return heard.Load() == 2 && s.Count("SSUBSCRIBE") == 4
	})
}

func TestAServerThatHangsIsNotAskedMoreOftenAfterwards(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	s := serve(t, func(args []string) string {
		if args[0] == "PING" && hangs.CompareAndSwap(true, false) {
			return hang
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.pool(t))
	mustAdd(t, sub, "a")
	hangs.Store(true)
	eventually(t, "it is subscribed to again", func() bool { return heard.Load() == 1 })
	mustClose(t, sub)
	if ping := sub.(*subscription).ping; ping != firstPing {
		t.Errorf("it asks every %v; want every %v, because the connection's read timeout is no shorter", ping, firstPing)
	}
}

func TestAShortReadTimeoutIsOutpaced(t *testing.T) {
	t.Parallel()
	s := serve(t, confirm)
	p := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", s.Addr, redis.DialReadTimeout(400*time.Millisecond))
	}}
	t.Cleanup(func() { p.Close() })
	sub, _ := subscribe(t, p)
	mustAdd(t, sub, "a")
	eventually(t, "a connection lasts", func() bool {
		subscribed, pings := s.Count("SSUBSCRIBE"), s.Count("PING")
		eventually(t, "it is asked ten times", func() bool {
			return s.Count("PING") >= pings+10 || s.Count("SSUBSCRIBE") != subscribed
		})
		return s.Count("SSUBSCRIBE") == subscribed
	})
}

func TestAStaleConnectionOfThePoolIsPassedOver(t *testing.T) {
	var cuts atomic.Bool
	s := serve(t, func(args []string) string {
		if args[0] == "PING" && cuts.CompareAndSwap(true, false) {
			return cut
		}
		return confirm(args)
	})
	p := s.pool(t)
	c, err := p.GetContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close() // from now on it is idle
	cuts.Store(true)
	sub, _ := subscribe(t, p)
	mustAdd(t, sub, "a")
}

func TestAChannelThatIsRefusedIsAnErrorOfItsOwn(t *testing.T) {
	const noperm = "NOPERM No permissions to access a channel"
	s := serve(t, func(args []string) string {
		if len(args) > 1 && args[1] == "theirs" {
			return "-" + noperm + "\r\n"
		}
		return confirm(args)
	})
	sub, heard := subscribe(t, s.pool(t))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := sub.Add(t.Context(), fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
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

func TestWakeUpsNeedASecondConnection(t *testing.T) {
	s := serve(t, confirm)
	p := s.pool(t)
	p.MaxActive = 1
	if _, err := New(p).(driver.Subscriber).Subscribe(nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a pool of one connection: %v; want errors.ErrUnsupported", err)
	}
	p.MaxActive, p.Wait = 2, true
	sub, _ := subscribe(t, p)
	mustAdd(t, sub, "a")
	if c, err := p.GetContext(t.Context()); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}
