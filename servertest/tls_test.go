package servertest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// pingTLS sends one command over TLS and returns the reply.
func pingTLS(t *testing.T, addr string, config *tls.Config) (string, error) {
	t.Helper()
	d := tls.Dialer{Config: config}
	conn, err := d.DialContext(within(t, startTimeout), "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return "", err
	}
	reply := make([]byte, len("+PONG\r\n"))
	_, err = io.ReadFull(conn, reply)
	return string(reply), err
}

func TestAServerWithTLSAsksForCertificatesOfItsAuthority(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		ca := NewCA(t)
		s := Start(t, spec, TLS(ca))
		host, _, err := net.SplitHostPort(s.TLSAddr)
		if err != nil || host == "" || s.TLSAddr == s.Addr {
			t.Fatalf("TLSAddr is %q, beside Addr %q", s.TLSAddr, s.Addr)
		}
		mustDo(t, s.Addr, "PING")
		pong := func() {
			t.Helper()
			if reply, err := pingTLS(t, s.TLSAddr, ca.Client()); reply != "+PONG\r\n" || err != nil {
				t.Errorf("the reply over TLS is %q, %v", reply, err)
			}
		}
		pong()

		if reply, err := do(t.Context(), s.TLSAddr, "PING"); err == nil {
			t.Errorf("plain TCP at TLSAddr gets the reply %q", reply)
		}
		nobody := ca.Client()
		nobody.Certificates = nil
		if reply, err := pingTLS(t, s.TLSAddr, nobody); err == nil {
			t.Errorf("a client without a certificate gets the reply %q", reply)
		}
		stranger := ca.Client()
		stranger.Certificates = NewCA(t).Client().Certificates
		if reply, err := pingTLS(t, s.TLSAddr, stranger); err == nil {
			t.Errorf("a client with another authority's certificate gets the reply %q", reply)
		}
		misled := ca.Client()
		misled.ServerName = "elsewhere.example"
		_, err = pingTLS(t, s.TLSAddr, misled)
		if name, ok := errors.AsType[x509.HostnameError](err); !ok || name.Host != "elsewhere.example" {
			t.Errorf("a client that expects another name gets %v", err)
		}
		_, err = pingTLS(t, s.TLSAddr, NewCA(t).Client())
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
			t.Errorf("a client that trusts another authority gets %v", err)
		}

		addr := s.TLSAddr
		s.Restart()
		if s.TLSAddr != addr {
			t.Errorf("TLSAddr is %q after a restart, and was %q", s.TLSAddr, addr)
		}
		pong()
	})
}

func TestAServerOfATestItselfTakesClientsOfItsAuthority(t *testing.T) {
	t.Parallel()
	ca := NewCA(t)
	for _, tt := range []struct {
		name   string
		change func(*tls.Config)
		want   string
	}{
		{"a client as the authority makes it", func(*tls.Config) {}, ""},
		{"a client without a certificate", func(c *tls.Config) { c.Certificates = nil }, "certificate"},
		{"a client that expects another name", func(c *tls.Config) { c.ServerName = "elsewhere.example" }, "elsewhere.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			done := make(chan error, 1)
			go func() {
				server := tls.Server(theirs, ca.Server())
				err := server.HandshakeContext(within(t, startTimeout))
				if err == nil {
					_, err = server.Write([]byte("x"))
				}
				theirs.Close()
				done <- err
			}()
			config := ca.Client()
			config.ServerName = "127.0.0.1"
			tt.change(config)
			_, err := tls.Client(ours, config).Read(make([]byte, 1))
			ours.Close()
			if served := <-done; (served == nil) != (tt.want == "") {
				t.Errorf("the server's side ends with %v", served)
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("the client's side ends with %v; want %q", err, tt.want)
			}
		})
	}
}

func TestClustersAndSentinelsDoNotTakeTheOptionTLS(t *testing.T) {
	t.Parallel()
	spec := Named(t, "valkey-9")
	for name, start := range map[string]func(testing.TB, Option){
		"StartCluster":  func(t testing.TB, o Option) { StartCluster(t, spec, 1, 0, o) },
		"StartSentinel": func(t testing.TB, o Option) { StartSentinel(t, spec, o) },
	} {
		t.Run(name, func(t *testing.T) {
			want := "servertest: the option TLS is for Start: servers of a cluster or under a sentinel speak plain TCP"
			if got := failure(t, func(tb testing.TB) { start(tb, TLS(NewCA(t))) }); got != want {
				t.Errorf("failed with %q, want %q", got, want)
			}
		})
	}
}
