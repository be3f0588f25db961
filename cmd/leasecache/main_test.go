package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/adapters/miniredis"
	"github.com/leasecache/leasecache/cmd/leasecache/internal/demo"
)

// TestMain makes the test binary a worker when the demo starts it as one, and
// the whole command when a test does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == demo.WorkerCommand || os.Getenv(asCommand) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// asCommand is the variable that makes the test binary the command.
const asCommand = "LEASECACHE_TEST_AS_COMMAND"

// buffer is a bytes.Buffer for several processes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// leasecache runs a command line in this process.
func leasecache(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp) // on Windows
	var out, err buffer
	status = run(t.Context(), args, strings.NewReader(""), &out, &err)
	if left, e := os.ReadDir(tmp); e != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, e)
	}
	return status, out.String(), err.String()
}

// result is what --json prints.
type result struct {
	Acts []struct {
		Name          string
		Naive, Leases outcome
	}
	OK bool
}

type outcome struct {
	Loads       int   `json:"loads"`
	StaleReads  int   `json:"stale_reads"`
	CachedStale bool  `json:"cached_stale"`
	SlowestMS   int64 `json:"slowest_ms"`
}

// parse decodes what --json prints: one line, which holds nothing else.
func parse(t *testing.T, stdout string) result {
	t.Helper()
	if strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n") {
		t.Fatalf("standard output is not one line:\n%s", stdout)
	}
	var r result
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in:\n%s", err, stdout)
	}
	return r
}

// check checks what a demo with default options must show.
func check(t *testing.T, r result, workers, readers int) {
	t.Helper()
	var names []string
	for _, a := range r.Acts {
		names = append(names, a.Name)
		if a.Leases.StaleReads != 0 || a.Leases.CachedStale {
			t.Errorf("%s with leases: %+v, want nothing stale", a.Name, a.Leases)
		}
		if a.Naive.SlowestMS <= 0 || a.Leases.SlowestMS <= 0 {
			t.Errorf("%s: the slowest readers took %d and %d ms, want more than 0", a.Name, a.Naive.SlowestMS, a.Leases.SlowestMS)
		}
	}
	if diff := cmp.Diff([]string{"stampede", "late_fill", "expired_lease", "crashed_holder"}, names); diff != "" {
		t.Fatalf("acts (-want +got):\n%s", diff)
	}
	stampede, late, expired, crashed := r.Acts[0], r.Acts[1], r.Acts[2], r.Acts[3]
	if n := stampede.Leases.Loads; n != 1 {
		t.Errorf("stampede with leases: %d loads, want 1", n)
	}
	if n := stampede.Naive.Loads; n < 2 || n > workers {
		t.Errorf("naive stampede: %d loads, want from 2 to one per process, %d", n, workers)
	}
	if n := late.Leases.Loads; n != 2 {
		t.Errorf("late fill with leases: %d loads, want the late one and one more", n)
	}
	if !late.Naive.CachedStale || late.Naive.StaleReads < workers*readers {
		t.Errorf("naive late fill: %+v, want a stale value cached, and read by all %d readers", late.Naive, workers*readers)
	}
	if !expired.Naive.CachedStale || expired.Naive.StaleReads < workers*readers {
		t.Errorf("naive expired lease: %+v, want a stale value cached, and read by all %d readers", expired.Naive, workers*readers)
	}
	if n := crashed.Leases.Loads; n < 2 {
		t.Errorf("crashed holder with leases: %d loads, want the one that died and another", n)
	}
	if !r.OK {
		t.Error("ok is false")
	}
}

func TestDemoPrintsNothingButJSONAndKeepsThePromises(t *testing.T) {
	status, stdout, stderr := leasecache(t, "demo", "--json", "--workers", "3", "--readers", "5")
	if status != 0 {
		t.Fatalf("exit status %d, want 0; standard error:\n%s", status, stderr)
	}
	check(t, parse(t, stdout), 3, 5)
	for _, act := range []string{"stampede", "late_fill", "expired_lease", "crashed_holder"} {
		for _, side := range []string{"naive", "leases"} {
			if !strings.Contains(stderr, act+", "+side+":") {
				t.Errorf("standard error does not tell of %s, %s:\n%s", act, side, stderr)
			}
		}
	}
	checkNoChildren(t)
}

func TestDemoOnAServerByDSNLeavesNoKeyBehind(t *testing.T) {
	s := miniredis.New()
	defer s.Close()
	addr, err := s.Listen("")
	if err != nil {
		t.Fatal(err)
	}
	s.Miniredis().RequireAuth("se#cret")
	status, stdout, stderr := leasecache(t, "demo", "--workers", "2", "--readers", "3",
		"--driver", "goredis", "--dsn", "redis://:se%23cret@"+addr)
	if status != 0 {
		t.Fatalf("exit status %d, want 0; standard error:\n%s", status, stderr)
	}
	for _, want := range []string{"slowest reader", "stampede", "naive", "leases", "STALE", "OK. With leases, the 6 readers in 2 processes caused 1 load"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("standard output does not hold %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout+stderr, "cret") {
		t.Errorf("the password was printed:\n%s%s", stdout, stderr)
	}
	if keys := s.Miniredis().Keys(); len(keys) > 0 {
		t.Errorf("keys left on the server: %q", keys)
	}
}

func TestMistakesSayWhatToDo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := l.Addr().String()
	l.Close()
	for _, test := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"an unknown command", []string{"demos"}, 2, `unknown command "demos"`},
		{"an argument", []string{"demo", "now"}, 2, `unknown command "now"`},
		{"an unknown flag", []string{"demo", "--fast"}, 2, "unknown flag: --fast"},
		{"a flag without its value", []string{"demo", "--dsn"}, 2, "flag needs an argument: --dsn"},
		{"workers that are no number", []string{"demo", "--workers", "many"}, 2, `invalid argument "many"`},
		{"no workers", []string{"demo", "--workers", "0"}, 2, "--workers is 0: it must be from 2 to 64"},
		{"one worker", []string{"demo", "--workers=1"}, 2, "--workers is 1: it must be from 2 to 64"},
		{"less than no workers", []string{"demo", "--workers=-3"}, 2, "--workers is -3"},
		{"too many workers", []string{"demo", "--workers", "65"}, 2, "--workers is 65"},
		{"no readers", []string{"demo", "--readers", "0"}, 2, "--readers is 0: it must be from 1 to 1000"},
		{"too many readers", []string{"demo", "--readers", "1001"}, 2, "--readers is 1001"},
		{"an unknown driver", []string{"demo", "--driver", "mysql", "--dsn", "x"}, 2, `--driver "mysql": no such driver: this program has goredis, miniredis`},
		{"an empty driver", []string{"demo", "--driver", "", "--dsn", "x"}, 2, `--driver "": no such driver`},
		{"a driver without a DSN", []string{"demo", "--driver", "goredis"}, 2, "--dsn is not set"},
		{"a DSN without a driver", []string{"demo", "--dsn", "redis://localhost"}, 2, "add --driver goredis"},
		{"a DSN that is none", []string{"demo", "--driver", "goredis", "--dsn", "localhost:6379"}, 2, "--dsn: "},
		{"a DSN with a broken password", []string{"demo", "--driver", "goredis", "--dsn", "redis://:hush%zz@localhost"}, 2, "--dsn: "},
		{"a DSN with an unknown parameter", []string{"demo", "--driver", "goredis", "--dsn", "redis://:hush@localhost?fast=1"}, 2, `"fast"`},
		{"a DSN of a ring", []string{"demo", "--driver", "goredis", "--dsn", "redis+ring://:hush@localhost:1"}, 2, "the naive side of the demo cannot use it"},
		{"a server that is down", []string{"demo", "--driver", "goredis", "--dsn", "redis://:hush@" + down}, 1, "the server does not answer"},
		{"a cluster that is down", []string{"demo", "--driver", "goredis", "--dsn", "redis+cluster://:hush@" + down}, 1, "the server does not answer"},
		{"sentinels that are down", []string{"demo", "--driver", "goredis", "--dsn", "redis+sentinel://" + down + "?master_name=hush"}, 1, "the server does not answer"},
		{"a worker by hand", []string{demo.WorkerCommand}, 1, "is started by the demo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := leasecache(t, test.args...)
			if status != test.status {
				t.Errorf("exit status %d, want %d", status, test.status)
			}
			if stdout != "" {
				t.Errorf("standard output is not empty:\n%s", stdout)
			}
			if !strings.Contains(stderr, test.want) || !strings.HasPrefix(stderr, "leasecache") {
				t.Errorf("standard error does not hold %q:\n%s", test.want, stderr)
			}
			if usage := strings.Contains(stderr, "--help"); usage != (test.status == 2) {
				t.Errorf("usage is named: %v, with exit status %d:\n%s", usage, test.status, stderr)
			}
			if strings.Contains(stderr, "hush") {
				t.Errorf("the password was printed:\n%s", stderr)
			}
		})
	}
}

func TestHelpExplainsTheActsAndHidesTheWorker(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"Usage:", "demo", "--help"}},
		{[]string{"--help"}, []string{"Usage:", "demo"}},
		{[]string{"help", "demo"}, []string{"stampede", "late_fill", "expired_lease", "crashed_holder", "--workers", "--readers", "--driver", "--dsn", "--json"}},
	} {
		status, stdout, stderr := leasecache(t, test.args...)
		if status != 0 || stderr != "" {
			t.Errorf("%q: exit status %d, standard error %q", test.args, status, stderr)
		}
		if i := slices.IndexFunc(test.want, func(s string) bool { return !strings.Contains(stdout, s) }); i >= 0 {
			t.Errorf("%q does not print %q:\n%s", test.args, test.want[i], stdout)
		}
		if strings.Contains(stdout, demo.WorkerCommand) {
			t.Errorf("%q shows the worker's command:\n%s", test.args, stdout)
		}
	}
}

// TestASignalEndsTheDemoAndAllThatItStarted runs the command as a process of its
// own, because a signal is one's own process's matter.
func TestASignalEndsTheDemoAndAllThatItStarted(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"server:", "source:", "workers:", "late_fill, naive:", "expired_lease, naive:"} {
		t.Run("after "+at, func(t *testing.T) {
			tmp := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, path, "demo", "--workers", "3", "--readers", "2", "--json")
			cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+tmp, "TMP="+tmp)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr := &trigger{at: at, do: func() {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Errorf("interrupt: %v", err)
				}
			}}
			cmd.Stderr = stderr
			// Wait ends only when every process that holds the pipes has ended.
			err := cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.Contains(stderr.String(), "interrupted") {
				t.Errorf("%v (exit status %d), want exit status 1 and to be told of it:\n%s", err, got, stderr)
			}
			if stdout.Len() > 0 {
				t.Errorf("standard output is not empty:\n%s", &stdout)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
		})
	}
}

// trigger is a buffer that does something once, when a text has come.
type trigger struct {
	buffer
	at   string
	do   func()
	once sync.Once
}

func (b *trigger) Write(p []byte) (int, error) {
	n, err := b.buffer.Write(p)
	if strings.Contains(b.String(), b.at) {
		b.once.Do(b.do)
	}
	return n, err
}
