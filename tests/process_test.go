//go:build unix

package tests

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
)

func TestSeveralProcesses(t *testing.T) {
	t.Parallel()
	server, admin := startOne(t)

	t.Run("twenty that miss one key run one load", func(t *testing.T) {
		t.Parallel()
		const processes, readers = 20, 5
		src := newSource()
		ws := startWorkers(t, processes, workerConfig{Addr: server.Addr, Prefix: "one:", Lease: longLease, WaitWith: longLease}, src)
		var reads []<-chan message
		for _, w := range ws {
			reads = append(reads, w.get(readers))
		}
		load := src.next(t)
		for _, w := range ws {
			w.misses(readers)
		}
		load.answer("v")
		for _, r := range reads {
			for range readers {
				wantGot(t, await(t, "a read ends", r), "v", "", leasecache.Loaded, leasecache.Joined, leasecache.Hit)
			}
		}
		src.wantNoMore(t)
		wantStored(t, admin, "one:", "k", "v")
		leaseGone(t, admin, "one:", "k")
	})

	t.Run("a holder that is killed during its load costs others no more than its lease", func(t *testing.T) {
		t.Parallel()
		const lease = 2 * time.Second
		src := newSource()
		cfg := workerConfig{Addr: server.Addr, Prefix: "killed:", Lease: lease, LoadTimeout: longLease, WaitWith: longLease}
		ws := startWorkers(t, 3, cfg, src)
		ws[0].get(1)
		src.next(t)
		leased := time.Now() // or a moment earlier
		b, c := ws[1].get(3), ws[2].get(3)
		ws[1].misses(3)
		ws[2].misses(3)
		ws[0].kill()

		load := src.next(t)
		// Polls come every 50 ms; the rest is for a loaded machine.
		if took := time.Since(leased); took > lease+5*time.Second {
			t.Errorf("the next load began %v after the lease of %v was taken", took, lease)
		}
		if load.w == ws[0] {
			t.Fatal("a killed process loads")
		}
		load.answer("v")
		for range 3 {
			wantGot(t, await(t, "a read ends", b), "v", "", leasecache.Loaded, leasecache.Joined, leasecache.Hit)
			wantGot(t, await(t, "a read ends", c), "v", "", leasecache.Loaded, leasecache.Joined, leasecache.Hit)
		}
		src.wantNoMore(t)
		for _, w := range ws[1:] {
			if s := w.stats(); s.UnleasedLoads != 0 {
				t.Errorf("%d loads ran without a lease", s.UnleasedLoads)
			}
		}
		wantStored(t, admin, "killed:", "k", "v")
	})

	t.Run("a holder that was stopped beyond its lease fills nothing when it goes on", func(t *testing.T) {
		t.Parallel()
		for _, next := range []struct {
			name, prefix, stored string
			act                  func(t *testing.T, w *worker, src *source)
		}{
			{"another has loaded since", "stopped1:", "new", func(t *testing.T, w *worker, src *source) {
				r := w.get(1)
				load := src.next(t)
				if load.w != w {
					t.Fatal("a stopped process loads")
				}
				load.answer("new")
				wantGot(t, await(t, "a read ends", r), "new", "", leasecache.Loaded)
			}},
			{"another loads", "stopped2:", "", func(t *testing.T, w *worker, src *source) {
				w.get(1)
				src.next(t) // and never ends
			}},
			{"nobody came", "stopped3:", "", func(*testing.T, *worker, *source) {}},
		} {
			t.Run(next.name, func(t *testing.T) {
				t.Parallel()
				const lease = 500 * time.Millisecond
				src := newSource()
				cfg := workerConfig{Addr: server.Addr, Prefix: next.prefix, Lease: lease, LoadTimeout: longLease, WaitWith: longLease}
				stopped := startWorkers(t, 1, cfg, src)[0]
				cfg.Lease = longLease
				other := startWorkers(t, 1, cfg, src)[0]

				r := stopped.get(1)
				load := src.next(t)
				sendSignal(t, stopped, syscall.SIGSTOP)
				load.answer("old")
				leaseGone(t, admin, next.prefix, "k")
				next.act(t, other, src)
				sendSignal(t, stopped, syscall.SIGCONT)
				wantGot(t, await(t, "the read of the stopped process ends", r), "old", leasecache.LeaseLost, leasecache.Loaded)
				if s := stopped.stats(); s.FillsRejected != 1 || s.FillsAccepted != 0 {
					t.Errorf("%d fills were rejected and %d accepted; want one rejected", s.FillsRejected, s.FillsAccepted)
				}
				wantStored(t, admin, next.prefix, "k", next.stored)
			})
		}
	})

	t.Run("DEL of lease and value by any client is an invalidation", func(t *testing.T) {
		t.Parallel()
		src := newSource()
		cfg := workerConfig{Addr: server.Addr, Prefix: "del:", Lease: longLease, WaitWith: longLease}
		ws := startWorkers(t, 2, cfg, src)
		del := func() {
			t.Helper()
			if err := admin.Del(t.Context(), "del:l:{k}", "del:v:{k}").Err(); err != nil {
				t.Fatal(err)
			}
		}

		before := ws[0].get(1)
		old := src.next(t)
		waits := ws[1].get(1)
		ws[1].misses(1)
		del()
		// The one that waits in the other process takes the lease.
		load := src.next(t)
		if load.w != ws[1] {
			t.Error("the process whose load was overtaken loads again for nobody")
		}
		// One that starts after the DEL, where the overtaken load still runs,
		// must not get what it returns.
		after := ws[0].get(1)
		ws[0].misses(2)
		old.answer("old")
		wantGot(t, await(t, "the first read ends", before), "old", leasecache.LeaseLost, leasecache.Loaded)
		wantStored(t, admin, "del:", "k", "")
		load.answer("new")
		wantGot(t, await(t, "the read that waited ends", waits), "new", "", leasecache.Loaded)
		wantGot(t, await(t, "the read after the DEL ends", after), "new", "", leasecache.Hit)
		wantStored(t, admin, "del:", "k", "new")

		del()
		again := ws[1].get(1)
		src.next(t).answer("newer")
		wantGot(t, await(t, "the read after the second DEL ends", again), "newer", "", leasecache.Loaded)
		src.wantNoMore(t)
	})
}

// In a storm of invalidations hardly any load can be cached. The worst that can
// happen is then a load per reader and round; the best a program can do is a
// load at a time.
func TestInvalidationsFasterThanLoads(t *testing.T) {
	const (
		processes = 4
		readers   = 125 // in each
		every     = 5 * time.Millisecond
		length    = 3 * time.Second
	)
	server, admin := startOne(t)
	for _, key := range []string{stormVersion, stormConfirmed} {
		if err := admin.Set(t.Context(), key, 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// Far longer than any read takes, so that one which gets that far shows.
	const bound = 2 * patience
	ws := startWorkers(t, processes, workerConfig{Addr: server.Addr, Prefix: "storm:", WaitWith: bound}, newSource())
	cache := newCache(t, goredis.New(redisClient(t, server.Addr)), leasecache.Options{Prefix: "storm:"})

	began := time.Now()
	for _, w := range ws {
		w.tell(message{Op: "storm", Key: "k", N: readers})
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	invalidations := 0
	for time.Since(began) < length {
		<-tick.C
		v, err := admin.Incr(t.Context(), stormVersion).Result() // the commit
		if err != nil {
			t.Fatal(err)
		}
		if err := cache.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := admin.Set(t.Context(), stormConfirmed, v, 0).Err(); err != nil {
			t.Fatal(err)
		}
		invalidations++
	}
	var stopped []<-chan message
	for _, w := range ws {
		stopped = append(stopped, w.send(message{Op: "stop"}, 1))
	}
	var sum stormReport
	for _, s := range stopped {
		r := await(t, "all reads of a process end", s).Storm
		sum.Reads += r.Reads
		sum.Slowest = max(sum.Slowest, r.Slowest)
		if r.Old > 0 || r.Failed > 0 {
			t.Errorf("of %d reads of a process, %d returned a version from before an invalidation that was confirmed when they began, and %d failed; the first: %s",
				r.Reads, r.Old, r.Failed, r.Example)
		}
	}
	took := time.Since(began)
	n, err := strconv.Atoi(admin.Get(t.Context(), stormLoads).Val())
	if err != nil {
		t.Fatal(err)
	}
	// A process runs two loads of a key at most, and each takes stormLoadTime.
	most := processes * 2 * (int(took/stormLoadTime) + 1)
	t.Logf("%d reads by %d readers, %d loads, %d invalidations in %v; the slowest read took %v",
		sum.Reads, processes*readers, n, invalidations, took.Round(time.Millisecond), sum.Slowest.Round(time.Millisecond))
	if n > most {
		t.Errorf("%d loads ran; in %v no more than %d can: two at a time in each process", n, took, most)
	}
	if int64(n)*10 > sum.Reads {
		t.Errorf("%d loads ran for %d reads; want a tenth at the most, since over a hundred readers share each", n, sum.Reads)
	}
	for _, w := range ws {
		if s := w.stats(); s.WaitTimeouts != 0 || s.UnleasedLoads != 0 {
			t.Errorf("%d reads waited for the wait bound of %v, %d loads ran without a lease; want none", s.WaitTimeouts, bound, s.UnleasedLoads)
		}
	}
	noLeases(t, admin, "storm:")
}

func sendSignal(t *testing.T, w *worker, sig syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
