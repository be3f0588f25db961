package redigo

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// What the tests of all adapters share.
const (
	cut  = adaptertest.Cut
	hang = adaptertest.Hang
)

var (
	script    = adaptertest.Script
	eval      = adaptertest.Eval
	get       = adaptertest.Get
	calls     = adaptertest.Calls
	abilities = adaptertest.Abilities
	answer    = adaptertest.Answer

	eventually = adaptertest.Eventually
	mustAdd    = adaptertest.MustAdd
	confirm    = adaptertest.Confirm
)

// fakeServer is a server as the tests of all adapters use it.
type fakeServer struct{ *adaptertest.Server }

// serve starts a fake server. reply is asked about every command.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	s := &fakeServer{&adaptertest.Server{Reply: reply}}
	s.Start(t)
	return s
}

// connect returns an Evaler over a client of a fake server.
func connect(t *testing.T, reply func(args []string) string) (driver.Evaler, *adaptertest.Server) {
	t.Helper()
	s := serve(t, reply)
	return New(s.pool(t)), s.Server
}

// pool returns a pool of connections to the server.
func (s *fakeServer) pool(t *testing.T) *redis.Pool {
	p := &redis.Pool{
		MaxIdle: 8,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", s.Addr)
		},
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// clientFunc is a Client of an unknown type.
type clientFunc func(ctx context.Context) (redis.Conn, error)

func (f clientFunc) GetContext(ctx context.Context) (redis.Conn, error) { return f(ctx) }
