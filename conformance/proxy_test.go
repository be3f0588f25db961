package conformance

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/internal/resp"
)

// countingServer is a server that notes what it executes. It understands:
//
//	AUTH password, HELLO version, SELECT db   as servers do; with a password set, all else needs AUTH first
//	INCR key, GET key, SET key value          in one key space per db
//	EVAL incr 1 key                           INCR, whose digest EVALSHA takes from then on; any other source fails
//	EVALSHA sha-of-incr 1 key                 NOSCRIPT before the first EVAL
//	MULTI, EXEC                               for INCR, GET and SET
//	SUBSCRIBE channel..., UNSUBSCRIBE channel...
//	PUBLISH channel message                   to all who subscribed
//	BLOCK                                     replies when the test closes its unblock channel
//	QUIT                                      replies and closes the connection
type countingServer struct {
	addr     string
	password string
	unblock  chan struct{}

	mu          sync.Mutex
	conns       map[*serverConn]struct{}
	values      map[string]string
	scriptKnown bool
	executed    []string // commands other than AUTH, HELLO and SELECT, in the order they were executed
}

type serverConn struct {
	net.Conn
	authenticated bool
	resp3         bool
	db            string
	multi         bool
	queue         [][]string
	channels      []string
}

const shaOfIncr = "5fd1a1e14cc0c3ff5f9f5bcf8ad8ee3a0ef2a4d5"

func (s *countingServer) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	addr := s.addr
	s.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

func (s *countingServer) serve(nc net.Conn) {
	c := &serverConn{Conn: nc, db: "0", authenticated: s.password == ""}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		nc.Close()
	}()
	r := bufio.NewReader(nc)
	for {
		command, _, err := resp.ReadCommand(r)
		if err != nil {
			return
		}
		command[0] = strings.ToUpper(command[0])
		if command[0] == "BLOCK" {
			<-s.unblock
		}
		s.mu.Lock()
		var out []byte
		for _, v := range s.reply(c, command) {
			out = resp.AppendValue(out, v)
		}
		s.mu.Unlock()
		if _, err := nc.Write(out); err != nil || command[0] == "QUIT" {
			return
		}
	}
}

func (s *countingServer) reply(c *serverConn, command []string) []resp.Value {
	ok := resp.Value{Kind: resp.SimpleString, Str: "OK"}
	one := func(v resp.Value) []resp.Value { return []resp.Value{v} }
	fail := func(text string) []resp.Value { return one(resp.Value{Kind: resp.SimpleError, Str: text}) }
	switch {
	case command[0] == "AUTH":
		if command[1] != s.password {
			return fail("WRONGPASS invalid password")
		}
		c.authenticated = true
		return one(ok)
	case !c.authenticated:
		return fail("NOAUTH Authentication required.")
	case command[0] == "HELLO":
		c.resp3 = command[1] == "3"
		return one(resp.Value{Kind: resp.Map, List: []resp.Value{bulk("proto"), {Kind: resp.Integer, Int: 3}}})
	case command[0] == "SELECT":
		c.db = command[1]
		return one(ok)
	case c.multi && command[0] != "EXEC":
		c.queue = append(c.queue, command)
		return one(resp.Value{Kind: resp.SimpleString, Str: "QUEUED"})
	}
	s.executed = append(s.executed, strings.Join(command[:min(2, len(command))], " "))
	switch command[0] {
	case "MULTI":
		c.multi = true
		return one(ok)
	case "EXEC":
		v := resp.Value{Kind: resp.Array}
		for _, command := range c.queue {
			c.multi = false
			v.List = append(v.List, s.reply(c, command)...)
		}
		c.queue = nil
		return one(v)
	case "INCR":
		return one(s.incr(c.db + "/" + command[1]))
	case "EVAL":
		if command[1] != "incr" {
			return fail("ERR Error compiling script")
		}
		s.scriptKnown = true
		return one(s.incr(c.db + "/" + command[3]))
	case "EVALSHA":
		if !s.scriptKnown || command[1] != shaOfIncr {
			return fail("NOSCRIPT No matching script.")
		}
		return one(s.incr(c.db + "/" + command[3]))
	case "SET":
		s.values[c.db+"/"+command[1]] = command[2]
		return one(ok)
	case "GET":
		v, found := s.values[c.db+"/"+command[1]]
		return one(resp.Value{Kind: resp.BulkString, Str: v, Null: !found})
	case "SUBSCRIBE", "UNSUBSCRIBE":
		var out []resp.Value
		for _, channel := range command[1:] {
			c.channels = slices.DeleteFunc(c.channels, func(s string) bool { return s == channel })
			if command[0] == "SUBSCRIBE" {
				c.channels = append(c.channels, channel)
			}
			out = append(out, c.message(bulk(strings.ToLower(command[0])), bulk(channel),
				resp.Value{Kind: resp.Integer, Int: int64(len(c.channels))}))
		}
		return out
	case "PUBLISH":
		n := int64(0)
		for c := range s.conns {
			if slices.Contains(c.channels, command[1]) {
				n++
				c.Write(resp.AppendValue(nil, c.message(bulk("message"), bulk(command[1]), bulk(command[2]))))
			}
		}
		return one(resp.Value{Kind: resp.Integer, Int: n})
	case "BLOCK", "QUIT":
		return one(ok)
	}
	return fail("ERR unknown command")
}

func (s *countingServer) incr(key string) resp.Value {
	n, _ := strconv.ParseInt(s.values[key], 10, 64)
	s.values[key] = strconv.FormatInt(n+1, 10)
	return resp.Value{Kind: resp.Integer, Int: n + 1}
}

func (c *serverConn) message(list ...resp.Value) resp.Value {
	if c.resp3 {
		return resp.Value{Kind: resp.Push, List: list}
	}
	return resp.Value{Kind: resp.Array, List: list}
}

func bulk(s string) resp.Value { return resp.Value{Kind: resp.BulkString, Str: s} }

// wantExecuted checks what the server has executed so far, but for the commands that begin connections.
func (s *countingServer) wantExecuted(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.executed); diff != "" {
		t.Errorf("the server executed (-want +got):\n%s", diff)
	}
}

// startProxy returns a proxy and the server behind it. The test fails if they leave a goroutine behind.
func startProxy(t *testing.T, password string) (*Proxy, *countingServer) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &countingServer{
		addr: l.Addr().String(), password: password, unblock: make(chan struct{}),
		conns: map[*serverConn]struct{}{}, values: map[string]string{},
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(nc) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return NewProxy(t, s.dial), s
}

// dialProxy returns a raw connection through the proxy, whose deadline fails the test instead of letting it hang.
func dialProxy(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	return nc
}

func connect(t *testing.T, p *Proxy) *resp.Conn { return resp.NewConn(dialProxy(t, p)) }

// async runs a command and returns a channel with its outcome.
func async(c *resp.Conn, command ...string) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		v, err := c.Do(command...)
		ch <- outcome{v, err}
	}()
	return ch
}

type outcome struct {
	reply resp.Value
	err   error
}

func wantInt(t *testing.T, want int64, got resp.Value, err error) {
	t.Helper()
	if err != nil || got.Kind != resp.Integer || got.Int != want {
		t.Errorf("the reply is %+v, error %v, want the integer %d", got, err, want)
	}
}

// wantCut checks that err says that the connection was cut, and not that it hung.
func wantCut(t *testing.T, err error) {
	t.Helper()
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() || errors.As(err, new(resp.Error)) {
		t.Errorf("the error is %v, want that of a connection that was cut", err)
	}
}

func wantCaught(t *testing.T, r *Rule) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	<-r.Caught()
}

func send(t *testing.T, nc net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
}

// wantBytes checks the next bytes that arrive.
func wantBytes(t *testing.T, nc net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(nc, got)
	if string(got[:n]) != want {
		t.Fatalf("received %d bytes %.200q, error %v, want %d bytes %.200q", n, got[:n], err, len(want), want)
	}
}

// wantEnd checks that nothing more arrives.
func wantEnd(t *testing.T, nc net.Conn) {
	t.Helper()
	n, err := nc.Read(make([]byte, 1))
	if n > 0 {
		t.Fatal("a byte arrived, want the end of the connection")
	}
	wantCut(t, err)
}

func TestProxyForwardsAPipelineUnchangedAndInOrder(t *testing.T) {
	p, s := startProxy(t, "")
	nc := dialProxy(t, p)
	send(t, nc, "INCR a\r\n*2\r\n$4\r\nincr\r\n$1\r\na\r\n\r\nGET b\nHELLO 3\r\nnope\r\n")
	wantBytes(t, nc, ":1\r\n:2\r\n$-1\r\n%1\r\n$5\r\nproto\r\n:3\r\n-ERR unknown command\r\n")
	s.wantExecuted(t, "INCR a", "INCR a", "GET b", "NOPE")
	want := map[string]int{"INCR": 2, "GET": 1, "HELLO": 1, "NOPE": 1}
	if diff := cmp.Diff(want, p.Commands()); diff != "" {
		t.Errorf("the proxy counted (-want +got):\n%s", diff)
	}
}

func TestProxyForwardsLargeValues(t *testing.T) {
	p, _ := startProxy(t, "")
	c := connect(t, p)
	large := strings.Repeat("0123456789abcdef", 512<<10)
	if _, err := c.Do("SET", "k", large); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Do("GET", "k"); err != nil || v.Str != large {
		t.Errorf("got %d bytes, error %v, want the %d bytes that were set", len(v.Str), err, len(large))
	}
}

func TestProxyServesAClientThatWritesALongPipelineBeforeItReads(t *testing.T) {
	p, _ := startProxy(t, "")
	nc := dialProxy(t, p)
	const n = 250 // 16 MiB in each direction do not fit into the buffers of the connections
	value := strings.Repeat("x", 64<<10)
	pipeline := resp.AppendCommand(nil, "SET", "k", value)
	for range n {
		pipeline = resp.AppendCommand(pipeline, "SET", "k", value)
		pipeline = resp.AppendCommand(pipeline, "GET", "k")
	}
	send(t, nc, string(pipeline))
	reply := "+OK\r\n$65536\r\n" + value + "\r\n"
	wantBytes(t, nc, "+OK\r\n"+strings.Repeat(reply, n))
}

func TestProxyDropReplyLetsTheServerExecuteAndCutsTheClient(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("incr"), 1, DropReply)
	_, err := connect(t, p).Do("INCR", "a")
	wantCut(t, err)
	if rule.Hits() != 1 {
		t.Errorf("the rule has %d hits when the client sees the cut, want 1", rule.Hits())
	}
	wantCaught(t, rule)
	s.wantExecuted(t, "INCR a")
	v, err := connect(t, p).Do("INCR", "a")
	wantInt(t, 2, v, err)
}

func TestProxyDropReplyCountsWhenTheClientHasLeft(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, DropReply)
	next := p.On(MatchCommand("GET"), 1, Delay(0)) // once it is caught, the INCR before it was forwarded
	nc := dialProxy(t, p)
	send(t, nc, "BLOCK\r\nINCR a\r\nGET a\r\n")
	wantCaught(t, next)
	nc.Close()
	close(s.unblock)
	wantCaught(t, rule)
}

func TestProxyDeliversEarlierRepliesBeforeItCuts(t *testing.T) {
	for name, action := range map[string]Action{"DropReply": DropReply, "CutBefore": CutBefore, "LateCopy": LateCopy} {
		t.Run(name, func(t *testing.T) {
			p, s := startProxy(t, "")
			block := p.On(MatchCommand("BLOCK"), 1, HoldReply)
			rule := p.On(MatchCommand("GET"), 1, action)
			nc := dialProxy(t, p)
			send(t, nc, "INCR a\r\nBLOCK\r\nGET a\r\nINCR a\r\n")
			wantBytes(t, nc, ":1\r\n")
			close(s.unblock)
			wantCaught(t, rule)
			if _, err := block.Release(t.Context()); err != nil {
				t.Error(err)
			}
			wantBytes(t, nc, "+OK\r\n")
			wantEnd(t, nc)
			if action != DropReply {
				s.wantExecuted(t, "INCR a", "BLOCK")
			}
		})
	}
}

func TestProxyCutBeforeKeepsTheCommandFromTheServer(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, CutBefore)
	_, err := connect(t, p).Do("INCR", "a")
	wantCut(t, err)
	if rule.Hits() != 1 {
		t.Errorf("the rule has %d hits when the client sees the cut, want 1", rule.Hits())
	}
	s.wantExecuted(t)
	if n := p.Commands()["INCR"]; n != 0 {
		t.Errorf("the proxy counted %d forwarded commands, want 0", n)
	}
}

func TestProxyDelayForwardsLater(t *testing.T) {
	p, s := startProxy(t, "")
	const d = 20 * time.Millisecond
	rule := p.On(MatchCommand("INCR"), 1, Delay(d))
	c := connect(t, p)
	start := time.Now()
	v, err := c.Do("INCR", "a")
	wantInt(t, 1, v, err)
	if took := time.Since(start); took < d {
		t.Errorf("the reply took %v, want at least %v", took, d)
	}
	wantCaught(t, rule)
	s.wantExecuted(t, "INCR a")
}

func TestProxyHangAnswersNothingUntilTheRuleIsRemoved(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), -1, Hang)
	c := connect(t, p)
	done := async(c, "INCR", "a")
	wantCaught(t, rule)
	select {
	case got := <-done:
		t.Errorf("the client got %+v, want that it waits", got)
	default:
	}
	rule.Remove()
	wantCut(t, (<-done).err)
	s.wantExecuted(t)
	v, err := connect(t, p).Do("INCR", "a")
	wantInt(t, 1, v, err)
}

func TestProxyHoldReplyKeepsTheReplyOfAnExecutedCommand(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, HoldReply)
	done := async(connect(t, p), "INCR", "a")
	wantCaught(t, rule)
	s.wantExecuted(t, "INCR a")
	v, err := connect(t, p).Do("INCR", "a")
	wantInt(t, 2, v, err)
	select {
	case got := <-done:
		t.Errorf("the client got %+v, want that it waits", got)
	default:
	}
	if reply, err := rule.Release(t.Context()); reply != int64(1) || err != nil {
		t.Errorf("Release returned %v, %v, want 1", reply, err)
	}
	got := <-done
	wantInt(t, 1, got.reply, got.err)
}

func TestProxyPushMessagesOvertakeAHeldReplyAndRepliesDoNot(t *testing.T) {
	for _, remove := range []bool{false, true} {
		p, _ := startProxy(t, "")
		rule := p.On(MatchCommand("INCR"), 1, HoldReply)
		nc := dialProxy(t, p)
		send(t, nc, "HELLO 3\r\nSUBSCRIBE c d\r\nINCR a\r\nINCR a\r\nSUBSCRIBE e\r\nGET b\r\n")
		wantBytes(t, nc, "%1\r\n$5\r\nproto\r\n:3\r\n"+
			">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nd\r\n:2\r\n")
		wantCaught(t, rule)
		if _, err := connect(t, p).Do("PUBLISH", "c", "hello"); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, nc, ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n")
		if remove {
			rule.Remove()
		} else if _, err := rule.Release(t.Context()); err != nil {
			t.Error(err)
		}
		wantBytes(t, nc, ":1\r\n:2\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\ne\r\n:3\r\n$-1\r\n")
	}
}

func TestProxyHoldRequestExecutesWhenReleased(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, HoldRequest)
	done := async(connect(t, p), "INCR", "a")
	wantCaught(t, rule)
	s.wantExecuted(t)
	v, err := connect(t, p).Do("INCR", "a")
	wantInt(t, 1, v, err)
	if reply, err := rule.Release(t.Context()); reply != int64(2) || err != nil {
		t.Errorf("Release returned %v, %v, want 2", reply, err)
	}
	got := <-done
	wantInt(t, 2, got.reply, got.err)
}

func TestProxyHoldRequestExecutesAfterTheClientLeft(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, HoldRequest)
	c := connect(t, p)
	done := async(c, "INCR", "a")
	wantCaught(t, rule)
	p.CutAll()
	wantCut(t, (<-done).err)
	s.wantExecuted(t)
	if reply, err := rule.Release(t.Context()); reply != int64(1) || err != nil {
		t.Errorf("Release returned %v, %v, want 1", reply, err)
	}
	s.wantExecuted(t, "INCR a")
}

func TestProxyReleaseFailsWhenTheServerIsGone(t *testing.T) {
	for _, action := range []Action{HoldRequest, LateCopy} {
		p, s := startProxy(t, "")
		rule := p.On(MatchCommand("INCR"), 1, action)
		c := connect(t, p)
		if _, err := c.Do("GET", "a"); err != nil { // with its reply, the server is known to have the connection
			t.Fatal(err)
		}
		done := async(c, "INCR", "a")
		wantCaught(t, rule)
		s.mu.Lock()
		for c := range s.conns {
			c.Close()
		}
		s.addr = "127.0.0.1:0" // dialling it fails
		s.mu.Unlock()
		wantCut(t, (<-done).err)
		if reply, err := rule.Release(t.Context()); reply != nil || err == nil {
			t.Errorf("Release returned %v, %v, want an error", reply, err)
		}
		s.wantExecuted(t, "GET a")
	}
}

func TestProxyRemoveForwardsAHeldRequest(t *testing.T) {
	p, _ := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, HoldRequest)
	done := async(connect(t, p), "INCR", "a")
	wantCaught(t, rule)
	rule.Remove()
	rule.Remove()
	got := <-done
	wantInt(t, 1, got.reply, got.err)
}

func TestProxyLateCopyArrivesAfterTheRetry(t *testing.T) {
	p, s := startProxy(t, "secret")
	rule := p.On(MatchScript(shaOfIncr, "incr"), 1, LateCopy)
	retry := func() (v resp.Value, err error) {
		for range 2 {
			c := connect(t, p)
			c.Do("AUTH", "wrong")
			for _, command := range [][]string{{"AUTH", "secret"}, {"HELLO", "3"}, {"SELECT", "7"}} {
				if _, err := c.Do(command...); err != nil {
					t.Fatal(err)
				}
			}
			if v, err = c.Do("EVAL", "incr", "1", "a"); err == nil {
				break
			}
		}
		return v, err
	}
	v, err := retry()
	wantInt(t, 1, v, err)
	wantCaught(t, rule)
	s.wantExecuted(t, "EVAL incr")
	if reply, err := rule.Release(t.Context()); reply != int64(2) || err != nil {
		t.Errorf("Release returned %v, %v, want 2", reply, err)
	}
	s.wantExecuted(t, "EVAL incr", "EVAL incr")
	if got := p.Commands(); got["EVAL"] != 2 {
		t.Errorf("the proxy counted %d forwarded EVALs, want 2", got["EVAL"])
	}
}

func TestProxyRemoveDropsALateCopy(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), 1, LateCopy)
	_, err := connect(t, p).Do("INCR", "a")
	wantCut(t, err)
	rule.Remove()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if reply, err := rule.Release(ctx); reply != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Release returned %v, %v, want the context's error", reply, err)
	}
	s.wantExecuted(t)
}

func TestProxyReleaseReturnsTheReplyOfTheServer(t *testing.T) {
	for _, action := range []Action{HoldReply, HoldRequest, LateCopy} {
		p, _ := startProxy(t, "")
		rule := p.On(MatchCommand("NOPE"), 1, action)
		async(connect(t, p), "NOPE")
		if reply, err := rule.Release(t.Context()); reply != nil || err == nil || err.Error() != "ERR unknown command" {
			t.Errorf("Release returned %v, %v, want the server's error", reply, err)
		}
	}
	nested := resp.Value{Kind: resp.Array, List: []resp.Value{
		bulk("a"),
		{Kind: resp.Null, Null: true},
		{Kind: resp.Bool, Int: 1},
		{Kind: resp.SimpleError, Str: "ERR no"},
		{Kind: resp.Set, List: []resp.Value{{Kind: resp.Integer, Int: 5}}},
	}}
	want := []any{"a", nil, true, resp.Error("ERR no"), []any{int64(5)}}
	if diff := cmp.Diff(want, plain(nested)); diff != "" {
		t.Errorf("the reply in plain types (-want +got):\n%s", diff)
	}
}

func TestProxyMatchesScriptsByDigestAndBySource(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchScript(strings.ToUpper(shaOfIncr), "incr"), -1, Delay(0))
	c := connect(t, p)
	if _, err := c.Do("EVALSHA", shaOfIncr, "1", "a"); !errors.Is(err, resp.Error("NOSCRIPT No matching script.")) {
		t.Errorf("the error is %v, want NOSCRIPT", err)
	}
	for i, command := range [][]string{{"EVAL", "incr", "1", "a"}, {"evalsha", shaOfIncr, "1", "a"}} {
		v, err := c.Do(command...)
		wantInt(t, int64(i+1), v, err)
	}
	for _, command := range [][]string{{"EVAL", "other", "0"}, {"EVALSHA", "0123", "0"}, {"GET", "incr"}, {"PING"}} {
		c.Do(command...)
	}
	if rule.Hits() != 3 {
		t.Errorf("the rule has %d hits, want 3", rule.Hits())
	}
	s.wantExecuted(t, "EVALSHA "+shaOfIncr, "EVAL incr", "EVALSHA "+shaOfIncr,
		"EVAL other", "EVALSHA 0123", "GET incr", "PING")
}

func TestProxyRulesCatchInOrderAndOnlySoManyCommands(t *testing.T) {
	p, s := startProxy(t, "")
	first := p.On(MatchCommand("INCR"), 2, CutBefore)
	second := p.On(func([]string) bool { return true }, -1, DropReply)
	for range 4 {
		_, err := connect(t, p).Do("INCR", "a")
		wantCut(t, err)
	}
	if first.Hits() != 2 || second.Hits() != 2 {
		t.Errorf("the rules have %d and %d hits, want 2 and 2", first.Hits(), second.Hits())
	}
	second.Remove()
	v, err := connect(t, p).Do("INCR", "a")
	wantInt(t, 3, v, err)
	s.wantExecuted(t, "INCR a", "INCR a", "INCR a")
}

func TestProxyHoldsSeveralClientsAtOnce(t *testing.T) {
	p, s := startProxy(t, "")
	rule := p.On(MatchCommand("INCR"), -1, HoldRequest)
	const n = 10
	var done []<-chan outcome
	for range n {
		done = append(done, async(connect(t, p), "INCR", "a"))
	}
	if err := rule.Wait(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	s.wantExecuted(t)
	for i := range n {
		if reply, err := rule.Release(t.Context()); reply != int64(i+1) || err != nil {
			t.Errorf("Release returned %v, %v, want %d", reply, err, i+1)
		}
	}
	for _, ch := range done {
		if got := <-ch; got.err != nil {
			t.Error(got.err)
		}
	}
}

func TestProxyDropsTheReplyToATransaction(t *testing.T) {
	p, s := startProxy(t, "")
	p.On(MatchCommand("EXEC"), 1, DropReply)
	nc := dialProxy(t, p)
	send(t, nc, "MULTI\r\nINCR a\r\nINCR a\r\nEXEC\r\n")
	wantBytes(t, nc, "+OK\r\n+QUEUED\r\n+QUEUED\r\n")
	wantEnd(t, nc)
	s.wantExecuted(t, "MULTI", "EXEC", "INCR a", "INCR a")
}

func TestProxyForwardsMessagesToASubscriberOfRESP2(t *testing.T) {
	p, _ := startProxy(t, "")
	nc, publisher := dialProxy(t, p), connect(t, p)
	send(t, nc, "SUBSCRIBE c d\r\n")
	wantBytes(t, nc, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nd\r\n:2\r\n")
	v, err := publisher.Do("PUBLISH", "c", "x")
	wantInt(t, 1, v, err)
	wantBytes(t, nc, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")

	held := p.On(MatchCommand("UNSUBSCRIBE"), 1, HoldReply)
	send(t, nc, "UNSUBSCRIBE c\r\n")
	wantCaught(t, held)
	v, err = publisher.Do("PUBLISH", "d", "y")
	wantInt(t, 1, v, err)
	wantBytes(t, nc, "*3\r\n$7\r\nmessage\r\n$1\r\nd\r\n$1\r\ny\r\n")
	if _, err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	wantBytes(t, nc, "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:1\r\n")
}

func TestProxyDropsTheConfirmationOfASubscription(t *testing.T) {
	for _, hello := range []string{"", "HELLO 3\r\n"} {
		p, s := startProxy(t, "")
		p.On(MatchCommand("SUBSCRIBE"), 1, DropReply)
		nc := dialProxy(t, p)
		send(t, nc, hello+"SUBSCRIBE c\r\n")
		if hello != "" {
			wantBytes(t, nc, "%1\r\n$5\r\nproto\r\n:3\r\n")
		}
		wantEnd(t, nc)
		s.wantExecuted(t, "SUBSCRIBE c")
	}
}

func TestProxyCutAllClosesEveryConnection(t *testing.T) {
	p, _ := startProxy(t, "")
	var conns []*resp.Conn
	for range 3 {
		c := connect(t, p)
		if _, err := c.Do("GET", "a"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	p.CutAll()
	for _, c := range conns {
		_, err := c.Do("GET", "a")
		wantCut(t, err)
	}
	v, err := connect(t, p).Do("INCR", "a")
	wantInt(t, 1, v, err)
}

func TestProxyRefusesConnectionsWhileItIsDown(t *testing.T) {
	p, s := startProxy(t, "")
	c, addr := connect(t, p), p.Addr()
	if _, err := c.Do("GET", "a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.Down()
		if nc, err := net.Dial("tcp", addr); err == nil {
			nc.Close()
			t.Fatal("dialling succeeded while the proxy was down")
		}
	}
	_, err := c.Do("GET", "a")
	wantCut(t, err)
	for range 2 {
		p.Up()
		v, err := connect(t, p).Do("GET", "a")
		if err != nil || !v.Null {
			t.Errorf("the reply is %+v, error %v, want null", v, err)
		}
	}
	if p.Addr() != addr {
		t.Errorf("the address became %s, want %s", p.Addr(), addr)
	}
	s.wantExecuted(t, "GET a", "GET a", "GET a")
}

func TestProxyCutsTheClientWhenTheServerIsGone(t *testing.T) {
	p, _ := startProxy(t, "")
	nc := dialProxy(t, p)
	send(t, nc, "INCR a\r\nQUIT\r\n")
	wantBytes(t, nc, ":1\r\n+OK\r\n")
	wantEnd(t, nc)

	unreachable := NewProxy(t, func(context.Context) (net.Conn, error) { return nil, errors.New("no server") })
	wantEnd(t, dialProxy(t, unreachable))
}

func TestProxyClosesWithTheTestWhateverItHolds(t *testing.T) {
	startProxy(t, "") // checks for goroutines when this test ends
	var done []<-chan outcome
	t.Run("the test", func(t *testing.T) {
		p, s := startProxy(t, "")
		close(s.unblock)
		for i, action := range []Action{Hang, HoldReply, HoldRequest, LateCopy, Delay(time.Hour)} {
			key := strconv.Itoa(i)
			rule := p.On(func(command []string) bool { return command[1] == key }, 1, action)
			nc, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			done = append(done, async(resp.NewConn(nc), "INCR", key))
			wantCaught(t, rule)
		}
	})
	for _, ch := range done {
		wantCut(t, (<-ch).err)
	}
}
