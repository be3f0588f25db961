package adaptertest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// patience bounds what is expected to happen.
const patience = 30 * time.Second

// Eventually fails the test if ok does not become true.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// Push is what a subscribed connection receives with RESP2. With RESP3 the first
// byte is > in place of *.
func Push(kind, channel string) string {
	return fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(kind), kind, len(channel), channel)
}

// Confirm is the reply to SSUBSCRIBE and SUNSUBSCRIBE with RESP2, and to all else
// PONG.
func Confirm(args []string) string {
	if len(args) > 1 {
		return Push(strings.ToLower(args[0]), args[1])
	}
	return "+PONG\r\n"
}

// Subscribe returns a subscription of e, and how often it notified.
func Subscribe(t *testing.T, e driver.Evaler) (driver.Subscription, *atomic.Int64) {
	t.Helper()
	var heard atomic.Int64
	sub, err := e.(driver.Subscriber).Subscribe(func(string) { heard.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	return sub, &heard
}

// MustAdd adds a channel.
func MustAdd(t *testing.T, sub driver.Subscription, channel string) {
	t.Helper()
	if err := sub.Add(t.Context(), channel); err != nil {
		t.Fatal(err)
	}
}
