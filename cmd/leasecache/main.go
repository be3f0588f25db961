// Command leasecache shows what leasecache does.
//
//	go run ./cmd/leasecache demo
//
// plays four situations in which caches go wrong, with several processes on one
// server and one database: once with what people write today, once with leases.
// It needs nothing but Go; see "leasecache demo --help".
//
// The exit status is 0 if the demonstration showed what it should, 1 if it did
// not or could not, and 2 for a mistake on the command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasecache/leasecache/cmd/leasecache/internal/demo"
)

func main() {
	// A reader of the output that leaves early (| head) must not end the process
	// before it has cleaned up: writing fails instead.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// The exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// failure is the error of a command that was called rightly. Every other error
// that cobra returns is about the command line.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// errShown is a failure about which all has been said.
var errShown = failure{errors.New("not ok")}

// run runs the command line args and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "leasecache",
		Short:         "Show what leasecache does",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(demoCommand(), workerCommand())
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errShown) {
		return exitFailed
	}
	fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
	if errors.As(err, new(failure)) && !errors.As(err, new(demo.UsageError)) {
		return exitFailed
	}
	fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	return exitUsage
}

func demoCommand() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play four situations in which caches go wrong, without leases and with them",
		Long: `Play four situations in which caches go wrong, each without leases and with them.

Worker processes read through one cache from one slow source, a SQLite database
in a temporary folder, which logs every load itself. "naive" is what people
write today: cache-aside with GET and SET, and singleflight in each process.
"leases" is leasecache.

  stampede        All readers miss a cold key at once.
  late_fill       A load reads the row, the row changes, the key is invalidated,
                  and only then does the load end and cache what it read.
  expired_lease   A holder pauses past the end of its lease, another one loads
                  a newer value and caches it, and the first one goes on. The
                  naive side has a Redis lock: SET NX PX, and a release that
                  checks its token.
  crashed_holder  A holder is killed in the middle of its load. The naive side
                  has the same lock.

Measured are the loads at the source; the values read stale, by reads that
started after the invalidation had returned (in expired_lease: after the newer
value was cached); whether what is cached at the end is older than the source;
and the slowest reader. Progress goes to standard error, the result to standard
output.

The server is an embedded one, unless --driver and --dsn name another. There,
all keys begin with "leasecache-demo:", are deleted at the end, and expire after
a minute in any case.`,
		Example: `  leasecache demo
  leasecache demo --workers 4 --readers 100
  leasecache demo --json
  leasecache demo --driver goredis --dsn redis://user:password@localhost:6379/0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			ok, err := demo.Run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			switch {
			case err != nil:
				return failure{err}
			case !ok:
				return errShown
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&o.Workers, "workers", 8, fmt.Sprintf("worker `processes`, from %d to %d", demo.MinWorkers, demo.MaxWorkers))
	cmd.Flags().IntVar(&o.Readers, "readers", 25, fmt.Sprintf("`readers` in each of them, from 1 to %d", demo.MaxReaders))
	cmd.Flags().StringVar(&o.Driver, "driver", demo.Embedded, "`name` of the driver; "+demo.Embedded+" is the embedded server")
	cmd.Flags().StringVar(&o.DSN, "dsn", "", "where the driver finds the server, such as redis://localhost:6379")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print the result as one line of JSON")
	cmd.Flags().SortFlags = false
	return cmd
}

// workerCommand is what demo starts its workers with.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    demo.WorkerCommand,
		Short:  "Be a worker of the demo, which talks to it on standard input and output",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A terminal sends these to the workers as well. The demo ends them by
			// closing their standard input, and so does its death.
			signal.Ignore(os.Interrupt, syscall.SIGHUP)
			signal.Reset(syscall.SIGTERM)
			if err := demo.Work(context.WithoutCancel(cmd.Context()), cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}
