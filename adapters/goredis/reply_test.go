package goredis

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

func TestRepliesAreConvertedToFourShapes(t *testing.T) {
	tests := []struct {
		name string
		in   any
		want string // of driver.Reply.String
	}{
		{"nil", nil, "nil"},
		{"integer", int64(-1), "-1"},
		{"string", "a\x00", "string of 2 bytes"},
		{"empty string", "", "string of 0 bytes"},
		{"empty list", []any{}, "[]"},
		{"nested list with nil", []any{int64(1), nil, []any{"x"}}, "[1, nil, [string of 1 bytes]]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := reply(tt.in)
			if err != nil || r.String() != tt.want {
				t.Errorf("got %v, %v; want %v", r, err, tt.want)
			}
		})
	}
}

func TestAReplyOfAnotherTypeIsAnErrorOfUnknownOutcome(t *testing.T) {
	for _, in := range []any{true, 1.5, big.NewInt(1), map[any]any{}, []byte("x"), int(1)} {
		for _, v := range []any{in, []any{in}} {
			e := New(clientFunc(func(_ context.Context, cmd redis.Cmder) error {
				cmd.(interface{ SetVal(any) }).SetVal(v)
				return nil
			}))
			_, err := eval(t.Context(), e)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T", in)) {
				t.Errorf("%T: %v; want an error that names the type", v, err)
			}
			_, isServer := errors.AsType[*driver.ServerError](err)
			if isServer || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%T: %v is not of unknown outcome", v, err)
			}
		}
	}
}

func TestAnErrorInAListIsAServerError(t *testing.T) {
	s := serve(t, answer("*2\r\n:1\r\n*1\r\n-OOM command not allowed\r\n"))
	_, err := eval(t.Context(), New(s.client(t, redis.Options{})))
	se, ok := errors.AsType[*driver.ServerError](err)
	if !ok || se.Code != "OOM" || se.Message != "command not allowed" {
		t.Errorf("got %#v; want a ServerError with the code OOM", err)
	}
	if _, ok := errors.AsType[redis.Error](err); !ok {
		t.Errorf("%v does not lead to the client's own error", err)
	}
}

// FuzzReply sends bytes as a server's reply through go-redis.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		"$-1\r\n", "*-1\r\n", "_\r\n", ":5\r\n", "+OK\r\n", "$3\r\nabc\r\n", "*0\r\n",
		"*2\r\n:1\r\n*1\r\n$-1\r\n", "-ERR x\r\n", "*1\r\n-LOADING x\r\n", "#t\r\n", ",1.5\r\n",
		"(123\r\n", "%1\r\n+a\r\n:1\r\n", "=5\r\ntxt:a\r\n", "~1\r\n:1\r\n", "$1\r\n", "*2\r\n:1\r\n", "-\r\n", "x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > 1<<12 || hugeLength(raw) {
			return // go-redis allocates what a length says
		}
		if raw == cut || raw == hang {
			return // means something else to the fake server
		}
		s := serve(t, answer(raw))
		s.Once = true
		r, err := eval(t.Context(), New(s.client(t, redis.Options{})))
		if err != nil && r.Kind() != driver.KindNil {
			t.Errorf("got %v beside the error %v", r, err)
		}
		_ = r.String()
		if _, ok := errors.AsType[*driver.ServerError](err); ok && !strings.Contains(raw, "-") && !strings.Contains(raw, "!") {
			t.Errorf("%v is a ServerError, but the reply %q has none", err, raw)
		}
		if errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%v is ErrNotSent, but the server replied", err)
		}
	})
}

// hugeLength reports whether raw holds a number of more than four digits.
func hugeLength(raw string) bool {
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
