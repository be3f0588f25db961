package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecache/leasecache/internal/resp"
)

// Proxy stands between a client and a server, or several, and does to chosen commands what networks do: it loses
// replies, cuts connections, holds requests and delivers them late. All else it forwards unchanged, in both directions.
//
// It knows RESP2 and RESP3, pipelines, transactions, push messages and subscriptions. It does not know MONITOR and
// CLIENT REPLY, which break the rule that a command has one reply. To a server that speaks TLS, dial can connect; to
// clients a Proxy speaks TLS only within a [Harness] that has ProxyTLS. All methods may be called concurrently.
type Proxy struct {
	t    testing.TB
	dial func(ctx context.Context, node string) (net.Conn, error)
	tls  *tls.Config // what clients speak; nil for plain TCP
	// rewrite puts the proxy's addresses in place of those that a cluster tells.
	rewrite bool
	ctx     context.Context // ends when the proxy closes
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the fields of the rules
	down     bool
	fronts   map[string]*front // by node
	conns    map[*proxyConn]struct{}
	rules    []*Rule // in the order they were made
	commands map[string]int
}

// front is where clients connect to reach one node.
type front struct {
	node     string
	addr     string
	listener net.Listener // nil while the proxy is down or closed
	release  func()       // gives the port back; nil while there is a listener
}

// single is the name of the node behind a proxy that has only one.
const single = ""

// NewProxy starts a proxy on a free port of 127.0.0.1, for the length of the test. It calls dial for every connection
// that it accepts, to connect to the server. When the test ends it closes everything and leaves no goroutine behind.
func NewProxy(t testing.TB, dial func(ctx context.Context) (net.Conn, error)) *Proxy {
	t.Helper()
	return newProxy(t, nil, func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) })
}

// NewRoutedProxy starts a proxy in front of several servers that tell a client of each other, such as the nodes of a
// cluster, or a sentinel and the servers it watches. The client must dial [Proxy.Route] of an address wherever it would
// dial that address. A rule applies to all servers, and so do Down and CutAll.
func NewRoutedProxy(t testing.TB, dial func(ctx context.Context, addr string) (net.Conn, error)) *Proxy {
	t.Helper()
	return newProxy(t, nil, dial)
}

func newProxy(t testing.TB, tls *tls.Config, dial func(ctx context.Context, node string) (net.Conn, error)) *Proxy {
	p := &Proxy{
		t: t, dial: dial, tls: tls, fronts: map[string]*front{},
		conns: map[*proxyConn]struct{}{}, commands: map[string]int{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	t.Cleanup(p.close)
	return p
}

// Addr returns the host and port that clients of a single server connect to. It stays the same across [Proxy.Down] and
// [Proxy.Up].
func (p *Proxy) Addr() string { return p.Route(single) }

// Route returns the host and port at which clients reach the server at addr. It stays the same for that address, across
// [Proxy.Down] and [Proxy.Up].
func (p *Proxy) Route(addr string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.fronts[addr]
	if !ok {
		f = &front{node: addr, addr: "127.0.0.1:0"}
		p.fronts[addr] = f
		p.listen(f)
		if p.down { // only to have a port that refuses connections
			p.silence(f)
		}
	}
	return f.addr
}

// On makes a rule: the next n commands that match, or all if n is negative, get the action. match sees the command's
// name as the client sent it, followed by its arguments; it must not block or call the proxy. A command is caught by the
// first rule, in the order they were made, that matches and has not caught its n commands.
func (p *Proxy) On(match func(command []string) bool, n int, action Action) *Rule {
	r := &Rule{
		p: p, match: match, action: action, left: n,
		caught: make(chan struct{}), removed: make(chan struct{}), changed: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Commands returns how often each command was forwarded to the server, by its name in upper case.
func (p *Proxy) Commands() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.commands)
}

// CutAll closes all connections of clients now. Requests that rules hold can still be released.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.client.Close()
	}
}

// Down closes all connections of clients and refuses new ones: once it has returned, dialling fails.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	for _, f := range p.fronts {
		p.silence(f)
	}
	p.mu.Unlock()
	p.CutAll()
}

// Up accepts connections again, on the same ports, after Down. If another process has taken a port, the test fails.
func (p *Proxy) Up() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	for _, f := range p.fronts {
		p.listen(f)
	}
}

// silence makes f refuse connections. p.mu is held.
func (p *Proxy) silence(f *front) {
	if f.listener != nil {
		f.listener.Close()
		f.listener, f.release = nil, keepPort(f.addr)
	}
}

// listen makes f accept connections. p.mu is held.
func (p *Proxy) listen(f *front) {
	if f.listener != nil || p.ctx.Err() != nil {
		return
	}
	if f.release != nil {
		f.release()
		f.release = nil
	}
	l, err := fronts.listen(f.addr, net.Listen)
	if err != nil {
		p.t.Errorf("conformance: the proxy cannot listen: %v", err)
		return
	}
	f.listener, f.addr = l, l.Addr().String()
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					p.t.Errorf("conformance: the proxy cannot accept: %v", err)
				}
				return
			}
			p.wg.Go(func() { p.serve(f, l, client) })
		}
	})
}

func (p *Proxy) close() {
	p.cancel()
	p.Down()
	p.mu.Lock()
	for c := range p.conns {
		c.server.Close()
	}
	for _, f := range p.fronts {
		fronts.release(f.addr)
		if f.release != nil {
			f.release()
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// addresses are those of all proxies of this process. A system hands out the port of a proxy that is down to the next
// one that asks for a free port, and clients of the first would find a server behind it after all.
type addresses struct {
	mu    sync.Mutex
	taken map[string]bool
}

var fronts = addresses{taken: map[string]bool{}}

// listen is net.Listen, except that a free port is one that no proxy has.
func (a *addresses) listen(addr string, listen func(network, addr string) (net.Listener, error)) (net.Listener, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again := a.taken[addr]
	for {
		l, err := listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		if got := l.Addr().String(); again || !a.taken[got] {
			a.taken[got] = true
			return l, nil
		}
		defer l.Close() // until another one is found
	}
}

func (a *addresses) release(addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.taken, addr)
}

// serve runs a client's connection that l accepted for f.
func (p *Proxy) serve(f *front, l net.Listener, client net.Conn) {
	defer client.Close()
	if p.tls != nil {
		secure := tls.Server(client, p.tls)
		if err := secure.HandshakeContext(p.ctx); err != nil {
			if p.ctx.Err() == nil {
				p.t.Logf("conformance: a client does not agree with the proxy about TLS: %v", err)
			}
			return
		}
		client = tlsConn{secure, client}
	}
	server, err := p.dial(p.ctx, f.node)
	if err != nil {
		if p.ctx.Err() == nil {
			p.t.Logf("conformance: the proxy cannot reach the server: %v", err)
		}
		return
	}
	defer server.Close()

	c := &proxyConn{p: p, node: f.node, client: client, server: server}
	c.changed.L = &c.mu
	p.mu.Lock()
	if f.listener != l { // the proxy went down in the meantime
		p.mu.Unlock()
		return
	}
	p.conns[c] = struct{}{}
	p.mu.Unlock()

	var loops sync.WaitGroup
	loops.Go(c.readServer)
	loops.Go(c.writeClient)
	c.readClient()
	loops.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// tlsConn is closed as a network breaks: without TLS's word of farewell.
type tlsConn struct {
	*tls.Conn
	raw net.Conn
}

func (c tlsConn) Close() error { return c.raw.Close() }

// catch returns the rule that catches the command, or nil.
func (p *Proxy) catch(command []string) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.left != 0 && r.match(command) {
			r.left--
			return r
		}
	}
	return nil
}

func (p *Proxy) count(command []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands[strings.ToUpper(command[0])]++
}

// deliver sends a late copy to the node on a connection of its own, after the handshake of the connection it was sent
// on, and returns the reply.
func (p *Proxy) deliver(ctx context.Context, node string, handshake [][]byte, command []string, raw []byte) (resp.Value, error) {
	server, err := p.dial(ctx, node)
	if err != nil {
		return resp.Value{}, err
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { server.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	p.count(command)
	if _, err := server.Write(append(slices.Concat(handshake...), raw...)); err != nil {
		return resp.Value{}, err
	}
	r := bufio.NewReader(server)
	for skip := len(handshake); ; {
		// A reply to the handshake may be an error, as it was for the client when it tried several ways to connect.
		v, err := resp.ReadValue(r)
		switch {
		case err != nil:
			return resp.Value{}, err
		case v.Kind == resp.Push:
		case skip == 0:
			return v, nil
		default:
			skip--
		}
	}
}

// Action is what happens to a command that a rule catches.
type Action struct {
	kind  actionKind
	delay time.Duration
}

type actionKind int

const (
	dropReply actionKind = iota + 1
	cutBefore
	delay
	hang
	holdReply
	holdRequest
	lateCopy
)

// The actions. A client's connection is cut after the replies to the commands before on it were delivered. A command
// that is held or delayed also holds up those that follow on its connection.
var (
	// DropReply lets the server execute the command, swallows the reply and cuts the client's connection. The command
	// counts as caught when the server has replied.
	DropReply = Action{kind: dropReply}

	// CutBefore cuts the client's connection; the command never reaches the server.
	CutBefore = Action{kind: cutBefore}

	// Hang answers nothing and keeps the connection open until the rule is removed; then it cuts the connection. The
	// command never reaches the server. For a server that wakes up and executes it after all, use HoldRequest.
	Hang = Action{kind: hang}

	// HoldReply lets the server execute the command and keeps the reply until [Rule.Release]. Push messages overtake
	// it. The command counts as caught when the server has replied.
	HoldReply = Action{kind: holdReply}

	// HoldRequest keeps the command until [Rule.Release]; then the server executes it, even if the client has left.
	HoldRequest = Action{kind: holdRequest}

	// LateCopy cuts the client's connection and keeps the command. [Rule.Release] delivers it to the server on a
	// connection of its own, after the HELLO, AUTH and SELECT commands of the connection that it came on. To have it
	// arrive after the client's retry, call Release when the client's call has returned.
	LateCopy = Action{kind: lateCopy}
)

// Delay forwards the command after d.
func Delay(d time.Duration) Action { return Action{kind: delay, delay: d} }

// MatchCommand returns a match for [Proxy.On]: commands of that name, in upper or lower case.
func MatchCommand(name string) func(command []string) bool {
	return func(command []string) bool { return strings.EqualFold(command[0], name) }
}

// MatchScript returns a match for [Proxy.On]: EVALSHA with that digest, and EVAL with that source.
func MatchScript(sha, source string) func(command []string) bool {
	return func(command []string) bool {
		return len(command) > 1 &&
			(strings.EqualFold(command[0], "EVALSHA") && strings.EqualFold(command[1], sha) ||
				strings.EqualFold(command[0], "EVAL") && command[1] == source)
	}
}

// Rule is a rule of a [Proxy]. All methods may be called concurrently.
type Rule struct {
	p       *Proxy
	match   func([]string) bool
	action  Action
	caught  chan struct{} // closed by the first hit
	removed chan struct{} // closed by Remove

	// Guarded by p.mu.
	left    int // how many more commands are to be caught; negative for all
	hits    int
	changed chan struct{} // closed and replaced by every hit
	waiting []*held       // what was caught and not yet released, oldest first
}

// held is a command that waits for Release. Either release or drop is called, once.
type held struct {
	release func(ctx context.Context) // makes finish be called, now or later
	drop    func()                    // lets it go because the rule is removed
	done    chan struct{}             // closed by finish
	reply   resp.Value
	err     error
}

func (h *held) finish(reply resp.Value, err error) {
	h.reply, h.err = reply, err
	close(h.done)
}

// Caught returns a channel that is closed when the rule has caught its first command.
func (r *Rule) Caught() <-chan struct{} { return r.caught }

// Hits returns how many commands the rule has caught.
func (r *Rule) Hits() int {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.hits
}

// Wait returns when the rule has caught n commands, or with an error when ctx ends.
func (r *Rule) Wait(ctx context.Context, n int) error {
	for {
		r.p.mu.Lock()
		hits, changed := r.hits, r.changed
		r.p.mu.Unlock()
		if hits >= n {
			return nil
		}
		if err := r.await(ctx, changed); err != nil {
			return fmt.Errorf("conformance: the rule caught %d commands, want %d: %w", hits, n, err)
		}
	}
}

// Release lets the oldest command go that HoldReply, HoldRequest or LateCopy keeps, waiting for one if there is none,
// and returns the server's reply when it has replied: nil, an int64, a string, a bool or an []any of these and of errors.
// An error reply is returned as an error with the server's text. With other actions Release waits until ctx ends.
func (r *Rule) Release(ctx context.Context) (reply any, err error) {
	var h *held
	for h == nil {
		r.p.mu.Lock()
		changed := r.changed
		if len(r.waiting) > 0 {
			h, r.waiting = r.waiting[0], r.waiting[1:]
		}
		r.p.mu.Unlock()
		if h == nil {
			if err := r.await(ctx, changed); err != nil {
				return nil, fmt.Errorf("conformance: the rule holds no command to release: %w", err)
			}
		}
	}
	h.release(ctx)
	if err := r.await(ctx, h.done); err != nil {
		return nil, fmt.Errorf("conformance: no reply to the released command: %w", err)
	}
	if h.err != nil {
		return nil, fmt.Errorf("conformance: the released command got no reply: %w", h.err)
	}
	return plain(h.reply), h.reply.Err()
}

// Remove ends the rule: it catches nothing more and lets go of what it holds. Requests of HoldRequest and replies of
// HoldReply are delivered, commands that hang are cut, late copies are dropped. It does not wait for any of that.
func (r *Rule) Remove() {
	r.p.mu.Lock()
	if i := slices.Index(r.p.rules, r); i >= 0 {
		r.p.rules = slices.Delete(r.p.rules, i, i+1)
		close(r.removed)
	}
	waiting := r.waiting
	r.waiting = nil
	r.p.mu.Unlock()
	for _, h := range waiting {
		h.drop()
	}
}

// hit records that a command was caught, and keeps h, if any, for Release.
func (r *Rule) hit(h *held) {
	r.p.mu.Lock()
	r.hits++
	if r.hits == 1 {
		close(r.caught)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	gone := !slices.Contains(r.p.rules, r)
	if h != nil && !gone {
		r.waiting = append(r.waiting, h)
	}
	r.p.mu.Unlock()
	if h != nil && gone {
		h.drop()
	}
}

// await waits for c, but not past the end of ctx or of the proxy.
func (r *Rule) await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	default:
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.p.ctx.Done():
		return net.ErrClosed
	}
}

// plain returns a reply in types that need no import.
func plain(v resp.Value) any {
	switch {
	case v.Null || v.Err() != nil:
		return nil
	case v.Kind == resp.Integer:
		return v.Int
	case v.Kind == resp.Bool:
		return v.Int != 0
	case v.List == nil:
		return v.Str
	}
	list := make([]any, len(v.List))
	for i, e := range v.List {
		list[i] = plain(e)
		if err := e.Err(); err != nil {
			list[i] = err
		}
	}
	return list
}
