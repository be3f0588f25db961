package leasecache

import (
	"sync"
	"sync/atomic"
	"testing"
)

func newWork() *work { return &work{idle: make(chan struct{})} }

func isIdle(w *work) bool {
	select {
	case <-w.idle:
		return true
	default:
		return false
	}
}

func TestWorkThatNeverBeganIsIdleOnceClosed(t *testing.T) {
	w := newWork()
	if isIdle(w) {
		t.Error("it is idle while open")
	}
	if !w.close() || !isIdle(w) {
		t.Error("it is not idle when closed")
	}
	if w.close() {
		t.Error("the second close says that it was open")
	}
}

func TestWorkEndsBeforeItIsIdle(t *testing.T) {
	w := newWork()
	for range 2 {
		if !w.begin() {
			t.Fatal("it is refused while open")
		}
	}
	w.end()
	w.close()
	if isIdle(w) {
		t.Error("it is idle while something runs")
	}
	if w.begin() {
		t.Error("something new is let in when closed")
	}
	w.extend() // what follows from what runs is let in
	w.end()
	if isIdle(w) {
		t.Error("it is idle while what followed runs")
	}
	w.end()
	if !isIdle(w) {
		t.Error("it is not idle when all has ended")
	}
}

func TestWorkThatHasEndedWhileOpenIsNotIdleUntilClosed(t *testing.T) {
	w := newWork()
	for range 3 {
		w.begin()
		w.end()
	}
	if isIdle(w) {
		t.Error("it is idle while open")
	}
	w.close()
	if !isIdle(w) {
		t.Error("it is not idle when closed")
	}
}

func TestWorkIsClosedOnceByWhoeverComesFirst(t *testing.T) {
	w := newWork()
	var began, first atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if w.begin() {
					began.Add(1)
					w.extend()
					w.end()
					w.end()
				}
			}
		})
		wg.Go(func() {
			if w.close() {
				first.Add(1)
			}
			<-w.idle
			if w.begin() {
				t.Error("something new is let in after it was idle")
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 {
		t.Errorf("%d closed it first", first.Load())
	}
}
