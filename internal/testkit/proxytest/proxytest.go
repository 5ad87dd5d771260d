// Package proxytest starts real reverse proxies for tests, HAProxy and nginx, on free loopback ports.
//
// A test that needs a proxy is skipped if the proxy is not installed. With REDISLIMIT_REQUIRE_PROXIES=1, as in CI, the test
// fails instead.
package proxytest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/process"
)

const (
	requireEnv = "REDISLIMIT_REQUIRE_PROXIES"
	startLimit = 10 * time.Second // how long a proxy may take to accept connections
	pollEvery  = 5 * time.Millisecond
	attempts   = 5 // how often to try, as another process may take a port meanwhile
)

// Tenant is the value of X-Tenant that every proxy sets.
const Tenant = "acme"

// A Kind is a proxy as an operator configures it. It appends the client's address to X-Forwarded-For and Forwarded, sets
// X-Real-IP to that address and X-Tenant to Tenant, and removes X-API-Key.
type Kind struct {
	Name    string
	Checks  bool // the proxy checks the server's health by HEAD /a, every half second
	program string
	args    func(config string) []string
	config  func(dir string, hops []hop) string
}

// A hop is the address at which a proxy listens, and the server to which it passes requests.
type hop struct{ listen, backend string }

// Kinds returns every kind of proxy without health checks.
func Kinds() []Kind {
	return []Kind{
		haproxyKind("HAProxy", ""),
		{"nginx", false, "nginx", func(config string) []string { return []string{"-p", filepath.Dir(config), "-c", config} }, nginx},
	}
}

// Checking returns proxies that check a server every half second, by a connection or by HEAD /a, and pass no request to a
// server that fails the check.
func Checking() []Kind {
	const each = " default-server check inter 500ms rise 1 fall 1\n"
	byHTTP := haproxyKind("HAProxy that checks by HTTP", each+" option httpchk\n http-check send meth HEAD uri /a ver HTTP/1.1 hdr Host example.com\n")
	byHTTP.Checks = true
	return []Kind{haproxyKind("HAProxy that checks by connecting", each), byHTTP}
}

func haproxyKind(name, defaults string) Kind {
	return Kind{
		Name: name, program: "haproxy", args: func(config string) []string { return []string{"-db", "-q", "-f", config} },
		config: func(_ string, hops []hop) string { return haproxy(defaults, hops) },
	}
}

func haproxy(defaults string, hops []hop) string {
	var b strings.Builder
	// Otherwise another HAProxy with the same port would get a part of the connections, without an error.
	b.WriteString("global\n noreuseport\n")
	b.WriteString("defaults\n mode http\n timeout connect 10s\n timeout client 10s\n timeout server 10s\n option forwardfor\n")
	b.WriteString(defaults)
	for i, h := range hops {
		_, _ = fmt.Fprintf(&b, `frontend f%d
 bind %s
 http-request set-header X-Real-IP %%[src]
 http-request add-header Forwarded for=%%[src]
 http-request set-header X-Tenant %s
 http-request del-header X-API-Key
 default_backend b%[1]d
backend b%[1]d
 server s %[4]s
`, i, h.listen, Tenant, h.backend)
	}
	return b.String()
}

func nginx(dir string, hops []hop) string {
	var b strings.Builder
	b.WriteString("daemon off; master_process off; pid nginx.pid; error_log stderr; events {}\nhttp { access_log off;\n")
	for _, temp := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		_, _ = fmt.Fprintf(&b, "%s_temp_path %s;\n", temp, filepath.Join(dir, temp))
	}
	for _, h := range hops {
		_, _ = fmt.Fprintf(&b, `server {
 listen %s;
 location / {
  proxy_pass http://%s;
  proxy_http_version 1.1;
  proxy_request_buffering off;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_set_header Forwarded "$http_forwarded, for=$remote_addr";
  proxy_set_header X-Real-IP $remote_addr;
  proxy_set_header X-Tenant %s;
  proxy_set_header X-API-Key "";
 }
}
`, h.listen, h.backend, Tenant)
	}
	b.WriteString("}\n")
	return b.String()
}

// Start starts a proxy in front of the servers at backends, and returns the addresses of the proxy, one for each backend.
// It ends with the test.
func (k Kind) Start(tb testing.TB, backends ...string) []string {
	tb.Helper()
	path, err := exec.LookPath(k.program)
	if err != nil {
		if os.Getenv(requireEnv) == "1" {
			tb.Fatalf("proxytest: %s is not in PATH, and %s=1 requires it", k.program, requireEnv)
		}
		tb.Skipf("needs %s, which is not in PATH (%s=1 makes this a failure)", k.program, requireEnv)
	}
	for n := 1; ; n++ {
		addresses, err := k.start(tb, path, backends)
		if err == nil {
			return addresses
		}
		if n == attempts {
			tb.Fatalf("proxytest: %v", err)
		}
		tb.Logf("proxytest: trying again: %v", err)
	}
}

func (k Kind) start(tb testing.TB, path string, backends []string) ([]string, error) {
	tb.Helper()
	var addresses []string
	hops := make([]hop, len(backends))
	for i, backend := range backends {
		address, err := free()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
		hops[i] = hop{address, backend}
	}
	dir := tb.TempDir()
	config := filepath.Join(dir, k.program+".conf")
	if err := os.WriteFile(config, []byte(k.config(dir, hops)), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), path, k.args(config)...) // Kill ends it with the test
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(p.Kill)
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		select {
		case <-p.Done: // another process has one of the ports
			return nil, fmt.Errorf("%s ended: %v; its output:\n%s", k.program, p.Cmd.ProcessState, output.String())
		case <-time.After(pollEvery):
		}
		if accepts(addresses) {
			return addresses, nil
		}
	}
	p.Kill()
	return nil, fmt.Errorf("%s has accepted no connection within %v; its output:\n%s", k.program, startLimit, output.String())
}

// free returns an address with a port that is free at the moment.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func accepts(addresses []string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	for _, address := range addresses {
		conn, err := dialer.DialContext(context.Background(), "tcp", address)
		if err != nil {
			return false
		}
		_ = conn.Close()
	}
	return true
}
