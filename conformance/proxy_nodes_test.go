package conformance

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecache/leasecache/internal/resp"
)

func dialAddr(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	return nc
}

// startNodes starts two servers and a proxy in front of both, which know them as "a" and "b".
func startNodes(t *testing.T) (p *Proxy, a, b *countingServer) {
	t.Helper()
	_, a = startProxy(t, "")
	_, b = startProxy(t, "")
	p = NewRoutedProxy(t, func(ctx context.Context, addr string) (net.Conn, error) {
		switch addr {
		case "a":
			return a.dial(ctx)
		case "b":
			return b.dial(ctx)
		}
		return nil, errors.New("no server " + addr)
	})
	return p, a, b
}

func TestARoutedProxyHasAnAddressForEachServer(t *testing.T) {
	p, a, b := startNodes(t)
	if first, again := p.Route("a"), p.Route("a"); first != again || first == p.Route("b") {
		t.Fatalf("the first server is at %s and %s, the other at %s", first, again, p.Route("b"))
	}
	for node, command := range map[string][]string{"a": {"SET", "key", "v"}, "b": {"GET", "key"}} {
		if _, err := resp.NewConn(dialAddr(t, p.Route(node))).Do(command...); err != nil {
			t.Fatal(err)
		}
	}
	a.wantExecuted(t, "SET key")
	b.wantExecuted(t, "GET key")
}

func TestARulesCountIsSharedByAllServers(t *testing.T) {
	p, a, b := startNodes(t)
	rule := p.On(MatchCommand("INCR"), 2, CutBefore)
	for _, node := range []string{"a", "b"} {
		_, err := resp.NewConn(dialAddr(t, p.Route(node))).Do("INCR", "n")
		wantCut(t, err)
	}
	if rule.Hits() != 2 {
		t.Errorf("the rule caught %d commands, want one for each server", rule.Hits())
	}
	v, err := resp.NewConn(dialAddr(t, p.Route("b"))).Do("INCR", "n")
	wantInt(t, 1, v, err)
	a.wantExecuted(t)
	b.wantExecuted(t, "INCR n")
}

func TestALateCopyArrivesAtTheServerItWasSentTo(t *testing.T) {
	p, a, b := startNodes(t)
	p.Route("a")
	rule := p.On(MatchCommand("INCR"), 1, LateCopy)
	_, err := resp.NewConn(dialAddr(t, p.Route("b"))).Do("INCR", "n")
	wantCut(t, err)
	if v, err := rule.Release(t.Context()); v != int64(1) || err != nil {
		t.Errorf("the late copy got %v, %v; want 1", v, err)
	}
	a.wantExecuted(t)
	b.wantExecuted(t, "INCR n")
}

func TestARoutedProxyThatIsDownRefusesConnectionsForEveryServer(t *testing.T) {
	p, _, b := startNodes(t)
	known := resp.NewConn(dialAddr(t, p.Route("a")))
	if _, err := known.Do("GET", "k"); err != nil {
		t.Fatal(err)
	}
	p.Down()
	_, err := known.Do("GET", "k")
	wantCut(t, err)
	for _, node := range []string{"a", "b"} { // b for the first time
		if nc, err := net.Dial("tcp", p.Route(node)); err == nil {
			nc.Close()
			t.Errorf("dialling %s succeeded while the proxy was down", node)
		}
	}
	addr := p.Route("b")
	p.Up()
	if got := p.Route("b"); got != addr {
		t.Errorf("the address became %s, want %s", got, addr)
	}
	if _, err := resp.NewConn(dialAddr(t, addr)).Do("GET", "k"); err != nil {
		t.Error(err)
	}
	b.wantExecuted(t, "GET k")
}

// Otherwise a client of a proxy that is down could reach the server through another one.
func TestAProxyThatIsDownKeepsItsPortFromOthers(t *testing.T) {
	p, _ := startProxy(t, "")
	addr := p.Addr()
	p.Down()
	tries := 0
	l, err := fronts.listen("127.0.0.1:0", func(network, free string) (net.Listener, error) {
		if tries++; tries == 1 { // what the system may well hand out
			return net.Listen(network, addr)
		}
		return net.Listen(network, free)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer fronts.release(l.Addr().String())
	defer l.Close()
	if l.Addr().String() == addr || tries != 2 {
		t.Errorf("after %d tries another proxy got %s, the port of one that is down", tries, addr)
	}
	p.Up()
	if nc, err := net.Dial("tcp", addr); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
}

func TestAProxySpeaksTLSToClients(t *testing.T) {
	_, s := startProxy(t, "")
	server, client := certificates(t)
	p := newProxy(t, server, func(ctx context.Context, _ string) (net.Conn, error) { return s.dial(ctx) })

	c := resp.NewConn(tls.Client(dialAddr(t, p.Addr()), client))
	v, err := c.Do("INCR", "n")
	wantInt(t, 1, v, err)
	rule := p.On(MatchCommand("INCR"), 1, DropReply)
	_, err = c.Do("INCR", "n")
	wantCut(t, err)
	wantCaught(t, rule)
	s.wantExecuted(t, "INCR n", "INCR n")

	nobody := client.Clone()
	nobody.Certificates = nil
	if _, err := resp.NewConn(tls.Client(dialAddr(t, p.Addr()), nobody)).Do("INCR", "n"); err == nil {
		t.Error("a client without a certificate got a reply")
	}
	if _, err := resp.NewConn(dialAddr(t, p.Addr())).Do("INCR", "n"); err == nil {
		t.Error("a client without TLS got a reply")
	}
	s.wantExecuted(t, "INCR n", "INCR n")
}

// certificates returns the two sides of TLS, which both show the same certificate.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: own, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
		&tls.Config{MinVersion: tls.VersionTLS12, Certificates: own, RootCAs: pool, ServerName: "127.0.0.1"}
}

// The suite itself looks for keys where a cluster has them.
func TestControlFollowsRedirections(t *testing.T) {
	node := func(reply func(args []string) string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				go serveReplies(nc, reply)
			}
		}()
		return l.Addr().String()
	}
	var mu sync.Mutex
	var asked, loaded []string
	home := node(func(args []string) string {
		switch args[0] {
		case "GET":
			return "$4\r\nhome\r\n"
		case "SCRIPT":
			return "+home\r\n"
		}
		return "-ERR no\r\n"
	})
	var entry string
	entry = node(func(args []string) string {
		mu.Lock()
		asked = append(asked, strings.Join(args, " "))
		mu.Unlock()
		switch args[0] {
		case "GET":
			return "-MOVED 1 " + home + "\r\n"
		case "SCRIPT":
			return "+entry\r\n"
		case "CLUSTER":
			text := "1 " + entry + "@1 myself,master - 0 0 1 connected 0-5\n2 " + home + "@1,name master - 0 0 1 connected 6-9\n3 " + home + "@1 slave 1 0 0 1 connected\n"
			return string(resp.AppendValue(nil, resp.Value{Kind: resp.BulkString, Str: text}))
		}
		return "-ERR no\r\n"
	})
	h := Harness{
		Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", entry) },
		DialNode: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
	}
	c, err := newControl(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for range 2 {
		if v, err := c.do(t.Context(), []string{"GET", "v:{k}"}); v.Str != "home" || err != nil {
			t.Errorf("GET returned %q, %v; want the reply of the node that has the key", v.Str, err)
		}
	}
	mu.Lock()
	if len(asked) != 1 {
		t.Errorf("the entry was asked %q; want once, and then the node that it named", asked)
	}
	mu.Unlock()
	all, err := c.doAll(t.Context(), []string{"SCRIPT", "FLUSH"})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		loaded = append(loaded, v.Str)
	}
	if strings.Join(loaded, " ") != "entry home" {
		t.Errorf("SCRIPT FLUSH was for %q; want both primaries and no replica", loaded)
	}
}

func serveReplies(nc net.Conn, reply func(args []string) string) {
	defer nc.Close()
	r := bufio.NewReader(nc)
	for {
		args, _, err := resp.ReadCommand(r)
		if err != nil {
			return
		}
		if _, err := io.WriteString(nc, reply(args)); err != nil {
			return
		}
	}
}

// A client that takes no function to dial is led by what the cluster tells it.
func TestAProxyPutsItsAddressesInPlaceOfTheClusters(t *testing.T) {
	p, _, _ := startNodes(t)
	host, port, err := net.SplitHostPort(p.Route("10.0.0.1:7001"))
	if err != nil {
		t.Fatal(err)
	}
	bulk := func(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }
	slots := func(host, port string) string {
		return "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n" + bulk(host) + ":" + port + "\r\n" + bulk("id") + "*0\r\n"
	}
	for _, tt := range []struct{ name, command, reply, want string }{
		{"the nodes of slots", "cluster slots", slots("10.0.0.1", "7001"), slots(host, port)},
		{"a redirection", "GET k", "-MOVED 12 10.0.0.1:7001\r\n", "-MOVED 12 " + net.JoinHostPort(host, port) + "\r\n"},
		{"a redirection for once", "GET k", "-ASK 12 10.0.0.1:7001\r\n", "-ASK 12 " + net.JoinHostPort(host, port) + "\r\n"},
		{"not another error", "GET k", "-ERR 12 10.0.0.1:7001\r\n", "-ERR 12 10.0.0.1:7001\r\n"},
		{"not a value that looks like it", "GET k", bulk("MOVED 12 10.0.0.1:7001"), bulk("MOVED 12 10.0.0.1:7001")},
		{"not another list", "EVAL s", slots("10.0.0.1", "7001"), slots("10.0.0.1", "7001")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, raw, err := resp.ReadRaw(bufio.NewReader(strings.NewReader(tt.reply)))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(p.readdress(strings.Fields(tt.command), v, raw)); got != tt.want {
				t.Errorf("the client gets %q, want %q", got, tt.want)
			}
		})
	}
}
