// Package redistest starts real Redis servers for tests, on free loopback ports.
//
// A test that needs a server is skipped if Redis is not installed, so that `go test ./...` works on any machine. With
// REDISLIMIT_REQUIRE_REDIS=1, as in CI, the test fails instead, so that no test is skipped unnoticed.
// REDISLIMIT_REDIS_SERVER names another server than the redis-server in PATH by its absolute path, for example an older
// version: single servers, Clusters, Sentinels and TLS all run it. redis-cli, which forms a Cluster, is always the one in
// PATH, because it can set up servers of other versions.
//
// REDISLIMIT_REDIS_ADDR (host:port) names a server that runs already, for example in a container or a cloud. It must be
// empty. Tests that configure, pause or stop a server are then skipped. The others share this server, so run one at a time:
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
	startLimit = time.Minute // how long a server may take to answer: a test may make it load slowly
	pollEvery  = 5 * time.Millisecond
	attempts   = 5 // how often to try to start a server or a Cluster, as another process may take a port meanwhile
)

// errPortTaken says that another process bound the port after it was found free.
var errPortTaken = errors.New("the port is taken")

// Instance is one redis-server process that belongs to a test, or the server at REDISLIMIT_REDIS_ADDR. Its methods must not
// be called concurrently.
type Instance struct {
	// Addr is the address (host:port) at which the server listens. Stop and Start do not change it.
	Addr string

	tb   testing.TB
	dir  string
	args []string         // empty if the process is not ours
	proc *process.Process // nil while the server is stopped, or if there are no args
}

// Server starts a redis-server that stores nothing on disk, and stops it when the test ends. config has further flags
// ("--maxmemory", "50mb"). They come last, so they take precedence. The server must allow PING and INFO without
// authentication.
func Server(tb testing.TB, config ...string) *Instance {
	tb.Helper()
	if addr := os.Getenv(addrEnv); addr != "" && len(config) == 0 {
		return running(tb, addr)
	}
	return serve(tb, serverBinary(tb), freePort, config...)
}

// Client returns a client of the server, as package redisclient makes it.
func (i *Instance) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return redisclient.New(tb, &redis.Options{Addr: i.Addr})
}

// Stop kills the server, even if it is paused, and waits until it has ended. It does nothing if the server is stopped.
func (i *Instance) Stop() {
	i.tb.Helper()
	i.needOwn()
	if i.proc != nil {
		i.proc.Kill()
		i.proc = nil
	}
}

// Start starts a stopped server again, on the same port and in the same directory. The server still ends with the test that
// was given to Server.
func (i *Instance) Start(tb testing.TB) {
	tb.Helper()
	i.needOwn()
	if i.proc != nil {
		tb.Fatalf("redistest: the server on %s is running: call Stop first", i.Addr)
	}
	if err := i.start(); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

// Pause freezes the server (SIGSTOP): connections stay open and nothing answers, as when a host hangs.
func (i *Instance) Pause() {
	i.tb.Helper()
	i.signal(sigStop)
	// The signal may take effect after the call has returned. A command that the server still answers would make a test flaky.
	for end := time.Now().Add(queryLimit); i.proc != nil && !paused(i.Pid()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			i.tb.Errorf("redistest: the server on %s did not pause", i.Addr)
			return
		}
	}
}

// Resume ends a Pause (SIGCONT). The server then runs the commands that it was sent meanwhile.
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

// serve starts a server on a port that pick finds free, and picks again if another process was faster to bind the port.
func serve(tb testing.TB, path string, pick func() (int, error), config ...string) *Instance {
	tb.Helper()
	return launch(tb, path, pick, func(dir string, port int) []string { return append(flags(dir, port), config...) })
}

// flags returns the flags of every server: it listens on its port of 127.0.0.1, and stores nothing on disk.
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

// start runs the server and returns once it answers. After an error no process is left.
func (i *Instance) start() error {
	name := filepath.Join(i.dir, "server.log")
	log, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own descriptor
	cmd := exec.Command(i.args[0], i.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log // a file instead of a pipe: it needs no goroutine that copies, and can be read at any time
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

// await returns when our own process answers. It checks the process, because another test's server could have the port and
// answer the PING.
func (i *Instance) await() error {
	own := fmt.Sprintf("process_id:%d\r\n", i.Pid())
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		if s := query(i.Addr, "PING\r\nINFO server"); strings.HasPrefix(s, "+PONG") && strings.Contains(s, own) {
			return nil
		}
		select {
		case <-i.proc.Done:
			return fmt.Errorf("it ended at once: %v", i.proc.Cmd.ProcessState)
		case <-time.After(pollEvery):
		}
	}
	return fmt.Errorf("it has not answered within %v", startLimit)
}
