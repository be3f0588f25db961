package customclient

import (
	"context"
	"net"
	"testing"

	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

func TestConformance(t *testing.T) {
	srv := servertest.Start(t, servertest.Named(t, "valkey-9")) // a container of the test's own
	conformance.Run(t, conformance.Harness{
		Driver: "customclient",
		// Dial opens a raw connection to the server.
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr)
		},
		// Open returns a driver over a new client that connects to addr.
		Open: func(t testing.TB, addr string) driver.Evaler {
			return Evaler{Addr: addr}
		},
		Lacks: conformance.Lacks{
			Get:      "this client has scripts only, so a hit is a script",
			GetBytes: "this client has scripts only, so a hit is a script",
			Bound:    "calls end with their context, and package leasecache bounds that, with a goroutine for each call",
			Ping:     "this client has scripts only, so a ping is a script",
			Batch:    "this client sends one command at a time, so the calls of a batch are a few at a time",
			BatchGet: "this client has scripts only, so the hits of a batch are scripts",
			Wake:     "this client has no connections for messages, so reads that wait poll",
			Near:     "this client has no connections for messages, so there is no near tier",
		},
	})
}
