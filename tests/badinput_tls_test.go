package tests

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
)

// rightName is the name on the certificate of a TLS server in these tests.
const rightName = "right.test"

func TestACertificateForAnotherNameIsAnErrorThatNamesBoth(t *testing.T) {
	server, _ := startOne(t)
	addr, roots := tlsProxy(t, server.Addr)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, err error, name string) {
		t.Helper()
		for _, want := range []string{rightName, name} {
			if !strings.Contains(errText(err), want) {
				t.Errorf("the error %q does not contain %q", errText(err), want)
			}
		}
		if _, ok := errors.AsType[x509.HostnameError](err); !ok {
			t.Errorf("%v does not lead to the x509.HostnameError", err)
		}
		noSecret(t, "the error", err)
	}
	for _, client := range serviceClients {
		if client.ownTLS {
			continue // see the test below
		}
		t.Run(client.name+" handed over", func(t *testing.T) {
			t.Parallel()
			wrong := &tls.Config{RootCAs: roots, ServerName: "wrong.test", MinVersion: tls.VersionTLS12}
			svc, err := client.dial(connect{addr: addr, user: "user", password: "s3cret", tls: wrong})
			if err != nil { // a client that connects at once
				check(t, err, "wrong.test")
			} else {
				t.Cleanup(svc.close)
				store := newStore(t, svc.driver, patience)
				c := newCache(t, store, leasecache.Options{Prefix: "tls:"})
				calls := operations(c, constant("v"))
				calls["Ping"] = func(ctx context.Context, _ string) error { return store.Ping(ctx) }
				for name, call := range calls {
					err := ends(t, name, func(ctx context.Context) error {
						if name == "Invalidate" { // which goes on for as long as it may
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
							defer cancel()
						}
						return call(ctx, name)
					})
					if !errors.Is(err, leasecache.ErrUnavailable) {
						t.Errorf("%s: %v; want ErrUnavailable", name, err)
					}
					check(t, err, "wrong.test")
				}
			}
			// The control: with the right name the same client works.
			right := client.mustDial(t, connect{addr: addr, tls: &tls.Config{RootCAs: roots, ServerName: rightName, MinVersion: tls.VersionTLS12}})
			if _, err := newCache(t, right.driver, leasecache.Options{}).Get(t.Context(), client.name, constant("v")); err != nil {
				t.Errorf("with the right name: %v", err)
			}
		})
		t.Run(client.name+" by DSN", func(t *testing.T) {
			t.Parallel()
			store, err := leasecache.Open(client.name, "rediss://user:s3cret@localhost:"+port+"/0", leasecache.StoreOptions{CallTimeout: patience})
			if err == nil {
				defer store.Close()
				err = ends(t, "Ping", store.Ping)
			}
			check(t, err, "localhost")
		})
	}
}

// glide verifies certificates by itself, and does not say what is wrong with one
// in the words of crypto/x509. By DSN it knows the system's authorities alone.
func TestGlideRefusesACertificateAndSaysSo(t *testing.T) {
	server, _ := startOne(t)
	addr, _ := tlsProxy(t, server.Addr)
	store, err := leasecache.Open("glide", "rediss://user:s3cret@"+addr+"/0", leasecache.StoreOptions{CallTimeout: patience})
	if err == nil {
		store.Close()
	}
	if !strings.Contains(errText(err), "certificate") {
		t.Errorf("got %v; want an error about the certificate", err)
	}
	noSecret(t, "the error", err)

	// The control: it is the certificate, and nothing else.
	store, err = leasecache.Open("glide", "rediss://"+addr+"/0?skip_verify=true", leasecache.StoreOptions{CallTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Ping(t.Context()); err != nil {
		t.Errorf("with skip_verify: %v", err)
	}
}

// tlsProxy puts TLS in front of the server at addr, with a certificate for
// rightName alone.
func tlsProxy(t testing.TB, addr string) (proxy string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rightName}, DNSNames: []string{rightName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				if err := in.(*tls.Conn).Handshake(); err != nil {
					in.Close()
					return
				}
				forward(in, addr, nil)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait() // the clients are closed by now
	})
	return l.Addr().String(), roots
}

// forward sends first to addr, and connects in with it until one of them ends.
func forward(in net.Conn, addr string, first []byte) {
	defer in.Close()
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer out.Close()
	if _, err := out.Write(first); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
		go func() {
			io.Copy(to, from)
			done <- struct{}{}
		}()
	}
	<-done
	in.Close()
	out.Close()
	<-done
}
