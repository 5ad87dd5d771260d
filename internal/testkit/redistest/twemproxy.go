package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/process"
)

// Twemproxy starts a twemproxy (nutcracker in Debian) in front of the servers, and returns its address. It distributes keys
// by the part in braces. It ends with the test.
func Twemproxy(tb testing.TB, servers ...*Instance) string {
	tb.Helper()
	path := binary(tb, "nutcracker")
	for n := 1; ; n++ {
		addr, err := startTwemproxy(tb, path, addresses(servers))
		if err == nil {
			return addr
		}
		if n == attempts {
			tb.Fatalf("redistest: %v", err)
		}
		tb.Logf("redistest: trying again: %v", err)
	}
}

func startTwemproxy(tb testing.TB, path string, servers []string) (string, error) {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		return "", err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dir := tb.TempDir()
	config, log := filepath.Join(dir, "nutcracker.yml"), filepath.Join(dir, "nutcracker.log")
	text := &strings.Builder{}
	text.WriteString("pool:\n  listen: " + addr + "\n  redis: true\n  hash: fnv1a_64\n  hash_tag: \"{}\"\n  distribution: ketama\n  servers:\n")
	for i, server := range servers {
		_, _ = fmt.Fprintf(text, "   - %s:1 server%d\n", server, i)
	}
	if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
		return "", err
	}
	statistics := strconv.Itoa(port + busOffset) // twemproxy needs a port for statistics, too
	p, err := process.Start(exec.Command(path, "-c", config, "-o", log, "-a", "127.0.0.1", "-s", statistics))
	if err != nil {
		return "", err
	}
	tb.Cleanup(p.Kill)
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		select {
		case <-p.Done: // another process has the port
			why, _ := os.ReadFile(log)
			return "", fmt.Errorf("nutcracker on %s: %v; its log:\n%s", addr, p.Cmd.ProcessState, why)
		case <-time.After(pollEvery):
		}
		if pongs(addr) {
			return addr, nil
		}
	}
	p.Kill()
	return "", fmt.Errorf("nutcracker on %s has not answered within %v", addr, startLimit)
}

// pongs reports whether twemproxy answers a PING. Twemproxy accepts neither commands without their lengths nor a stream
// that is half closed.
func pongs(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, queryLimit)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(queryLimit))
	_, _ = io.WriteString(conn, "*1\r\n$4\r\nPING\r\n")
	reply := make([]byte, len("+PONG"))
	_, err = io.ReadFull(conn, reply)
	return err == nil && string(reply) == "+PONG"
}
