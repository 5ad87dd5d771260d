// Package redistest starts real Redis servers for tests, on free loopback ports.
//
// A test that asks for a server is skipped where Redis is not installed, so that `go test ./...` works on any machine;
// with REDISLIMIT_REQUIRE_REDIS=1, as in CI, it fails instead, so that nothing is left untested in silence.
// REDISLIMIT_REDIS_SERVER names another server than the redis-server in PATH, by its absolute path, for example that of
// an older version: single servers, Clusters, Sentinels and TLS all run it. redis-cli, which makes a Cluster, is always
// the one in PATH: it can set up servers of other versions.
//
// REDISLIMIT_REDIS_ADDR (host:port) names a server that runs already, such as a container's or one of a cloud. It must be
// empty. Tests that set up, pause or stop a server are then skipped; the others share this one, so run one at a time:
//
//	REDISLIMIT_REDIS_ADDR=localhost:6379 go test -p 1 -parallel 1 ./internal/suite/conformance
package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/process"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

const (
	startLimit = time.Minute // for a server to answer; one may be made to load for a while
	pollEvery  = 5 * time.Millisecond
	attempts   = 5 // at a port, or a cluster, that no other process takes meanwhile
)

// errPortTaken says that another process bound the port between our look at it and the server's.
var errPortTaken = errors.New("the port is taken")

// Instance is one redis-server process that belongs to a test, or the server at REDISLIMIT_REDIS_ADDR. Its methods are
// for one goroutine at a time.
type Instance struct {
	// Addr is the host:port the server listens on. It stays the same over Stop and Start.
	Addr string

	tb   testing.TB
	dir  string
	args []string         // none if the process is not ours
	proc *process.Process // nil while stopped, or if there are no args
}

// Server starts a redis-server that keeps nothing on disk, and stops it when the test ends. config holds further flags
// ("--maxmemory", "50mb"); they come last, so they win. The server must permit PING and INFO without a login.
func Server(tb testing.TB, config ...string) *Instance {
	tb.Helper()
	if addr := os.Getenv(addrEnv); addr != "" && len(config) == 0 {
		return running(tb, addr)
	}
	return serve(tb, serverBinary(tb), freePort, config...)
}

// Client returns a client as package redisclient makes it.
func (i *Instance) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return redisclient.New(tb, &redis.Options{Addr: i.Addr})
}

// Stop kills the server, also a paused one, and waits until it is gone. Stopping a stopped server does nothing.
func (i *Instance) Stop() {
	i.tb.Helper()
	i.needOwn()
	if i.proc != nil {
		i.proc.Kill()
		i.proc = nil
	}
}

// Start starts a stopped server again, on the same port and in the same directory. It still ends with the test that was given to Server.
func (i *Instance) Start(tb testing.TB) {
	tb.Helper()
	i.needOwn()
	if i.proc != nil {
		tb.Fatalf("redistest: %s is running: Stop it first", i.Addr)
	}
	if err := i.start(); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

// Pause freezes the server (SIGSTOP): connections stay open and nothing answers, as with a host that hangs.
func (i *Instance) Pause() {
	i.tb.Helper()
	i.signal(sigStop)
	// The signal is only sent when the call returns. A command that the server still answers would make a test flaky.
	for end := time.Now().Add(askLimit); i.proc != nil && !paused(i.Pid()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			i.tb.Errorf("redistest: %s did not pause", i.Addr)
			return
		}
	}
}

// Resume ends a Pause (SIGCONT). The server then answers what it was sent meanwhile.
func (i *Instance) Resume() {
	i.tb.Helper()
	i.signal(sigCont)
}

// Pid returns the process id of the server, 0 while it is stopped.
func (i *Instance) Pid() int {
	i.tb.Helper()
	i.needOwn()
	if i.proc == nil {
		return 0
	}
	return i.proc.Cmd.Process.Pid
}

func (i *Instance) signal(s os.Signal) {
	i.tb.Helper()
	i.needOwn()
	if i.proc == nil {
		i.tb.Errorf("redistest: %s is stopped: no process to send %v", i.Addr, s)
	} else if err := i.proc.Cmd.Process.Signal(s); err != nil {
		i.tb.Errorf("redistest: send %v to %s: %v", s, i.Addr, err)
	}
}

// serve starts a server on a port that pick finds free, and picks again if another process was faster to bind it.
func serve(tb testing.TB, path string, pick func() (int, error), config ...string) *Instance {
	tb.Helper()
	return launch(tb, path, pick, func(dir string, port int) []string { return append(flags(dir, port), config...) })
}

// flags returns those that every server gets: to stand on its port of 127.0.0.1, and to keep nothing on disk.
func flags(dir string, port int) []string {
	return []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}
}

// launch is serve for arguments that depend on the directory and the port.
func launch(tb testing.TB, path string, pick func() (int, error), args func(dir string, port int) []string) *Instance {
	tb.Helper()
	for n := 1; ; n++ {
		port, err := pick()
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
		i := &Instance{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), tb: tb, dir: tb.TempDir()}
		i.args = append([]string{path}, args(i.dir, port)...)
		err = i.start()
		if err == nil {
			tb.Cleanup(i.Stop) // registered after TempDir, so it runs before the directory is removed
			return i
		}
		if n == attempts || !errors.Is(err, errPortTaken) {
			tb.Fatalf("redistest: %v", err)
		}
	}
}

// start runs the server and returns once it answers; after an error nothing is left running.
func (i *Instance) start() error {
	name := filepath.Join(i.dir, "server.log")
	log, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own descriptor
	cmd := exec.Command(i.args[0], i.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log // a file, not a pipe: no goroutine to copy it, and it can be read at any time
	if i.proc, err = process.Start(cmd); err != nil {
		return err
	}
	err = i.await()
	if err == nil {
		return nil
	}
	i.Stop()
	text, _ := os.ReadFile(name)
	if strings.Contains(string(text), "Address already in use") {
		err = errPortTaken
	}
	return fmt.Errorf("redis-server on %s: %w; its log:\n%s", i.Addr, err, text)
}

// await returns when our own process answers: on a port lost to another test's server, that one would answer the PING.
func (i *Instance) await() error {
	own := fmt.Sprintf("process_id:%d\r\n", i.Pid())
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		if s := ask(i.Addr, "PING\r\nINFO server"); strings.HasPrefix(s, "+PONG") && strings.Contains(s, own) {
			return nil
		}
		select {
		case <-i.proc.Done:
			return fmt.Errorf("ended at once: %v", i.proc.Cmd.ProcessState)
		case <-time.After(pollEvery):
		}
	}
	return fmt.Errorf("no answer for %v", startLimit)
}
