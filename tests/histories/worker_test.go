package histories

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/rpc"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// workerEnv, when set, makes this binary a process of a site. It holds a
// workerConfig.
const workerEnv = "LEASECACHE_HISTORIES_WORKER"

type workerConfig struct {
	Driver, DSN string
	Source      string // the socket of the source
	Seed        uint64
	Process     int
	Profile     profile
	Epoch       int64 // when the first generation of keys began
	Readers     int
	Pace        time.Duration // the longest time between two reads of a reader
	Keys        int           // of a soak; 0: keys live for a generation
	Sample      time.Duration // between two looks at what the process uses; 0: never
}

// Keys live for a generation, so that the history of each is short.
const (
	generation        = 2 * time.Second
	keysPerGeneration = 24
)

// What all processes of a site have in common.
const (
	lease    = 500 * time.Millisecond
	staleFor = 100 * time.Millisecond
	// readFor bounds a read. It is above the wait bound.
	readFor = 3 * time.Second
)

// A worker is one process.
type worker struct {
	cfg    workerConfig
	store  *leasecache.Store
	cache  *leasecache.Cache[string]
	source *rpc.Client
	rec    *recorder
}

// work is the main function of a process. It runs until its input ends.
func work(config string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	source, err := rpc.Dial("unix", cfg.Source)
	if err != nil {
		return err
	}
	// A server that is down when a process starts is one more fault.
	var store *leasecache.Store
	for range 100 {
		if store, err = leasecache.Open(cfg.Driver, cfg.DSN, cfg.Profile.store()); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	cache, err := leasecache.New[string](store, cfg.Profile.options())
	if err != nil {
		return err
	}
	w := &worker{cfg, store, cache, source, &recorder{out: bufio.NewWriterSize(os.NewFile(3, "records"), 1<<16)}}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var wg sync.WaitGroup
	if cfg.Sample > 0 {
		wg.Go(func() { w.sample(ctx) })
	}
	for n := range cfg.Readers {
		wg.Go(func() { w.read(ctx, n+1) })
	}
	wg.Go(func() { w.write(ctx) })
	wg.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			w.rec.flush()
		}
	})
	wg.Wait()
	closing, cancel := context.WithTimeout(context.Background(), readFor)
	defer cancel()
	if err := cache.Close(closing); err != nil {
		w.note("Close", err)
	}
	w.rec.flush()
	return store.Close()
}

// sample notes what the process uses, again and again.
func (w *worker) sample(ctx context.Context) {
	for ctx.Err() == nil {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u := use{at: now(), heap: int64(m.HeapAlloc), goroutines: int64(runtime.NumGoroutine())}
		if files, err := os.ReadDir("/proc/self/fd"); err == nil {
			u.files = int64(len(files))
		}
		if text, err := os.ReadFile("/proc/self/statm"); err == nil {
			var size int64
			if _, err := fmt.Sscan(string(text), &size, &u.rss); err == nil {
				u.rss *= int64(os.Getpagesize())
			}
		}
		w.rec.using(u)
		select {
		case <-time.After(w.cfg.Sample):
		case <-ctx.Done():
		}
	}
}

// rand returns a source of random numbers of one goroutine of one process.
func (w *worker) rand(n int) *rand.Rand {
	return rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.cfg.Process*1000+n)))
}

// key returns a key of the present generation, or of all, some of which are read
// far more than others.
func (w *worker) key(r *rand.Rand) string {
	if w.cfg.Keys > 0 {
		return fmt.Sprint("s", int(float64(w.cfg.Keys)*math.Pow(r.Float64(), 4)))
	}
	return fmt.Sprintf("%d:%d", (now()-w.cfg.Epoch)/int64(generation), r.IntN(keysPerGeneration))
}

func (w *worker) read(ctx context.Context, reader int) {
	r := w.rand(reader)
	for ctx.Err() == nil {
		w.readOnce(r, reader)
		time.Sleep(time.Duration(r.Int64N(int64(w.cfg.Pace))))
	}
}

// readOnce is one read, in one of the ways that there are.
func (w *worker) readOnce(r *rand.Rand, reader int) {
	within := readFor
	if r.IntN(40) == 0 {
		within = time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	key, load := w.key(r), w.loader(r)
	call := now()
	switch n := r.IntN(100); {
	case n < 50:
		v, err := w.cache.Get(ctx, key, func(ctx context.Context) (string, error) { return load(ctx, key) })
		kind := w.kind()
		w.got(reader, kind, key, call, v, err)
	case n < 70:
		res, err := w.cache.Read(ctx, key, func(ctx context.Context) (string, error) { return load(ctx, key) })
		w.got(reader, kindOf(res), key, call, res.Value, err)
	case n < 85:
		keys := []string{key, w.key(r), w.key(r)}
		call = now()
		values, err := w.cache.GetMany(ctx, keys, func(ctx context.Context, keys []string) (map[string]string, error) {
			m := map[string]string{}
			for _, k := range keys {
				v, err := load(ctx, k)
				if err != nil {
					return nil, err
				}
				m[k] = v
			}
			return m, nil
		})
		kind := w.kind()
		for k, v := range values {
			w.got(reader, kind, k, call, v, nil)
		}
		if err != nil {
			w.note("GetMany", err)
		}
	case n < 97:
		if res, ok, err := w.cache.Peek(ctx, key); ok || err != nil {
			w.got(reader, kindOf(res), key, call, res.Value, err)
		}
	default:
		res, err := w.cache.Refresh(ctx, key, func(ctx context.Context) (string, error) { return load(ctx, key) })
		w.got(reader, kindOf(res), key, call, res.Value, err)
	}
}

// kind is what a read has to count as that does not say where its value is from.
func (w *worker) kind() Kind {
	switch {
	case w.cfg.Profile.Near:
		return NearRead
	case w.cfg.Profile.Stale:
		return StaleRead
	}
	return Read
}

func kindOf(r leasecache.Result[string]) Kind {
	switch r.Source {
	case leasecache.Stale:
		return StaleRead
	case leasecache.NearHit:
		return NearRead
	}
	return Read
}

// got records what a read returned.
func (w *worker) got(reader int, kind Kind, key string, call int64, v string, err error) {
	ret := now()
	if err != nil {
		w.note("a read", err)
		return
	}
	version, err := versionOf(key, v)
	if err != nil {
		w.rec.failed(false, err.Error())
		return
	}
	w.rec.read(kind, reader, key, call, ret, version)
}

// valueOf is a value of a key: it says whose it is.
// Values of a key have one size, up to a few hundred bytes.
func valueOf(key string, version int64) string {
	return fmt.Sprintf("%s@%d@%s", key, version, strings.Repeat(".", len(key)*len(key)*8%700))
}

func versionOf(key, value string) (int64, error) {
	of, n, _ := strings.Cut(value, "@")
	n, _, _ = strings.Cut(n, "@")
	version, err := strconv.ParseInt(n, 10, 64)
	if of != key || err != nil {
		return 0, fmt.Errorf("a read of %q returned %q", key, value)
	}
	return version, nil
}

var errSource = errors.New("the source is tired")

// loader returns a loader that reads the source, and then takes its time: mostly
// little, at times more than a lease.
func (w *worker) loader(r *rand.Rand) func(ctx context.Context, key string) (string, error) {
	after := time.Duration(r.Int64N(int64(3 * time.Millisecond)))
	fails, stores := false, true
	switch n := r.IntN(100); {
	case n < 5:
		after = time.Duration(r.Int64N(int64(2 * lease)))
	case n < 30:
		after *= 20
	case n < 32:
		fails = true
	case n < 36:
		stores = false
		after *= 20
	}
	return func(ctx context.Context, key string) (string, error) {
		var version int64
		if err := w.source.Call("Source.Load", key, &version); err != nil {
			return "", err
		}
		select {
		case <-time.After(after):
		case <-ctx.Done(): // it is returned all the same, as by a loader that does not look at its context
		}
		if fails {
			return "", errSource
		}
		if !stores {
			leasecache.LoadFrom(ctx).DoNotStore()
		}
		return valueOf(key, version), nil
	}
}

// write changes rows of the source and invalidates them.
func (w *worker) write(ctx context.Context) {
	r := w.rand(0)
	for ctx.Err() == nil {
		keys := []string{w.key(r)}
		if r.IntN(5) == 0 {
			keys = append(keys, w.key(r), w.key(r))
		}
		for _, key := range keys {
			if err := w.source.Call("Source.Write", key, &struct{}{}); err != nil {
				w.note("the source", err)
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), readFor)
		id := w.rec.invalidating(keys, now())
		err := w.cache.Invalidate(ctx, keys...)
		cancel()
		if err == nil {
			w.rec.invalidated(id, now())
		} else {
			w.note("Invalidate", err)
		}
		time.Sleep(time.Duration(r.Int64N(8 * int64(w.cfg.Pace))))
	}
}

// note records an error, by the name that the documentation has for it.
func (w *worker) note(what string, err error) {
	for _, known := range []struct {
		name string
		err  error
	}{
		{"ErrOverloaded", leasecache.ErrOverloaded},
		{"ErrLeaseLost", leasecache.ErrLeaseLost},
		{"ErrHolderFailed", leasecache.ErrHolderFailed},
		{"the loader's error", errSource},
		{"DeadlineExceeded", context.DeadlineExceeded},
		{"ErrUnavailable", leasecache.ErrUnavailable},
	} {
		if errors.Is(err, known.err) {
			w.rec.failed(true, known.name)
			return
		}
	}
	if reply, ok := errors.AsType[*driver.ServerError](err); ok && reply.Code == "OOM" { // of a server that evicts nothing
		w.rec.failed(true, reply.Code)
		return
	}
	w.rec.failed(false, fmt.Sprintf("%s: %v", what, err))
}
