package conformance

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/leasecache/leasecache/driver"
)

// holder is a driver that can hold the reply of one call back, after the script
// was executed. The proxy does that to a connection. A client that sends the
// calls of many callers through one connection then gets no reply at all, but
// cases that use a holder need the other calls to go on.
type holder struct {
	d driver.Evaler

	mu       sync.Mutex
	match    func(command []string) bool // nil when nothing is to be held
	caught   chan struct{}
	released chan struct{}
}

// holder returns a driver over a client of its own that can hold a reply back.
func (e *env) holder() *holder {
	e.Helper()
	return holderOn(e.driver())
}

func holderOn(d driver.Evaler) *holder {
	return &holder{d: d, caught: make(chan struct{}), released: make(chan struct{})}
}

// driver returns h with the ability Get, if the driver that it stands before has it.
func (h *holder) driver() driver.Evaler {
	if g, ok := h.d.(driver.Getter); ok {
		return struct {
			driver.Evaler
			driver.Getter
		}{h, g}
	}
	return h
}

// hold holds the reply of the next call that match picks. match sees the call as
// an EVALSHA command, before it is executed.
func (h *holder) hold(match func(command []string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.match = match
}

// release lets the reply that is held go on.
func (h *holder) release() { close(h.released) }

// Eval implements [driver.Evaler].
func (h *holder) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	caught := h.catch(s, keys, args)
	r, err := h.d.Eval(ctx, s, keys, args)
	if caught {
		if err := h.wait(ctx); err != nil {
			return driver.Reply{}, err
		}
	}
	return r, err
}

// catch reports whether the reply to a call is to be held.
func (h *holder) catch(s *driver.Script, keys, args []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	command := slices.Concat([]string{"EVALSHA", s.SHA1(), strconv.Itoa(len(keys))}, keys, args)
	if h.match == nil || !h.match(command) {
		return false
	}
	h.match = nil
	return true
}

// wait holds the reply of a call that was executed.
func (h *holder) wait(ctx context.Context) error {
	close(h.caught)
	select {
	case <-h.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
