package glide

import (
	"cmp"
	"errors"
	"strings"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"

	"github.com/leasecache/leasecache/driver"
)

// callError sorts the error of a call: the server replied with it, or nobody
// knows. What was not sent is known by probe.
func callError(c call, err error) error {
	if err = sorted(err); isServerError(err) {
		return err
	}
	if _, ok := errors.AsType[*glide.TimeoutError](err); ok && !c.deadline.IsZero() && time.Until(c.deadline) <= 0 {
		return c.over(err)
	}
	return driver.CallError(c.ctx, err)
}

func isServerError(err error) bool {
	_, ok := errors.AsType[*driver.ServerError](err)
	return ok
}

// signalled is how glide begins the text of an error reply whose code it knows.
const signalled = "An error was signalled by the server:"

// codes are the codes of error replies by the names that glide gives them. Others
// are spelled as their codes, but for case: TryAgain.
var codes = map[string]string{
	"ResponseError":    "ERR",
	"ExecAbortError":   "EXECABORT",
	"BusyLoadingError": "LOADING",
	"NoScriptError":    "NOSCRIPT",
	"PermissionDenied": "NOPERM",
}

// sorted returns the error reply that err stands for, or err if it is none.
//
// glide has no type for an error reply, only a text: the phrase above and the
// name that it has for the code, or else the code, a colon and the rest. Errors
// of its own, with a type or without, begin with a sentence or with a name such
// as FatalReceiveError, which no code looks like.
func sorted(err error) error {
	text, named := strings.CutPrefix(err.Error(), signalled)
	code, message, ok := strings.Cut(strings.TrimLeft(text, " -"), ": ")
	if named {
		code = cmp.Or(codes[code], strings.ToUpper(code))
	}
	if se := driver.ParseServerError(code+" "+message, err); named || ok && se.Code == code {
		return se
	}
	return err
}
