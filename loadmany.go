package leasecache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache/internal/protocol"
)

// BatchLoader loads the values of several keys from the source, in one query for
// example. It gets each key once, at most as many as the call of [Cache.GetMany]
// has, and may be called again with those that another process was about to load.
// It may keep and change keys.
//
// A key that it does not return, and does not report by [Load.NotFound], is an
// error for that key, [ErrNotLoaded], and nothing is cached: a value that got lost
// on its way must not look like a row that does not exist. What else it returns is
// ignored. If it returns an error, that is the error of every key that it was
// called with, and what else it returned is not used. In all else it is a [Loader].
type BatchLoader[V any] func(ctx context.Context, keys []string) (map[string]V, error)

// For returns the Load of one key, when the load is of several: what is decided
// there holds for that key alone, and comes before what is decided for all. In the
// load of one key it is that one's Load.
func (l *Load) For(key string) *Load {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		return l
	}
	one := l.keys[key]
	if one == nil {
		one = &Load{}
		l.keys[key] = one
	}
	return one
}

// NotFound says that the source does not have these keys: what [ErrNotFound] says
// in the load of one key, where NotFound does nothing. A value that the loader
// returns for one of them counts instead.
func (l *Load) NotFound(keys ...string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.notFound != nil {
			l.notFound[key] = true
		}
	}
}

// several makes l the Load of several keys.
func (l *Load) several() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys, l.notFound = map[string]*Load{}, map[string]bool{}
}

// of returns what was decided for key.
func (l *Load) of(key string) (doNotStore bool, ttl time.Duration, ttlSet bool) {
	l.mu.Lock()
	doNotStore, ttl, ttlSet = l.doNotStore, l.ttl, l.ttlSet
	one := l.keys[key]
	l.mu.Unlock()
	if one != nil {
		own, t, set := one.of(key)
		if doNotStore = doNotStore || own; set {
			ttl, ttlSet = t, true
		}
	}
	return doNotStore, ttl, ttlSet
}

// batch is what a BatchLoader returned.
type batch[V any] struct {
	values map[string]V
	err    error
}

// value returns what it says of one key.
func (b batch[V]) value(key string, decided *Load) (v V, err error) {
	if b.err != nil {
		if errors.Is(b.err, ErrNotFound) {
			// Of one of them, or of all? It would be cached.
			return v, fmt.Errorf("%w: the loader of several keys returned %q for all of them: report those that the source does not have by Load.NotFound", ErrNotLoaded, b.err.Error())
		}
		return v, b.err
	}
	if v, ok := b.values[key]; ok {
		return v, nil
	}
	decided.mu.Lock()
	defer decided.mu.Unlock()
	if decided.notFound[key] {
		return v, ErrNotFound
	}
	return v, fmt.Errorf("%w: %s", ErrNotLoaded, protocol.Quote(key))
}

// loaderOf returns the loader of one key alone.
func (load BatchLoader[V]) loaderOf(key string) Loader[V] {
	return func(ctx context.Context) (V, error) {
		decided := LoadFrom(ctx)
		decided.several()
		var b batch[V]
		b.values, b.err = load(ctx, []string{key})
		return b.value(key, decided)
	}
}
