package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/leasecache/leasecache/servertest"
)

// startServer starts a server of the table, found as the tests find theirs. stop removes it.
func startServer(ctx context.Context, name string) (addr string, stop func(), err error) {
	h := &host{ctx: ctx}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			h.cleanUp()
			err = p.err
		default:
			panic(p)
		}
	}()
	s := servertest.Start(h, servertest.Named(h, name))
	return direct(ctx, s.Addr), h.cleanUp, nil
}

// direct returns the address at which the container that publishes addr is reached without going through the engine: its
// proxy for ports on the loopback interface takes longer than a GET, on both sides of a ratio, which would then look better
// than it is. Where there is no such address, because the server is no container or the engine runs in a virtual machine,
// direct returns addr.
func direct(ctx context.Context, addr string) string {
	published, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	cli, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return addr
	}
	defer cli.Close()
	list, err := cli.ContainerList(ctx, client.ContainerListOptions{})
	if err != nil {
		return addr
	}
	for _, c := range list.Items {
		i := slices.IndexFunc(c.Ports, func(p container.PortSummary) bool {
			return p.PublicPort == published.Port() && p.IP == published.Addr()
		})
		if i < 0 || c.NetworkSettings == nil {
			continue
		}
		for _, n := range c.NetworkSettings.Networks {
			own := netip.AddrPortFrom(n.IPAddress, c.Ports[i].PrivatePort).String()
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", own)
			if err == nil {
				conn.Close()
				return own
			}
		}
	}
	return addr
}

// host stands in for the test that servertest expects around it. A failure ends the call by a panic with a failure. The
// methods that servertest does not call are those of a nil interface.
type host struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
}

type failure struct{ err error }

func (h *host) Helper() {}

func (h *host) Context() context.Context { return h.ctx }

func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

func (h *host) Fatal(args ...any) { panic(failure{errors.New(fmt.Sprint(args...))}) }

func (h *host) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (h *host) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (h *host) cleanUp() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
	h.cleanups = nil
}
