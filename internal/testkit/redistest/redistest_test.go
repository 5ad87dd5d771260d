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
		t.Errorf("%d picks, on %s beside %s", picks, s.Addr, other.Addr)
	}
}

// A server started from a thread that ends must live on; one whose test process ends without cleanups must not.
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
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ended <- Server(t)
	}()
	alive := <-ended

	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), "REDISTEST_ORPHAN=1", "TMPDIR="+t.TempDir()) // its own folders outlive it
	out, err := self.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := bufio.NewScanner(strings.NewReader(string(out)))
	line.Scan()
	addr, ok := strings.CutPrefix(line.Text(), "orphan ")
	if !ok {
		t.Fatalf("the child says %q", out)
	}
	for end := time.Now().Add(5 * time.Second); ask(addr, "PING") != ""; time.Sleep(pollEvery) {
		if time.Now().After(end) {
			t.Fatalf("%s outlived its test process", addr)
		}
	}
	if err := alive.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the server died with the thread it was started from: %v", err)
	}
}

// failure runs f with a testing.TB of which it notes how it was ended, instead of ending t.
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

func TestServerIsItsTests(t *testing.T) {
	t.Parallel()
	var s *Instance
	t.Run("running", func(t *testing.T) {
		s = Server(t, "--maxmemory", "50mb")
		c := s.Client(t)
		if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); got["maxmemory"] != "52428800" || err != nil {
			t.Errorf("the flag did not arrive: %v, %v", got, err)
		}
		addr, pid := s.Addr, s.Pid()
		s.Pause() // a paused server must stop, too
		s.Stop()
		s.Stop() // twice is once
		if s.Pid() != 0 || ask(addr, "PING") != "" {
			t.Fatal("a stopped server answers")
		}
		s.Start(t)
		if s.Addr != addr || s.Pid() == pid || c.Ping(t.Context()).Err() != nil {
			t.Errorf("was %s (%d), is %s (%d)", addr, pid, s.Addr, s.Pid())
		}
	})
	if t.Failed() || s == nil {
		return
	}
	if s.Pid() != 0 || ask(s.Addr, "PING") != "" {
		t.Error("the server outlived its test")
	}
}

// Without its program a test is skipped, or fails where it is required. A program that is named must run.
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
		{"", "/bin/false", server, "Fatal: redistest: redis-server on"}, // and its log
	} {
		t.Setenv("PATH", t.TempDir())
		t.Setenv(requireEnv, c.require)
		t.Setenv(serverEnv, c.named)
		t.Setenv(addrEnv, "")
		if msg := failure(t, c.start); !strings.HasPrefix(msg, c.want) {
			t.Errorf("%s=%q, %s=%q: %q, want %q", requireEnv, c.require, serverEnv, c.named, msg, c.want)
		}
	}
}

// A server that runs already is empty before a test and after it, and is not stopped.
func TestServerThatRunsAlready(t *testing.T) {
	given := Server(t)
	c := given.Client(t)
	t.Setenv(addrEnv, given.Addr)
	t.Run("used", func(t *testing.T) {
		if err := Server(t).Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n := c.DBSize(t.Context()).Val(); n != 1 {
			t.Errorf("the server is another one: %d keys", n)
		}
	})
	if n, err := c.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left, %v", n, err)
	}
	for name, needs := range map[string]func(testing.TB){
		"Stop": func(tb testing.TB) { Server(tb).Stop() }, "flags": func(tb testing.TB) { Server(tb, "--maxmemory", "50mb") },
		"Cluster": func(tb testing.TB) { Cluster(tb) },
	} {
		if msg := failure(t, needs); !strings.HasPrefix(msg, "Skip: ") {
			t.Errorf("%s: %q, want it skipped: it needs a server of its own", name, msg)
		}
	}
}
