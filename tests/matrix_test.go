package tests

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/servertest"
)

// The matrix is every client on every server in every topology, once for each
// version of the protocol that the client has. cells returns all of it, with the
// reason for each cell that cannot exist.

// The topologies.
const (
	standalone = "standalone"
	cluster    = "cluster"  // three primaries with a replica each
	sentinel   = "sentinel" // a primary and two replicas that a sentinel watches
	withTLS    = "tls"      // one server that asks for client certificates
	withACL    = "acl"      // one server, and a user with no more than the documented rights
)

var topologyNames = []string{standalone, cluster, sentinel, withTLS, withACL}

// cell is one cell of the matrix.
type cell struct {
	client   client
	server   string // its name in the table of servertest
	topology string
	protocol int
	cannot   string // why the cell cannot exist, or "" if it does
}

func cells() []cell {
	var all []cell
	for _, spec := range servertest.Servers() {
		for _, topology := range topologyNames {
			for _, c := range clients {
				for _, protocol := range []int{3, 2} {
					why := c.cannot[topology]
					if !slices.Contains(c.protocols, protocol) {
						why = c.oneProtocol
					}
					all = append(all, cell{c, spec.Name, topology, protocol, why})
				}
			}
		}
	}
	return all
}

// daily reports whether `make test` runs the cell: all standalone servers, and
// every topology once for each client and vendor, with RESP3 on one of them and
// RESP2 on the other where the client has both. `make matrix` runs all cells.
func (c cell) daily() bool {
	if c.topology == standalone {
		return true
	}
	protocol, ok := map[string]int{"valkey-9": 3, "redis-8": 2}[c.server]
	return ok && (c.protocol == protocol || len(c.client.protocols) == 1)
}

func (c cell) String() string { return fmt.Sprintf("%s resp%d", c.client.name, c.protocol) }

// site is a topology that has been started.
type site struct {
	server string // for the report: "valkey-9.1.2 cluster"
	target        // what clients are told
	// entry is where the suite itself connects: a server, a node of the cluster,
	// the primary.
	entry string
	// replica of one of the primaries, "" where there is none.
	replica string
	proxy   *tls.Config // what the suite's proxy speaks to clients, if it is TLS
	// dial connects the suite and its proxy to a server.
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// routed reports whether the servers tell the client of each other.
func (s site) routed() bool { return s.topology == cluster || s.topology == sentinel }

// start starts servers of a kind.
func start(t *testing.T, spec servertest.Spec, topology string) site {
	s := site{target: target{topology: topology}, dial: new(net.Dialer).DialContext}
	var first *servertest.Server
	switch topology {
	case standalone:
		first = servertest.Start(t, spec)
		s.entry = first.Addr
		s.addrs = []string{first.Addr}
	case cluster:
		c := servertest.StartCluster(t, spec, 3, 1)
		first = c.Nodes[0]
		s.entry, s.replica = first.Addr, c.Nodes[3].Addr
		s.addrs = c.Addrs()
	case sentinel:
		w := servertest.StartSentinel(t, spec)
		first = w.Primary
		s.entry, s.replica = first.Addr, w.Replicas[0].Addr
		s.addrs, s.primaryName = []string{w.Sentinel.Addr}, w.PrimaryName
	case withTLS:
		ca := servertest.NewCA(t)
		first = servertest.Start(t, spec, servertest.TLS(ca))
		s.entry = first.TLSAddr
		s.addrs, s.tls, s.proxy = []string{first.TLSAddr}, ca.Client(), ca.Server()
		s.dial = (&tls.Dialer{Config: ca.Client()}).DialContext
	case withACL:
		first = servertest.Start(t, spec)
		s.entry = first.Addr
		s.addrs = []string{first.Addr}
	default:
		t.Fatalf("there is no topology %q", topology)
	}
	s.server = fmt.Sprintf("%s-%s %s", first.Vendor, first.Version, topology)
	return s
}

// harness returns what the suite needs to run c on s.
func (s site) harness(t *testing.T, c cell) conformance.Harness {
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return s.dial(ctx, "tcp", addr) }
	h := conformance.Harness{
		Driver:   c.String(),
		Server:   s.server,
		Dial:     func(ctx context.Context) (net.Conn, error) { return dial(ctx, s.entry) },
		Lacks:    c.client.lacks,
		ProxyTLS: s.proxy,

		ClientError: c.client.own,
	}
	if c.protocol == 2 && h.Lacks.Near == "" {
		h.Lacks.Near = c.client.nearResp2
	}
	if s.replica != "" {
		h.DialReplica = func(ctx context.Context) (net.Conn, error) { return dial(ctx, s.replica) }
	}
	to := s.target
	to.protocol = c.protocol
	if s.topology == withACL {
		to.user, to.password = c.client.name, "secret"
		addUser(t, s.entry, to.user, to.password, c)
	}
	if s.routed() {
		h.DialNode = dial
	}
	if s.routed() && !c.client.undialled {
		h.OpenRouted = func(t testing.TB, route func(string) string) driver.Evaler {
			to := to
			to.route = route
			return c.client.open(t, to)
		}
	} else {
		h.Open = func(t testing.TB, addr string) driver.Evaler {
			to := to
			to.addrs = []string{addr}
			return c.client.open(t, to)
		}
	}
	return h
}

// TestMatrix runs the conformance suite in every cell, or in those that
// cell.daily picks unless the environment says LEASECACHE_MATRIX=full.
func TestMatrix(t *testing.T) {
	full := os.Getenv("LEASECACHE_MATRIX")
	if full != "" && full != "full" {
		t.Fatalf("LEASECACHE_MATRIX is %q; want full, or nothing", full)
	}
	for _, spec := range servertest.Servers() {
		t.Run(spec.Name, func(t *testing.T) {
			for _, topology := range topologyNames {
				var here []cell
				for _, c := range cells() {
					if c.server == spec.Name && c.topology == topology && c.cannot == "" && (full != "" || c.daily()) {
						here = append(here, c)
					}
				}
				if len(here) == 0 {
					continue
				}
				t.Run(topology, func(t *testing.T) {
					s := start(t, spec, topology)
					for _, client := range clients {
						cells := slices.DeleteFunc(slices.Clone(here), func(c cell) bool { return c.client.name != client.name })
						if len(cells) == 0 {
							continue
						}
						t.Run(client.name, func(t *testing.T) {
							for _, c := range cells {
								t.Run(fmt.Sprintf("resp%d", c.protocol), func(t *testing.T) {
									began := time.Now()
									conformance.Run(t, s.harness(t, c))
									report(t, "cell: %s on %s: %.1f s", c, s.server, time.Since(began).Seconds())
								})
							}
						})
					}
				})
			}
		})
	}
}

// report adds a line to the file that scripts/test.sh shows at its end.
func report(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	name := os.Getenv("LEASECACHE_REPORT")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestEveryCellThatIsMissingSaysWhy(t *testing.T) {
	missing := map[string]bool{}
	ran := map[string]bool{} // client, topology and vendor
	for _, c := range cells() {
		if c.cannot != "" {
			missing[fmt.Sprintf("no cell: %s on %s: %s", c, c.topology, c.cannot)] = true
			continue
		}
		vendor, _, _ := strings.Cut(c.server, "-")
		if c.daily() {
			ran[c.client.name+" "+c.topology+" "+vendor] = true
		}
	}
	for _, c := range clients {
		for _, p := range c.protocols {
			if p != 2 && p != 3 {
				t.Errorf("%s has RESP%d", c.name, p)
			}
		}
		for topology, why := range c.cannot {
			if !slices.Contains(topologyNames, topology) || why == "" {
				t.Errorf("%s cannot %q, because %q", c.name, topology, why)
			}
		}
		if len(c.protocols) != 2 && c.oneProtocol == "" {
			t.Errorf("%s does not say why it has one protocol", c.name)
		}
		for _, topology := range topologyNames {
			for _, vendor := range []string{"valkey", "redis"} {
				if c.cannot[topology] == "" && !ran[c.name+" "+topology+" "+vendor] {
					t.Errorf("make test does not run %s on %s %s", c.name, vendor, topology)
				}
			}
		}
	}
	for line := range missing {
		report(t, "%s", line)
	}
}

// documentedRights returns what docs/protocol.md says that the user of a cache
// needs, for all prefixes that begin with one, and beside that a health check and
// the client.
func documentedRights(t *testing.T, prefix string, c cell) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	const user, who = "    ACL SETUSER app on >password ~catalog:* ", "| Who | Needs also |\n|---|---|\n"
	_, after, ok := strings.Cut(string(text), user)
	_, table, ok2 := strings.Cut(string(text), who)
	if !ok || !ok2 {
		t.Fatalf("docs/protocol.md has no line that begins with %q, or no table that begins with %q", user, who)
	}
	line, _, _ := strings.Cut(after, "\n")
	rights := append([]string{"~" + prefix + "*"}, strings.Fields(strings.ReplaceAll(line, "&catalog:", "&"+prefix+"*"))...)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		name, needs, _ := strings.Cut(strings.ReplaceAll(strings.TrimPrefix(row, "| "), `\|`, "\x00"), " | ")
		// With RESP2 a client has no cache of its own.
		if !strings.HasPrefix(name, "health checks") && name != "a near tier" && (c.protocol == 2 || !strings.Contains(name, c.client.docs)) {
			continue
		}
		for i, word := range strings.Split(needs, "`") {
			if i%2 == 1 {
				rights = append(rights, strings.ReplaceAll(word, "\x00", "|"))
			}
		}
	}
	return rights
}

// addUser makes a user who has the documented rights on the keys of the suite's
// caches. Its cases of drivers run scripts of their own, under other keys, with
// commands that need a key.
func addUser(t *testing.T, addr, name, password string, c cell) {
	t.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">" + password}
	for _, right := range documentedRights(t, "conformance:cache:", c) {
		args = append(args, right)
	}
	args = append(args, "(+eval +evalsha +@read +@write ~conformance:driver:* ~{conformance:driver:*)")
	t.Log(args...)
	if err := redisClient(t, addr).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

func redisClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// Without the suite's proxy in between: each client and the server agree on
// certificates.
func TestTLSWithTheServerItself(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"valkey-9", "redis-8"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := servertest.NewCA(t)
			s := servertest.Start(t, servertest.Named(t, name), servertest.TLS(ca))
			for _, c := range clients {
				if c.cannot[withTLS] != "" {
					continue // the matrix says why
				}
				for _, protocol := range c.protocols {
					to := func(change func(*tls.Config)) target {
						config := ca.Client()
						change(config)
						return target{topology: withTLS, protocol: protocol, addrs: []string{s.TLSAddr}, tls: config}
					}
					t.Run(fmt.Sprintf("%s resp%d", c.name, protocol), func(t *testing.T) {
						t.Run("reads and invalidates with a certificate", func(t *testing.T) {
							cache := newCache(t, c.open(t, to(func(*tls.Config) {})), leasecache.Options{Prefix: t.Name() + ":"})
							goRead(t, cache, "k", constant("v")).want(t, "the first read", "v", leasecache.Loaded, "")
							goRead(t, cache, "k", noLoad(t)).want(t, "the second read", "v", leasecache.Hit, "")
							if err := cache.Invalidate(t.Context(), "k"); err != nil {
								t.Fatal(err)
							}
							goRead(t, cache, "k", constant("w")).want(t, "a read after the invalidation", "w", leasecache.Loaded, "")
						})
						t.Run("is refused without a certificate", func(t *testing.T) {
							// With TLS 1.3 the server's word comes after the handshake, and can be
							// overtaken by the end of the connection.
							eventually(t, "the error says that a certificate is wanted", func() bool {
								err := openAndPing(t, c, to(func(c *tls.Config) { c.Certificates = nil }))
								if err == nil {
									t.Fatal("the server answered")
								}
								return strings.Contains(err.Error(), "certificate required")
							})
						})
						t.Run("names what it expects of another server", func(t *testing.T) {
							err := openAndPing(t, c, to(func(c *tls.Config) { c.ServerName = "elsewhere.example" }))
							var name x509.HostnameError
							if !strings.Contains(errText(err), "elsewhere.example") || !errors.As(err, &name) {
								t.Errorf("got %v; want the certificate's names and elsewhere.example", err)
							}
						})
					})
				}
			}
		})
	}
}

// openAndPing returns the error of opening a client, if that connects, or of its
// first use.
func openAndPing(t *testing.T, c client, to target) error {
	t.Helper()
	r := &opening{TB: t}
	var d driver.Evaler
	done := make(chan struct{})
	go func() {
		defer close(done)
		d = c.open(r, to)
	}()
	<-done
	if r.err != nil {
		return r.err
	}
	return newStore(t, d, patience).Ping(t.Context())
}

// opening is a test in which opening a client may fail.
type opening struct {
	testing.TB
	err error
}

// Fatal ends the goroutine, as that of a test does.
func (o *opening) Fatal(args ...any) {
	o.err, _ = args[0].(error)
	runtime.Goexit()
}
