package goredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// closing closes c when the test ends.
func closing[C io.Closer](t *testing.T, c C) C {
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAnEvalerHasTheAbilitiesThatItsClientAllows(t *testing.T) {
	single := func(o redis.Options) Client { return closing(t, redis.NewClient(&o)) }
	cluster := func(o redis.ClusterOptions) Client {
		o.Addrs = []string{"127.0.0.1:1"}
		return closing(t, redis.NewClusterClient(&o))
	}
	ring := func(o redis.RingOptions) Client {
		o.Addrs = map[string]string{}
		return closing(t, redis.NewRing(&o))
	}
	failover := func(o redis.FailoverOptions) *redis.FailoverOptions {
		o.MasterName, o.SentinelAddrs = "main", []string{"127.0.0.1:1"}
		return &o
	}
	type embedding struct{ *redis.Client }

	tests := []struct {
		name   string
		client Client
		want   []string
	}{
		{"client", single(redis.Options{}), []string{"get", "bound", "ping"}},
		{"client without timeouts", single(redis.Options{ReadTimeout: -1}), []string{"get", "bound", "ping"}},
		{"client that leaves read deadlines alone", single(redis.Options{ReadTimeout: -2}), []string{"get", "ping"}},
		{"client that leaves write deadlines alone", single(redis.Options{WriteTimeout: -2}), []string{"get", "ping"}},
		{"failover client", closing(t, redis.NewFailoverClient(failover(redis.FailoverOptions{}))), []string{"get", "bound", "ping"}},

		{"cluster", cluster(redis.ClusterOptions{}), []string{"get", "ping"}},
		{"cluster that heeds deadlines", cluster(redis.ClusterOptions{ContextTimeoutEnabled: true}), []string{"get", "bound", "ping"}},
		{"cluster that leaves deadlines alone", cluster(redis.ClusterOptions{ContextTimeoutEnabled: true, ReadTimeout: -2}), []string{"get", "ping"}},
		{"cluster with slots by a function", cluster(redis.ClusterOptions{
			ContextTimeoutEnabled: true,
			ClusterSlots:          func(context.Context) ([]redis.ClusterSlot, error) { return nil, nil },
		}), []string{"get", "ping"}},
		{"cluster that reads from replicas", cluster(redis.ClusterOptions{ReadOnly: true, ContextTimeoutEnabled: true}), []string{"ping"}},
		{"cluster that reads from the closest", cluster(redis.ClusterOptions{RouteByLatency: true}), []string{"ping"}},
		{"cluster that reads at random", cluster(redis.ClusterOptions{RouteRandomly: true}), []string{"ping"}},
		{"failover cluster that reads from replicas", closing(t, redis.NewFailoverClusterClient(failover(redis.FailoverOptions{RouteRandomly: true}))), []string{"ping"}},
		{"failover cluster", closing(t, redis.NewFailoverClusterClient(failover(redis.FailoverOptions{}))), []string{"get", "ping"}},

		{"ring", ring(redis.RingOptions{}), []string{"get", "ping"}},
		{"ring that heeds deadlines", ring(redis.RingOptions{ContextTimeoutEnabled: true, ReadTimeout: -1}), []string{"get", "bound", "ping"}},
		{"ring that leaves deadlines alone", ring(redis.RingOptions{ContextTimeoutEnabled: true, WriteTimeout: -2}), []string{"get", "ping"}},

		{"function", clientFunc(func(context.Context, redis.Cmder) error { return nil }), []string{"ping"}},
		{"type that embeds a client", embedding{closing(t, redis.NewClient(&redis.Options{}))}, []string{"ping"}},

		{"nil", nil, []string{"invalid"}},
		{"nil *redis.Client", (*redis.Client)(nil), []string{"invalid"}},
		{"nil *redis.ClusterClient", (*redis.ClusterClient)(nil), []string{"invalid"}},
		{"nil function", clientFunc(nil), []string{"invalid"}},
		{"pipeline", closing(t, redis.NewClient(&redis.Options{})).Pipeline(), []string{"invalid"}},
		{"transaction pipeline", closing(t, redis.NewClient(&redis.Options{})).TxPipeline(), []string{"invalid"}},
		{"transaction", new(redis.Tx), []string{"invalid"}},
		{"single connection", new(redis.Conn), []string{"invalid"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			adaptertest.CheckAbilities(t, New(tt.client), tt.want, "hand over")
		})
	}
}

func TestTheRegistryAdoptsClientsOfGoRedis(t *testing.T) {
	e, err := driver.Adopt(closing(t, redis.NewClient(&redis.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "bound", "ping"}, abilities(e)); diff != "" {
		t.Errorf("abilities (-want +got):\n%s", diff)
	}
	if _, err := driver.Adopt((*redis.Client)(nil)); err == nil || !strings.Contains(err.Error(), "goredis: client is nil") {
		t.Errorf("Adopt(nil *redis.Client): %v; want the error of this package", err)
	}
	if _, err := driver.Adopt("a string"); err == nil || !strings.Contains(err.Error(), "no driver takes a client of type string") {
		t.Errorf("Adopt(string): %v; want that no driver takes it", err)
	}
}

func TestAnOpenedClientIsClosedAndAnAdoptedOneIsNot(t *testing.T) {
	s := serve(t, answer("$1\r\na\r\n"))
	e, err := driver.Open("goredis", "redis://"+s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "bound", "ping", "close"}, abilities(e)); diff != "" {
		t.Errorf("abilities (-want +got):\n%s", diff)
	}
	b := e.(driver.Bounder).Bound(1e9)
	if _, err := eval(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := b.(driver.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range []driver.Evaler{e, b} {
		if _, err := eval(t.Context(), e); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, redis.ErrClosed) {
			t.Errorf("Eval after Close: %v; want ErrNotSent and redis.ErrClosed", err)
		}
	}
}

func TestAnUnusableDSNIsAnErrorOfOpen(t *testing.T) {
	for _, dsn := range []string{"localhost:6379", "redis://localhost?pool_size=-1"} {
		if e, err := driver.Open("goredis", dsn); err == nil {
			t.Errorf("Open(%q) = %T; want an error", dsn, e)
		}
	}
}

func TestAScriptIsSentOnceWhenItsReplyIsLost(t *testing.T) {
	s := serve(t, answer(cut)) // executed, as far as anybody knows
	single := s.client(t, redis.Options{})
	ring := closing(t, redis.NewRing(&redis.RingOptions{
		Addrs:       map[string]string{"a": s.Addr},
		HeartbeatFn: func(context.Context, *redis.Client) bool { return true },
	}))
	cluster := closing(t, redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots(s.Addr)}))
	for _, c := range []Client{single, ring, cluster} {
		for _, bounded := range []bool{false, true} {
			e := New(c)
			if bounded {
				b, ok := e.(driver.Bounder)
				if !ok {
					continue // TestAnEvalerHasTheAbilitiesThatItsClientAllows states which clients have no bound
				}
				e = b.Bound(1e9)
			}
			t.Run(fmt.Sprintf("%T bounded=%v", c, bounded), func(t *testing.T) {
				for name, call := range map[string]func() error{
					"evalsha": func() error { _, err := eval(t.Context(), e); return err },
					"get":     func() error { _, _, err := get(t.Context(), t, e); return err },
				} {
					before := s.Count(name)
					err := call()
					if !errors.Is(err, io.EOF) || errors.Is(err, driver.ErrNotSent) {
						t.Errorf("%s: %v; want io.EOF, and not ErrNotSent", name, err)
					}
					if _, ok := errors.AsType[*driver.ServerError](err); ok {
						t.Errorf("%s: %v is a ServerError", name, err)
					}
					if n := s.Count(name) - before; n != 1 {
						t.Errorf("%s was sent %d times, want once", name, n)
					}
				}
			})
		}
	}
	if n := s.Count("eval"); n != 0 {
		t.Errorf("EVAL was sent %d times after a lost reply, want never", n)
	}
}

// slots returns a cluster's slots: all on one primary, with replicas.
func slots(primary string, replicas ...string) func(context.Context) ([]redis.ClusterSlot, error) {
	nodes := []redis.ClusterNode{{Addr: primary}}
	for _, r := range replicas {
		nodes = append(nodes, redis.ClusterNode{Addr: r})
	}
	return func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: nodes}}, nil
	}
}

func TestAClusterThatReadsFromReplicasRunsScriptsOnThePrimary(t *testing.T) {
	// What COMMAND says of the two: a GET only reads, a script may write.
	const commands = "*2\r\n" +
		"*6\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n" +
		"*6\r\n$7\r\nevalsha\r\n:-3\r\n*2\r\n+noscript\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\n"
	node := func(args []string) string {
		if strings.EqualFold(args[0], "command") {
			return commands
		}
		return "$1\r\na\r\n"
	}
	for name, o := range map[string]redis.ClusterOptions{
		"ReadOnly":       {ReadOnly: true},
		"RouteRandomly":  {RouteRandomly: true},
		"RouteByLatency": {RouteByLatency: true},
	} {
		t.Run(name, func(t *testing.T) {
			primary, replica := serve(t, node), serve(t, node)
			o.ClusterSlots = slots(primary.Addr, replica.Addr)
			c := closing(t, redis.NewClusterClient(&o))
			e := New(c)
			for range 30 {
				if _, err := eval(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				if err := c.Get(t.Context(), "{k}").Err(); err != nil {
					t.Fatal(err)
				}
			}
			if p, r := primary.Count("evalsha"), replica.Count("evalsha"); p != 30 || r != 0 {
				t.Errorf("scripts: %d on the primary, %d on the replica; want 30 and 0", p, r)
			}
			// The control: this client does read from replicas. Which node is
			// the closest is anybody's guess here.
			if name != "RouteByLatency" && replica.Count("get") == 0 {
				t.Error("the client itself never reads from the replica: this test shows nothing")
			}
		})
	}
}

func TestARedirectionIsFollowed(t *testing.T) {
	to := serve(t, answer("$1\r\nb\r\n"))
	for _, kind := range []string{"MOVED", "ASK"} {
		from := serve(t, answer("-"+kind+" 7629 "+to.Addr+"\r\n"))
		c := closing(t, redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots(from.Addr)}))
		r, err := eval(t.Context(), New(c))
		if s, _ := r.Str(); err != nil || s != "b" {
			t.Errorf("%s: got %v, %v; want b", kind, r, err)
		}
	}
}

func TestAScriptThatTheServerDoesNotKnowIsSentByItsSource(t *testing.T) {
	adaptertest.CheckFallback(t, connect, "EOF")
}

func TestKeysAndArgumentsAreSentAsTheyAre(t *testing.T) {
	adaptertest.CheckArguments(t, connect, "3", "{k}", "\x00\r\n\xff", "")
}

func TestGetReturnsTheValueOrThatThereIsNone(t *testing.T) {
	adaptertest.CheckGet(t, connect)
}

func TestACommandIsNotSentWhenItsContextIsDone(t *testing.T) {
	adaptertest.CheckDoneContext(t, connect)
}

func TestARefusedDialIsNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c := closing(t, redis.NewClient(&redis.Options{Addr: l.Addr().String(), DialerRetries: 1}))
	_, err = eval(t.Context(), New(c))
	if _, ok := errors.AsType[*net.OpError](err); !ok || !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("got %v; want ErrNotSent and a *net.OpError", err)
	}
}

func TestAPingTellsWhetherTheServerAnswers(t *testing.T) {
	up := true
	s := serve(t, func([]string) string {
		if up {
			return "+PONG\r\n"
		}
		return "-LOADING the dataset\r\n"
	})
	cluster := closing(t, redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots(s.Addr)}))
	for _, c := range []Client{s.client(t, redis.Options{}), cluster} {
		up = true
		e := New(c)
		before := len(s.Commands())
		if err := e.(driver.Pinger).Ping(t.Context()); err != nil {
			t.Errorf("%T: %v", c, err)
		}
		if got := s.Commands()[before:]; len(got) != 1 || got[0][0] != "ping" {
			t.Errorf("%T: the server received %q; want one ping", c, got)
		}
		up = false
		err := e.(driver.Pinger).Ping(t.Context())
		if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != "LOADING" {
			t.Errorf("%T: %v; want the server's error LOADING", c, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.(driver.Pinger).Ping(ctx); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("%T: %v; want ErrNotSent and context.Canceled", c, err)
		}
	}
}
