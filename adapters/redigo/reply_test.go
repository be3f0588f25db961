package redigo

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// FuzzReply sends messages as a server's reply through redigo.
func FuzzReply(f *testing.F) {
	// redigo allocates what a length says.
	stands := func(m adaptertest.Message) bool { return m.Whole || !adaptertest.HugeLength(m.Raw) }
	adaptertest.FuzzReply(f, stands, func(t *testing.T, m adaptertest.Message) (driver.Reply, error) {
		s := &adaptertest.Server{Reply: answer(m.Raw), Once: !m.Whole}
		p := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.NewConn(s.Pipe(t), 0, 0), nil }}
		defer p.Close()
		return eval(t.Context(), New(p))
	})
}
