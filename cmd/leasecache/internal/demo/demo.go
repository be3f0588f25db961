// Package demo is the demonstration that the command leasecache gives.
package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// The bounds of [Options].
const (
	// MinWorkers: with one process nothing goes wrong between processes.
	MinWorkers = 2
	MaxWorkers = 64
	MaxReaders = 1000
)

// patience is how long the demo takes at most, and any wait in it.
const patience = 2 * time.Minute

// Options are what a user chooses.
type Options struct {
	Workers int    // processes, from MinWorkers to MaxWorkers
	Readers int    // in each of them, from 1 to MaxReaders
	Driver  string // Embedded, or a registered driver
	DSN     string // for a driver other than Embedded
	JSON    bool   // print the result as JSON
}

// UsageError is the error of a mistake in [Options].
type UsageError struct{ error }

// Unwrap returns what the error is about.
func (e UsageError) Unwrap() error { return e.error }

// Validate returns a [UsageError] if an option is out of its bounds.
func (o Options) Validate() error {
	switch {
	case o.Workers < MinWorkers || o.Workers > MaxWorkers:
		return UsageError{fmt.Errorf("--workers is %d: it must be from %d to %d", o.Workers, MinWorkers, MaxWorkers)}
	case o.Readers < 1 || o.Readers > MaxReaders:
		return UsageError{fmt.Errorf("--readers is %d: it must be from 1 to %d", o.Readers, MaxReaders)}
	case o.Driver == Embedded && o.DSN != "":
		return UsageError{errors.New("--dsn is set, but the embedded server takes none: add --driver goredis")}
	case o.Driver != Embedded && o.DSN == "":
		return UsageError{fmt.Errorf("--driver is %q, but --dsn is not set: add where the server is, such as --dsn redis://localhost:6379", o.Driver)}
	}
	return nil
}

// Run plays all acts and prints the result to stdout, and to stderr how it goes
// on and what went wrong. ok is whether the acts showed what they should. It
// returns a [UsageError] if the driver or its DSN cannot be used, and nothing
// has been printed to stdout when it returns an error, unless it is stdout's.
// When Run returns, its processes have ended and its files are gone.
//
// The program must call [Work] when it is started with [WorkerCommand] as its
// only argument.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) (ok bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the demo took longer than %v", patience))
	defer cancel()
	d := &demo{Options: o, stderr: stderr}
	defer func() {
		if e := d.close(); err == nil {
			err = e
		}
		if err != nil && errors.Is(ctx.Err(), context.Canceled) {
			err = fmt.Errorf("interrupted: %w", context.Cause(ctx)) // whatever it broke
		}
	}()
	if err := d.open(ctx); err != nil {
		return false, err
	}
	rep := report{}
	for _, a := range acts() {
		shown := shownAct{Name: a.name}
		if shown.Naive, err = d.play(ctx, a, naiveSide); err != nil {
			return false, err
		}
		if shown.Leases, err = d.play(ctx, a, leasesSide); err != nil {
			return false, err
		}
		rep.Acts = append(rep.Acts, shown)
	}
	failures := verdict(rep.Acts)
	rep.OK = len(failures) == 0
	for _, f := range failures {
		d.progress("not ok: %s", f)
	}
	if o.JSON {
		return rep.OK, json.NewEncoder(stdout).Encode(rep)
	}
	return rep.OK, rep.print(stdout, o)
}

// demo is a demonstration that runs.
type demo struct {
	Options
	stderr  io.Writer
	dir     string // of the database
	setup   setup  // of a worker, but for its number
	stop    func() error
	source  *source
	clients *clients
	workers []*process
}

// progress tells the user how it goes on.
func (d *demo) progress(format string, args ...any) {
	fmt.Fprintf(d.stderr, format+"\n", args...)
}

// open starts all that the acts need. What it has started when it fails, close
// ends.
func (d *demo) open(ctx context.Context) (err error) {
	// Runs at the same time on one server do not meet.
	d.setup.Prefix = "leasecache-demo:" + rand.Text()[:8] + ":"
	d.setup.Server = address{d.Driver, d.DSN}
	if d.Driver == Embedded {
		if d.setup.Server, d.stop, err = embed(); err != nil {
			return err
		}
	}
	if d.clients, err = connect(ctx, d.setup.Server); err != nil {
		return err
	}
	if d.Driver == Embedded {
		d.progress("server: embedded")
	} else {
		d.progress("server: the one that --dsn names, by driver %s", d.Driver)
	}

	if d.dir, err = os.MkdirTemp("", "leasecache-demo-"); err != nil {
		return err
	}
	d.setup.Source = filepath.Join(d.dir, "source.db")
	var keys []string
	for _, a := range acts() {
		keys = append(keys, keyOf(a.name, naiveSide), keyOf(a.name, leasesSide))
	}
	if d.source, err = createSource(ctx, d.setup.Source, keys); err != nil {
		return err
	}
	d.setup.Rows = d.source.rows
	d.progress("source: %s, whose query takes over %v", d.setup.Source, slowness)

	d.workers = make([]*process, d.Workers)
	if err := d.revive(ctx); err != nil {
		return err
	}
	d.progress("workers: %d processes with %d readers each", d.Workers, d.Readers)
	return nil
}

// revive starts the workers that do not run.
func (d *demo) revive(ctx context.Context) error {
	var starting errgroup.Group
	for i, w := range d.workers {
		if w != nil && !w.isGone() {
			continue
		}
		starting.Go(func() (err error) {
			s := d.setup
			s.Number = i
			d.workers[i], err = spawn(ctx, s, d.stderr)
			return err
		})
	}
	return starting.Wait()
}

// play plays an act on one side.
func (d *demo) play(ctx context.Context, a act, name string) (outcome, error) {
	if err := d.revive(ctx); err != nil {
		return outcome{}, err
	}
	side, err := newSide(name, d.clients, a, d.setup.Prefix)
	if err != nil {
		return outcome{}, err
	}
	s := &stage{
		act: a, name: name, key: keyOf(a.name, name), readers: d.Readers,
		workers: d.workers, source: d.source, side: side,
	}
	began := time.Now()
	if err := s.run(ctx); err != nil {
		return outcome{}, fmt.Errorf("%s, %s: %w", a.name, name, err)
	}
	d.progress("%s, %s: played in %.1fs", a.name, name, time.Since(began).Seconds())
	return s.outcome, nil
}

// close ends the workers, which hold files open and talk to the server, and then
// the rest.
func (d *demo) close() error {
	for _, w := range d.workers {
		if w != nil {
			w.stop()
		}
	}
	for _, w := range d.workers {
		if w != nil {
			w.close()
		}
	}
	var errs []error
	if d.source != nil {
		errs = append(errs, d.source.close())
	}
	if d.clients != nil {
		errs = append(errs, d.clients.close())
	}
	if d.stop != nil {
		errs = append(errs, d.stop())
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}
