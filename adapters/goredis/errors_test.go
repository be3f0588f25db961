package goredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// serverError is an error as go-redis makes it of an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func TestErrorsOfACallAreSortedIntoThree(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	read := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	tests := []struct {
		name string
		err  error
		want string // server, not sent or unknown
		code string
	}{
		{"error reply", serverError("WRONGTYPE Operation against a key"), "server", "WRONGTYPE"},
		{"error reply without a code", serverError("unknown command"), "server", "ERR"},
		{"NOSCRIPT of another kind", redis.ErrNoScript, "server", "NOSCRIPT"},
		{"reply that mentions a dial", serverError("ERR dial tcp"), "server", "ERR"},
		{"dial", dial, "not sent", ""},
		{"dial that timed out", &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "not sent", ""},
		{"pool timeout", redis.ErrPoolTimeout, "not sent", ""},
		{"pool exhausted", redis.ErrPoolExhausted, "not sent", ""},
		{"closed client", redis.ErrClosed, "not sent", ""},
		{"end of file", io.EOF, "unknown", ""},
		{"end in the middle", io.ErrUnexpectedEOF, "unknown", ""},
		{"read timeout", read, "unknown", ""},
		{"write error", &net.OpError{Op: "write", Err: syscall.EPIPE}, "unknown", ""},
		{"closed connection", net.ErrClosed, "unknown", ""},
		{"deadline", context.DeadlineExceeded, "unknown", ""},
		{"cancelled", context.Canceled, "unknown", ""},
		{"anything else", errors.New("redis: dial is a word"), "unknown", ""},
	}
	for _, tt := range tests {
		for _, wrapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s wrapped=%v", tt.name, wrapped), func(t *testing.T) {
				cause := tt.err
				if wrapped {
					cause = fmt.Errorf("hook: %w", cause)
				}
				e := evaler{client: clientFunc(func(context.Context, redis.Cmder) error { return cause })}
				_, evalErr := eval(t.Context(), e)
				_, _, getErr := e.getString(t.Context(), "k")
				for name, err := range map[string]error{"Eval": evalErr, "Get": getErr} {
					if !errors.Is(err, tt.err) {
						t.Errorf("%s: %v does not wrap the client's own error", name, err)
					}
					se, isServer := errors.AsType[*driver.ServerError](err)
					if isServer != (tt.want == "server") {
						t.Errorf("%s: %v is a ServerError: %v", name, err, isServer)
					}
					if isServer && se.Code != tt.code {
						t.Errorf("%s: code %q, want %q", name, se.Code, tt.code)
					}
					if got := errors.Is(err, driver.ErrNotSent); got != (tt.want == "not sent") {
						t.Errorf("%s: %v is ErrNotSent: %v", name, err, got)
					}
				}
			})
		}
	}
}

func TestAnErrorThatTheClientLeavesInTheCommandCounts(t *testing.T) {
	e := evaler{client: clientFunc(func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(io.EOF)
		return nil
	})}
	if _, err := eval(t.Context(), e); !errors.Is(err, io.EOF) {
		t.Errorf("Eval: %v, want EOF", err)
	}
	if _, _, err := e.getString(t.Context(), "k"); !errors.Is(err, io.EOF) {
		t.Errorf("Get: %v, want EOF", err)
	}
}

func TestANilReplyIsNoErrorEvenWhenAHookWrapsIt(t *testing.T) {
	e := evaler{client: clientFunc(func(context.Context, redis.Cmder) error {
		return fmt.Errorf("hook: %w", redis.Nil)
	})}
	if r, err := eval(t.Context(), e); r.Kind() != driver.KindNil || err != nil {
		t.Errorf("Eval: got %v, %v; want nil", r, err)
	}
	if _, ok, err := e.getString(t.Context(), "k"); ok || err != nil {
		t.Errorf("Get: got %v, %v; want that there is none", ok, err)
	}
}

func TestAMockSetsTheReplyThroughTheCommand(t *testing.T) {
	e := New(clientFunc(func(_ context.Context, cmd redis.Cmder) error {
		cmd.(interface{ SetVal(any) }).SetVal([]any{int64(1), "a", nil})
		return nil
	}))
	r, err := eval(t.Context(), e)
	if got := r.String(); got != "[1, string of 1 bytes, nil]" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAnErrorAtTheEndOfAContextIsThatContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := evaler{client: clientFunc(func(ctx context.Context, _ redis.Cmder) error {
			<-ctx.Done()
			return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
		})}
		_, err := eval(ctx, e)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("got %v; want context.DeadlineExceeded and os.ErrDeadlineExceeded, not ErrNotSent", err)
		}

		ctx, cancel = context.WithCancel(t.Context())
		e.client = clientFunc(func(context.Context, redis.Cmder) error {
			cancel()
			return io.EOF
		})
		if _, err := eval(ctx, e); !errors.Is(err, context.Canceled) || !errors.Is(err, io.EOF) {
			t.Errorf("got %v; want context.Canceled and io.EOF", err)
		}
	})
}

func TestABoundEndsCallsUpToASixteenthEarlyAndNeverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		adaptertest.CheckBound(t, evaler{bound: &bound{d: 16 * time.Second}, client: clientFunc(func(ctx context.Context, _ redis.Cmder) error {
			<-ctx.Done()
			return ctx.Err()
		})})
	})
}
