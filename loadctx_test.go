package leasecache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func newLoadContext(closing context.Context, t *testing.T) *loadContext {
	return &loadContext{parent: t.Context(), deadline: time.Now().Add(time.Second), closing: closing, decided: &Load{}}
}

func TestTheContextOfALoadEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(c *loadContext, closeAll func())
		want error
	}{
		{"at its deadline", func(*loadContext, func()) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		{"with the load", func(c *loadContext, _ func()) { c.end() }, context.Canceled},
		{"with a closed cache", func(_ *loadContext, closeAll func()) { closeAll() }, context.Canceled},
		{"once", func(c *loadContext, _ func()) { time.Sleep(2 * time.Second); c.end() }, context.DeadlineExceeded},
	} {
		// What is asked for before it ends, and what only after, is the same.
		for name, early := range map[string]bool{"asked for early": true, "asked for late": false} {
			t.Run(test.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					closing, closeAll := context.WithCancel(context.Background())
					defer closeAll()
					c := newLoadContext(closing, t)
					defer c.end()
					if d, ok := c.Deadline(); !ok || !d.Equal(time.Now().Add(time.Second)) {
						t.Errorf("Deadline = %v, %v", d, ok)
					}
					if err := c.Err(); err != nil {
						t.Errorf("Err = %v while the load runs", err)
					}
					var derived context.Context
					if early {
						var cancel func()
						derived, cancel = context.WithCancel(c)
						defer cancel()
						select {
						case <-c.Done():
							t.Error("Done is closed while the load runs")
						default:
						}
					}
					test.end(c, closeAll)
					synctest.Wait()
					if !early {
						var cancel func()
						derived, cancel = context.WithCancel(c)
						defer cancel()
					}
					for _, ctx := range []context.Context{c, derived} {
						select {
						case <-ctx.Done():
						default:
							t.Error("Done is open")
						}
						if err := ctx.Err(); !errors.Is(err, test.want) {
							t.Errorf("Err = %v, want %v", err, test.want)
						}
					}
				})
			})
		}
	}
}

// asked reports whether the context had to be made in full.
func (c *loadContext) asked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full != nil
}

func TestTheContextOfALoadCostsNothingUntilItIsAskedFor(t *testing.T) {
	type key struct{}
	c := newLoadContext(context.Background(), t)
	c.parent = context.WithValue(c.parent, key{}, "the caller's")
	c.Deadline()
	if c.Err() != nil || c.Value(key{}) != "the caller's" || LoadFrom(c) != c.decided || c.asked() {
		t.Errorf("Err = %v, the caller's value %v, Load %p; made in full: %v", c.Err(), c.Value(key{}), LoadFrom(c), c.asked())
	}
	derived, cancel := context.WithCancel(c)
	defer cancel()
	if derived.Value(key{}) != "the caller's" || LoadFrom(derived) != c.decided || !c.asked() {
		t.Errorf("derived: the caller's value %v, Load %p; made in full: %v", derived.Value(key{}), LoadFrom(derived), c.asked())
	}
	c.end()
	<-derived.Done()
}
