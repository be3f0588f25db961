package glide

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

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
			adaptertest.CheckAbilities(t, tt.e, tt.want, "not sent: glide: ")
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
		"valkey://u:p@%s/0?addr=" + replica.Addr: serve(t, answer("$1\r\na\r\n")),
	} {
		e, err := driver.Open("glide", fmt.Sprintf(dsn, s.Addr))
		if err != nil {
			t.Fatalf("%s: %v", dsn, err)
		}
		b := e.(driver.Bounder).Bound(tooLong)
		for _, e := range []driver.Evaler{e, b} {
			if diff := cmp.Diff([]string{"get", "bound", "ping", "close"}, abilities(e)); diff != "" {
				t.Errorf("%s: abilities (-want +got):\n%s", dsn, diff)
			}
			for name, call := range calls(t, e) {
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
		for begin := time.Now(); s.Conns() > 0; time.Sleep(time.Millisecond) {
			if time.Since(begin) > tooLong {
				t.Fatalf("%s: after Close %d connections are open", dsn, s.Conns())
			}
		}
		for _, e := range []driver.Evaler{e, b} {
			for name, call := range calls(t, e) {
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
					before := c.s.Count(name)
					err := calls(t, e)[name](t.Context())
					if err == nil || errors.Is(err, driver.ErrNotSent) {
						t.Errorf("%v; want an error that is not ErrNotSent", err)
					}
					if _, ok := errors.AsType[*driver.ServerError](err); ok {
						t.Errorf("%v is a ServerError", err)
					}
					if n := c.s.Count(name) - before; n != 1 {
						t.Errorf("it was sent %d times, want once", n)
					}
				})
			}
		}
		if n := c.s.Count("EVAL"); n != 0 {
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
			if _, _, err := get(t.Context(), t, c.e); err == nil || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%s: GET: %v; want an error that is not ErrNotSent", kind, err)
			}
		}
		var got [][]string
		for _, args := range c.s.Commands() {
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
			for name, call := range calls(t, e) {
				err := call(t.Context())
				if _, ok := errors.AsType[*glide.TimeoutError](err); !ok || !errors.Is(err, driver.ErrNotSent) {
					t.Errorf("%s: %s: %v; want ErrNotSent and a *glide.TimeoutError", kind, name, err)
				}
			}
		}
		if sha, get := c.s.Count("EVALSHA"), c.s.Count("GET"); sha != 1 || get != 0 {
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
				if err := calls(t, e)[name](t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := len(replica.Commands()); n != 0 {
			t.Errorf("the replica received %d commands, want none", n)
		}
		if n := primary.Count("GET"); n != 10 {
			t.Errorf("the primary received GET %d times, want 10", n)
		}
		// The control: this client does read from replicas.
		if err := own(t.Context(), "{k}"); err != nil || replica.Count("GET") != 1 {
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
			if err := own(t.Context(), "{k}"); err != nil || s.Count("GET") != 1 {
				t.Fatalf("the client's own GET: %v; want it once on the server, not %d times", err, s.Count("GET"))
			}
		}
		for range 2 {
			if _, _, err := get(t.Context(), t, e); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Count("GET"); n != 3 {
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
		from := serve(t, answer("-"+kind+" 7629 "+to.Addr+"\r\n")).cluster()
		e := New(from.clusterClient(t))
		if r, err := eval(t.Context(), e); err != nil || r.String() != "string of 1 bytes" {
			t.Errorf("%s: got %v, %v; want a string", kind, r, err)
		}
		if v, ok, err := get(t.Context(), t, e); v != "b" || !ok || err != nil {
			t.Errorf("%s: GET: got %q, %v, %v; want b", kind, v, ok, err)
		}
	}
}

func TestACommandGoesToThePrimaryOfItsSlot(t *testing.T) {
	a, b := serve(t, answer("$1\r\na\r\n")), serve(t, answer("$1\r\nb\r\n"))
	host := func(s *fakeServer) (string, string) { h, p, _ := net.SplitHostPort(s.Addr); return h, p }
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
	checkBoth(t, func(t *testing.T, connect adaptertest.Connect) { adaptertest.CheckFallback(t, connect, "eceive") })
}

func TestKeysAndArgumentsAreSentAsTheyAre(t *testing.T) {
	checkBoth(t, func(t *testing.T, connect adaptertest.Connect) {
		adaptertest.CheckArguments(t, connect, "2", "{k}", "\x00\r\n\xff{k}")
	})
}

func TestGetReturnsTheValueOrThatThereIsNone(t *testing.T) {
	checkBoth(t, func(t *testing.T, connect adaptertest.Connect) {
		adaptertest.CheckGet(t, connect, "_\r\n")
		e, _ := connect(t, answer(":1\r\n"))
		if _, ok, err := get(t.Context(), t, e); ok || err == nil {
			t.Errorf("an integer: got %v, %v; want an error", ok, err)
		}
	})
}

// One that does ends the process: see reserveStack.
func TestAnEmptyStringDoesNotMeetAGrowingStack(t *testing.T) {
	checkBoth(t, func(t *testing.T, connect adaptertest.Connect) {
		e, _ := connect(t, answer("$0\r\n\r\n"))
		g := e.(driver.Getter)
		var deep func(n int) error
		deep = func(n int) error {
			if n > 0 {
				return deep(n - 1)
			}
			value, ok, err := g.Get(t.Context(), "k")
			if value != "" || !ok {
				return fmt.Errorf("got %q, %v, %w; want the empty string", value, ok, err)
			}
			return err
		}
		for n := range 400 {
			done := make(chan error)
			go func() { done <- deep(n) }() // with a small stack
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestACommandIsNotSentWhenItsContextIsDone(t *testing.T) {
	checkBoth(t, adaptertest.CheckDoneContext)
}
