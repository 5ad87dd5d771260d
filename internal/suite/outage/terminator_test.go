package outage

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// terminator is a TLS proxy for a server without TLS. Its certificate can become invalid while it runs.
type terminator struct {
	addr   string
	client *tls.Config // the configuration of clients that trust its certificate
	bad    atomic.Bool
}

func newTerminator(tb testing.TB, target string) *terminator {
	tb.Helper()
	e := &terminator{}
	certified := httptest.NewTLSServer(nil) // only for its certificate
	certified.Close()
	good := certified.TLS.Certificates
	e.client = certified.Client().Transport.(*http.Transport).TLSClientConfig
	e.client.ServerName = "example.com"
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if e.bad.Load() {
				return &tls.Certificate{Certificate: [][]byte{[]byte("none")}, PrivateKey: good[0].PrivateKey}, nil
			}
			return &good[0], nil
		},
	})
	check.Need(tb, err)
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
		running.Wait() // the clients have been closed, because their cleanup was registered later
	})
	return e
}

// join connects to target and copies bytes in both directions until one side ends.
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
