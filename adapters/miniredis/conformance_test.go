package miniredis

import (
	"context"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

func TestConformance(t *testing.T) {
	s := New()
	t.Cleanup(func() { s.Close() })
	addr, err := s.Listen("")
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Harness{
		Driver: "miniredis",
		Server: "miniredis-2.40.0 embedded",
		Dial:   dialer(addr),
		Open: func(t testing.TB, addr string) driver.Evaler {
			// Through the suite's proxy instead of a pipe, so that faults reach it.
			c := &client{m: s.Miniredis(), dial: func(m *miniredis.Miniredis) (*conn, error) {
				nc, err := dialer(addr)(context.Background())
				if err != nil {
					return nil, err
				}
				return &conn{nc, resp.NewConn(nc), current(m)}, nil
			}}
			t.Cleanup(c.close)
			return &evaler{client: c}
		},
		Lacks: conformance.Lacks{
			Wake: "miniredis has no shard channels: it knows neither SSUBSCRIBE nor SPUBLISH.",
			Near: "miniredis has no client tracking.",
		},
	})
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}
