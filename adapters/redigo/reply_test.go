package redigo

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// FuzzReply sends messages as a server's reply through redigo.
func FuzzReply(f *testing.F) {
	adaptertest.FuzzReply(f, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		if adaptertest.HugeLength(m.Raw) && !m.Whole {
			t.Skip("redigo allocates what a length says")
		}
		s := &adaptertest.Server{Reply: answer(m.Raw), Once: !m.Whole}
		p := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.NewConn(s.Pipe(t), 0, 0), nil }}
		defer p.Close()
		return eval(t.Context(), New(p))
	})
}
