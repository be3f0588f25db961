package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// workerEnv, when set, makes this program a process of the wake-ups.
const workerEnv = "LEASECACHE_BENCH_WORKER"

// fillAndTell is the fill without a lease.
var fillAndTell = driver.NewScript("tell", `
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {redis.call('SPUBLISH', ARGV[3], 'fill'), ''}`)

// worker is a process of the wake-ups.
type worker struct {
	ctx    context.Context
	client bare
	caches map[wakeMode]*leasecache.Cache[[]byte]
	bytes  []byte

	// Of the mode wakeBare.
	watch func(ctx context.Context, channel string) error
	mu    sync.Mutex
	heard map[string]chan struct{} // by channel
}

// work is the main function of a worker: it obeys until its standard input ends.
func work(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("a worker has two arguments, not %d", len(args))
	}
	kind, err := clientNamed(args[0])
	if err != nil {
		return err
	}
	w := &worker{ctx: ctx, caches: map[wakeMode]*leasecache.Cache[[]byte]{}, bytes: newBytes(valueSize), heard: map[string]chan struct{}{}}
	if w.client, err = kind.dial(ctx, args[1]); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(roundReport{}); err != nil {
		return err
	}
	for in := json.NewDecoder(os.Stdin); ; {
		var r task
		if err := in.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		report, err := w.round(r)
		if err != nil {
			report.Err = err.Error()
		}
		if err := out.Encode(report); err != nil {
			return err
		}
	}
}

// open makes caches, and the subscription of the client alone.
func (w *worker) open() (err error) {
	for _, m := range []wakeMode{wakeOurs, wakePolling} {
		if err := w.openCache(m); err != nil {
			return err
		}
	}
	w.watch, err = subscribeBare(w.ctx, w.client, w.hear)
	return err
}

func (w *worker) openCache(m wakeMode) error {
	store, err := leasecache.NewStore(w.client.evaler(), leasecache.StoreOptions{CallTimeout: 5 * time.Second, NoWakeUps: m == wakePolling})
	if err != nil {
		return err
	}
	w.caches[m], err = leasecache.New[[]byte](store, leasecache.Options{Prefix: prefix, TTL: time.Minute})
	return err
}

// round reads the key with all readers at once.
func (w *worker) round(r task) (roundReport, error) {
	if r.Cold {
		if err := w.caches[r.Mode].Close(w.ctx); err != nil {
			return roundReport{}, err
		}
		if err := w.openCache(r.Mode); err != nil {
			return roundReport{}, err
		}
	}
	var (
		loads  atomic.Int64
		loaded atomic.Int64
		once   sync.Once
		got    = make(chan error, wakeReaders)
		failed error
	)
	load := func() {
		loads.Add(1)
		time.Sleep(wakeLoad)
		loaded.Store(time.Now().UnixNano())
	}
	read := func() error {
		got, err := w.caches[r.Mode].Get(w.ctx, r.Key, func(context.Context) ([]byte, error) {
			load()
			return w.bytes, nil
		})
		return checkSize(len(got), valueSize, err)
	}
	if r.Mode == wakeBare {
		keys := protocol.NewKeys(prefix, r.Key)
		read = func() error {
			if _, err := w.client.get(w.ctx, keys.Value); !errors.Is(err, errNone) {
				return err // nil when it came after the fill
			}
			once.Do(func() { // the others wait for it
				if r.Load {
					failed = w.fillBare(keys, load)
				} else {
					failed = w.awaitBare(keys)
				}
			})
			return failed
		}
	}
	for range wakeReaders {
		go func() { got <- read() }()
	}
	var errs []error
	for range wakeReaders {
		errs = append(errs, <-got)
	}
	last := time.Now().UnixNano()
	return roundReport{Loads: int(loads.Load()), Loaded: loaded.Load(), Last: last}, errors.Join(errs...)
}

// fillBare looks once more, as who takes a lease does, so that the load begins when that of the other side does; then it loads,
// stores the value, and tells the others.
func (w *worker) fillBare(keys protocol.Keys, load func()) error {
	if _, err := w.client.get(w.ctx, keys.Value); !errors.Is(err, errNone) {
		return fmt.Errorf("a key that nobody has loaded: %w", err)
	}
	load()
	_, _, err := w.client.evalsha(w.ctx, fillAndTell.SHA1(), []string{keys.Value}, []string{string(w.bytes), "60000", keys.Wake})
	return err
}

// awaitBare waits for the message, and gets the value.
func (w *worker) awaitBare(keys protocol.Keys) error {
	heard := make(chan struct{}, 1)
	w.mu.Lock()
	w.heard[keys.Wake] = heard
	w.mu.Unlock()
	if err := w.watch(w.ctx, keys.Wake); err != nil {
		return err
	}
	for {
		v, err := w.client.get(w.ctx, keys.Value)
		if !errors.Is(err, errNone) {
			return checkSize(len(v), valueSize, err)
		}
		select {
		case <-heard:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
}

func (w *worker) hear(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if heard := w.heard[channel]; heard != nil {
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

// subscribeBare returns a function that subscribes to a channel, and waits until the server has confirmed it. hear is called
// with the channel of each message. go-redis does it by itself; for the other clients it is the adapter's subscription.
func subscribeBare(ctx context.Context, c bare, hear func(channel string)) (func(ctx context.Context, channel string) error, error) {
	if g, ok := c.(*bareGoRedis); ok {
		return g.subscribe(ctx, hear)
	}
	s, ok := c.evaler().(driver.Subscriber)
	if !ok {
		return nil, fmt.Errorf("a %T cannot subscribe", c)
	}
	sub, err := s.Subscribe(hear)
	if err != nil {
		return nil, err
	}
	return sub.Add, nil
}
