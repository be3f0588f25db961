package scale

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

const (
	prefix = "scale:"
	key    = "k"
	value  = "v"

	readers  = 2                     // of a process
	arrival  = 10 * time.Millisecond // within which all come
	loadTime = 50 * time.Millisecond
	lease    = 5 * time.Second

	stormTime  = time.Second
	stormEvery = 5 * time.Millisecond
	stormPause = 2 * loadTime // between two reads of a reader, at the most
)

// scenario is what happens to the key.
type scenario string

const (
	coldKey scenario = "cold key"           // nothing is cached, and all come at once
	storm   scenario = "invalidation storm" // it is invalidated more often than it can be loaded, and all read over and over
	crashed scenario = "crashed holder"     // the holder of its lease has crashed, and all come at once
)

var scenarios = []scenario{coldKey, storm, crashed}

// report is what the readers of one process, or of all, have seen.
type report struct {
	Reads, Failed, Loads int
	Slowest              time.Duration
	Example              string // of an error
}

func (r *report) add(o report) {
	r.Reads += o.Reads
	r.Failed += o.Failed
	r.Loads += o.Loads
	r.Slowest = max(r.Slowest, o.Slowest)
	if r.Example == "" {
		r.Example = o.Example
	}
}

func newCache(e driver.Evaler, woken bool, callTimeout time.Duration) (*leasecache.Cache[string], error) {
	store, err := leasecache.NewStore(e, leasecache.StoreOptions{NoWakeUps: !woken, CallTimeout: callTimeout})
	if err != nil {
		return nil, err
	}
	return leasecache.New[string](store, leasecache.Options{Prefix: prefix, TTL: time.Hour, Lease: lease})
}

// process is what one process does in a scenario: its readers read.
func process(cache *leasecache.Cache[string], sc scenario) report {
	var (
		mu  sync.Mutex
		all report
		wg  sync.WaitGroup
	)
	load := func(ctx context.Context) (string, error) {
		mu.Lock()
		all.Loads++
		mu.Unlock()
		select {
		case <-time.After(loadTime):
			return value, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	read := func() {
		r, began := report{Reads: 1}, time.Now()
		if v, err := cache.Get(context.Background(), key, load); err != nil {
			r.Failed, r.Example = 1, err.Error()
		} else if v != value {
			r.Failed, r.Example = 1, "it read "+v
		}
		r.Slowest = time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		all.add(r)
	}
	began := time.Now()
	for range readers {
		wg.Go(func() {
			time.Sleep(rand.N(arrival))
			read()
			for sc == storm && time.Since(began) < stormTime {
				time.Sleep(rand.N(stormPause))
				read()
			}
		})
	}
	wg.Wait()
	return all
}

// invalidate is what the writer does in a storm. It returns how often it got to.
func invalidate(ctx context.Context, cache *leasecache.Cache[string]) (times int, err error) {
	every := time.NewTicker(stormEvery)
	defer every.Stop()
	for began := time.Now(); time.Since(began) < stormTime; <-every.C {
		if err := cache.Invalidate(ctx, key); err != nil {
			return times, err
		}
		times++
	}
	return times, nil
}

// crash takes the lease, as a process does that then crashes.
func crash(ctx context.Context, e driver.Evaler) error {
	c := protocol.ReadCall(protocol.NewKeys(prefix, key), protocol.NewToken(), protocol.ReadOptions{Lease: lease})
	_, err := e.Eval(ctx, c.Script, c.Keys, c.Args)
	return err
}
