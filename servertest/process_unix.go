//go:build unix

package servertest

import (
	"errors"
	"os"
	"syscall"
)

func sendSignal(p *os.Process, sig signal) error {
	if sig == sigStop {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}

// alive reports whether a process of that number exists, whoever owns it.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
