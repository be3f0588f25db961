package tests

import (
	"testing"

	"github.com/leasecache/leasecache/servertest"
	"github.com/leasecache/leasecache/tests/acltest"
)

func TestACL(t *testing.T) {
	for _, spec := range servertest.Servers() {
		t.Run(spec.Name, func(t *testing.T) {
			acltest.Run(t, servertest.Start(t, spec).Addr)
		})
	}
}
