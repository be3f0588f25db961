package redigo

import (
	"testing"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// FuzzReply sends messages as a server's reply through redigo.
func FuzzReply(f *testing.F) {
	adaptertest.FuzzReply(f, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		if adaptertest.HugeLength(m.Raw) && !m.Whole {
			t.Skip("redigo allocates what a length says")
		}
		s := serve(t, answer(m.Raw))
		s.Once = !m.Whole
		return eval(t.Context(), New(s.pool(t)))
	})
}
