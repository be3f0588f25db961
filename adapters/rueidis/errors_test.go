package rueidis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestErrorsOfACallAreSortedIntoThree(t *testing.T) {
	// An error reply as the client makes it.
	s := serve(t, answer("-WRONGTYPE Operation against a key\r\n"))
	c := s.client(t, rueidis.ClientOption{})
	wrongType := c.Do(t.Context(), c.B().Arbitrary("x").Build()).Error()

	tests := []struct {
		name string
		err  error
		want string // server, not sent or unknown
	}{
		{"error reply that a hook returns", wrongType, "server"},
		{"dial", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, "not sent"},
		{"dial that timed out", &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "not sent"},
		{"no node for the slot", rueidis.ErrNoSlot, "not sent"},
		{"closed client", rueidis.ErrClosing, "unknown"},
		{"end of file", io.EOF, "unknown"},
		{"end in the middle", io.ErrUnexpectedEOF, "unknown"},
		{"read timeout", &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, "unknown"},
		{"write error", &net.OpError{Op: "write", Err: syscall.EPIPE}, "unknown"},
		{"closed connection", net.ErrClosed, "unknown"},
		{"anything else", errors.New("dial is a word"), "unknown"},
	}
	for _, tt := range tests {
		for _, wrapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s wrapped=%v", tt.name, wrapped), func(t *testing.T) {
				cause := tt.err
				if wrapped {
					cause = fmt.Errorf("hook: %w", cause)
				}
				e := full{evaler{client: &mock{builder: c, do: func(context.Context) rueidis.RedisResult {
					return rueidis.NewErrorResult(cause)
				}}}}
				for name, call := range calls(t, e) {
					err := call(t.Context())
					if !errors.Is(err, tt.err) {
						t.Errorf("%s: %v does not wrap the client's own error", name, err)
					}
					se, isServer := errors.AsType[*driver.ServerError](err)
					if isServer != (tt.want == "server") || isServer && se.Code != "WRONGTYPE" {
						t.Errorf("%s: %v is a ServerError: %v", name, err, isServer)
					}
					if got := errors.Is(err, driver.ErrNotSent); got != (tt.want == "not sent") {
						t.Errorf("%s: %v is ErrNotSent: %v", name, err, got)
					}
				}
			})
		}
	}
}

func TestTheCodeOfAnErrorReply(t *testing.T) {
	for reply, want := range map[string][2]string{
		"-WRONGTYPE Operation":           {"WRONGTYPE", "Operation"},
		"-ERR unknown command":           {"ERR", "unknown command"},
		"-ERR NOSCRIPT is a word":        {"ERR", "NOSCRIPT is a word"},
		"-MYCODE":                        {"MYCODE", ""},
		"-no code":                       {"ERR", "no code"},
		"*1\r\n-LEASE in a list":         {"LEASE", "in a list"},
		"*1\r\n*1\r\n-ERR LEASE in ours": {"ERR", "LEASE in ours"},
	} {
		_, err := eval(t.Context(), New(serve(t, answer(reply+"\r\n")).client(t, rueidis.ClientOption{})))
		se, ok := errors.AsType[*driver.ServerError](err)
		if !ok || se.Code != want[0] || se.Message != want[1] || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%q: %#v; want a ServerError with %q", reply, err, want)
		}
		if _, ok := errors.AsType[*rueidis.RedisError](err); !ok {
			t.Errorf("%q: %v does not lead to the client's own error", reply, err)
		}
	}
}

func TestAnErrorAtTheEndOfAContextIsThatContexts(t *testing.T) {
	m := failing(t, nil) // connects, which may take longer than the context lasts
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	m.do = func(ctx context.Context) rueidis.RedisResult {
		<-ctx.Done()
		return rueidis.NewErrorResult(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	}
	_, err := eval(ctx, New(m))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("got %v; want context.DeadlineExceeded and os.ErrDeadlineExceeded, not ErrNotSent", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	m.do = func(context.Context) rueidis.RedisResult {
		cancel()
		return rueidis.NewErrorResult(io.EOF)
	}
	if _, err := eval(ctx, New(m)); !errors.Is(err, context.Canceled) || !errors.Is(err, io.EOF) {
		t.Errorf("got %v; want context.Canceled and io.EOF", err)
	}
}

func TestRepliesAreConvertedToFourShapes(t *testing.T) {
	adaptertest.CheckReplies(t, connect, map[string]string{"_\r\n": "nil"})
}

func TestAReplyOfAnotherTypeIsAnErrorOfUnknownOutcome(t *testing.T) {
	for raw, want := range map[string]string{
		"#t\r\n":             "bool",
		",1.5\r\n":           "float64",
		"%1\r\n+a\r\n:1\r\n": "map",
		"*1\r\n#t\r\n":       "bool",
	} {
		_, err := eval(t.Context(), New(serve(t, answer(raw)).client(t, rueidis.ClientOption{})))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want an error that names the type", raw, err)
		}
		_, isServer := errors.AsType[*driver.ServerError](err)
		if isServer || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%q: %v is not of unknown outcome", raw, err)
		}
	}
}

func TestAnotherCallsContextIsNotTheCallers(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		_, err := eval(t.Context(), New(failing(t, cause)))
		if err == nil || errors.Is(err, cause) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("got %v; want an error that is neither %v nor ErrNotSent", err, cause)
		}
	}
}
