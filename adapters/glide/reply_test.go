package glide

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
	"github.com/leasecache/leasecache/internal/resp"
)

// FuzzReply hands over what glide makes of messages. Its own decoder is native
// code, which this fuzzer cannot look into.
func FuzzReply(f *testing.F) {
	stands := func(m adaptertest.Message) bool { return m.Whole && !hasNamelessError(m.Value) }
	adaptertest.FuzzReply(f, stands, func(_ *testing.T, m adaptertest.Message) (driver.Reply, error) {
		v := decoded(m.Value)
		if err, ok := v.(error); ok {
			return driver.Reply{}, sorted(err)
		}
		return reply(v)
	})
}

// decoded returns v as glide hands it over.
func decoded(v resp.Value) any {
	if v.Null {
		return nil
	}
	switch v.Kind {
	case resp.Integer:
		return v.Int
	case resp.SimpleString, resp.BulkString, resp.Verbatim:
		return v.Str
	case resp.SimpleError, resp.BulkError:
		code, text, _ := strings.Cut(v.Str, " ")
		return errors.New(code + ": " + text)
	case resp.Bool:
		return v.Int != 0
	case resp.Double:
		return 1.5
	case resp.Map:
		return map[string]any{}
	case resp.Set:
		return map[string]struct{}{}
	}
	list := make([]any, 0, len(v.List))
	for _, e := range v.List {
		list = append(list, decoded(e))
	}
	return list
}

// hasNamelessError reports whether v holds an error without a code: glide gives
// such a one a name of its own.
func hasNamelessError(v resp.Value) bool {
	if v.Kind == resp.SimpleError || v.Kind == resp.BulkError {
		code, _, ok := strings.Cut(v.Str, " ")
		return !ok || driver.ParseServerError(v.Str, nil).Code != code
	}
	return slices.ContainsFunc(v.List, hasNamelessError)
}
