package adaptertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Connect returns an Evaler over a client of a server that replies so.
type Connect func(t *testing.T, reply func(args []string) string) (driver.Evaler, *Server)

// CheckAbilities checks that e, also when it is bounded, can do what want names. If
// that is "invalid", Eval has to say that nothing was sent, and says.
func CheckAbilities(t *testing.T, e driver.Evaler, want []string, says string) {
	t.Helper()
	if got := Abilities(e); !slices.Equal(got, want) {
		t.Errorf("abilities: got %q, want %q", got, want)
	}
	if b, ok := e.(driver.Bounder); ok {
		if got := Abilities(b.Bound(1)); !slices.Equal(got, want) {
			t.Errorf("abilities when bounded: got %q, want %q", got, want)
		}
	}
	if slices.Contains(want, "invalid") {
		if _, err := Eval(t.Context(), e); !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), says) {
			t.Errorf("Eval: %v; want an error that says not sent, and %q", err, says)
		}
	}
}

// CheckFallback checks that a script is sent by its source once, and only after a
// NOSCRIPT reply. lost is in the client's error for a lost reply.
func CheckFallback(t *testing.T, connect Connect, lost string) {
	const unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n"
	tests := []struct {
		name          string
		evalsha, eval string
		wantEval      int
		want          string // in the error; empty for success
	}{
		{"after NOSCRIPT", unknown, "$1\r\na\r\n", 1, ""},
		{"once", unknown, unknown, 1, "NOSCRIPT"},
		{"not after another error that has the word", "-ERR NOSCRIPT is a word\r\n", "", 0, "ERR NOSCRIPT is a word"},
		{"not after another error that has a client's name for it", "-ERR NoScriptError: x\r\n", "", 0, "ERR NoScriptError: x"},
		{"not for a code that starts the same", "-NOSCRIPTS x\r\n", "", 0, "NOSCRIPTS"},
		{"not for an element", "*1\r\n" + unknown, "", 0, "NOSCRIPT"},
		{"not for a value", "$8\r\nNOSCRIPT\r\n", "", 0, ""},
		{"not after a lost reply", Cut, "", 0, lost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, s := connect(t, func(args []string) string {
				if strings.EqualFold(args[0], "EVAL") {
					return tt.eval
				}
				return tt.evalsha
			})
			_, err := Eval(t.Context(), e)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want one with %q", err, tt.want)
			}
			if sha, src := s.Count("EVALSHA"), s.Count("EVAL"); sha != 1 || src != tt.wantEval {
				t.Errorf("EVALSHA was sent %d times, EVAL %d times; want 1 and %d", sha, src, tt.wantEval)
			}
		})
	}
}

// CheckArguments checks that keys, and arguments of all kinds, are sent as they
// are, by digest and by source. numkeys is how many keys there are, in digits.
func CheckArguments(t *testing.T, connect Connect, numkeys string, keys ...string) {
	t.Helper()
	e, s := connect(t, func(args []string) string {
		if strings.EqualFold(args[0], "EVALSHA") {
			return "-NOSCRIPT x\r\n"
		}
		return "$-1\r\n"
	})
	args := []string{"1.0", "007", "", "$5", strings.Repeat("x", 1<<16)}
	r, err := e.Eval(t.Context(), Script, keys, args)
	if err != nil || r.Kind() != driver.KindNil {
		t.Fatalf("got %v, %v; want nil", r, err)
	}
	want := [][]string{
		slices.Concat([]string{"EVALSHA", Script.SHA1(), numkeys}, keys, args),
		slices.Concat([]string{"EVAL", Script.Source(), numkeys}, keys, args),
	}
	got := s.Commands()
	for i, args := range got {
		got[i] = slices.Clone(args)
		got[i][0] = strings.ToUpper(args[0])
	}
	if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("the server received %.200q; want %.200q", got, want)
	}
}

// CheckGet checks what Get makes of replies. none are replies, beside the usual
// one, that say that there is no value.
func CheckGet(t *testing.T, connect Connect, none ...string) {
	t.Helper()
	type test struct {
		reply, want string
		ok          bool
	}
	tests := []test{{"$3\r\na\r\n\r\n", "a\r\n", true}, {"$0\r\n\r\n", "", true}, {"$-1\r\n", "", false}}
	for _, reply := range none {
		tests = append(tests, test{reply: reply})
	}
	var reply atomic.Value
	e, _ := connect(t, func([]string) string { return reply.Load().(string) })
	for _, tt := range tests {
		reply.Store(tt.reply)
		v, ok, err := Get(t.Context(), t, e)
		if v != tt.want || ok != tt.ok || err != nil {
			t.Errorf("reply %q: got %q, %v, %v; want %q, %v", tt.reply, v, ok, err, tt.want, tt.ok)
		}
	}
	reply.Store("-WRONGTYPE Operation against a key\r\n")
	_, _, err := Get(t.Context(), t, e)
	if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != "WRONGTYPE" {
		t.Errorf("wrong type: %v; want a ServerError with the code WRONGTYPE", err)
	}
}

// CheckDoneContext checks that a call of which the context is done sends nothing
// and says so, bounded or not.
func CheckDoneContext(t *testing.T, connect Connect) {
	t.Helper()
	e, s := connect(t, Answer("$1\r\na\r\n"))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	passed, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, e := range []driver.Evaler{e, e.(driver.Bounder).Bound(time.Second)} {
		for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: passed} {
			for name, call := range Calls(t, e) {
				if err := call(ctx); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, want) {
					t.Errorf("%s: %v; want ErrNotSent and %v", name, err, want)
				}
			}
		}
	}
	if got := s.Commands(); len(got) != 0 {
		t.Errorf("the server received %q, want nothing", got)
	}
}

// CheckReplies checks that replies become those of package driver: the usual ones,
// and more.
func CheckReplies(t *testing.T, connect Connect, more map[string]string) {
	t.Helper()
	for _, replies := range []map[string]string{{
		"$-1\r\n":                              "nil",
		"*-1\r\n":                              "nil",
		":-1\r\n":                              "-1",
		"$2\r\na\x00\r\n":                      "string of 2 bytes",
		"$0\r\n\r\n":                           "string of 0 bytes",
		"+FINE\r\n":                            "string of 4 bytes",
		"+OK\r\n":                              "string of 2 bytes",
		"*0\r\n":                               "[]",
		"*3\r\n:1\r\n$-1\r\n*1\r\n$1\r\nx\r\n": "[1, nil, [string of 1 bytes]]",
	}, more} {
		for raw, want := range replies {
			e, _ := connect(t, Answer(raw))
			if r, err := Eval(t.Context(), e); err != nil || r.String() != want {
				t.Errorf("%q: got %v, %v; want %v", raw, r, err, want)
			}
		}
	}
}

// CheckBound checks that an Evaler over a client that never replies, bounded to 16
// seconds, ends calls up to a sixteenth early and never late. It has to run in a
// bubble of testing/synctest.
func CheckBound(t *testing.T, e driver.Evaler) {
	t.Helper()
	const d = 16 * time.Second
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			after := time.Duration(i) * 300 * time.Millisecond
			time.Sleep(after)
			begin := time.Now()
			_, err := Eval(t.Context(), e)
			if took := time.Since(begin); took > d || took <= d*15/16 {
				t.Errorf("a call that began at %v took %v", after, took)
			}
			if err == nil || !strings.Contains(err.Error(), "within the bound of 16s") || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("got %v; want that there was no reply within the bound of 16s, and not ErrNotSent", err)
			}
		})
	}
	wg.Wait()
}
