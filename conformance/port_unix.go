//go:build unix

package conformance

import (
	"net/netip"
	"syscall"
)

// keepPort keeps the system from handing out the port of addr, an address of IPv4, until release is called. Nobody
// listens there meanwhile, so that dialling it is refused. If the port cannot be kept, release does nothing.
func keepPort(addr string) (release func()) {
	release = func() {}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !ap.Addr().Is4() {
		return release
	}
	syscall.ForkLock.RLock() // no child may get the socket before it is marked
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return release
	}
	// The proxy's connections that were just closed are not quite gone.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()})
	}
	if err != nil {
		syscall.Close(fd)
		return release
	}
	return func() { syscall.Close(fd) }
}
