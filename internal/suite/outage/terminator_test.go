package outage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// terminator speaks TLS before a server that does not. Its certificate can turn bad while it runs.
type terminator struct {
	addr  string
	roots *x509.CertPool
	bad   atomic.Bool
}

func newTerminator(tb testing.TB, target string) *terminator {
	tb.Helper()
	good, bad := certificate(tb), certificate(tb)
	e := &terminator{roots: x509.NewCertPool()}
	e.roots.AddCert(good.Leaf)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if e.bad.Load() {
				return bad, nil
			}
			return good, nil
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	e.addr = l.Addr().String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { join(conn, target) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		running.Wait() // the clients close before: their cleanup was registered later
	})
	return e
}

// join copies both ways until one side ends.
func join(conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	})
	_, _ = io.Copy(conn, server)
	_ = conn.Close()
	both.Wait()
}

// certificate makes a self-signed certificate for localhost.
func certificate(tb testing.TB) *tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
