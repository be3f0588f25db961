package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// peer is an instance of a cache, as a process has it.
type peer interface {
	// get returns what is cached, or else what load returns, which it caches.
	get(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error)
	// forget drops what the instance holds in memory, so that the next get asks the server.
	forget(key string)
	// invalidate is what the instance offers a service that has changed the source.
	invalidate(ctx context.Context, key string) error
	close() error
}

// peerKind is a cache that is compared with leasecache. The names of its keys begin with prefix.
type peerKind struct {
	name string
	open func(ctx context.Context, addr string) (peer, error)
}

const ourName = "leasecache"

var peerKinds = []peerKind{
	{ourName, openOurs},
	{"go-redis-cache", openGoRedisCache},
	{"sturdyc", openSturdyc},
	{"go-zero", openGoZero},
	{"redislock", openRedislock},
}

const (
	peerInstances = 20
	peerReaders   = 50 // of each instance
	peerLoad      = 50 * time.Millisecond
	// peerSettle is for what a cache does after its reader has the value.
	peerSettle = 100 * time.Millisecond
)

// peerProbes compare hits, and count what goes wrong in a stampede and in a race with an invalidation.
func (e *env) peerProbes() ([]probe, error) {
	var (
		hits, races []probe
		ours        side
	)
	for _, k := range peerKinds {
		hit, err := e.peerHit(k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		oneLoad, none := bar{}, bar{}
		if k.name == ourName {
			ours, oneLoad, none = hit, exactly(1), exactly(0)
		} else {
			hits = append(hits, e.latency("peer/"+k.name+"/hit_ratio", bar{}, ours, hit))
		}
		name := "peer/" + k.name + "/"
		races = append(races,
			probe{
				[]spec{{name + "stampede_loads", "", oneLoad}, {name + "stampede_ms", "", bar{}}},
				func(ctx context.Context) ([]sample, error) { return e.stampede(ctx, k) },
			},
			one(name+"late_fill_cached", "", none, func(ctx context.Context) (sample, error) { return e.lateFill(ctx, k) }),
			one(name+"old_value_read", "", none, func(ctx context.Context) (sample, error) { return e.oldValue(ctx, k) }),
		)
	}
	return append(hits, races...), nil
}

// peerHit returns a side that reads a struct which is cached on the server, by each cache's own codec.
func (e *env) peerHit(k peerKind) (side, error) {
	p, err := k.open(e.ctx, e.addr)
	if err != nil {
		return side{}, err
	}
	e.onClose(p.close)
	want, err := newProduct()
	if err != nil {
		return side{}, err
	}
	key := "peer-hit"
	if _, err := p.get(e.ctx, key, func(context.Context) (product, error) { return want, nil }); err != nil {
		return side{}, err
	}
	time.Sleep(peerSettle)
	return side{op: func(int) error {
		p.forget(key)
		got, err := p.get(e.ctx, key, func(context.Context) (product, error) { return product{}, errMiss })
		if err == nil && got.ID != want.ID {
			err = fmt.Errorf("read product %d, want %d", got.ID, want.ID)
		}
		return err
	}}, nil
}

// instances opens some, which closeAll closes.
func (e *env) instances(ctx context.Context, k peerKind, n int) (ps []peer, closeAll func() error, err error) {
	closeAll = func() error {
		var errs []error
		for _, p := range ps {
			errs = append(errs, p.close())
		}
		return errors.Join(errs...)
	}
	for range n {
		p, err := k.open(ctx, e.addr)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		ps = append(ps, p)
	}
	return ps, closeAll, nil
}

// peerKey returns a key that was never used.
func peerKey() string { return fmt.Sprintf("peer-%d", lastPeerKey.Add(1)) }

var lastPeerKey atomic.Int64

// stampede lets all readers of all instances read a key that is not cached, and returns how many loads ran, and how long it
// took until all had the value, in milliseconds.
func (e *env) stampede(ctx context.Context, k peerKind) (_ []sample, err error) {
	ps, closeAll, err := e.instances(ctx, k, peerInstances)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	var (
		loads int64
		took  time.Duration
	)
	for range 2 { // the first time fills the pools
		if loads, took, err = rush(ctx, ps, peerKey()); err != nil {
			return nil, err
		}
	}
	return []sample{{value: float64(loads)}, {value: took.Seconds() * 1e3}}, nil
}

func rush(ctx context.Context, ps []peer, key string) (int64, time.Duration, error) {
	var (
		loads atomic.Int64
		wg    sync.WaitGroup
		start = make(chan struct{})
		errs  = make(chan error, len(ps)*peerReaders)
	)
	for _, p := range ps {
		for range peerReaders {
			wg.Go(func() {
				<-start
				_, err := p.get(ctx, key, func(context.Context) (product, error) {
					loads.Add(1)
					time.Sleep(peerLoad)
					return product{ID: 1}, nil
				})
				errs <- err
			})
		}
	}
	began := time.Now()
	close(start)
	wg.Wait()
	took := time.Since(began)
	close(errs)
	for err := range errs {
		if err != nil {
			return 0, 0, err
		}
	}
	return loads.Load(), took, nil
}

// The versions of the source in a race with an invalidation.
const (
	oldVersion = 1
	newVersion = 2
)

// slowRead is a read whose load began before a change of the source, and ends when release is called.
type slowRead struct {
	release func()
	done    chan error
}

// beginSlowRead returns when its load runs.
func beginSlowRead(ctx context.Context, p peer, key string) (*slowRead, error) {
	loading, release := make(chan struct{}), make(chan struct{})
	r := &slowRead{release: sync.OnceFunc(func() { close(release) }), done: make(chan error, 1)}
	go func() {
		_, err := p.get(ctx, key, func(context.Context) (product, error) {
			close(loading)
			<-release
			return product{ID: oldVersion}, nil
		})
		r.done <- err
	}()
	select {
	case <-loading:
		return r, nil
	case err := <-r.done:
		return nil, fmt.Errorf("a read of a key that was not cached has not loaded it: %w", err)
	}
}

func loadNew(context.Context) (product, error) { return product{ID: newVersion}, nil }

// lateFill returns 1 if the value of a load that began before an invalidation is what a reader elsewhere gets after both.
func (e *env) lateFill(ctx context.Context, k peerKind) (_ sample, err error) {
	ps, closeAll, err := e.instances(ctx, k, 3)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	key := peerKey()
	slow, err := beginSlowRead(ctx, ps[0], key)
	if err != nil {
		return sample{}, err
	}
	defer slow.release()
	if err := ps[1].invalidate(ctx, key); err != nil {
		return sample{}, err
	}
	slow.release()
	if err := <-slow.done; err != nil {
		return sample{}, err
	}
	time.Sleep(peerSettle)
	got, err := ps[2].get(ctx, key, loadNew)
	return isOld(got), err
}

// oldValue returns 1 if a reader that comes after an invalidation has returned gets a value loaded before it, because the
// load still runs in the same process.
func (e *env) oldValue(ctx context.Context, k peerKind) (_ sample, err error) {
	ps, closeAll, err := e.instances(ctx, k, 1)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	p, key := ps[0], peerKey()
	slow, err := beginSlowRead(ctx, p, key)
	if err != nil {
		return sample{}, err
	}
	defer slow.release()
	if err := p.invalidate(ctx, key); err != nil {
		return sample{}, err
	}
	time.AfterFunc(peerSettle, slow.release)
	got, err := p.get(ctx, key, loadNew)
	return isOld(got), errors.Join(err, <-slow.done)
}

func isOld(p product) sample {
	if p.ID == oldVersion {
		return sample{value: 1}
	}
	return sample{}
}
