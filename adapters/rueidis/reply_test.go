package rueidis

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
	"github.com/leasecache/leasecache/internal/resp"
)

// FuzzReply sends messages as a server's reply through the client. It gets whole
// ones only: of what it did not ask for it makes a panic in a goroutine of its own.
func FuzzReply(f *testing.F) {
	adaptertest.FuzzReply(f, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		if !m.Whole || m.Value.Kind == resp.Push || len(m.Value.Attrs) > 0 {
			t.SkipNow()
		}
		s := serve(t, answer(m.Raw))
		client := s.client(t, rueidis.ClientOption{ForceSingleClient: true, DisableRetry: true, RingScaleEachConn: 2})
		return eval(t.Context(), New(client))
	})
}
