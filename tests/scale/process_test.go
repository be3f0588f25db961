package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/servertest"
)

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(workerEnv); ok {
		if err := work(config); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// workerEnv, when set, makes this binary a process of a scenario. It holds a
// workerConfig.
const workerEnv = "LEASECACHE_SCALE_WORKER"

type workerConfig struct {
	Addr     string
	Scenario scenario
	Woken    bool
}

// patience bounds what a loaded machine may take for a command. It is below the
// wait bound, above which reads that wait poll.
const patience = lease / 2

// work is the main function of a worker. It says that it is ready, waits for a
// line, runs, says what it saw, and waits for the end of its input.
func work(config string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: cfg.Addr})
	defer rdb.Close()
	cache, err := newCache(goredis.New(rdb), cfg.Woken, patience)
	if err != nil {
		return err
	}
	if err := rdb.Ping(context.Background()).Err(); err != nil {
		return err
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	if err := out.Encode("ready"); err != nil {
		return err
	}
	if !in.Scan() {
		return in.Err()
	}
	if err := out.Encode(process(cache, cfg.Scenario)); err != nil {
		return err
	}
	in.Scan()
	return nil
}

// marginFlag is how far the number of commands of real processes may be from that
// of simulated ones. How often a read polls depends on when its timer fires and on
// how long its round trips take, which on a loaded machine is anybody's guess. So
// only make scale sets it, which is run when nothing else is.
var marginFlag = flag.Float64("margin", 0, "the factor by which real commands may differ from simulated ones; 0 for any")

var realFlag = flag.String("real", "10", "the numbers of real processes")

// TestProcesses runs the scenarios with real processes on a real server, beside
// simulated ones.
func TestProcesses(t *testing.T) {
	server := servertest.Start(t, servertest.Named(t, "valkey-9"))
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { admin.Close() })

	// Scripts that the server knows are run by their digest alone.
	warm, err := newCache(goredis.New(admin), false, patience)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := warm.Get(t.Context(), "warm", func(context.Context) (string, error) { return value, nil }); err != nil {
		t.Fatal(err)
	}
	if err := warm.Invalidate(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "scenario\tprocesses\tmode\t\treads\tinvalidations\tloads\tEVALSHA\tGET\tSSUBSCRIBE\tSPUBLISH\tslowest read, ms\t")
	for _, sc := range scenarios {
		for _, n := range numbers(t, *realFlag) {
			for _, woken := range []bool{false, true} {
				sim := simulate(t, sc, n, woken)
				proc := run(t, admin, sc, n, woken)
				for _, r := range []struct {
					what string
					row
				}{{"simulated", sim}, {"processes", proc}} {
					fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t\n", sc, n, r.mode(), r.what, r.Reads, r.invalidations, r.Loads,
						r.commands["evalsha"], r.commands["get"], r.commands["ssubscribe"], r.commands["spublish"], float64(r.Slowest)/float64(time.Millisecond))
				}
				compare(t, sim, proc)
			}
		}
	}
	w.Flush()
}

// compare checks the model against the processes.
func compare(t *testing.T, sim, proc row) {
	t.Helper()
	name := fmt.Sprintf("%s, %d processes, %s", sim.scenario, sim.processes, sim.mode())
	if sim.Failed+proc.Failed > 0 {
		t.Errorf("%s: %d simulated and %d real reads failed: %s%s", name, sim.Failed, proc.Failed, sim.Example, proc.Example)
	}
	// In a storm readers read as often as they get to.
	if sim.scenario != storm && (sim.Loads != proc.Loads || sim.Reads != proc.Reads) {
		t.Errorf("%s: %d simulated reads cause %d loads, %d real ones %d", name, sim.Reads, sim.Loads, proc.Reads, proc.Loads)
	}
	// A writer that gets to fewer invalidations causes fewer of all else.
	slower := 1.0
	if sim.scenario == storm {
		slower = float64(sim.invalidations) / float64(proc.invalidations)
	}
	within := func(what string, s, p int) {
		if f, most := slower*float64(p)/float64(s), *marginFlag; most > 0 && (f > most || f < 1/most) {
			t.Errorf("%s: simulated %d %s, and real %d, which is not within a factor of %v (the real writer is slower by %.2f)", name, s, what, p, most, slower)
		}
	}
	if sim.scenario == storm {
		within("loads", sim.Loads, proc.Loads)
	}
	within("EVALSHA", sim.commands["evalsha"], proc.commands["evalsha"])
	within("GET", sim.commands["get"], proc.commands["get"])
	if sim.scenario == crashed && proc.Slowest < lease-arrival-time.Second {
		t.Errorf("%s: the slowest read took %v, though the lease was held for %v", name, proc.Slowest, lease)
	}
	// On a loaded machine all may come when the load of a cold key is over.
	if n := proc.commands["ssubscribe"]; n > 0 && !sim.woken || n == 0 && sim.woken && sim.scenario == crashed {
		t.Errorf("%s: real processes subscribed %d times", name, proc.commands["ssubscribe"])
	}
}

// run runs a scenario with real processes.
func run(t *testing.T, admin *redis.Client, sc scenario, processes int, woken bool) row {
	t.Helper()
	config, err := json.Marshal(workerConfig{admin.Options().Addr, sc, woken})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type worker struct {
		in  io.WriteCloser
		out *json.Decoder
	}
	workers := make([]worker, processes)
	for i := range workers {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env, cmd.Stderr = append(os.Environ(), workerEnv+"="+string(config)), os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }() // what it had to say it has said
		defer in.Close()
		workers[i] = worker{in, json.NewDecoder(out)}
	}
	for _, w := range workers {
		var ready string
		if err := w.out.Decode(&ready); err != nil {
			t.Fatal(err)
		}
	}
	writer, err := newCache(goredis.New(admin), woken, patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Invalidate(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if sc == crashed {
		if err := crash(t.Context(), goredis.New(admin)); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		if _, err := io.WriteString(w.in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	r := row{scenario: sc, processes: processes, woken: woken}
	if sc == storm {
		if r.invalidations, err = invalidate(t.Context(), writer); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range workers {
		var one report
		if err := w.out.Decode(&one); err != nil {
			t.Fatal(err)
		}
		r.add(one)
	}
	r.commands = commandStats(t, admin)
	return r
}

// commandStats returns how often each command was called since the statistics were
// reset, by clients and by scripts.
func commandStats(t *testing.T, admin *redis.Client) map[string]int {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for line := range strings.Lines(info) {
		// cmdstat_get:calls=12,usec=34,...
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		n, _, _ := strings.Cut(rest, ",")
		if calls[name], err = strconv.Atoi(n); err != nil {
			t.Fatalf("INFO says %q: %v", line, err)
		}
	}
	return calls
}
