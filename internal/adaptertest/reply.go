package adaptertest

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

// Message is what a server sends in reply to a command.
type Message struct {
	// Raw are its bytes.
	Raw string
	// Value is what they mean, if Whole is set.
	Value resp.Value
	// Whole is set when Raw is one reply, in the form in which servers write it, and
	// nothing follows.
	Whole bool
}

// message returns what raw means. ok is false for what a fake server takes for
// something else, and for what is too long to be worth the time.
func message(raw string) (m Message, ok bool) {
	if len(raw) > 1<<12 || raw == Cut || raw == Hang || raw == "" {
		return Message{}, false
	}
	m = Message{Raw: raw}
	v, err := resp.ReadValue(bufio.NewReader(strings.NewReader(raw)))
	reply := err == nil && v.Kind != resp.Push && len(v.Attrs) == 0 // it is one, and not beside one
	if reply && string(resp.AppendValue(nil, v)) == raw {
		m.Value, m.Whole = v, true
	}
	return m, true
}

// FuzzReply sends messages through exchange as the reply to a script, and checks
// what the adapter makes of them against a parser of its own. stands reports
// whether the client itself can stand a message; nil: all of them.
func FuzzReply(f *testing.F, stands func(m Message) bool, exchange func(t *testing.T, m Message) (driver.Reply, error)) {
	for _, s := range []string{
		"$-1\r\n", "*-1\r\n", "_\r\n", ":5\r\n", ":-9223372036854775808\r\n", "+OK\r\n", "+\r\n", "$3\r\nabc\r\n", "$4\r\na\r\nb\r\n", "$0\r\n\r\n",
		"*0\r\n", "*2\r\n:1\r\n*1\r\n$-1\r\n", "*3\r\n:2\r\n$5\r\na\x00b\xffc\r\n:1\r\n", "*1\r\n*-1\r\n", strings.Repeat("*1\r\n", 20) + ":1\r\n",
		"-ERR x\r\n", "-\r\n", "-x\r\n", "-NOSCRIPT x\r\n", "-MOVED 1 127.0.0.1:1\r\n", "*1\r\n-LOADING x\r\n", "*2\r\n:1\r\n*1\r\n-OOM a\r\n", "!5\r\nERR x\r\n",
		"#t\r\n", ",1.5\r\n", "(123\r\n", "%1\r\n+a\r\n:1\r\n", "=5\r\ntxt:a\r\n", "~1\r\n:1\r\n", "*2\r\n:1\r\n#f\r\n",
		"$1\r\n", "*2\r\n:1\r\n", "x", ":1x\r\n", ":\r\n", ":1\r\n:2\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		m, ok := message(raw)
		if !ok || stands != nil && !stands(m) {
			return
		}
		got, err := exchange(t, m)
		checkReply(t, m, got, err)
	})
}

func checkReply(t *testing.T, m Message, got driver.Reply, err error) {
	t.Helper()
	se, isServer := errors.AsType[*driver.ServerError](err)
	switch {
	case err != nil && got.Kind() != driver.KindNil:
		t.Errorf("%q: %v beside the error %v", m.Raw, got, err)
	case errors.Is(err, driver.ErrNotSent):
		t.Errorf("%q: %v is ErrNotSent, but the server replied", m.Raw, err)
	case isServer && !strings.ContainsAny(m.Raw, "-!"):
		t.Errorf("%q: %v is a ServerError, but there is none in the reply", m.Raw, err)
	}
	if !m.Whole {
		return
	}
	want, refused, ok := expected(m.Value)
	switch {
	case !ok:
		// Of a type that only RESP3 has. Clients differ in which they know. What
		// counts is that none passes for an error reply that is not there.
	case refused != nil:
		if !isServer || se.Code != refused.Code || se.Message != refused.Message {
			t.Errorf("%q: got %v, %v; want the ServerError %v", m.Raw, got, err, refused)
		}
	case err != nil || !equal(got, want):
		t.Errorf("%q: got %v, %v; want %v", m.Raw, got, err, want)
	}
}

// expected returns the reply that v stands for, or the first error in it. ok is
// false if it holds a type that scripts of leasecache do not return.
func expected(v resp.Value) (r driver.Reply, refused *driver.ServerError, ok bool) {
	if len(v.Attrs) > 0 {
		return r, nil, false
	}
	switch v.Kind {
	case resp.Integer:
		return driver.Int(v.Int), nil, true
	case resp.SimpleString, resp.BulkString:
		if v.Null {
			return driver.Nil(), nil, true
		}
		return driver.Str(v.Str), nil, true
	case resp.SimpleError:
		return r, driver.ParseServerError(v.Str, nil), true
	case resp.Array:
		if v.Null {
			return driver.Nil(), nil, true
		}
		list := make([]driver.Reply, 0, len(v.List))
		var first *driver.ServerError
		for _, e := range v.List {
			elem, se, ok := expected(e)
			if !ok {
				return r, nil, false
			}
			if first == nil {
				first = se
			}
			list = append(list, elem)
		}
		return driver.List(list...), first, true
	}
	return r, nil, false
}

func equal(a, b driver.Reply) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case driver.KindInt:
		x, _ := a.Int()
		y, _ := b.Int()
		return x == y
	case driver.KindString:
		x, _ := a.Str()
		y, _ := b.Str()
		return x == y
	case driver.KindList:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(a.At(i), b.At(i)) {
				return false
			}
		}
	}
	return true
}

// HugeLength reports whether raw holds a number of more than four digits. Some
// clients allocate what a length says.
func HugeLength(raw string) bool {
	digits := 0
	for _, c := range []byte(raw) {
		if c < '0' || c > '9' {
			digits = 0
		} else if digits++; digits > 4 {
			return true
		}
	}
	return false
}
