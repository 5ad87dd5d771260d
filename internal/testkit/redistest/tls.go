package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TLSInstance is a server that speaks TLS on Addr. Start, Stop and Pause it by Server, whose own Addr is a door without
// TLS, so that a test can look at what is stored.
type TLSInstance struct {
	// Addr is the host:port with TLS.
	Addr   string
	Server *Instance

	// CA signed the server's certificate: the RootCAs of a client that trusts it. StrangeCA is another one.
	CA, StrangeCA *x509.CertPool
	// Cert was signed by the CA. The server shows it, and a client may ("--tls-auth-clients", "yes" makes it must). Strange
	// was not, and Expired is one of the CA's of yesterday.
	Cert, Strange, Expired tls.Certificate

	tb  testing.TB
	dir string
}

// TLSServer starts a server with TLS, and keys and certificates made for this test. config holds further flags. Like a machine
// without Redis, one whose Redis was built without TLS skips the test, or fails it.
func TLSServer(tb testing.TB, config ...string) *TLSInstance {
	tb.Helper()
	path := serverBinary(tb)
	if !speaksTLS(path) {
		missing(tb, path+" was built without TLS")
	}
	ca, strange, key := newAuthority(tb, "redistest CA"), newAuthority(tb, "strange CA"), newKey(tb)
	tomorrow := time.Now().Add(24 * time.Hour)
	s := &TLSInstance{
		CA: ca.pool(), StrangeCA: strange.pool(), tb: tb, dir: tb.TempDir(),
		Cert: ca.issue(key, tomorrow), Strange: strange.issue(key, tomorrow), Expired: ca.issue(key, time.Now().Add(-time.Hour)),
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	// One key for all certificates: Redis before 7.0 changes one setting at a time, and checks that the two fit.
	writePEM(tb, s.file("key"), "PRIVATE KEY", der)
	writePEM(tb, s.file("ca"), "CERTIFICATE", ca.cert.Raw)
	s.Server = launch(tb, path, freePort, func(dir string, port int) []string {
		// freePort looks at this one, too, for the bus of a cluster.
		at := strconv.Itoa(port + busOffset)
		s.Addr = net.JoinHostPort("127.0.0.1", at)
		return append(append(flags(dir, port), "--tls-port", at, "--tls-auth-clients", "no",
			"--tls-ca-cert-file", s.file("ca"), "--tls-key-file", s.file("key"), "--tls-cert-file", s.write(s.Cert)), config...)
	})
	return s
}

// Present has the server show another certificate to connections to come: one of this TLSInstance. After a Stop and Start it
// shows Cert again.
func (s *TLSInstance) Present(cert tls.Certificate) {
	s.tb.Helper()
	if reply := ask(s.Server.Addr, resp("CONFIG", "SET", "tls-cert-file", s.write(cert))); !strings.HasPrefix(reply, "+OK") {
		s.tb.Fatalf("redistest: CONFIG SET tls-cert-file: %q", reply)
	}
}

// Client returns a client that trusts ca, with go-redis's default options, closed when the test of tb ends. It shows certs to
// a server that asks.
func (s *TLSInstance) Client(tb testing.TB, ca *x509.CertPool, certs ...tls.Certificate) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, TLSConfig: &tls.Config{RootCAs: ca, Certificates: certs}})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *TLSInstance) file(name string) string { return filepath.Join(s.dir, name+".pem") }

func (s *TLSInstance) write(cert tls.Certificate) string {
	s.tb.Helper()
	name := s.file(cert.Leaf.SerialNumber.String()) // its own, as Redis loads nothing when the name stays the same
	writePEM(s.tb, name, "CERTIFICATE", cert.Certificate[0])
	return name
}

// speaksTLS reports whether a redis-server was built with TLS. It complains of the first flag that it does not know, and
// ends at once.
func speaksTLS(path string) bool {
	out, err := exec.Command(path, "--tls-port", "0", "--not-a-flag", "1").CombinedOutput()
	return err != nil && strings.Contains(string(out), "not-a-flag")
}
