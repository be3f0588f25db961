//go:build unix

package main

import (
	"errors"
	"syscall"
	"testing"
)

// checkNoChildren checks that this process has no child left, dead or alive.
func checkNoChildren(t *testing.T) {
	t.Helper()
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("a child is left: process %d, %v", pid, err)
	}
}
