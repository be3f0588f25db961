package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary a worker when a test starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == WorkerCommand {
		if err := Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open returns an open demo with two workers of two readers.
func open(t *testing.T) *demo {
	t.Helper()
	d := &demo{Options: Options{Workers: 2, Readers: 2, Driver: Embedded}, stderr: t.Output()}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAnErrorOfAReaderReachesTheDemo(t *testing.T) {
	d := open(t)
	if _, err := d.source.db.ExecContext(t.Context(), `DROP TABLE products`); err != nil {
		t.Fatal(err)
	}
	r, err := d.workers[1].read(t.Context(), command{Act: "stampede", Side: leasesSide, Readers: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.tell(command{Do: doStart}); err != nil {
		t.Fatal(err)
	}
	_, err = r.await(t.Context(), isDone)
	// A reader who comes after the load has failed is told of that by another's mark.
	if err == nil || !strings.HasPrefix(err.Error(), "worker 1: ") || !strings.Contains(err.Error(), "load stampede-leases: ") {
		t.Errorf("got error %v, want the loader's", err)
	}
}

func TestAWorkerThatDiesIsNoticedAndReplaced(t *testing.T) {
	d := open(t)
	first := d.workers[0]
	s := &stage{act: acts()[1], name: naiveSide, key: keyOf("late_fill", naiveSide), readers: 2, workers: d.workers}
	r, err := s.startPaused(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.await(t.Context(), isDone); err == nil || !strings.Contains(err.Error(), "worker 0 ended: ") {
		t.Errorf("got error %v, want to be told of the end", err)
	}
	if err := d.revive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.workers[0] == first {
		t.Error("the worker was not replaced")
	}
	if o, err := d.play(t.Context(), acts()[0], leasesSide); err != nil || o.Loads != 1 {
		t.Errorf("got %+v, %v, want one load", o, err)
	}
}

func TestAWorkerThatIsOutOfStepIsAnError(t *testing.T) {
	d := open(t)
	r, err := d.workers[0].read(t.Context(), command{Act: "stampede", Side: naiveSide, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.tell(command{Do: doStart}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.await(t.Context(), isPaused); err == nil || !strings.Contains(err.Error(), "worker 0 is done, but should be paused") {
		t.Errorf("got error %v, want to be told what it is", err)
	}
}

func TestAWorkerCountsALoadThatNeverEnds(t *testing.T) {
	d := open(t)
	a := acts()[3]
	o, err := d.play(t.Context(), a, leasesSide)
	if err != nil {
		t.Fatal(err)
	}
	var ended int
	const count = `SELECT count(ended) FROM loads WHERE key = ?`
	if err := d.source.db.QueryRowContext(t.Context(), count, keyOf(a.name, leasesSide)).Scan(&ended); err != nil {
		t.Fatal(err)
	}
	if o.Loads != 2 || ended != 1 {
		t.Errorf("%d loads, of which %d ended; want 2 and 1", o.Loads, ended)
	}
}

func TestWorkRefusesWhatItDoesNotUnderstand(t *testing.T) {
	d := open(t)
	s := `{"number":7,"server":{"driver":"goredis","dsn":"` + d.setup.Server.DSN + `"},"source":"` + filepath.ToSlash(d.setup.Source) + `","rows":1}`
	for _, test := range []struct{ name, input, want string }{
		{"nothing", ``, "is started by the demo"},
		{"no JSON", `hello`, "is started by the demo"},
		{"no source", `{"source":"/nowhere/at/all"}`, "open the source"},
		{"an unknown driver", strings.Replace(s, "goredis", "mysql", 1), "no such driver"},
		{"a command that is no JSON", s + `hello`, "read a command"},
		{"an unknown round", s + `{"round":3,"do":"start"}`, "start: there is no round 3"},
		{"an unknown act", s + `{"round":1,"do":"read","act":"farce"}`, `unknown act "farce"`},
		{"an unknown command", s + `{"round":1,"do":"read","act":"stampede","side":"naive"}{"round":1,"do":"dance"}`, `unknown command "dance"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Work(t.Context(), strings.NewReader(test.input), io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that holds %q", err, test.want)
			}
		})
	}
}

func TestWorkEndsWhileItsReadersWait(t *testing.T) {
	d := open(t)
	s := `{"number":7,"server":{"driver":"goredis","dsn":"` + d.setup.Server.DSN + `"},"source":"` + filepath.ToSlash(d.setup.Source) + `","rows":1}`
	var out bytes.Buffer
	in := s + `{"round":1,"do":"read","act":"stampede","side":"leases","readers":4}`
	if err := Work(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), context.Canceled.Error()) {
		t.Errorf("got events %s, want the readers' end among them", &out)
	}
}

func TestRunReportsThatItCannotPrint(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	broken := errors.New("broken pipe")
	o := Options{Workers: 2, Readers: 1, Driver: Embedded, JSON: true}
	if _, err := Run(t.Context(), o, brokenWriter{broken}, t.Output()); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
