package glide

import (
	"errors"
	"strings"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"

	"github.com/leasecache/leasecache/driver"
)

// callError sorts the error of a call: the server replied with it, or nobody
// knows. What was not sent is known by probe.
func callError(c call, err error) error {
	if se := serverError(err); se != nil {
		return se
	}
	if _, ok := errors.AsType[*glide.TimeoutError](err); ok && !c.deadline.IsZero() && time.Until(c.deadline) <= 0 {
		return c.over(err)
	}
	return driver.CallError(c.ctx, err)
}

// signalled is how glide begins the text of an error reply whose code it knows.
const signalled = "An error was signalled by the server:"

// codes are the codes of error replies by the names that glide gives them.
var codes = map[string]string{
	"ResponseError":    "ERR",
	"ExecAbortError":   "EXECABORT",
	"BusyLoadingError": "LOADING",
	"NoScriptError":    "NOSCRIPT",
	"Moved":            "MOVED",
	"Ask":              "ASK",
	"TryAgain":         "TRYAGAIN",
	"ClusterDown":      "CLUSTERDOWN",
	"CrossSlot":        "CROSSSLOT",
	"MasterDown":       "MASTERDOWN",
	"ReadOnly":         "READONLY",
	"NotBusy":          "NOTBUSY",
	"PermissionDenied": "NOPERM",
}

// serverError returns the error reply that err stands for, or nil if it is none.
//
// glide has no type for an error reply, only a text: the phrase above and the
// name that it has for the code, or else the code, a colon and the rest. Errors
// of its own, with a type or without, begin with a sentence or with a name such
// as FatalReceiveError, which no code looks like.
func serverError(err error) *driver.ServerError {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, signalled); ok {
		name, message, _ := strings.Cut(strings.TrimLeft(name, " -"), ": ")
		code, known := codes[name]
		if !known {
			code, message = "ERR", name+" "+message
		}
		return driver.ParseServerError(code+" "+message, err)
	}
	code, message, ok := strings.Cut(text, ": ")
	if !ok {
		return nil
	}
	if se := driver.ParseServerError(code+" "+message, err); se.Code == code {
		return se
	}
	return nil
}
