package glide

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestErrorsOfACallAreTheServersOrUnknown(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want string // server or unknown
	}{
		{"error reply", errors.New("An error was signalled by the server: - ResponseError: no"), "server"},
		{"error reply with a code that glide does not know", errors.New("OOM: command not allowed"), "server"},
		{"timeout", glide.NewTimeoutError("timed out"), "unknown"},
		{"disconnect", glide.NewDisconnectError("Received connection error"), "unknown"},
		{"closed client", glide.NewClosingError("the client is closed"), "unknown"},
		{"error of a cluster client", errors.New("FatalReceiveError: channel closed"), "unknown"},
		{"another of those", errors.New("BrokenPipe: Cluster: failed"), "unknown"},
		{"queue that is full", errors.New("Reached maximum inflight requests- ClientError"), "unknown"},
		{"anything else", errors.New("an error was signalled"), "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"EVALSHA", "GET", "PING"} {
				err := calls(t, New(failing(tt.err)))[name](t.Context())
				if !errors.Is(err, tt.err) {
					t.Errorf("%s: %v does not wrap the client's own error", name, err)
				}
				if _, isServer := errors.AsType[*driver.ServerError](err); isServer != (tt.want == "server") {
					t.Errorf("%s: %v is a ServerError: %v", name, err, isServer)
				}
				if errors.Is(err, driver.ErrNotSent) {
					t.Errorf("%s: %v is ErrNotSent", name, err)
				}
			}
		})
	}
}

func TestTheCodeOfAnErrorReply(t *testing.T) {
	tests := map[string][2]string{
		"-ERR unknown command":           {"ERR", "unknown command"},
		"-ERR NOSCRIPT: is a word":       {"ERR", "NOSCRIPT: is a word"},
		"-ERR Moved: is a word":          {"ERR", "Moved: is a word"},
		"-MYCODE some: words":            {"MYCODE", "some: words"},
		"-MY_CODE-2 x":                   {"MY_CODE-2", "x"},
		"*1\r\n-LEASE in a list":         {"LEASE", "in a list"},
		"*1\r\n*1\r\n-ERR LEASE in ours": {"ERR", "LEASE in ours"},
		"*1\r\n-NOPERM in a list":        {"NOPERM", "in a list"},
	}
	for _, code := range []string{
		"EXECABORT", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "MASTERDOWN", "READONLY", "NOTBUSY", "NOPERM",
		"NOAUTH", "WRONGPASS", "WRONGTYPE", "OOM", "BUSY", "MISCONF", "NOREPLICAS", "UNKILLABLE",
	} {
		tests["-"+code+" a: b"] = [2]string{code, "a: b"}
	}
	for text, want := range tests {
		for kind, c := range both(t, answer(text+"\r\n")) {
			_, err := eval(t.Context(), c.e)
			se, ok := errors.AsType[*driver.ServerError](err)
			if !ok || se.Code != want[0] || se.Message != want[1] || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%s: %q: %#v; want a ServerError with %q", kind, text, err, want)
			}
			if se != nil && se.Unwrap() == nil {
				t.Errorf("%s: %q: %v does not lead to the client's own error", kind, text, err)
			}
			if n := c.s.Count("EVALSHA"); n != 1 {
				t.Errorf("%s: %q: EVALSHA was sent %d times, want once", kind, text, n)
			}
		}
	}
	// These a client for a cluster follows.
	for _, code := range []string{"MOVED", "ASK"} {
		_, err := eval(t.Context(), New(serve(t, answer("-"+code+" 1 h:1\r\n")).client(t)))
		if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != code {
			t.Errorf("%s: %v; want a ServerError with that code", code, err)
		}
	}
}

func TestAnErrorAtTheEndOfAContextIsThatContexts(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	defer cancel()
	passed, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: passed} {
		m := &mock{do: func(context.Context, pipeline.StandaloneBatchOptions) ([]any, error) {
			if errors.Is(want, context.Canceled) {
				cancel()
			}
			<-ctx.Done()
			return nil, glide.NewTimeoutError("timed out")
		}}
		_, err := eval(ctx, New(m))
		_, isTimeout := errors.AsType[*glide.TimeoutError](err)
		if !isTimeout || !errors.Is(err, want) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("got %v; want %v and a *glide.TimeoutError, not ErrNotSent", err, want)
		}
	}
}

func TestRepliesAreConvertedToFourShapes(t *testing.T) {
	checkBoth(t, func(t *testing.T, connect adaptertest.Connect) {
		adaptertest.CheckReplies(t, connect, map[string]string{"_\r\n": "nil"})
	})
}

func TestAReplyOfAnotherTypeIsAnErrorOfUnknownOutcome(t *testing.T) {
	for raw, want := range map[string]string{
		"#t\r\n":             "bool",
		",1.5\r\n":           "float64",
		"%1\r\n+a\r\n:1\r\n": "map",
		"*1\r\n#t\r\n":       "bool",
		"-no code\r\n":       "no: code",
		"*1\r\n-no code\r\n": "no: code",
	} {
		_, err := eval(t.Context(), New(serve(t, answer(raw)).client(t)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want an error with %q", raw, err, want)
		}
		_, isServer := errors.AsType[*driver.ServerError](err)
		if isServer || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%q: %v is not of unknown outcome", raw, err)
		}
	}
	for _, replies := range [][]any{nil, {}, {int64(1), int64(2)}} {
		m := &mock{do: func(context.Context, pipeline.StandaloneBatchOptions) ([]any, error) { return replies, nil }}
		_, err := eval(t.Context(), New(m))
		if want := fmt.Sprintf("%d replies", len(replies)); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%v; want an error of unknown outcome with %q", err, want)
		}
	}
}
