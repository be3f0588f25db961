package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// ErrNotSent is wrapped by a driver's error to signal that the command
// certainly did not reach the server: the context was done before the call, no
// connection could be had, the client was closed.
//
// To prevent a promise from being broken, ErrNotSent must NOT be wrapped if
// there is a possibility that the server has run the command, or will. Even if
// the connection broke, an error after the first byte was written is not
// ErrNotSent: replies get lost on their way back, and a request may lie in a
// buffer for longer than its caller waits.
//
// Errors are checked using [errors.Is]. [NotSent] wraps it.
var ErrNotSent = errors.New("leasecache/driver: not sent")

// NotSent returns an error that wraps both [ErrNotSent] and err.
func NotSent(err error) error {
	return &notSent{err}
}

type notSent struct{ err error }

func (e *notSent) Error() string   { return "not sent: " + withoutArguments(e.err.Error()) }
func (e *notSent) Unwrap() []error { return []error{ErrNotSent, e.err} }

// ServerError is an error that the server replied with.
type ServerError struct {
	// Code is the first word of the reply, such as "ERR", "NOSCRIPT" or
	// "WRONGTYPE".
	Code string
	// Message is the rest, but for the arguments of a command that the server does
	// not know, which it repeats: they may be a password, or a value.
	Message string

	err error
}

// ParseServerError sorts the text of an error reply into code and message. A
// text without a code word (clients strip "ERR ") has the code ERR. client is
// the client's own error, which stays reachable by [errors.As]; it may be nil.
func ParseServerError(text string, client error) *ServerError {
	text = withoutArguments(strings.TrimPrefix(text, "-"))
	code, message, _ := strings.Cut(text, " ")
	if !isCode(code) {
		code, message = "ERR", text
	}
	return &ServerError{Code: code, Message: message, err: client}
}

// isCode reports whether s looks like the code of an error reply: capital
// letters, then capitals, digits, underscores or dashes.
func isCode(s string) bool {
	for i, c := range []byte(s) {
		upper := c >= 'A' && c <= 'Z'
		if !upper && (i == 0 || !strings.ContainsRune("0123456789_-", rune(c))) {
			return false
		}
	}
	return s != ""
}

// withoutArguments cuts a text where a server begins to repeat the arguments of a
// command that it does not know.
func withoutArguments(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with:")
	return text
}

// quiet is an error whose text is cut so.
type quiet struct{ err error }

func (e *quiet) Error() string { return withoutArguments(e.err.Error()) }
func (e *quiet) Unwrap() error { return e.err }

// quieted returns err, as a quiet one if need be.
func quieted(err error) error {
	if text := err.Error(); withoutArguments(text) != text {
		return &quiet{err}
	}
	return err
}

// Error returns code and message.
func (e *ServerError) Error() string {
	if e.Message == "" {
		return e.Code
	}
	return e.Code + " " + e.Message
}

// Unwrap returns the client's own error, which may be nil.
func (e *ServerError) Unwrap() error { return e.err }

// CallError returns err, the error of a call that may have been sent, so that
// it satisfies errors.Is with ctx's error when ctx's end is what ended the
// call. Clients report a passed deadline in several ways, most of which are not
// [context.DeadlineExceeded]. A [*ServerError] is returned as it is: a call that
// got a reply was ended by that, whatever became of ctx since.
func CallError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, replied := errors.AsType[*ServerError](err); replied {
		return err
	}
	err = quieted(err) // clients put what the server said at login into errors of their own
	cause := ctx.Err()
	if cause == nil && isTimeout(err) {
		// The client's timer may run ahead of the context's own by a moment.
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= time.Millisecond {
			cause = context.DeadlineExceeded
		}
	}
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
