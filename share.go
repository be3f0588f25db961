package leasecache

import (
	"context"
	"runtime"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

// maxHotReads is how many shared reads of one key are on the wire at a time. With
// two, one is on its way while the reply to the other is handed out.
const maxHotReads = 2

// hotKey is what shared reads of a key have under way in this process. It is in
// the table only while there is something.
type hotKey struct {
	wire int      // reads that are on the wire, which nobody may join any more
	next *hotRead // the one that is not sent yet, which those who come now join
}

// hotRead is a read that is sent when one of those before it has landed.
type hotRead struct {
	ctx  context.Context // of the one who came first; it does not end
	done chan struct{}   // closed when the rest is set

	stored string
	ok     bool
	err    error
}

// getStored is the first look of Get: what is stored for key, if anything.
func (c *Cache[V]) getStored(ctx context.Context, key string) (stored string, ok bool, err error) {
	near := c.near.begin(key)
	if near == nil && c.hits.getter != nil {
		return c.store.getBy(ctx, c.hits.getter, key, protocol.ValueKey(c.opts.Prefix, key))
	}
	sent := time.Now()
	r, err := c.read(ctx, key, c.keys(key), "", protocol.ReadOptions{})
	near.end(r, err, sent)
	if err != nil && isMigrating(err) && c.store.getter != nil {
		return c.store.get(ctx, key, protocol.ValueKey(c.opts.Prefix, key)) // see look
	}
	return r.Value, r.State == protocol.StateValue, err
}

// getShared is getStored for keys that many read at a time. A read may be joined
// until it is sent: then it shows what is cached after all of them came.
func (c *Cache[V]) getShared(ctx context.Context, key string) (stored string, ok bool, err error) {
	s := c.shardOf(key)
	s.mu.Lock()
	h := s.hot[key]
	if h == nil {
		h = &hotKey{}
		if s.hot == nil {
			s.hot = map[string]*hotKey{}
		}
		s.hot[key] = h
	}
	if h.wire < maxHotReads { // then there is no next one
		h.wire++
		s.mu.Unlock()
		defer func() { c.landed(s, key, h, outage(ctx, err)) }()
		return c.getStored(ctx, key)
	}
	r := h.next
	if r == nil {
		r = &hotRead{ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		h.next = r
	}
	s.mu.Unlock()
	c.stats.shared.Add(1)
	select {
	case <-r.done:
		return r.stored, r.ok, r.err
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
}

// landed ends a read that was on the wire. What was joined meanwhile is sent in its place, in a goroutine because it belongs
// to all who joined it.
func (c *Cache[V]) landed(s *shard[V], key string, h *hotKey, outage error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.next != nil && outage == nil {
		go c.sendJoined(s, key, h)
		return
	}
	s.leave(key, h, outage)
}

// leave takes a read off the wire that none follows. After an outage those who wait for the next one have that instead: it
// holds no data, and a server that hangs should cost them no second wait. s.mu is held.
func (s *shard[V]) leave(key string, h *hotKey, outage error) {
	if r := h.next; r != nil && outage != nil {
		h.next = nil
		r.err = outage
		close(r.done)
	}
	if h.wire--; h.wire == 0 {
		delete(s.hot, key)
	}
}

// outage returns err if it says that the server is unavailable, and that is not
// because ctx ended. The client's timer may run ahead of ctx's by a moment.
func outage(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	if err != nil && isUnavailable(err) && ctx.Err() == nil && (!ok || time.Until(deadline) > time.Millisecond) {
		return err
	}
	return nil
}

// sendJoined sends one read after the other, each for all who have joined it, until nobody waits. Those who got the last
// reply run first: whoever of them reads again joins too, and fewer reads serve more of them.
func (c *Cache[V]) sendJoined(s *shard[V], key string, h *hotKey) {
	for {
		runtime.Gosched()
		s.mu.Lock()
		r := h.next
		h.next = nil
		if r == nil {
			s.leave(key, h, nil)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		c.send(key, r)
		if err := outage(r.ctx, r.err); err != nil {
			s.mu.Lock()
			s.leave(key, h, err)
			s.mu.Unlock()
			return
		}
	}
}

// send runs a read that others have joined.
func (c *Cache[V]) send(key string, r *hotRead) {
	defer close(r.done)
	if !c.work.begin() {
		r.err = ErrClosed
		return
	}
	defer c.work.end()
	defer recovered("driver", &r.err)
	r.stored, r.ok, r.err = c.getStored(r.ctx, key)
}
