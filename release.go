package leasecache

import (
	"context"

	"github.com/leasecache/leasecache/internal/protocol"
)

// release frees a lease in the background, on a context of its own: whoever
// waits for it should not have to wait until it runs out, and whoever held it
// need not wait for its release. Bounded by CallTimeout.
func (c *Cache[V]) release(key string, keys protocol.Keys, lease protocol.Lease) {
	c.releaseMarked(key, keys, lease, protocol.NoMark)
}

// releaseMarked is release that leaves a mark, unless there is no FailureBackoff.
func (c *Cache[V]) releaseMarked(key string, keys protocol.Keys, lease protocol.Lease, mark protocol.Mark) {
	c.work.extend()
	go func() {
		defer c.work.end()
		reply, err := c.store.call(context.Background(), key, c.releaseCall(keys, lease, mark))
		if err == nil {
			_, err = protocol.ParseRelease(reply)
		}
		if err != nil {
			c.stats.failed(ErrorRelease)
		}
	}()
}

func (c *Cache[V]) releaseCall(keys protocol.Keys, lease protocol.Lease, mark protocol.Mark) protocol.Call {
	life := c.opts.FailureBackoff
	if life < 0 {
		mark, life = protocol.NoMark, 0
	}
	return protocol.ReleaseCall(keys, lease, mark, life)
}
