package histories

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock in nanoseconds: the same for all processes, whatever their wall clocks say.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// A recorder writes what a process does, in lines. What is lost when the process is killed are reads, which are then
// just not checked, and the ends of invalidations, which are then unknown: their beginnings are written at once.
type recorder struct {
	mu  sync.Mutex
	out *bufio.Writer
	ids int
}

func (r *recorder) read(kind Kind, reader int, key string, call, ret, version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%c %d %s %d %d %d\n", kind, reader, key, call, ret, version)
}

// invalidating notes that keys are about to be invalidated. It returns the number under which the end is noted.
func (r *recorder) invalidating(keys []string, call int64) (id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	fmt.Fprintf(r.out, "begin %d %d %s\n", r.ids, call, strings.Join(keys, " "))
	r.out.Flush()
	return r.ids
}

func (r *recorder) invalidated(id int, ret int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "end %d %d\n", id, ret)
}

// failed notes an error, by its name if the documentation has it, else by its text.
func (r *recorder) failed(known bool, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "error %t %s\n", known, strings.ReplaceAll(what, "\n", " "))
}

func (r *recorder) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Flush()
}

// What a process did, put together from its lines.
type recorded struct {
	operations []Operation
	errors     map[string]int // that the documentation names
	wrong      []string       // all others
	uses       []use
}

// use is what a process uses at a time: bytes that are live, bytes of memory, goroutines, and open files with sockets.
type use struct{ at, heap, rss, goroutines, files int64 }

func (r *recorder) using(u use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "use %d %d %d %d %d\n", u.at, u.heap, u.rss, u.goroutines, u.files)
}

// collect reads lines until their end. It tells served when reads began that returned something. A line that was cut short by the end of the process is no line.
func collect(in io.Reader, process int, served func(call int64)) (recorded, error) {
	r := recorded{errors: map[string]int{}}
	open := map[int][]Operation{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return r, err
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case string(Read), string(StaleRead), string(NearRead):
			o := Operation{Kind: Kind(word[0])}
			var reader int
			if _, err := fmt.Sscanf(rest, "%d %s %d %d %d", &reader, &o.Key, &o.Call, &o.Return, &o.Version); err != nil {
				return r, fmt.Errorf("histories: line %q: %w", line, err)
			}
			o.Process = process*100 + reader
			r.operations = append(r.operations, o)
			served(o.Call)
		case "begin":
			var id int
			o := Operation{Kind: Invalidate, Process: process * 100, Return: unknown}
			if _, err := fmt.Sscanf(rest, "%d %d", &id, &o.Call); err != nil {
				return r, fmt.Errorf("histories: line %q: %w", line, err)
			}
			for _, o.Key = range strings.Fields(rest)[2:] {
				open[id] = append(open[id], o)
			}
		case "end":
			var id int
			var ret int64
			if _, err := fmt.Sscanf(rest, "%d %d", &id, &ret); err != nil {
				return r, fmt.Errorf("histories: line %q: %w", line, err)
			}
			for _, o := range open[id] {
				o.Return = ret
				r.operations = append(r.operations, o)
			}
			delete(open, id)
		case "use":
			var u use
			if _, err := fmt.Sscanf(rest, "%d %d %d %d %d", &u.at, &u.heap, &u.rss, &u.goroutines, &u.files); err != nil {
				return r, fmt.Errorf("histories: line %q: %w", line, err)
			}
			r.uses = append(r.uses, u)
		case "error":
			known, what, _ := strings.Cut(rest, " ")
			if known == "true" {
				r.errors[what]++
			} else {
				r.wrong = append(r.wrong, what)
			}
		default:
			return r, fmt.Errorf("histories: no line begins with %q", line)
		}
	}
	for _, unfinished := range open {
		r.operations = append(r.operations, unfinished...)
	}
	return r, nil
}
