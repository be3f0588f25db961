package miniredis

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
	"github.com/leasecache/leasecache/internal/resp"
)

// FuzzReply sends messages as a server's reply through this package's client.
func FuzzReply(f *testing.F) {
	adaptertest.FuzzReply(f, nil, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		s := &adaptertest.Server{Reply: adaptertest.Answer(m.Raw), Once: !m.Whole}
		cl := &client{m: miniredis.NewMiniRedis(), dial: func(*miniredis.Miniredis) (*conn, error) {
			c := s.Pipe(t)
			return &conn{c, resp.NewConn(c), nil}, nil
		}}
		defer cl.close()
		return adaptertest.Eval(t.Context(), &evaler{client: cl})
	})
}
