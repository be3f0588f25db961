package rueidis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestAnEvalerHasTheAbilitiesThatItsClientAllows(t *testing.T) {
	s := serve(t, answer("+OK\r\n"))
	client := s.client(t, rueidis.ClientOption{})
	dedicated, release := client.Dedicate()
	defer release()
	type embedding struct{ rueidis.Client }
	for _, tt := range []struct {
		name   string
		client Client
		want   []string
	}{
		{"client", client, []string{"get", "bound", "ping"}},
		{"type that embeds a client", embedding{client}, []string{"get", "bound", "ping"}},
		{"mock", &mock{builder: client}, []string{"ping"}},
		{"nil", nil, []string{"invalid"}},
		{"nil pointer", (*mock)(nil), []string{"invalid"}},
		{"dedicated client", dedicated, []string{"invalid"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			adaptertest.CheckAbilities(t, New(tt.client), tt.want, "hand over")
		})
	}
}

func TestTheRegistryAdoptsClients(t *testing.T) {
	e, err := driver.Adopt(serve(t, answer("+OK\r\n")).client(t, rueidis.ClientOption{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "bound", "ping"}, abilities(e)); diff != "" {
		t.Errorf("abilities (-want +got):\n%s", diff)
	}
	if _, err := driver.Adopt((*mock)(nil)); err == nil || !strings.Contains(err.Error(), "rueidis: client is nil") {
		t.Errorf("Adopt of a nil pointer: %v; want the error of this package", err)
	}
	if _, err := driver.Adopt("a string"); err == nil || !strings.Contains(err.Error(), "no driver takes a client of type string") {
		t.Errorf("Adopt(string): %v; want that no driver takes it", err)
	}
}

func TestAnOpenedClientIsClosedAndAnAdoptedOneIsNot(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	e, err := driver.Open("rueidis", "redis://"+s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "bound", "ping", "close"}, abilities(e)); diff != "" {
		t.Errorf("abilities (-want +got):\n%s", diff)
	}
	b := e.(driver.Bounder).Bound(1e9)
	if diff := cmp.Diff([]string{"get", "bound", "ping", "close"}, abilities(b)); diff != "" {
		t.Errorf("abilities when bounded (-want +got):\n%s", diff)
	}
	for _, e := range []driver.Evaler{e, b} {
		for name, call := range calls(t, e) {
			if err := call(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for range 2 {
		if err := b.(driver.Closer).Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []driver.Evaler{e, b} {
		for name, call := range calls(t, e) {
			if err := call(t.Context()); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, rueidis.ErrClosing) {
				t.Errorf("%s after Close: %v; want ErrNotSent and ErrClosing", name, err)
			}
		}
	}
}

func TestOpenFailsWhenItCannotConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = driver.Open("rueidis", "redis://u:"+secret+"@"+l.Addr().String())
	if _, ok := errors.AsType[*net.OpError](err); !ok || strings.Contains(err.Error(), secret) {
		t.Errorf("got %v; want a *net.OpError, without the password", err)
	}
}

func TestACommandIsSentOnceWhenItsReplyIsLost(t *testing.T) {
	s := serve(t, answer(cut)) // executed, as far as anybody knows
	cluster := serve(t, answer(cut))
	cluster.slots = adaptertest.Slots(cluster.Addr)
	for kind, c := range map[string]rueidis.Client{
		"pipelining when needed": s.client(t, rueidis.ClientOption{}),
		"always pipelining":      s.client(t, rueidis.ClientOption{AlwaysPipelining: true}),
		"never pipelining":       s.client(t, rueidis.ClientOption{DisableAutoPipelining: true}),
		"cluster":                cluster.client(t, rueidis.ClientOption{}),
	} {
		for _, e := range []driver.Evaler{New(c), New(c).(driver.Bounder).Bound(1e9)} {
			for name, call := range calls(t, e) {
				t.Run(fmt.Sprintf("%s %s %T", kind, name, e), func(t *testing.T) {
					before := s.Count(name) + cluster.Count(name)
					err := call(t.Context())
					if err == nil || errors.Is(err, driver.ErrNotSent) {
						t.Errorf("%v; want an error that is not ErrNotSent", err)
					}
					if _, ok := errors.AsType[*driver.ServerError](err); ok {
						t.Errorf("%v is a ServerError", err)
					}
					if n := s.Count(name) + cluster.Count(name) - before; n != 1 {
						t.Errorf("it was sent %d times, want once", n)
					}
				})
			}
		}
	}
	if n := s.Count("EVAL"); n != 0 {
		t.Errorf("EVAL was sent %d times after a lost reply, want never", n)
	}
}

func TestAClientThatReadsFromReplicasAsksThePrimary(t *testing.T) {
	primary, replica := serve(t, answer("$1\r\na\r\n")), serve(t, answer("$1\r\na\r\n"))
	primary.slots = adaptertest.Slots(primary.Addr, replica.Addr)
	replica.slots = primary.slots
	c := primary.client(t, rueidis.ClientOption{
		SendToReplicas: func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() || cmd.Commands()[0] == "GET" },
	})
	for range 10 {
		for name, call := range calls(t, New(c)) {
			if name == "PING" {
				continue // any node may answer
			}
			if err := call(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(replica.Commands()); n != 0 {
		t.Errorf("the replica received %d commands, want none", n)
	}
	// The control: this client does read from replicas.
	if err := c.Do(t.Context(), c.B().Get().Key("{k}").Build()).Error(); err != nil || replica.Count("GET") != 1 {
		t.Errorf("the client's own GET: %v; want it on the replica, or this test shows nothing", err)
	}
}

func TestARedirectionIsFollowed(t *testing.T) {
	to := serve(t, func(args []string) string { return "$1\r\nb\r\n" })
	for _, kind := range []string{"MOVED", "ASK"} {
		from := serve(t, answer("-"+kind+" 7629 "+to.Addr+"\r\n"))
		from.slots = adaptertest.Slots(from.Addr)
		r, err := eval(t.Context(), New(from.client(t, rueidis.ClientOption{})))
		if s, _ := r.Str(); err != nil || s != "b" {
			t.Errorf("%s: got %v, %v; want b", kind, r, err)
		}
	}
}

func TestKeysInDifferentSlotsAreAnErrorAndNoPanic(t *testing.T) {
	s := serve(t, answer(":1\r\n"))
	s.slots = adaptertest.Slots(s.Addr)
	e := New(s.client(t, rueidis.ClientOption{}))
	for _, keys := range [][]string{{"a", "b"}, {"{a}", "{b}"}, {"v:{k}", "l:{k", "s:{k}"}, {"{}a", "{}b"}} {
		if _, err := e.Eval(t.Context(), script, keys, nil); !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "hash tag") {
			t.Errorf("%q: %v; want ErrNotSent that speaks of the hash tag", keys, err)
		}
	}
	for _, keys := range [][]string{{"v:{k}", "l:{k}"}, {"k", "{k}x"}, {"{}a", "{}a"}, {"a{{b}", "c{{b}}"}} {
		if _, err := e.Eval(t.Context(), script, keys, nil); err != nil {
			t.Errorf("%q: %v", keys, err)
		}
	}
}

func TestAScriptThatTheServerDoesNotKnowIsSentByItsSource(t *testing.T) {
	adaptertest.CheckFallback(t, connect, "EOF")
}

func TestKeysAndArgumentsAreSentAsTheyAre(t *testing.T) {
	adaptertest.CheckArguments(t, connect, "2", "{k}", "\x00\r\n\xff{k}")
}

func TestGetReturnsTheValueOrThatThereIsNone(t *testing.T) {
	adaptertest.CheckGet(t, connect, "_\r\n")
	e, _ := connect(t, answer(":1\r\n"))
	if _, ok, err := get(t.Context(), t, e); ok || err == nil {
		t.Errorf("an integer: got %v, %v; want an error", ok, err)
	}
}

func TestACommandIsNotSentWhenItsContextIsDone(t *testing.T) {
	adaptertest.CheckDoneContext(t, connect)
}

func TestARefusedDialIsNotSent(t *testing.T) {
	s := serve(t, answer(cut))
	c := s.client(t, rueidis.ClientOption{Dialer: net.Dialer{}})
	e := New(c)
	if _, err := eval(t.Context(), e); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v; want io.EOF", err)
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	if _, err := eval(t.Context(), New(failing(t, refused))); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, refused) {
		t.Errorf("got %v; want ErrNotSent and the client's error", err)
	}
}

func TestAClosedClientStaysClosedWhenAContextIsDone(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	c := s.client(t, rueidis.ClientOption{})
	e := New(c)
	c.Close()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for range 8 { // more than the client has connections
		for name, call := range calls(t, e) {
			if err := call(done); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v; want context.Canceled", name, err)
			}
			// A client that sees a call with such a context connects again.
			if err := call(t.Context()); !errors.Is(err, rueidis.ErrClosing) {
				t.Errorf("%s: %v; want ErrClosing", name, err)
			}
		}
	}
}
