package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// WorkerCommand is the command by which this program runs as a worker.
const WorkerCommand = "demo-worker"

// Work runs a worker of the demo, until stdin ends. It returns an error if it
// cannot start, or does not understand what it reads.
func Work(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	in := json.NewDecoder(stdin)
	var s setup
	if err := in.Decode(&s); err != nil {
		return fmt.Errorf("%q is started by the demo, which tells it what to do: %w", WorkerCommand, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{
		setup: s, ctx: ctx, out: json.NewEncoder(stdout),
		rounds: map[int]*workerRound{}, sides: map[string]side{},
	}
	defer func() {
		cancel()
		w.running.Wait()
		err = errors.Join(err, w.close())
	}()
	if w.source, err = openSource(ctx, s.Source, s.Rows); err != nil {
		return err
	}
	if w.clients, err = connect(ctx, s.Server); err != nil {
		return err
	}
	w.say(event{Is: isUp})
	for {
		var c command
		switch err := in.Decode(&c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a command: %w", err)
		}
		if err := w.do(c); err != nil {
			return err
		}
	}
}

// worker is the worker that this process is. Its fields are used by the
// goroutine that reads the commands, except where they say otherwise.
type worker struct {
	setup   setup
	source  *source
	clients *clients
	rounds  map[int]*workerRound
	sides   map[string]side // by act and side
	running sync.WaitGroup  // the rounds

	ctx context.Context //nolint:containedctx // The process's own: it ends when the input does.

	mu  sync.Mutex
	out *json.Encoder // guarded by mu
}

// workerRound is a round that is under way here.
type workerRound struct {
	command
	side   side
	start  chan struct{}
	resume chan struct{}
}

// say sends an event. It cannot fail as long as there is a demo to tell.
func (w *worker) say(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Encode(e) //nolint:errcheck // See above; without a demo the input ends too.
}

func (w *worker) do(c command) error {
	if c.Do == doRead {
		side, err := w.side(c)
		if err != nil {
			return err
		}
		r := &workerRound{c, side, make(chan struct{}), make(chan struct{})}
		w.rounds[c.Round] = r
		w.running.Go(func() { w.read(r) })
		return nil
	}
	r := w.rounds[c.Round]
	switch {
	case r == nil:
		return fmt.Errorf("%s: there is no round %d", c.Do, c.Round)
	case c.Do == doStart:
		close(r.start)
	case c.Do == doResume:
		close(r.resume)
	default:
		return fmt.Errorf("unknown command %q", c.Do)
	}
	return nil
}

// side returns the side that a round reads through. All rounds of an act share
// it, as the requests of a service share its cache.
func (w *worker) side(c command) (side, error) {
	name := c.Act + "/" + c.Side
	s := w.sides[name]
	if s == nil {
		a, err := actNamed(c.Act)
		if err != nil {
			return nil, err
		}
		if s, err = newSide(c.Side, w.clients, a, w.setup.Prefix); err != nil {
			return nil, err
		}
		w.sides[name] = s
	}
	return s, nil
}

// read runs the readers of a round, all at once.
func (w *worker) read(r *workerRound) {
	key := keyOf(r.Act, r.Side)
	pause := func(context.Context) error { return nil }
	if r.Pause {
		pause = func(ctx context.Context) error {
			w.say(event{Round: r.Round, Is: isPaused})
			return w.wait(ctx, r.resume)
		}
	}
	load := func(ctx context.Context) (product, error) {
		return w.source.load(ctx, key, w.setup.Number, pause)
	}

	type result struct {
		product product
		took    time.Duration
		err     error
	}
	results := make([]result, r.Readers)
	var waiting, reading sync.WaitGroup
	for i := range results {
		waiting.Add(1)
		reading.Go(func() {
			// A look at the cache, which changes nothing, opens the connections, so
			// that the readers of all processes get to their reads together.
			_, _, err := r.side.cached(w.ctx, key)
			waiting.Done()
			if err == nil {
				err = w.wait(w.ctx, r.start)
			}
			if err != nil {
				results[i].err = err
				return
			}
			began := time.Now()
			p, err := r.side.get(w.ctx, key, load)
			results[i] = result{p, time.Since(began), err}
		})
	}
	waiting.Wait()
	w.say(event{Round: r.Round, Is: isReady})
	reading.Wait()

	done := event{Round: r.Round, Is: isDone, Versions: map[int]int{}, Rejected: r.side.rejected()}
	for _, res := range results {
		if res.err != nil {
			w.say(event{Round: r.Round, Is: isFailed, Error: res.err.Error()})
			return
		}
		done.Versions[res.product.Version]++
		done.Slowest = max(done.Slowest, res.took)
	}
	w.say(done)
}

// wait waits for c, ctx or the end of the process.
func (w *worker) wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// close closes what is open. A load that still runs is cancelled, and its lease
// released.
func (w *worker) close() error {
	var errs []error
	for _, s := range w.sides {
		if err := s.close(w.ctx); !errors.Is(err, context.Canceled) { // w.ctx's own
			errs = append(errs, err)
		}
	}
	if w.clients != nil {
		errs = append(errs, w.clients.close())
	}
	if w.source != nil {
		errs = append(errs, w.source.close())
	}
	return errors.Join(errs...)
}
