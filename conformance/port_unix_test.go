//go:build unix

package conformance

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// Otherwise a client of a proxy that is down could reach a server of another process.
func TestAProxyThatIsDownKeepsItsPortFromOtherProcesses(t *testing.T) {
	p, _ := startProxy(t, "")
	addr := p.Addr()
	p.Down()
	// A system that is asked for any free port hands out those that can be bound like this.
	strict := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var errSet error
		err := c.Control(func(fd uintptr) {
			errSet = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		})
		return errors.Join(err, errSet)
	}}
	if l, err := strict.Listen(t.Context(), "tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			l.Close()
		}
		t.Errorf("listening on %s, the port of a proxy that is down: %v; want %v", addr, err, syscall.EADDRINUSE)
	}
	if nc, err := net.Dial("tcp", addr); err == nil {
		nc.Close()
		t.Error("dialling succeeded while the proxy was down")
	}
	p.Up()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}
