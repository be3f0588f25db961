package rueidis

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// With RESP3.
func push(kind, channel string) string { return ">" + adaptertest.Push(kind, channel)[1:] }

func confirm(args []string) string {
	if len(args) > 1 {
		return push(strings.ToLower(args[0]), args[1])
	}
	return adaptertest.Confirm(args)
}

// subscribe returns a subscription over c, and how often it notified.
func subscribe(t *testing.T, c Client) (driver.Subscription, *atomic.Int64) {
	t.Helper()
	return adaptertest.Subscribe(t, New(c))
}

func TestEveryChannelIsUnsubscribedFrom(t *testing.T) {
	s := serve(t, confirm)
	sub, _ := subscribe(t, s.client(t, rueidis.ClientOption{}))
	for _, channel := range []string{"a", "b", "c"} {
		mustAdd(t, sub, channel)
	}
	sub.Remove("a")
	eventually(t, "the server is told of the one that is removed", func() bool { return s.Count("SUNSUBSCRIBE") == 1 })
	mustAdd(t, sub, "a")
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if n := s.Count("SUNSUBSCRIBE"); n != 4 {
		t.Errorf("the server was told %d times; want once for each channel that was there", n)
	}
	if err := sub.Add(t.Context(), "d"); err == nil {
		t.Error("Add after Close returned nil")
	}
}

func TestASubscriptionEndsWhenTheServerHangs(t *testing.T) {
	for _, name := range []string{"SSUBSCRIBE", "SUNSUBSCRIBE"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(args []string) string {
				if args[0] == name {
					return hang
				}
				return confirm(args)
			})
			sub, _ := subscribe(t, s.client(t, rueidis.ClientOption{}))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := sub.Add(ctx, "a")
			if ok := name == "SUNSUBSCRIBE"; ok != (err == nil) {
				t.Errorf("Add: %v", err)
			}
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > tooLong {
				t.Errorf("Add and Close took %v", took)
			}
		})
	}
}

func TestAChannelThatIsRefusedIsAnError(t *testing.T) {
	s := serve(t, func(args []string) string {
		if args[0] == "SSUBSCRIBE" && args[1] == "theirs" {
			return "-NOPERM No permissions to access a channel\r\n"
		}
		return confirm(args)
	})
	sub, _ := subscribe(t, s.client(t, rueidis.ClientOption{}))
	se, ok := errors.AsType[*driver.ServerError](sub.Add(t.Context(), "theirs"))
	if !ok || se.Code != "NOPERM" {
		t.Errorf("got %v; want the server's NOPERM", se)
	}
	mustAdd(t, sub, "ours")
	if s.Count("SUNSUBSCRIBE") != 0 {
		t.Error("it unsubscribed from what it never had")
	}
}

func TestAChannelWhoseSlotMovesIsSubscribedToAgain(t *testing.T) {
	var moved atomic.Bool
	s := serve(t, func(args []string) string {
		if args[0] == "PING" && moved.CompareAndSwap(true, false) {
			return push("sunsubscribe", "a") + "+PONG\r\n"
		}
		return confirm(args)
	})
	c := s.client(t, rueidis.ClientOption{})
	sub, heard := subscribe(t, c)
	mustAdd(t, sub, "a")
	moved.Store(true)
	if err := New(c).(driver.Pinger).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it may have missed some", func() bool { return heard.Load() == 1 && s.Count("SSUBSCRIBE") == 2 })
}

func TestAClientWithoutReceiveCannotSubscribe(t *testing.T) {
	m := failing(t, nil)
	if _, err := New(m).(driver.Subscriber).Subscribe(func(string) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v; want errors.ErrUnsupported", err)
	}
}

// receiving is a client whose Receive is ours.
type receiving struct {
	Client
	receive func(ctx context.Context) error
}

func (r receiving) Receive(ctx context.Context, _ rueidis.Completed, _ func(rueidis.PubSubMessage)) error {
	return r.receive(ctx)
}

func TestAPanicOfAHookEndsNoProcess(t *testing.T) {
	c := serve(t, confirm).client(t, rueidis.ClientOption{})
	sub, _ := subscribe(t, receiving{c, func(context.Context) error { panic("a hook of the service") }})
	if err := sub.Add(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "a hook of the service") {
		t.Errorf("got %v; want the panic", err)
	}
}

// A client hands over at most 16 messages of a channel that nobody takes, and then
// reads no reply of others either.
func TestMessagesThatNobodyTakesHoldUpNobody(t *testing.T) {
	s := serve(t, func(args []string) string {
		if args[0] == "SUNSUBSCRIBE" {
			message := strings.Replace(push("smessage", "a"), ":1", "$1\r\nx", 1)
			return strings.Repeat(message, 100) + push("sunsubscribe", "a")
		}
		return confirm(args)
	})
	c := s.client(t, rueidis.ClientOption{})
	sub, _ := subscribe(t, c)
	mustAdd(t, sub, "a")
	began := time.Now()
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= unsubscribeTimeout {
		t.Errorf("Close took %v: the reply to SUNSUBSCRIBE was not read in time", took)
	}
}
