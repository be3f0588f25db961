package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
)

// A worker is this test binary, started again as a process of its own with one
// cache in it. Test and worker talk in lines of JSON: the test says what to
// read, and the worker's loaders ask the test for the value, so that the test is
// the source of all workers and decides when a load ends.

// workerEnv, when set, makes this binary a worker. It holds a workerConfig.
const workerEnv = "LEASECACHE_TEST_WORKER"

type workerConfig struct {
	Addr                         string
	Prefix                       string
	Lease, LoadTimeout, WaitWith time.Duration // WaitWith is Options.WaitBound
}

// message is a line, in either direction.
type message struct {
	// Op is "get", "value", "stats", "storm" or "stop" to a worker, and "ready",
	// "got", "load", "stats" or "storm" from it.
	Op  string
	ID  int    `json:",omitempty"` // relates an answer to its question
	Key string `json:",omitempty"`
	N   int    `json:",omitempty"` // how many reads

	Value    string            `json:",omitempty"`
	Source   leasecache.Source `json:",omitempty"`
	Uncached leasecache.Reason `json:",omitempty"`
	Err      string            `json:",omitempty"`

	Stats *leasecache.Stats `json:",omitempty"`
	Storm *stormReport      `json:",omitempty"`
}

// stormReport is what the readers of a worker saw in a storm.
type stormReport struct {
	Reads, Old, Failed int64
	// Example is the first thing that was wrong.
	Example string
	Slowest time.Duration
}

// ---- in the worker's process ----

// work is the main function of a worker. It returns the exit code.
func work(config string) int {
	w := &workerProcess{out: json.NewEncoder(os.Stdout), asked: map[int]chan string{}}
	if err := w.run(config); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

type workerProcess struct {
	client *redis.Client
	cache  *leasecache.Cache[string]

	mu    sync.Mutex // guards what follows
	out   *json.Encoder
	asked map[int]chan string // loads that wait for the test's answer
	last  int

	storm *storm
}

// run obeys the test until it closes the pipe.
func (w *workerProcess) run(config string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	w.client = redis.NewClient(&redis.Options{Addr: cfg.Addr})
	defer w.client.Close()
	store, err := leasecache.NewStore(goredis.New(w.client), leasecache.StoreOptions{CallTimeout: patience})
	if err != nil {
		return err
	}
	w.cache, err = leasecache.New[string](store, leasecache.Options{
		Prefix: cfg.Prefix, TTL: 10 * time.Minute,
		Lease: cfg.Lease, LoadTimeout: cfg.LoadTimeout, WaitBound: cfg.WaitWith,
	})
	if err != nil {
		return err
	}
	w.say(message{Op: "ready"})
	for in := json.NewDecoder(os.Stdin); ; {
		var m message
		if err := in.Decode(&m); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		switch m.Op {
		case "get":
			for range max(m.N, 1) {
				go w.get(m)
			}
		case "value":
			w.mu.Lock()
			w.asked[m.ID] <- m.Value
			w.mu.Unlock()
		case "stats":
			stats := w.cache.Stats()
			w.say(message{Op: "stats", ID: m.ID, Stats: &stats})
		case "storm":
			w.storm = startStorm(w.client, w.cache, m.Key, m.N)
		case "stop":
			w.say(message{Op: "storm", ID: m.ID, Storm: w.storm.end()})
		default:
			return fmt.Errorf("unknown op %q", m.Op)
		}
	}
}

func (w *workerProcess) say(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(m) // when the test is gone, the next line from it is an EOF
}

func (w *workerProcess) get(m message) {
	res, err := w.cache.Read(context.Background(), m.Key, func(ctx context.Context) (string, error) { return w.ask(ctx, m.Key) })
	a := message{Op: "got", ID: m.ID, Value: res.Value, Source: res.Source, Uncached: res.Uncached}
	if err != nil {
		a.Err = err.Error()
	}
	w.say(a)
}

// ask is the loader: it asks the test.
func (w *workerProcess) ask(ctx context.Context, key string) (string, error) {
	answer := make(chan string, 1)
	w.mu.Lock()
	w.last++
	id := w.last
	w.asked[id] = answer
	_ = w.out.Encode(message{Op: "load", ID: id, Key: key})
	w.mu.Unlock()
	select {
	case v := <-answer:
		return v, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// In a storm, source and witness are Redis keys beside the cache's: stormVersion
// is the source's row, stormConfirmed the version whose invalidation was
// confirmed last, and stormLoads counts loads at the source.
const (
	stormVersion   = "source:version"
	stormConfirmed = "source:confirmed"
	stormLoads     = "source:loads"

	stormLoadTime = 50 * time.Millisecond
)

// storm is a number of readers that read one key over and over.
type storm struct {
	wg      sync.WaitGroup
	stopped atomic.Bool

	mu     sync.Mutex
	report stormReport
}

func startStorm(client *redis.Client, cache *leasecache.Cache[string], key string, readers int) *storm {
	s := &storm{}
	ctx := context.Background()
	// The slow source: what it returns is as old as the beginning of the load.
	load := func(ctx context.Context) (string, error) {
		if err := client.Incr(ctx, stormLoads).Err(); err != nil {
			return "", err
		}
		v, err := client.Get(ctx, stormVersion).Result()
		if err != nil {
			return "", err
		}
		select {
		case <-time.After(stormLoadTime):
			return v, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	for range readers {
		s.wg.Go(func() {
			for !s.stopped.Load() {
				// Readers come at any time of a load. Without a pause all would come
				// together, when the one before has ended.
				time.Sleep(rand.N(2 * stormLoadTime))
				confirmed, err := client.Get(ctx, stormConfirmed).Int()
				if err != nil {
					s.count(0, false, fmt.Errorf("the witness: %w", err))
					continue
				}
				began := time.Now()
				v, err := cache.Get(ctx, key, load)
				took := time.Since(began)
				if err != nil {
					s.count(took, false, err)
					continue
				}
				version, err := strconv.Atoi(v)
				if err != nil {
					s.count(took, false, err)
					continue
				}
				if version < confirmed {
					s.count(took, true, fmt.Errorf("read version %d, after the invalidation of %d was confirmed", version, confirmed))
					continue
				}
				s.count(took, false, nil)
			}
		})
	}
	return s
}

func (s *storm) count(took time.Duration, old bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.report
	r.Reads++
	r.Slowest = max(r.Slowest, took)
	switch {
	case old:
		r.Old++
	case err != nil:
		r.Failed++
	}
	if err != nil && r.Example == "" {
		r.Example = err.Error()
	}
}

// end returns when the last read has ended.
func (s *storm) end() *stormReport {
	s.stopped.Store(true)
	s.wg.Wait()
	return &s.report
}

// ---- in the test's process ----

// worker is a worker process as the test sees it.
type worker struct {
	t   testing.TB
	cmd *exec.Cmd
	in  *json.Encoder

	source *source

	mu      sync.Mutex
	last    int
	answers map[int]chan message
}

// source receives the loads of all workers of a test.
type source struct{ asked chan *asked }

func newSource() *source { return &source{make(chan *asked, 1024)} }

// asked is a load that runs in a worker.
type asked struct {
	w  *worker
	id int
}

// answer ends the load.
func (a *asked) answer(v string) { a.w.tell(message{Op: "value", ID: a.id, Value: v}) }

// next waits for a load.
func (s *source) next(t testing.TB) *asked {
	t.Helper()
	return await(t, "a worker loads", s.asked)
}

// wantNoMore checks that no load is waiting for its answer.
func (s *source) wantNoMore(t testing.TB) {
	t.Helper()
	if n := len(s.asked); n > 0 {
		t.Errorf("%d more loads ran", n)
	}
}

// startWorkers starts processes and returns when all of them are ready.
func startWorkers(t testing.TB, n int, cfg workerConfig, s *source) []*worker {
	t.Helper()
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var (
		ws    []*worker
		ready []<-chan message
	)
	for range n {
		w := &worker{t: t, cmd: exec.Command(self), source: s, answers: map[int]chan message{}}
		w.cmd.Env = append(os.Environ(), workerEnv+"="+string(config))
		w.cmd.Stderr = os.Stderr
		in, err := w.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := w.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		w.in = json.NewEncoder(in)
		first := make(chan message, 1)
		w.answers[0] = first
		if err := w.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			w.hear(out)
		}()
		t.Cleanup(func() {
			w.kill()
			<-heard
			_ = w.cmd.Wait() // killed, so never nil
		})
		ws, ready = append(ws, w), append(ready, first)
	}
	for _, r := range ready {
		await(t, "a worker is ready", r)
	}
	return ws
}

// hear takes in what the worker says until it ends.
func (w *worker) hear(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			w.t.Errorf("a worker said %q: %v", lines.Text(), err)
			continue
		}
		if m.Op == "load" {
			w.source.asked <- &asked{w, m.ID}
			continue
		}
		w.mu.Lock()
		c := w.answers[m.ID]
		w.mu.Unlock()
		c <- m
	}
}

func (w *worker) tell(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.in.Encode(m); err != nil {
		w.t.Errorf("telling a worker to %s: %v", m.Op, err)
	}
}

// send sends a message to which n answers are expected.
func (w *worker) send(m message, n int) <-chan message {
	c := make(chan message, n)
	w.mu.Lock()
	w.last++
	m.ID = w.last
	w.answers[m.ID] = c
	w.mu.Unlock()
	w.tell(m)
	return c
}

// get starts n reads of the key k in the worker.
func (w *worker) get(n int) <-chan message {
	return w.send(message{Op: "get", Key: "k", N: n}, n)
}

func (w *worker) stats() leasecache.Stats {
	w.t.Helper()
	return *await(w.t, "a worker tells its statistics", w.send(message{Op: "stats"}, 1)).Stats
}

// misses waits until n reads of the worker wait for a load.
func (w *worker) misses(n uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d reads of a worker have missed", n), func() bool { return w.stats().Misses >= n })
}

func (w *worker) kill() { _ = w.cmd.Process.Kill() } // it may have ended already

// wantGot checks the answer to a get.
func wantGot(t testing.TB, got message, value string, uncached leasecache.Reason, sources ...leasecache.Source) {
	t.Helper()
	ok := false
	for _, s := range sources {
		ok = ok || got.Source == s
	}
	if got.Err != "" || got.Value != value || got.Uncached != uncached || !ok {
		t.Errorf("a worker got %q, %s, uncached %q, error %q; want %q, one of %v, uncached %q",
			got.Value, got.Source, got.Uncached, got.Err, value, sources, uncached)
	}
}
