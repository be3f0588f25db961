package histories

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	_ "github.com/leasecache/leasecache/adapters/glide"
	_ "github.com/leasecache/leasecache/adapters/goredis"
	_ "github.com/leasecache/leasecache/adapters/redigo"
	_ "github.com/leasecache/leasecache/adapters/rueidis"
	_ "github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/tests/faults"
)

var (
	duration = flag.Duration("duration", 15*time.Second, "how long processes run, on all sites together")
	seed     = flag.Uint64("seed", 0, "what decides about loads, reads and faults; 0: a new one")
	all      = flag.Bool("all", false, "on all topologies, and not on a single server alone")
	only     = flag.String("topology", "", "run this one alone: standalone, sentinel or cluster")
	least    = flag.Int("operations", 3000, "fail below this number of operations")
	readers  = flag.Int("readers", 16, "how many read in a process")
	calm     = flag.Bool("calm", false, "no faults")
)

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(workerEnv); ok {
		redis.SetLogger(silent{})
		// glide writes on threads that Go does not know: see the limits in its adapter's documentation.
		signal.Ignore(syscall.SIGPIPE)
		if err := work(config); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// silent keeps go-redis from printing each connection that a fault has broken.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// drivers are the clients that a topology has.
var drivers = map[faults.Topology][]string{
	faults.Standalone: {"goredis", "rueidis", "valkeygo", "redigo", "glide"},
	faults.Sentinel:   {"goredis", "rueidis", "valkeygo"},
	faults.Cluster:    {"goredis", "rueidis", "valkeygo", "glide"},
}

// checkFor bounds the search for an order of the operations on one key.
const checkFor = 10 * time.Second

// enough violations end the check: to search in vain takes longest.
const enough = 3

func TestHistories(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	topologies := chosen(t)
	operations, happened, violations := 0, 0, 0
	for _, topology := range topologies {
		t.Run(string(topology), func(t *testing.T) {
			plan := faults.Plan(*seed, topology)
			if *calm {
				plan = slices.Values([]faults.Fault(nil))
			}
			s := startSite(t, topology, *seed, func(*workerConfig) {})
			those := s.run(t, *duration/time.Duration(len(topologies)), plan)
			violations += s.check(t)
			operations += s.operations
			happened += len(those)
			t.Logf("%d operations on %d keys, %d faults: %v", s.operations, s.keys, len(those), names(those))
		})
	}
	fmt.Printf("histories: operations=%d faults=%d violations=%d\n", operations, happened, violations)
	if violations > 0 {
		t.Errorf("run again with: go test ./histories -run=TestHistories -args -seed=%d -duration=%v -all=%v -topology=%s", *seed, *duration, *all, *only)
	}
	if operations < *least {
		t.Errorf("%d operations; want %d or more", operations, *least)
	}
	if !*calm && happened == 0 {
		t.Error("no fault happened")
	}
}

// chosen returns the topologies that the flags say.
func chosen(t *testing.T) []faults.Topology {
	t.Helper()
	switch one := faults.Topology(*only); {
	case *only != "" && drivers[one] == nil:
		t.Fatalf("-topology=%q: want standalone, sentinel or cluster", *only)
		return nil
	case *only != "":
		return []faults.Topology{one}
	case *all:
		return []faults.Topology{faults.Standalone, faults.Sentinel, faults.Cluster}
	default:
		return []faults.Topology{faults.Standalone}
	}
}

func names(those []injected) (names []string) {
	for _, i := range those {
		names = append(names, i.fault.Name)
	}
	return names
}

// A site is a topology, its source and its processes.
type site struct {
	faults.Site
	seed      uint64
	source    *source
	socket    string
	epoch     int64
	processes []*process
	excused   []span      // in which what was confirmed may be lost
	mayEnd    atomic.Bool // rueidis and valkey-go may end their process at maxclients: see docs/adapters.md
	once      bool        // the run ends with the last planned fault, and not with its time

	operations, keys int
}

// span is a time on the monotonic clock.
type span struct{ from, to int64 }

// startSite starts a topology and a process of each client that it has. change may
// change how a process runs.
func startSite(t *testing.T, topology faults.Topology, seed uint64, change func(*workerConfig)) *site {
	s := &site{Site: *faults.NewSite(t, topology, "valkey-9", rand.New(rand.NewPCG(seed, 1))), seed: seed}
	s.source, s.socket = startSource(t)
	s.epoch = now()
	for i, name := range drivers[topology] {
		dsn := s.NewProcess(name)
		p := &process{t: t, site: s, cfg: workerConfig{
			Driver: name, DSN: dsn, Source: s.socket, Seed: seed, Process: i + 1, Profile: profiles[i%len(profiles)],
			Epoch: s.epoch, Readers: *readers, Pace: time.Millisecond,
		}}
		change(&p.cfg)
		s.processes = append(s.processes, p)
		s.Processes = append(s.Processes, p)
	}
	return s
}

// An injected fault is one that happened, from when until all processes had read
// something again after it.
type injected struct {
	fault faults.Fault
	span
}

// outage is the longest time in a span in which some process read nothing.
func (s *site) outage(x span) (longest time.Duration) {
	for _, p := range s.processes {
		calls := []int64{x.from, x.to}
		for _, o := range p.operations {
			if o.Kind != Invalidate && o.Call > x.from && o.Call < x.to {
				calls = append(calls, o.Call)
			}
		}
		slices.Sort(calls)
		for i := range len(calls) - 1 {
			longest = max(longest, time.Duration(calls[i+1]-calls[i]))
		}
	}
	return longest
}

// replicationLag is how far replicas may be behind.
const replicationLag = time.Second

// afterExcuse is the time after a fault that excuses what is read, in which nothing
// else goes wrong: keys of the generations in it are compared.
const afterExcuse = 3 * generation

// serveWithin is how long processes may take to read again after a fault. The
// slowest are clients that ask only every few seconds who the primary is.
const serveWithin = time.Minute

// run lets the processes run for a time, or until all planned faults have happened.
// It returns those that did.
func (s *site) run(t *testing.T, d time.Duration, planned iter.Seq[faults.Fault]) (happened []injected) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range s.processes {
		wg.Go(func() { p.keepRunning(ctx) })
	}
	s.serve(ctx, t, now()) // clients of clusters take a while to open
	for f := range planned {
		if !pause(ctx, time.Duration(s.Rand.Int64N(int64(time.Second)))) {
			break
		}
		from := now()
		s.mayEnd.Store(f.Name == "maxclients")
		acting, cancel := context.WithTimeout(t.Context(), serveWithin)
		heal, err := f.Inject(acting, &s.Site)
		if err == nil && heal != nil {
			pause(ctx, f.Lasts)
			err = heal(acting)
		}
		cancel()
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			break
		}
		if f.Excuses {
			s.excused = append(s.excused, span{from - int64(replicationLag), now()})
		}
		if !s.serve(ctx, t, now()) {
			break // the time was over
		}
		happened = append(happened, injected{f, span{from, now()}})
		if f.Excuses {
			pause(ctx, afterExcuse)
		}
	}
	if !s.once {
		<-ctx.Done()
	}
	cancel()
	wg.Wait()
	return happened
}

// serve waits until each process has begun a read after a time, and got something.
func (s *site) serve(ctx context.Context, t *testing.T, since int64) (ok bool) {
	t.Helper()
	for _, p := range s.processes {
		for p.served.Load() <= since {
			if now()-since > int64(serveWithin) {
				t.Errorf("%s reads nothing %v after the fault has ended", p.cfg.Driver, serveWithin)
				return false
			}
			if !pause(ctx, 5*time.Millisecond) {
				return false
			}
		}
	}
	return true
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// check checks the history of each key, and returns how many cannot be.
func (s *site) check(t *testing.T) int {
	histories := map[string][]Operation{}
	for _, w := range s.source.writes {
		histories[w.Key] = append(histories[w.Key], w)
	}
	errs := map[string]int{}
	for _, p := range s.processes {
		for _, o := range p.operations {
			histories[o.Key] = append(histories[o.Key], o)
		}
		for what, n := range p.errors {
			errs[what] += n
		}
		for _, what := range p.wrong[:min(len(p.wrong), 3)] {
			t.Errorf("%s: an error that the documentation does not name: %s", p.cfg.Driver, what)
		}
		t.Logf("%s (%s): %d operations, started %d times", p.cfg.Driver, p.cfg.Profile.Name, len(p.operations), p.starts)
		s.operations += len(p.operations)
		if len(p.operations) == 0 {
			t.Errorf("%s did nothing", p.cfg.Driver)
		}
	}
	t.Logf("errors: %v", errs)
	keys := slices.Sorted(maps.Keys(histories))
	s.keys = len(keys)
	var (
		mu    sync.Mutex
		wrong []*Violation
		wg    sync.WaitGroup
		next  atomic.Int64

		excused atomic.Int64
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				mu.Lock()
				found := len(wrong)
				mu.Unlock()
				if n >= len(keys) || found >= enough {
					return
				}
				history := histories[keys[n]]
				if s.isExcused(history) {
					excused.Add(1)
					continue
				}
				if v := checkKey(keys[n], history, staleFor, checkFor); v != nil {
					mu.Lock()
					wrong = append(wrong, v)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d keys, of which %d are excused", len(keys), excused.Load())
	if len(keys)-int(excused.Load()) < keysPerGeneration {
		t.Error("fewer keys are compared than one generation has")
	}
	for _, v := range wrong {
		t.Errorf("%s: key %s: %s", s.Topology, v.Key, v.Why)
		if err := os.MkdirAll("out", 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := filepath.Abs(filepath.Join("out", fmt.Sprintf("%s-%s.html", s.Topology, strings.ReplaceAll(v.Key, ":", "-"))))
		if err != nil {
			t.Fatal(err)
		}
		if drawn, err := v.Draw(file); err != nil {
			t.Error(err)
		} else if drawn {
			t.Logf("its picture: %s", file)
		}
	}
	return len(wrong)
}

// isExcused reports whether something of a history happened while what was
// confirmed may have been lost.
func (s *site) isExcused(history []Operation) bool {
	return slices.ContainsFunc(s.excused, func(x span) bool {
		return slices.ContainsFunc(history, func(o Operation) bool { return o.Call < x.to && o.Return > x.from })
	})
}

// A process is a worker, started again whenever it ends before its time.
type process struct {
	t      *testing.T
	site   *site
	cfg    workerConfig
	starts int

	served atomic.Int64 // when its last read began that returned something

	mu  sync.Mutex
	now *os.Process

	recorded
}

// Signal implements [faults.Process].
func (p *process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return errors.New("histories: the process is not running")
	}
	return p.now.Signal(sig)
}

// keepRunning runs the process until ctx ends.
func (p *process) keepRunning(ctx context.Context) {
	p.errors = map[string]int{}
	for ctx.Err() == nil {
		p.starts++
		p.cfg.Seed = p.site.seed + uint64(p.starts)
		if err := p.runOnce(ctx); err != nil {
			p.t.Errorf("%s: %v", p.cfg.Driver, err)
			return
		}
	}
}

func (p *process) runOnce(ctx context.Context) error {
	config, err := json.Marshal(p.cfg)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	// Not by standard output: clients may write there too.
	out, records, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.ExtraFiles = []*os.File{records}
	err = cmd.Start()
	records.Close()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.now = cmd.Process
	p.mu.Unlock()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
			in.Close()
			select {
			case <-time.After(30 * time.Second):
				p.t.Errorf("%s does not end", p.cfg.Driver)
				_ = cmd.Process.Kill()
			case <-ended:
			}
		case <-ended:
		}
	})
	rec, err := collect(out, p.cfg.Process, p.served.Store)
	if err != nil {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
	}
	end := cmd.Wait()
	close(ended)
	wg.Wait()
	p.mu.Lock()
	p.now = nil
	p.mu.Unlock()
	p.operations = append(p.operations, rec.operations...)
	p.wrong = append(p.wrong, rec.wrong...)
	p.uses = append(p.uses, rec.uses...)
	for what, n := range rec.errors {
		p.errors[what] += n
	}
	if err != nil {
		return err
	}
	var exit *exec.ExitError
	if errors.As(end, &exit) && (exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL || p.site.mayEnd.Load()) {
		return nil
	}
	return end
}
