package rueidis

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// A cluster client that was closed leaves this behind for up to a second.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
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
)

// fakeServer is a server as the tests of all adapters use it.
type fakeServer struct {
	*adaptertest.Server
	slots string // the reply to CLUSTER SLOTS
}

// serve starts a fake server. reply is asked about every command except those by
// which the client sets up a connection.
func serve(t *testing.T, reply func(args []string) string) *fakeServer {
	t.Helper()
	s := &fakeServer{Server: &adaptertest.Server{Reply: reply}, slots: "-ERR This instance has cluster support disabled\r\n"}
	s.Setup = func(args []string) string {
		if strings.EqualFold(args[0], "cluster") {
			return s.slots
		}
		return setup(args)
	}
	s.Start(t)
	return s
}

// setup replies to the commands by which a client sets up a connection.
func setup(args []string) string {
	switch strings.ToLower(args[0]) {
	case "hello":
		return "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
	case "client", "readonly", "asking":
		return "+OK\r\n"
	}
	return ""
}

// connect returns an Evaler over a client of a fake server.
func connect(t *testing.T, reply func(args []string) string) (driver.Evaler, *adaptertest.Server) {
	t.Helper()
	s := serve(t, reply)
	return New(s.client(t, rueidis.ClientOption{})), s.Server
}

// client returns a client of the server.
func (s *fakeServer) client(t *testing.T, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	o.InitAddress, o.DisableCache = []string{s.Addr}, true
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// mock is a Client of an unknown type, which has another build its commands.
type mock struct {
	builder Client
	do      func(ctx context.Context) rueidis.RedisResult
}

func (m *mock) B() rueidis.Builder { return m.builder.B() }

func (m *mock) Do(ctx context.Context, _ rueidis.Completed) rueidis.RedisResult { return m.do(ctx) }

// failing returns a Client whose commands fail.
func failing(t *testing.T, err error) *mock {
	return &mock{
		builder: serve(t, answer("+OK\r\n")).client(t, rueidis.ClientOption{}),
		do:      func(context.Context) rueidis.RedisResult { return rueidis.NewErrorResult(err) },
	}
}
