package goredis

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
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

// FuzzReply sends messages as a server's reply through go-redis.
func FuzzReply(f *testing.F) {
	// go-redis allocates what a length says.
	stands := func(m adaptertest.Message) bool { return m.Whole || !adaptertest.HugeLength(m.Raw) }
	adaptertest.FuzzReply(f, stands, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		s := &adaptertest.Server{Setup: setup, Reply: answer(m.Raw), Once: !m.Whole}
		c := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return s.Pipe(t), nil }})
		defer c.Close()
		return eval(t.Context(), New(c))
	})
}
