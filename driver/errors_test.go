package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type clientError struct{ text string }

func (e *clientError) Error() string { return e.text }

func TestAnErrorReplyIsSortedIntoCodeAndMessage(t *testing.T) {
	for _, test := range []struct{ name, text, code, message, print string }{
		{"code and message", "WRONGTYPE Operation against a key", "WRONGTYPE", "Operation against a key", "WRONGTYPE Operation against a key"},
		{"as on the wire", "-ERR unknown command 'X'", "ERR", "unknown command 'X'", "ERR unknown command 'X'"},
		{"code alone", "LOADING", "LOADING", "", "LOADING"},
		{"code with digits", "E2BIG too much", "E2BIG", "too much", "E2BIG too much"},
		{"code with a dash", "MY-CODE text", "MY-CODE", "text", "MY-CODE text"},
		{"code with an underscore", "MY_CODE text", "MY_CODE", "text", "MY_CODE text"},
		{"redirection", "MOVED 3999 127.0.0.1:6381", "MOVED", "3999 127.0.0.1:6381", "MOVED 3999 127.0.0.1:6381"},
		{"client that strips ERR", "unknown command 'X'", "ERR", "unknown command 'X'", "ERR unknown command 'X'"},
		{"first word in mixed case", "Error compiling script", "ERR", "Error compiling script", "ERR Error compiling script"},
		{"code in lower case", "oom command not allowed", "ERR", "oom command not allowed", "ERR oom command not allowed"},
		{"first word with a colon", "NOSCRIPT: none", "ERR", "NOSCRIPT: none", "ERR NOSCRIPT: none"},
		{"code not at the start", "while running: NOSCRIPT none", "ERR", "while running: NOSCRIPT none", "ERR while running: NOSCRIPT none"},
		{"first byte a digit", "42 is too much", "ERR", "42 is too much", "ERR 42 is too much"},
		{"first byte a dash", "--ERR text", "ERR", "-ERR text", "ERR -ERR text"},
		{"two spaces", "ERR  text", "ERR", " text", "ERR  text"},
		{"other white space", "CODE\ttext", "ERR", "CODE\ttext", "ERR CODE\ttext"},
		{"bytes that are no text", "\xff\xfe", "ERR", "\xff\xfe", "ERR \xff\xfe"},
		{"letter that is not of ASCII", "ÉRR text", "ERR", "ÉRR text", "ERR ÉRR text"},
		{"nothing", "", "ERR", "", "ERR"},
		{"a space", " ", "ERR", " ", "ERR  "},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := &clientError{test.text}
			e := ParseServerError(test.text, client)
			if e.Code != test.code || e.Message != test.message || e.Error() != test.print {
				t.Errorf("ParseServerError(%q) = code %q, message %q, printed %q", test.text, e.Code, e.Message, e.Error())
			}
			if got, ok := errors.AsType[*clientError](e); !ok || got != client {
				t.Error("the client's own error cannot be reached")
			}
		})
	}
}

func TestAServerErrorNeedsNoClientError(t *testing.T) {
	e := ParseServerError("ERR text", nil)
	if errors.Unwrap(e) != nil || errors.Is(e, io.EOF) || errors.Is(e, ErrNotSent) {
		t.Errorf("%v wraps something", e)
	}
	wrapped := fmt.Errorf("wrapped: %w", e)
	if got, ok := errors.AsType[*ServerError](wrapped); !ok || got != e {
		t.Error("a ServerError that was wrapped cannot be reached")
	}
}

// TestNoArgumentsOfACommandArePrinted is about servers that repeat what they do not
// know: a password when AUTH was renamed, a value when EVALSHA was.
func TestNoArgumentsOfACommandArePrinted(t *testing.T) {
	const reply = "ERR unknown command 'AUTH', with args beginning with: 'user' 's3cret' "
	client := &clientError{reply}
	for name, err := range map[string]error{
		"ServerError": ParseServerError(reply, client),
		"NotSent":     NotSent(client),
		"CallError":   CallError(t.Context(), fmt.Errorf("dial: %w", client)),
		"both":        NotSent(CallError(t.Context(), client)),
	} {
		if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, "s3cret") || !strings.Contains(text, "unknown command 'AUTH'") {
			t.Errorf("%s prints %q", name, text)
		}
		if got, ok := errors.AsType[*clientError](err); !ok || got != client {
			t.Errorf("%s: the client's own error cannot be reached", name)
		}
	}
}

func FuzzParseServerError(f *testing.F) {
	for _, seed := range []string{"", " ", "-", "ERR x", "-ERR x", "MOVED 1 h:1", "x", "É", "A", "A "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := ParseServerError(text, nil)
		if !isCode(e.Code) {
			t.Errorf("the code of %q is %q", text, e.Code)
		}
		again := ParseServerError(e.Error(), nil)
		if again.Code != e.Code || again.Message != e.Message {
			t.Errorf("%q is %q, %q; printed and parsed again it is %q, %q", text, e.Code, e.Message, again.Code, again.Message)
		}
	})
}

func TestNotSentWrapsBothErrNotSentAndItsCause(t *testing.T) {
	cause := &clientError{"pool timeout"}
	err := fmt.Errorf("wrapped: %w", NotSent(cause))
	if !errors.Is(err, ErrNotSent) {
		t.Error("it is not ErrNotSent")
	}
	if got, ok := errors.AsType[*clientError](err); !ok || got != cause {
		t.Error("the client's own error cannot be reached")
	}
	if want := "wrapped: not sent: pool timeout"; err.Error() != want {
		t.Errorf("it prints %q, want %q", err, want)
	}
	if errors.Is(cause, ErrNotSent) {
		t.Error("every error is ErrNotSent")
	}
}

type timeout struct{ error }

func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// netTimeout is how a client reports a passed deadline of a connection.
var netTimeout error = &net.OpError{Op: "read", Net: "tcp", Err: timeout{errors.New("i/o timeout")}}

func TestACallErrorSatisfiesItsContextsError(t *testing.T) {
	broken := &clientError{"connection reset"}
	for _, test := range []struct {
		name string
		err  error
		// The context's deadline, from now; 0 is none. The call ends after took.
		deadline, took time.Duration
		cancel         bool
		want           error // of the context; nil if the call's error is returned as it is
	}{
		{name: "a context that goes on", err: broken},
		{name: "a context with time left", err: broken, deadline: time.Minute, took: time.Second},
		{name: "a timeout of the client's own", err: netTimeout, deadline: time.Minute, took: time.Second},
		{name: "a timeout without a deadline", err: netTimeout},
		{name: "a cancelled context", err: broken, cancel: true, want: context.Canceled},
		{name: "a passed deadline", err: broken, deadline: time.Second, took: time.Second, want: context.DeadlineExceeded},
		{name: "a passed deadline, as a network timeout", err: netTimeout, deadline: time.Second, took: time.Second, want: context.DeadlineExceeded},
		{name: "a timer that runs ahead, as a network timeout", err: netTimeout, deadline: time.Second, took: time.Second - time.Millisecond, want: context.DeadlineExceeded},
		{name: "a timer that runs ahead, as os.ErrDeadlineExceeded", err: os.ErrDeadlineExceeded, deadline: time.Second, took: time.Second - time.Millisecond, want: context.DeadlineExceeded},
		{name: "a timer that runs far ahead", err: netTimeout, deadline: time.Second, took: time.Second - 2*time.Millisecond},
		{name: "an error just before the deadline", err: broken, deadline: time.Second, took: time.Second - time.Millisecond},
		{name: "an error that the server replied with", err: ParseServerError("BUSY later", broken), cancel: true},
		{name: "an error that says so already", err: context.DeadlineExceeded, deadline: time.Second, took: time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.deadline > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, test.deadline)
					defer stop()
				}
				time.Sleep(test.took)
				synctest.Wait()
				if test.cancel {
					cancel()
				}
				err := CallError(ctx, test.err)
				if !errors.Is(err, test.err) {
					t.Errorf("the error is %v, want it to wrap the client's %v", err, test.err)
				}
				for _, of := range []error{context.Canceled, context.DeadlineExceeded} {
					if want := errors.Is(test.want, of) || errors.Is(test.err, of); errors.Is(err, of) != want {
						t.Errorf("the error is %v; errors.Is with %v is %v, want %v", err, of, !want, want)
					}
				}
				if (test.want == nil || errors.Is(test.err, test.want)) && err != test.err { //nolint:errorlint // the very same
					t.Errorf("the error is %v, want it unchanged", err)
				}
				if errors.Is(err, ErrNotSent) {
					t.Errorf("the error is %v, a call error that is ErrNotSent", err)
				}
			})
		})
	}
}

func TestNoErrorIsNoCallError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CallError(ctx, nil); err != nil {
		t.Errorf("CallError of nil = %v", err)
	}
}
