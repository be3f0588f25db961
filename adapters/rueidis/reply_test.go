package rueidis

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// FuzzReply sends messages as a server's reply through the client. It gets whole
// ones only: of what it did not ask for it makes a panic in a goroutine of its own.
func FuzzReply(f *testing.F) {
	stands := func(m adaptertest.Message) bool { return m.Whole }
	adaptertest.FuzzReply(f, stands, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		s := &adaptertest.Server{Setup: setup, Reply: answer(m.Raw)}
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{"pipe:1"}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, RingScaleEachConn: 2,
			DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return s.Pipe(t), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return eval(t.Context(), New(c))
	})
}
