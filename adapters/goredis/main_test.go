package goredis

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // dials fail on purpose here
	goleak.VerifyTestMain(m)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// What the tests of all adapters share.
const (
	cut  = adaptertest.Cut
	hang = adaptertest.Hang
)

var (
	eval      = adaptertest.Eval
	get       = adaptertest.Get
	abilities = adaptertest.Abilities
	answer    = adaptertest.Answer

	eventually = adaptertest.Eventually
	mustAdd    = adaptertest.MustAdd
	confirm    = adaptertest.Confirm
	push       = adaptertest.Push
)

// fakeServer is a server as the tests of all adapters use it.
type fakeServer struct{ *adaptertest.Server }

// serve starts a fake server. reply is asked about every command except those by
// which go-redis sets up a connection.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	s := &fakeServer{&adaptertest.Server{Setup: setup, Reply: reply}}
	s.Start(t)
	return s
}

// setup replies to the commands by which go-redis sets up a connection.
func setup(args []string) string {
	switch strings.ToLower(args[0]) {
	case "hello":
		return "-ERR unknown command 'HELLO'\r\n"
	case "client", "readonly", "asking":
		return "+OK\r\n"
	}
	return ""
}

// connect returns an Evaler over a client of a fake server.
func connect(t *testing.T, reply func(args []string) string) (driver.Evaler, *adaptertest.Server) {
	t.Helper()
	s := serve(t, reply)
	return New(s.client(t, redis.Options{})), s.Server
}

func (s *fakeServer) client(t *testing.T, o redis.Options) *redis.Client {
	o.Addr = s.Addr
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

// clientFunc is a Client of an unknown type.
type clientFunc func(ctx context.Context, cmd redis.Cmder) error

func (f clientFunc) Process(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd) }
