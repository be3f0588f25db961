package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strconv"
	"testing"
	"time"
)

// A CA is a certificate authority for the length of a test. Its methods may be called concurrently; they fail the test if
// they do not succeed, so call them from the goroutine that runs the test.
//
//	ca := servertest.NewCA(t)
//	srv := servertest.Start(t, servertest.Named(t, "valkey-9"), servertest.TLS(ca))
//	client := dial(srv.TLSAddr, ca.Client())
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// NewCA makes an authority whose certificates are valid for a day.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t, key: newKey(t), pool: x509.NewCertPool()}
	template := certificate("leasecache test authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	ca.cert = template // signs itself
	ca.cert = ca.sign(template, ca.key)
	ca.pool.AddCert(ca.cert)
	return ca
}

// Client returns a configuration for clients: it trusts the authority's servers, and has a certificate of the authority.
// Each call returns one of its own, which may be changed: without Certificates, servers refuse the client.
func (ca *CA) Client() *tls.Config {
	ca.t.Helper()
	key := newKey(ca.t)
	template := certificate("leasecache test client")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      ca.pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{ca.sign(template, key).Raw}, PrivateKey: key}},
	}
}

// Server returns a configuration for a server of the test's own, such as a proxy, that answers at localhost, 127.0.0.1 or
// ::1: it requires a client certificate of the authority, as servers do that are started with [TLS].
func (ca *CA) Server() *tls.Config {
	ca.t.Helper()
	cert, key := ca.server()
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ca.pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
	}
}

// server returns a certificate for this machine and for hosts, names or addresses.
func (ca *CA) server(hosts ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key := newKey(ca.t)
	template := certificate("leasecache test server")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range append([]string{"localhost", "127.0.0.1", "::1"}, hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.sign(template, key), key
}

// TLS makes the server that [Start] starts speak TLS too, at [Server.TLSAddr], with a certificate of ca, for clients that
// have one of ca. At Addr it goes on in plain TCP. It is not for clusters and sentinels.
func TLS(ca *CA) Option {
	return optionFunc(func(c *config) { c.ca = ca })
}

// serverFiles returns the arguments, and the files that they name, with which a server at host speaks TLS at port.
func (ca *CA) serverFiles(host string, port int) (args []string, files map[string]string) {
	ca.t.Helper()
	cert, key := ca.server(host)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatalf("servertest: the server's key: %v", err)
	}
	files = map[string]string{}
	for name, block := range map[string]pem.Block{
		"tls-ca.crt":     {Type: "CERTIFICATE", Bytes: ca.cert.Raw},
		"tls-server.crt": {Type: "CERTIFICATE", Bytes: cert.Raw},
		"tls-server.key": {Type: "PRIVATE KEY", Bytes: der},
	} {
		files[name] = string(pem.EncodeToMemory(&block))
	}
	return []string{
		"--tls-port", strconv.Itoa(port), "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", "tls-ca.crt", "--tls-cert-file", "tls-server.crt", "--tls-key-file", "tls-server.key",
	}, files
}

func (ca *CA) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	ca.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		ca.t.Fatalf("servertest: signing a certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatalf("servertest: reading a certificate: %v", err)
	}
	return cert
}

func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("servertest: making a key: %v", err)
	}
	return key
}
