package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTakenPortIsNotMistakenForOurs starts a server on a port that another server has: it must start on another port, and
// must not mistake the other server for its own.
func TestTakenPortIsNotMistakenForOurs(t *testing.T) {
	t.Parallel()
	other := Server(t)
	_, taken, err := net.SplitHostPort(other.Addr)
	if err != nil {
		t.Fatal(err)
	}
	picks := 0
	s := serve(t, serverBinary(t), func() (int, error) {
		if picks++; picks < 3 {
			return strconv.Atoi(taken)
		}
		return freePort()
	})
	if picks != 3 || s.Addr == other.Addr {
		t.Errorf("after %d picks of a port the server is on %s, beside one on %s; want 3 picks, and different addresses", picks, s.Addr, other.Addr)
	}
}

// TestServerDiesWithTheProcessOnly checks that a server survives the thread that started it, and that it ends with its test
// process even if that process runs no cleanups.
func TestServerDiesWithTheProcessOnly(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	serverBinary(t)
	if os.Getenv("REDISTEST_ORPHAN") == "1" {
		fmt.Println("orphan", Server(t).Addr)
		os.Exit(0)
	}

	ended := make(chan *Instance)
	go func() {
		runtime.LockOSThread() // without an unlock, so that the thread ends with the goroutine
		ended <- Server(t)
	}()
	alive := <-ended

	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), "REDISTEST_ORPHAN=1", "TMPDIR="+t.TempDir()) // the child does not remove its folders
	out, err := self.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := bufio.NewScanner(strings.NewReader(string(out)))
	line.Scan()
	addr, ok := strings.CutPrefix(line.Text(), "orphan ")
	if !ok {
		t.Fatalf("the child printed %q, want the address of its server", out)
	}
	for end := time.Now().Add(5 * time.Second); query(addr, "PING") != ""; time.Sleep(pollEvery) {
		if time.Now().After(end) {
			t.Fatalf("the server on %s still answers 5s after its test process has ended", addr)
		}
	}
	if err := alive.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("after the end of the thread that started it, the server replies with error %v, want nil", err)
	}
}

// failure runs f with a testing.TB that records how f ended it, instead of ending t.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.msg
}

type recorder struct {
	testing.TB
	msg string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.msg = "Fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.msg = "Skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestServerIsItsTests checks that a server belongs to its test: it has the test's flags, can be stopped and started, and
// ends with the test.
func TestServerIsItsTests(t *testing.T) {
	t.Parallel()
	var s *Instance
	t.Run("running", func(t *testing.T) {
		s = Server(t, "--maxmemory", "50mb")
		c := s.Client(t)
		if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); got["maxmemory"] != "52428800" || err != nil {
			t.Errorf("CONFIG GET returned %v, %v; want the 50mb of the flag", got, err)
		}
		addr, pid := s.Addr, s.Pid()
		s.Pause() // a paused server must stop, too
		s.Stop()
		s.Stop() // a second call does nothing
		if s.Pid() != 0 || query(addr, "PING") != "" {
			t.Fatal("a stopped server has a process or answers, want neither")
		}
		s.Start(t)
		if s.Addr != addr || s.Pid() == pid || c.Ping(t.Context()).Err() != nil {
			t.Errorf("the server was on %s (process %d) and is on %s (process %d) after Start, want the same address, another process, and a reply", addr, pid, s.Addr, s.Pid())
		}
	})
	if t.Failed() || s == nil {
		return
	}
	if s.Pid() != 0 || query(s.Addr, "PING") != "" {
		t.Error("the server runs after its test has ended, want it stopped")
	}
}

// TestWithoutRedis checks that without its program a test is skipped, or fails if the program is required. A program that
// is named explicitly must run.
func TestWithoutRedis(t *testing.T) {
	server := func(tb testing.TB) { Server(tb) }
	for _, c := range []struct {
		require, named string
		start          func(testing.TB)
		want           string
	}{
		{"", "", server, "Skip: needs a real Redis, and redis-server is not in PATH"},
		{"1", "", server, "Fatal: redistest: redis-server is not in PATH"},
		{"", "absent", server, "Fatal: redistest: " + serverEnv + " must name"},
		{"", "/bin/true", func(tb testing.TB) { Cluster(tb) }, "Skip: needs a real Redis, and redis-cli is not in PATH"},
		{"", "/bin/false", server, "Fatal: redistest: redis-server on"}, // followed by its log
	} {
		t.Setenv("PATH", t.TempDir())
		t.Setenv(requireEnv, c.require)
		t.Setenv(serverEnv, c.named)
		t.Setenv(addrEnv, "")
		if msg := failure(t, c.start); !strings.HasPrefix(msg, c.want) {
			t.Errorf("with %s=%q and %s=%q: got %q, want %q", requireEnv, c.require, serverEnv, c.named, msg, c.want)
		}
	}
}

// TestServerThatRunsAlready checks that a server that runs already is empty before a test and after it, and is not stopped.
func TestServerThatRunsAlready(t *testing.T) {
	given := Server(t)
	c := given.Client(t)
	t.Setenv(addrEnv, given.Addr)
	t.Run("used", func(t *testing.T) {
		if err := Server(t).Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n := c.DBSize(t.Context()).Val(); n != 1 {
			t.Errorf("the server has %d keys, want the 1 of this test: it must be the given server", n)
		}
	})
	if n, err := c.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("after the test the server has %d keys, %v; want 0", n, err)
	}
	for name, needs := range map[string]func(testing.TB){
		"Stop": func(tb testing.TB) { Server(tb).Stop() }, "flags": func(tb testing.TB) { Server(tb, "--maxmemory", "50mb") },
		"Cluster": func(tb testing.TB) { Cluster(tb) },
	} {
		if msg := failure(t, needs); !strings.HasPrefix(msg, "Skip: ") {
			t.Errorf("%s: got %q, want a skip, because it needs a server of its own", name, msg)
		}
	}
}
