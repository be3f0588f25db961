package leasecache

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestLoadFromIsNilOutsideOfALoader(t *testing.T) {
	if l := LoadFrom(t.Context()); l != nil {
		t.Errorf("LoadFrom = %v", l)
	}
	// Another's value under the key of its own type is not mistaken for one.
	type loadKey struct{}
	if l := LoadFrom(context.WithValue(t.Context(), loadKey{}, &Load{})); l != nil {
		t.Errorf("LoadFrom = %v", l)
	}
}

func TestTheMethodsOfLoadDoNothingOnNil(t *testing.T) {
	var l *Load
	l.SetTTL(time.Minute)
	l.SetTTL(-1)
	l.DoNotStore()
	LoadFrom(t.Context()).SetTTL(time.Minute)
	LoadFrom(t.Context()).DoNotStore()
}

func TestALoadIsReachedThroughDerivedContexts(t *testing.T) {
	l := &Load{}
	ctx := context.WithValue(t.Context(), loadKey{}, l)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if got := LoadFrom(ctx); got != l {
		t.Errorf("LoadFrom = %p, want %p", got, l)
	}
}

func TestTheLastTTLOfALoaderCounts(t *testing.T) {
	l := &Load{}
	if l.ttlSet {
		t.Error("a TTL is set before any was chosen")
	}
	l.SetTTL(time.Minute)
	l.SetTTL(0) // an error, but one that was chosen
	if !l.ttlSet || l.ttl != 0 {
		t.Errorf("the TTL is %v, set %v; want the last one", l.ttl, l.ttlSet)
	}
}

func TestALoadMayBeDecidedByManyGoroutines(t *testing.T) {
	l := &Load{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			l.SetTTL(time.Duration(i+1) * time.Second)
			l.DoNotStore()
		})
	}
	wg.Wait()
	if !l.doNotStore || l.ttl < time.Second || l.ttl > 8*time.Second {
		t.Errorf("the decision is %v, %v", l.doNotStore, l.ttl)
	}
}
