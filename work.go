package leasecache

import (
	"sync"
	"sync/atomic"
)

// work counts what a cache has running in the background, so that Close can
// wait for it.
type work struct {
	mu     sync.Mutex
	n      int
	closed atomic.Bool   // read without mu on the path of a hit
	idle   chan struct{} // closed when the cache is closed and nothing runs
}

// begin counts something new. It refuses when the cache is closed.
func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Load() {
		return false
	}
	w.n++
	return true
}

// extend counts something that follows from what is counted already, also when
// the cache is closed: a release after a load, for example.
func (w *work) extend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n == 0 && w.closed.Load() {
		close(w.idle)
	}
}

// close refuses what is new from now on, and reports whether it was open.
func (w *work) close() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Swap(true) {
		return false
	}
	if w.n == 0 {
		close(w.idle)
	}
	return true
}
