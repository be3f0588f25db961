package glide

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"

	"github.com/leasecache/leasecache/driver"
)

// abilities names what e can do beside scripts.
func abilities(e driver.Evaler) (names []string) {
	if _, ok := e.(driver.Getter); ok {
		names = append(names, "get")
	}
	if _, ok := e.(driver.Bounder); ok {
		names = append(names, "bound")
	}
	if _, ok := e.(driver.Pinger); ok {
		names = append(names, "ping")
	}
	if _, ok := e.(driver.Closer); ok {
		names = append(names, "close")
	}
	if v, ok := e.(driver.Validator); ok && v.Validate() != nil {
		names = append(names, "invalid")
	}
	return names
}

// mixed takes batches of one kind with the options of the other.
type mixed struct{}

func (mixed) ExecWithOptions(context.Context, pipeline.StandaloneBatch, bool, pipeline.ClusterBatchOptions) ([]any, error) {
	return nil, nil
}

func TestAnEvalerHasAllAbilitiesWithEveryClient(t *testing.T) {
	client, cluster := serve(t, answer("+OK\r\n")).client(t), serve(t, answer("+OK\r\n")).cluster().clusterClient(t)
	type embedding struct{ *glide.ClusterClient }
	all, invalid := []string{"get", "bound", "ping"}, []string{"invalid"}
	for _, tt := range []struct {
		name string
		e    driver.Evaler
		want []string
	}{
		{"client", New(client), all},
		{"cluster client", New(cluster), all},
		{"type that embeds a client", New(embedding{cluster}), all},
		{"mock", New(&mock{}), all},
		{"nil", New[pipeline.ClusterBatch, pipeline.ClusterBatchOptions](nil), invalid},
		{"nil client", New((*glide.Client)(nil)), invalid},
		{"nil cluster client", New((*glide.ClusterClient)(nil)), invalid},
		{"batches of one client with the options of the other", New(mixed{}), invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, abilities(tt.e)); diff != "" {
				t.Errorf("abilities (-want +got):\n%s", diff)
			}
			if b, ok := tt.e.(driver.Bounder); ok {
				if diff := cmp.Diff(tt.want, abilities(b.Bound(1))); diff != "" {
					t.Errorf("abilities when bounded (-want +got):\n%s", diff)
				}
			}
			if slices.Contains(tt.want, "invalid") {
				if _, err := eval(t.Context(), tt.e); !errors.Is(err, driver.ErrNotSent) || !strings.HasPrefix(err.Error(), "not sent: glide: ") {
					t.Errorf("Eval: %v; want an error of this package that says not sent", err)
				}
			}
		})
	}
}

func TestTheRegistryAdoptsClients(t *testing.T) {
	for name, client := range map[string]any{
		"client":         serve(t, answer("+OK\r\n")).client(t),
		"cluster client": serve(t, answer("+OK\r\n")).cluster().clusterClient(t),
		"mock":           &mock{},
	} {
		e, err := driver.Adopt(client)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]string{"get", "bound", "ping"}, abilities(e)); diff != "" {
			t.Errorf("%s: abilities (-want +got):\n%s", name, diff)
		}
	}
	for _, client := range []any{(*glide.Client)(nil), (*glide.ClusterClient)(nil)} {
		if _, err := driver.Adopt(client); err == nil || !strings.Contains(err.Error(), "glide: client is nil") {
			t.Errorf("Adopt of a nil %T: %v; want the error of this package", client, err)
		}
	}
	for client, want := range map[any]string{
		"a string":             "no driver takes a client of type string",
		&glide.MonitorClient{}: `driver "glide" takes other types of that package`,
		&config.NodeAddress{}:  `driver "glide" takes other types of that package`,
	} {
		if _, err := driver.Adopt(client); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Adopt(%T): %v; want an error with %q", client, err, want)
		}
	}
}

func TestAnOpenedClientIsClosedAndAnAdoptedOneIsNot(t *testing.T) {
	replica := serve(t, answer("$1\r\na\r\n")).replica()
	for dsn, s := range map[string]*fakeServer{
		"redis://%s":                             serve(t, answer("$1\r\na\r\n")),
		"redis://%s?cluster=true":                serve(t, answer("$1\r\na\r\n")).cluster(),
		"valkey://u:p@%s/0?addr=" + replica.addr: serve(t, answer("$1\r\na\r\n")),
	} {
		e, err := driver.Open("glide", fmt.Sprintf(dsn, s.addr))
		if err != nil {
			t.Fatalf("%s: %v", dsn, err)
		}
		b := e.(driver.Bounder).Bound(tooLong)
		for _, e := range []driver.Evaler{e, b} {
			if diff := cmp.Diff([]string{"get", "bound", "ping", "close"}, abilities(e)); diff != "" {
				t.Errorf("%s: abilities (-want +got):\n%s", dsn, diff)
			}
			for name, call := range calls(e) {
				if err := call(t.Context()); err != nil {
					t.Errorf("%s: %s: %v", dsn, name, err)
				}
			}
		}
		for range 2 {
			if err := b.(driver.Closer).Close(); err != nil {
				t.Fatal(err)
			}
		}
		for begin := time.Now(); s.conns.Load() > 0; time.Sleep(time.Millisecond) {
			if time.Since(begin) > tooLong {
				t.Fatalf("%s: after Close %d connections are open", dsn, s.conns.Load())
			}
		}
		for _, e := range []driver.Evaler{e, b} {
			for name, call := range calls(e) {
				err := call(t.Context())
				if _, ok := errors.AsType[*glide.ClosingError](err); !ok || !errors.Is(err, driver.ErrNotSent) {
					t.Errorf("%s: %s after Close: %v; want ErrNotSent and a *glide.ClosingError", dsn, name, err)
				}
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
	for _, dsn := range []string{"redis://u:%s@%s?dial_timeout=200ms", "redis://u:%s@%s?dial_timeout=200ms&cluster=true"} {
		_, err = driver.Open("glide", fmt.Sprintf(dsn, secret, l.Addr()))
		if _, ok := errors.AsType[*glide.ConnectionError](err); !ok || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v; want a *glide.ConnectionError, without the password", err)
		}
	}
}

func TestACommandIsSentOnceWhenItsReplyIsLost(t *testing.T) {
	for kind, c := range both(t, answer(cut)) { // executed, as far as anybody knows
		for _, e := range []driver.Evaler{c.e, c.e.(driver.Bounder).Bound(tooLong)} {
			for _, name := range []string{"GET", "EVALSHA"} {
				t.Run(fmt.Sprintf("%s %s %v", kind, name, e.(evaler).bound), func(t *testing.T) {
					e.(evaler).doubtful.Store(false) // no probe
					before := c.s.count(name)
					err := calls(e)[name](t.Context())
					if err == nil || errors.Is(err, driver.ErrNotSent) {
						t.Errorf("%v; want an error that is not ErrNotSent", err)
					}
					if _, ok := errors.AsType[*driver.ServerError](err); ok {
						t.Errorf("%v is a ServerError", err)
					}
					if n := c.s.count(name) - before; n != 1 {
						t.Errorf("it was sent %d times, want once", n)
					}
				})
			}
		}
		if n := c.s.count("EVAL"); n != 0 {
			t.Errorf("%s: EVAL was sent %d times after a lost reply, want never", kind, n)
		}
	}
}

func TestAServerThatGaveNoReplyIsAskedBeforeACommandIsSent(t *testing.T) {
	for kind, c := range both(t, func(args []string) string {
		if args[0] == "EVAL" {
			return ":1\r\n"
		}
		return cut
	}) {
		for range 2 {
			if _, err := eval(t.Context(), c.e); err == nil || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%s: %v; want an error that is not ErrNotSent", kind, err)
			}
			if _, _, err := get(t.Context(), c.e); err == nil || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%s: GET: %v; want an error that is not ErrNotSent", kind, err)
			}
		}
		var got [][]string
		for _, args := range c.s.commands() {
			got = append(got, args[:2])
		}
		probe, sha, get := []string{"EVAL", "return 1"}, []string{"EVALSHA", script.SHA1()}, []string{"GET", "{k}"}
		want := [][]string{sha, probe, get, probe, sha, probe, get}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: commands (-want +got):\n%s", kind, diff)
		}
	}
}

func TestACommandIsNotSentToAServerThatDoesNotAnswer(t *testing.T) {
	for kind, c := range both(t, answer(hang)) {
		e := c.e.(driver.Bounder).Bound(200 * time.Millisecond)
		if _, err := eval(t.Context(), e); err == nil || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%s: %v; want an error that is not ErrNotSent", kind, err)
		}
		for range 2 {
			for name, call := range calls(e) {
				err := call(t.Context())
				if _, ok := errors.AsType[*glide.TimeoutError](err); !ok || !errors.Is(err, driver.ErrNotSent) {
					t.Errorf("%s: %s: %v; want ErrNotSent and a *glide.TimeoutError", kind, name, err)
				}
			}
		}
		if sha, get := c.s.count("EVALSHA"), c.s.count("GET"); sha != 1 || get != 0 {
			t.Errorf("%s: EVALSHA was sent %d times, GET %d times; want once, and never", kind, sha, get)
		}
	}
}

func TestAClientThatReadsFromReplicasAsksThePrimary(t *testing.T) {
	serveBoth := func(t *testing.T) (primary, replica *fakeServer) {
		return serve(t, answer("$1\r\na\r\n")), serve(t, answer("$1\r\na\r\n")).replica()
	}
	check := func(t *testing.T, primary, replica *fakeServer, e driver.Evaler, own func(context.Context, string) error) {
		for range 10 {
			for _, name := range []string{"EVALSHA", "GET"} {
				if err := calls(e)[name](t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := len(replica.commands()); n != 0 {
			t.Errorf("the replica received %d commands, want none", n)
		}
		if n := primary.count("GET"); n != 10 {
			t.Errorf("the primary received GET %d times, want 10", n)
		}
		// The control: this client does read from replicas.
		if err := own(t.Context(), "{k}"); err != nil || replica.count("GET") != 1 {
			t.Errorf("the client's own GET: %v; want it on the replica, or this test shows nothing", err)
		}
	}
	t.Run("standalone", func(t *testing.T) {
		primary, replica := serveBoth(t)
		c := primary.client(t, func(o *config.ClientConfiguration) {
			o.WithAddress(replica.address(t)).WithReadFrom(config.PreferReplica)
		})
		check(t, primary, replica, New(c), func(ctx context.Context, key string) error { _, err := c.Get(ctx, key); return err })
	})
	t.Run("cluster", func(t *testing.T) {
		primary, replica := serveBoth(t)
		c := primary.cluster(replica).clusterClient(t, func(o *config.ClusterClientConfiguration) {
			o.WithReadFrom(config.PreferReplica)
		})
		check(t, primary, replica, New(c), func(ctx context.Context, key string) error { _, err := c.Get(ctx, key); return err })
	})
}

func TestAClientWithACacheOfItsOwnAsksTheServer(t *testing.T) {
	check := func(t *testing.T, s *fakeServer, e driver.Evaler, own func(context.Context, string) error) {
		for range 2 { // the second from the cache, or this test shows nothing
			if err := own(t.Context(), "{k}"); err != nil || s.count("GET") != 1 {
				t.Fatalf("the client's own GET: %v; want it once on the server, not %d times", err, s.count("GET"))
			}
		}
		for range 2 {
			if _, _, err := get(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.count("GET"); n != 3 {
			t.Errorf("the server received GET %d times, want 3", n)
		}
	}
	cache, err := config.NewClientSideCache(1024, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("standalone", func(t *testing.T) {
		s := serve(t, answer("$1\r\na\r\n"))
		c := s.client(t, func(o *config.ClientConfiguration) { o.WithClientSideCache(cache) })
		check(t, s, New(c), func(ctx context.Context, key string) error {
			_, err := c.CustomCommand(ctx, []string{"GET", key})
			return err
		})
	})
	cache, err = config.NewClientSideCache(1024, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("cluster", func(t *testing.T) {
		s := serve(t, answer("$1\r\na\r\n")).cluster()
		c := s.clusterClient(t, func(o *config.ClusterClientConfiguration) { o.WithClientSideCache(cache) })
		check(t, s, New(c), func(ctx context.Context, key string) error {
			_, err := c.CustomCommand(ctx, []string{"GET", key})
			return err
		})
	})
}

func TestARedirectionIsFollowed(t *testing.T) {
	to := serve(t, answer("$1\r\nb\r\n")).cluster()
	for _, kind := range []string{"MOVED", "ASK"} {
		from := serve(t, answer("-"+kind+" 7629 "+to.addr+"\r\n")).cluster()
		e := New(from.clusterClient(t))
		if r, err := eval(t.Context(), e); err != nil || r.String() != "string of 1 bytes" {
			t.Errorf("%s: got %v, %v; want a string", kind, r, err)
		}
		if v, ok, err := get(t.Context(), e); v != "b" || !ok || err != nil {
			t.Errorf("%s: GET: got %q, %v, %v; want b", kind, v, ok, err)
		}
	}
}

func TestACommandGoesToThePrimaryOfItsSlot(t *testing.T) {
	a, b := serve(t, answer("$1\r\na\r\n")), serve(t, answer("$1\r\nb\r\n"))
	host := func(s *fakeServer) (string, string) { h, p, _ := net.SplitHostPort(s.addr); return h, p }
	ha, pa := host(a)
	hb, pb := host(b)
	reply := fmt.Sprintf("*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\na\r\n*3\r\n:8192\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nb\r\n", len(ha), ha, pa, len(hb), hb, pb)
	for _, s := range []*fakeServer{a, b} {
		s.mu.Lock()
		s.slots = reply
		s.mu.Unlock()
	}
	e := New(a.clusterClient(t))
	// The slots are those that CLUSTER KEYSLOT of a server says.
	for key, number := range map[string]int{
		"k": 7629, "v:{k}": 7629, "{k}{a}": 7629, "foo": 12182, "{}foo": 9500, "foo{": 7673, "foo{}": 5542, "{x}{k}": 16287, "123456789": 12739,
	} {
		want := "a"
		if number > 8191 {
			want = "b"
		}
		if v, _, err := e.(driver.Getter).Get(t.Context(), key); err != nil || v != want {
			t.Errorf("GET %q: got %q, %v; want %s", key, v, err, want)
		}
		r, err := e.Eval(t.Context(), script, []string{key}, nil)
		if v, _ := r.Str(); err != nil || v != want {
			t.Errorf("EVALSHA %q: got %q, %v; want %s", key, v, err, want)
		}
		if got := slot(key); got != int32(number) {
			t.Errorf("slot of %q: got %d, want %d", key, got, number)
		}
	}
}

func TestAScriptThatTheServerDoesNotKnowIsSentByItsSource(t *testing.T) {
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
		{"not after another error that has glide's name for it", "-ERR NoScriptError: x\r\n", "", 0, "ERR NoScriptError: x"},
		{"not for a code that starts the same", "-NOSCRIPTS x\r\n", "", 0, "NOSCRIPTS"},
		{"not for an element", "*1\r\n" + unknown, "", 0, "NOSCRIPT"},
		{"not for a value", "$8\r\nNOSCRIPT\r\n", "", 0, ""},
		{"not after a lost reply", cut, "", 0, "eceive"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for kind, c := range both(t, func(args []string) string {
				if args[0] == "EVAL" {
					return tt.eval
				}
				return tt.evalsha
			}) {
				_, err := eval(t.Context(), c.e)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v; want one with %q", kind, err, tt.want)
				}
				if sha, src := c.s.count("EVALSHA"), c.s.count("EVAL"); sha != 1 || src != tt.wantEval {
					t.Errorf("%s: EVALSHA was sent %d times, EVAL %d times; want 1 and %d", kind, sha, src, tt.wantEval)
				}
			}
		})
	}
}

func TestKeysAndArgumentsAreSentAsTheyAre(t *testing.T) {
	for kind, c := range both(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return "-NOSCRIPT x\r\n"
		}
		return "$-1\r\n"
	}) {
		keys := []string{"{k}", "\x00\r\n\xff{k}"}
		args := []string{"1.0", "007", "", "$5", strings.Repeat("x", 1<<16)}
		r, err := c.e.Eval(t.Context(), script, keys, args)
		if err != nil || r.Kind() != driver.KindNil {
			t.Fatalf("%s: got %v, %v; want nil", kind, r, err)
		}
		tail := slices.Concat([]string{"2"}, keys, args)
		want := [][]string{
			append([]string{"EVALSHA", script.SHA1()}, tail...),
			append([]string{"EVAL", script.Source()}, tail...),
		}
		if diff := cmp.Diff(want, c.s.commands()); diff != "" {
			t.Errorf("%s: commands (-want +got):\n%s", kind, diff)
		}
	}
}

func TestGetReturnsTheValueOrThatThereIsNone(t *testing.T) {
	replies := make(chan string, 1)
	for kind, c := range both(t, func([]string) string { return <-replies }) {
		for _, tt := range []struct {
			reply, want string
			ok          bool
		}{
			{"$3\r\na\r\n\r\n", "a\r\n", true},
			{"$0\r\n\r\n", "", true},
			{"$-1\r\n", "", false},
			{"_\r\n", "", false},
		} {
			replies <- tt.reply
			v, ok, err := get(t.Context(), c.e)
			if v != tt.want || ok != tt.ok || err != nil {
				t.Errorf("%s: reply %q: got %q, %v, %v; want %q, %v", kind, tt.reply, v, ok, err, tt.want, tt.ok)
			}
		}
		replies <- "-WRONGTYPE Operation against a key\r\n"
		_, _, err := get(t.Context(), c.e)
		if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != "WRONGTYPE" {
			t.Errorf("%s: wrong type: %v; want a ServerError with the code WRONGTYPE", kind, err)
		}
		replies <- ":1\r\n"
		if _, ok, err := get(t.Context(), c.e); ok || err == nil {
			t.Errorf("%s: an integer: got %v, %v; want an error", kind, ok, err)
		}
	}
}

func TestACommandIsNotSentWhenItsContextIsDone(t *testing.T) {
	for kind, c := range both(t, answer("$1\r\na\r\n")) {
		for _, e := range []driver.Evaler{c.e, c.e.(driver.Bounder).Bound(1e9)} {
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			passed, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			defer cancel()
			for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: passed} {
				for name, call := range calls(e) {
					if err := call(ctx); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, want) {
						t.Errorf("%s: %s: %v; want ErrNotSent and %v", kind, name, err, want)
					}
				}
			}
		}
		if got := c.s.commands(); len(got) != 0 {
			t.Errorf("%s: the server received %q, want nothing", kind, got)
		}
	}
}
