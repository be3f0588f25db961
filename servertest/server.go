package servertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// startTimeout bounds one server's way from started to answering, and clusterTimeout what several agree on together.
	startTimeout   = 30 * time.Second
	clusterTimeout = 60 * time.Second
	// stopTimeout bounds a signal's delivery and the removal of a server.
	stopTimeout = 30 * time.Second
	// startTries is how often a start is tried again because another process took a port first.
	startTries = 5
)

// A Server is one server, started by [Start], [StartCluster] or [StartSentinel]. Its methods fail the test if they do not
// succeed, so they must be called from the goroutine that runs the test; the fields may be read from any.
type Server struct {
	// Addr is where the server answers, as host:port. It stays the same when the server is restarted.
	Addr string
	// TLSAddr is where the server speaks TLS, as host:port, if it was started with [TLS], else empty. It stays the same too.
	TLSAddr string
	// Name is the server's name in the table, as in "valkey-9".
	Name string
	// Vendor is "valkey" or "redis", as INFO reports it.
	Vendor string
	// Version is the server's own version, as INFO reports it: "9.1.2".
	Version string

	t     testing.TB
	spec  Spec
	inst  instance // nil for a server that the environment names
	ready func(context.Context) error
}

// An Option changes how servers are started.
type Option interface {
	apply(*config)
}

type config struct {
	args  []string
	files map[string]string
	ca    *CA
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// Args gives further arguments to the server's program, after and thus over the package's own ones, as in
// Args("--maxmemory", "3mb", "--maxmemory-policy", "noeviction"). The port and the address must not be among them.
func Args(args ...string) Option {
	return optionFunc(func(c *config) { c.args = append(c.args, args...) })
}

// File puts a file into the server's working directory before it starts, so that an argument can name it, as in
// Args("--aclfile", "users.acl"). The name must not contain a slash.
func File(name, content string) Option {
	return optionFunc(func(c *config) {
		if c.files == nil {
			c.files = map[string]string{}
		}
		c.files[name] = content
	})
}

// Start starts a server of the row and stops it when the test ends. It is empty, has no password and persists nothing.
// Where the environment names a server that already runs, Start returns that one as it is, and fails the test if it is
// asked for options.
func Start(t testing.TB, spec Spec, opts ...Option) *Server {
	t.Helper()
	return startFrom(t, spec, mustOrigin(t, spec), opts...)
}

func mustOrigin(t testing.TB, spec Spec) origin {
	t.Helper()
	from, err := originOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	return from
}

func startFrom(t testing.TB, spec Spec, from origin, opts ...Option) *Server {
	t.Helper()
	if from.addr != "" {
		if len(opts) > 0 {
			t.Fatalf("servertest: this test starts %s with options, but %s names a server that already runs: unset it", spec.Name, spec.env("ADDR"))
		}
		s := &Server{Addr: from.addr, Name: spec.Name, t: t, spec: spec}
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		defer cancel()
		var err error
		if s.Vendor, s.Version, err = s.identify(ctx); err != nil {
			t.Fatalf("servertest: the server that %s names: %v", spec.env("ADDR"), err)
		}
		return s
	}
	c := newConfig(opts)
	ports := 1
	if c.ca != nil {
		ports = 2
	}
	return startAll(t, spec, from, 1, ports, func(g group, ports []int) []node {
		if c.ca == nil {
			return []node{c.node(spec, g, ports[0])}
		}
		args, files := c.ca.serverFiles(g.addr(), ports[1])
		n := c.node(spec, g, ports[0], args...)
		maps.Copy(files, n.files)
		n.files, n.tlsPort = files, ports[1]
		return []node{n}
	})[0]
}

func newConfig(opts []Option) *config {
	c := &config{}
	for _, o := range opts {
		o.apply(c)
	}
	return c
}

// severalConfig is newConfig for servers that know of each other.
func severalConfig(t testing.TB, opts []Option) *config {
	t.Helper()
	c := newConfig(opts)
	if c.ca != nil {
		t.Fatal("servertest: the option TLS is for Start: servers of a cluster or under a sentinel speak plain TCP")
	}
	return c
}

// node describes one data server; args come before those of the options.
func (c *config) node(spec Spec, g group, port int, args ...string) node {
	base := []string{
		"--port", strconv.Itoa(port), "--bind", g.bind(), "--protected-mode", "no", "--save", "", "--appendonly", "no",
	}
	return node{binary: spec.Binary, port: port, args: slices.Concat(base, args, c.args), files: maps.Clone(c.files)}
}

// Kill ends the server with SIGKILL and returns when it is gone. [Server.Restart] brings it back. Until then connections are
// refused; those to a member of a cluster or to a server under a sentinel may instead be accepted and closed at once, by the
// container engine that still publishes the port.
func (s *Server) Kill() {
	s.t.Helper()
	s.signal(sigKill)
}

// Pause stops the server with SIGSTOP: connections stay open and are accepted, and nothing is answered.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(sigStop)
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(sigCont)
}

// Restart starts the server again with the same address and arguments, after killing it if it still runs, and returns when
// it answers; a member of a cluster, when its cluster is ready. Unless its arguments ask for persistence, it is empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.own()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), clusterTimeout)
	defer cancel()
	up, err := s.inst.running(ctx)
	if err == nil && up {
		err = s.inst.signal(ctx, sigKill)
	}
	if err == nil {
		err = s.inst.start(ctx)
	}
	if err == nil {
		_, _, err = s.await(ctx)
	}
	if err != nil {
		s.t.Fatalf("servertest: restarting %s at %s: %v", s.Name, s.Addr, err)
	}
}

func (s *Server) signal(sig signal) {
	s.t.Helper()
	s.own()
	// Not the test's context: a clean-up may want to resume a server.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), stopTimeout)
	defer cancel()
	if err := s.inst.signal(ctx, sig); err != nil {
		s.t.Fatalf("servertest: sending SIG%s to %s at %s: %v", sig, s.Name, s.Addr, err)
	}
}

func (s *Server) own() {
	s.t.Helper()
	if s.inst == nil {
		s.t.Fatalf("servertest: this test stops or restarts %s, but %s names a server that already runs: unset it", s.Name, s.spec.env("ADDR"))
	}
}

// await returns who the server is when it answers and is what the table says. A server that has ended is not waited for.
func (s *Server) await(ctx context.Context) (vendor, version string, err error) {
	err = until(ctx, "waiting for "+s.Addr, func() error {
		up, err := s.inst.running(ctx)
		if err != nil {
			return err
		}
		if !up {
			return &finalError{errors.New("it ended")}
		}
		vendor, version, err = s.identify(ctx)
		return err
	})
	if err == nil && s.ready != nil {
		err = s.ready(ctx)
	}
	if err != nil {
		logCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return "", "", fmt.Errorf("%w\nits log:\n%s", err, s.inst.logs(logCtx))
	}
	return vendor, version, nil
}

// identify asks the server who it is, and compares that with the table.
func (s *Server) identify(ctx context.Context) (vendor, version string, err error) {
	info, err := fields(ctx, s.Addr, "INFO")
	if err != nil {
		return "", "", err
	}
	if s.inst != nil {
		if pid := s.inst.pid(); pid != 0 && info["process_id"] != strconv.Itoa(pid) {
			return "", "", fmt.Errorf("another process answers at %s", s.Addr)
		}
	}
	if info["loading"] == "1" {
		return "", "", errors.New("it is loading its data")
	}
	vendor, version = identity(info)
	if !s.spec.matches(vendor, version) {
		return "", "", &finalError{fmt.Errorf("%s is %s %s, and %s must be %s: correct the image, the binary or the address that it comes from", s.Addr, vendor, version, s.spec.Name, s.spec)}
	}
	return vendor, version, nil
}

// ---- starting several ----

// A node is a server that is to be started.
type node struct {
	binary string
	port   int
	args   []string
	files  map[string]string
	// tlsPort is the further port on which it speaks TLS, or 0.
	tlsPort int
	// ready, if set, is what must hold beyond an answer to INFO.
	ready func(ctx context.Context, addr string) error
}

// A group is a place where servers reach each other at the addresses that the test dials.
type group interface {
	addr() string // the host at which the test dials
	bind() string // the address on which servers listen
	launch(ctx context.Context, n node) (instance, error)
	close(ctx context.Context) error // ends and removes all that was launched
}

// A signal is the name of a signal without "SIG".
type signal string

const (
	sigKill signal = "KILL" // sent, it returns when the server is gone
	sigStop signal = "STOP"
	sigCont signal = "CONT"
)

// An instance is a started server.
type instance interface {
	signal(ctx context.Context, sig signal) error
	start(ctx context.Context) error // again, after it ended
	running(ctx context.Context) (bool, error)
	pid() int // what INFO must report, or 0
	logs(ctx context.Context) string
}

// startAll starts n servers one after the other, each when the one before it is ready. describe gets so many ports.
func startAll(t testing.TB, spec Spec, from origin, n, ports int, describe func(g group, ports []int) []node) []*Server {
	t.Helper()
	if from.addr != "" {
		t.Fatalf("servertest: this test starts %s in a cluster or under a sentinel, but %s names a server that already runs: unset it", spec.Name, spec.env("ADDR"))
	}
	for try := 1; ; try++ {
		g, servers, err := tryStart(t, spec, from, n, ports, describe)
		if err == nil {
			t.Cleanup(func() {
				if err := closeGroup(g); err != nil {
					t.Errorf("servertest: removing %s: %v", spec.Name, err)
				}
			})
			return servers
		}
		if g != nil {
			err = errors.Join(err, closeGroup(g))
		}
		if try == startTries || !portTaken(err) {
			t.Fatalf("servertest: starting %s from %s: %v", spec.Name, from, err)
		}
	}
}

// tryStart returns the group also with an error, if there is something to close.
func tryStart(t testing.TB, spec Spec, from origin, n, numPorts int, describe func(g group, ports []int) []node) (group, []*Server, error) {
	ports, err := freePorts(numPorts)
	if err != nil {
		return nil, nil, err
	}
	var g group = &processes{binary: from.binary}
	if from.image != "" {
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		defer cancel()
		c, err := newContainers(ctx, from.image, ports, n > 1)
		if err != nil {
			if c == nil {
				return nil, nil, err
			}
			return c, nil, err
		}
		g = c
	}
	var servers []*Server
	for _, n := range describe(g, ports) {
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		defer cancel()
		inst, err := g.launch(ctx, n)
		if err != nil {
			return g, nil, err
		}
		s := &Server{Addr: net.JoinHostPort(g.addr(), strconv.Itoa(n.port)), Name: spec.Name, t: t, spec: spec, inst: inst}
		if n.tlsPort != 0 {
			s.TLSAddr = net.JoinHostPort(g.addr(), strconv.Itoa(n.tlsPort))
		}
		if n.ready != nil {
			s.ready = func(ctx context.Context) error { return n.ready(ctx, s.Addr) }
		}
		if s.Vendor, s.Version, err = s.await(ctx); err != nil {
			return g, nil, err
		}
		servers = append(servers, s)
	}
	return g, servers, nil
}

func closeGroup(g group) error {
	// The test's context has ended when its clean-ups run.
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return g.close(ctx)
}

// Ports are taken from below the ranges from which systems take those of outgoing connections, so that a killed server's
// port is still free when it is restarted. A cluster's members also use the port that is higher by busOffset.
const (
	firstPort = 12000
	lastPort  = 21999
	busOffset = 10000
)

// freePorts returns n different ports on which nothing listens. Another process may take one before it is used.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !slices.Contains(ports, port) && portFree(port) && portFree(port+busOffset) {
			ports = append(ports, port)
		}
	}
	return nil, fmt.Errorf("there are no %d free ports between %d and %d", n, firstPort, lastPort)
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// portTaken tells by the messages of the container engine and of the servers: neither has anything better.
func portTaken(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use")
}

// String says where servers come from, for messages.
func (o origin) String() string {
	switch {
	case o.addr != "":
		return "address " + o.addr
	case o.image != "":
		return "image " + o.image
	}
	return "binary " + o.binary
}
