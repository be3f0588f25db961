// Command benchmarks measures what leasecache costs beside the bare commands of the client that it uses, and beside other
// caches, on a real server.
//
//	go run .           # at least 6 runs of everything, some minutes
//	go run . -quick    # fewer and shorter runs
//
// Both sides of every figure are measured in the same run, taking turns. The table goes to standard output, the figures also
// to out/latest.json, and what is under way to standard error. A bar that is missed is said so in the table and does not
// change the exit status. See docs/benchmarks.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// plan is how much is measured.
type plan struct {
	runs            int
	latencyPairs    int // of blocks in a run
	throughputPairs int // of turns in a run
	largePairs      int // of blocks of large values in a run
	wakeRounds      int // in a run, of each mode
	nearDrops       int // in a run
}

var (
	full  = plan{runs: 7, latencyPairs: 200, throughputPairs: 50, largePairs: 20, wakeRounds: 10, nearDrops: 10_000}
	quick = plan{runs: 3, latencyPairs: 40, throughputPairs: 15, largePairs: 5, wakeRounds: 4, nearDrops: 2_000}
)

// config is what the command line says.
type config struct {
	plan
	addr, server string
	only         *regexp.Regexp
	wakeClient   string
	out, plots   string
	profile      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if os.Getenv(workerEnv) != "" {
		err = work(ctx, os.Args[1:])
	} else {
		err = run(ctx, parse())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func parse() config {
	c := config{only: regexp.MustCompile("")}
	isQuick := flag.Bool("quick", false, "fewer and shorter runs")
	runs := flag.Int("runs", 0, "how often everything is measured (default 7, or 3 with -quick)")
	flag.StringVar(&c.addr, "addr", "", "host:port of a server that runs and does nothing else (default: one is started)")
	flag.StringVar(&c.server, "server", "valkey-9", "the `name` of the server to start, from the table of package servertest")
	flag.Func("only", "a `regexp`: measure only figures whose name matches", func(s string) (err error) {
		c.only, err = regexp.Compile(s)
		return err
	})
	flag.StringVar(&c.wakeClient, "wake-client", goRedis, "the `client` of the processes of wake/*")
	flag.StringVar(&c.plots, "plots", "", "a `directory` for a plot of each group")
	flag.StringVar(&c.out, "out", filepath.Join("out", "latest.json"), "the `file` that the figures go to as JSON")
	flag.StringVar(&c.profile, "cpuprofile", "", "a `file` for a profile of both sides, to be read with go tool pprof")
	flag.Parse()
	c.plan = full
	if *isQuick {
		c.plan = quick
	}
	if *runs > 0 {
		c.runs = *runs
	}
	return c
}

func run(ctx context.Context, c config) (err error) {
	// A request's context can be cancelled and has a deadline.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if c.addr == "" {
		addr, stop, err := startServer(ctx, c.server)
		if err != nil {
			return err
		}
		defer stop()
		c.addr = addr
	}
	server, err := identify(ctx, c.addr)
	if err != nil {
		return err
	}
	e := &env{plan: c.plan, ctx: ctx, addr: c.addr, wakeClient: c.wakeClient, admin: redis.NewClient(&redis.Options{Addr: c.addr})}
	defer func() { err = errors.Join(err, e.close()) }()
	all, err := e.probes()
	if err != nil {
		return err
	}
	probes := slices.DeleteFunc(all, func(p probe) bool { return !slices.ContainsFunc(p.specs, c.wants) })
	if len(probes) == 0 {
		return fmt.Errorf("no figure's name matches -only=%s", c.only)
	}
	if c.profile != "" {
		f, err := os.Create(c.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	figures, err := measure(ctx, c.runs, probes)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s %s/%s, %d processors, values of %d bytes, medians of %d interleaved runs\n",
		server, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), valueSize, c.runs)
	figures = slices.DeleteFunc(figures, func(f figure) bool { return !c.only.MatchString(f.Name) })
	if err := writeTable(os.Stdout, figures); err != nil {
		return err
	}
	if c.plots != "" {
		if err := plotGroups(c.plots, figures); err != nil {
			return err
		}
	}
	return save(c.out, figures)
}

// wants reports whether a figure is asked for.
func (c config) wants(s spec) bool { return c.only.MatchString(s.name) }

// measure runs all probes once, and then again, so that the runs of each are spread over the whole time.
func measure(ctx context.Context, runs int, probes []probe) ([]figure, error) {
	samples := map[string][]sample{} // by figure
	start := time.Now()
	for run := range runs {
		for i, p := range probes {
			fmt.Fprintf(os.Stderr, "\rrun %d of %d, probe %d of %d, %.0f s ", run+1, runs, i+1, len(probes), time.Since(start).Seconds())
			ss, err := p.measure(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.specs[0].name, err)
			}
			for i, spec := range p.specs {
				samples[spec.name] = append(samples[spec.name], ss[i])
			}
		}
	}
	fmt.Fprintln(os.Stderr)
	var figures []figure
	for _, p := range probes {
		for _, spec := range p.specs {
			figures = append(figures, newFigure(spec, samples[spec.name]))
		}
	}
	return figures, nil
}

// identify says which server answers at addr.
func identify(ctx context.Context, addr string) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	info := c.InfoMap(ctx, "server")
	if err := info.Err(); err != nil {
		return "", fmt.Errorf("the server at %s: %w", addr, err)
	}
	if v := info.Item("Server", "valkey_version"); v != "" {
		return "Valkey " + v, nil
	}
	return "Redis " + info.Item("Server", "redis_version"), nil
}

func save(name string, figures []figure) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := writeJSON(&b, figures); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}
