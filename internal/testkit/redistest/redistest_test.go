package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

func TestServerAnswersUntilItsTestEnds(t *testing.T) {
	t.Parallel()
	var s *Instance
	t.Run("running", func(t *testing.T) {
		s = Server(t, "--maxmemory", "50mb")
		c := s.Client(t)
		if got, err := c.Ping(t.Context()).Result(); got != "PONG" || err != nil {
			t.Errorf("PING: %q, %v", got, err)
		}
		if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); got["maxmemory"] != "52428800" || err != nil {
			t.Errorf("the flag did not arrive: %v, %v", got, err)
		}
		t.Cleanup(func() { // stands where Client registers its own
			if ask(s.Addr, "PING") == "" {
				t.Error("the server stopped before its clients were closed")
			}
		})
	})
	if t.Failed() || s == nil {
		return
	}
	if s.Pid() != 0 || ask(s.Addr, "PING") != "" {
		t.Error("the server outlived its test")
	}
}

func TestRestartOnTheSamePort(t *testing.T) {
	t.Parallel()
	s := Server(t)
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	addr, pid := s.Addr, s.Pid()
	s.Stop()
	s.Stop() // twice is once
	if s.Pid() != 0 || ask(addr, "PING") != "" {
		t.Fatal("a stopped server answers")
	}
	s.Start(t)
	if s.Addr != addr || s.Pid() == pid || s.Pid() == 0 {
		t.Errorf("was %s (%d), is %s (%d)", addr, pid, s.Addr, s.Pid())
	}
	if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET of what the old server knew: %v, want redis.Nil from an empty one", err)
	}
	if msg := failure(t, func(tb testing.TB) { s.Start(tb) }); !strings.Contains(msg, "Stop it first") {
		t.Errorf("Start of a running server: %q", msg)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := Server(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: 50 * time.Millisecond, MaxRetries: -1})
	defer func() { _ = c.Close() }()
	for range 3 {
		// Not at once on a busy machine: its timeout is short.
		if !check.Eventually(t, "the server answers", func() bool { return c.Ping(t.Context()).Err() == nil }) {
			return
		}
		s.Pause()
		var timeout net.Error
		if err := c.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("PING of a paused server: %v, want a timeout", err)
		}
		s.Resume()
		if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
			t.Errorf("PING after Resume: %v", err)
		}
	}
	s.Pause() // a paused server must stop, too
	s.Stop()
}

func TestClusterServesKeysOfEveryNode(t *testing.T) {
	t.Parallel()
	addrs := Cluster(t)
	c := ClusterClient(t, addrs)
	for i := range 200 {
		key := "key:" + strconv.Itoa(i)
		if err := c.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), key).Int(); got != i || err != nil {
			t.Fatalf("GET %s: %d, %v", key, got, err)
		}
	}
	var nodes, keys atomic.Int64
	err := c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		n, err := node.DBSize(ctx).Result()
		if n == 0 && err == nil {
			err = fmt.Errorf("%v has no key", node)
		}
		nodes.Add(1)
		keys.Add(n)
		return err
	})
	if nodes.Load() != 3 || keys.Load() != 200 || err != nil {
		t.Errorf("%d nodes with %d keys, %v; want 3 with 200", nodes.Load(), keys.Load(), err)
	}
}

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

func TestFailureShowsTheLog(t *testing.T) {
	t.Parallel()
	serverBinary(t)
	msg := failure(t, func(tb testing.TB) { Server(tb, "--no-such-option", "1") })
	if !strings.HasPrefix(msg, "Fatal: ") || !strings.Contains(msg, "no-such-option") {
		t.Errorf("got %q, want a fatal message with what the server complains of", msg)
	}
}

func TestWithoutRedis(t *testing.T) {
	onlyServer := t.TempDir()
	if err := os.WriteFile(filepath.Join(onlyServer, "redis-server"), []byte("#!/bin/false\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := func(tb testing.TB) { Server(tb) }
	cluster := func(tb testing.TB) { Cluster(tb) }
	for _, tt := range []struct {
		name, path, missing string
		start               func(testing.TB)
	}{
		{"Server", t.TempDir(), "redis-server is not in PATH", server},
		{"Cluster", t.TempDir(), "redis-server is not in PATH", cluster},
		{"Cluster without its tool", onlyServer, "redis-cli is not in PATH", cluster},
		{"ClusterWithReplicas", onlyServer, "redis-cli is not in PATH", func(tb testing.TB) { ClusterWithReplicas(tb) }},
		{"Sentinel", t.TempDir(), "redis-server is not in PATH", func(tb testing.TB) { Sentinel(tb) }},
		{"TLSServer", t.TempDir(), "redis-server is not in PATH", func(tb testing.TB) { TLSServer(tb) }},
		{"TLSServer without TLS", onlyServer, "built without TLS", func(tb testing.TB) { TLSServer(tb) }},
	} {
		for require, want := range map[string]string{"": "Skip: ", "0": "Skip: ", "1": "Fatal: "} {
			t.Setenv("PATH", tt.path)
			t.Setenv(requireEnv, require)
			t.Setenv(serverEnv, "")
			msg := failure(t, tt.start)
			if !strings.HasPrefix(msg, want) || !strings.Contains(msg, tt.missing) {
				t.Errorf("%s, %s=%q: %q, want %q", tt.name, requireEnv, require, msg, want)
			}
		}
	}
}

func TestNamedServer(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script stands for the server")
	}
	path := serverBinary(t)
	dir := t.TempDir()
	named, notExecutable := filepath.Join(dir, "named"), filepath.Join(dir, "not-executable")
	script := "#!/bin/sh\nexec '" + path + "' \"$@\" --maxclients 77\n"
	for name, mode := range map[string]os.FileMode{named: 0o700, notExecutable: 0o600} {
		if err := os.WriteFile(name, []byte(script), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(serverEnv, named)
	if got, err := Server(t).Client(t).ConfigGet(t.Context(), "maxclients").Result(); got["maxclients"] != "77" || err != nil {
		t.Errorf("the server is not the named one: %v, %v", got, err)
	}
	for _, name := range []string{notExecutable, filepath.Join(dir, "absent"), "absent-from-path"} {
		t.Setenv(serverEnv, name)
		t.Setenv(requireEnv, "")
		msg := failure(t, func(tb testing.TB) { Server(tb) })
		if !strings.HasPrefix(msg, "Fatal: ") || !strings.Contains(msg, serverEnv) || !strings.Contains(msg, name) {
			t.Errorf("%s=%s: %q, want a fatal message that names both", serverEnv, name, msg)
		}
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

// TestServerThatRunsAlready has a test use a server that it did not start: it is empty before and after, and is not
// stopped.
func TestServerThatRunsAlready(t *testing.T) {
	given := Server(t)
	c := given.Client(t)
	t.Setenv(addrEnv, given.Addr)
	t.Run("used", func(t *testing.T) {
		s := Server(t)
		if s.Addr != given.Addr {
			t.Fatalf("the server is at %s, want %s", s.Addr, given.Addr)
		}
		if err := s.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	if n, err := c.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left, %v", n, err)
	}
	for name, needs := range map[string]func(*testing.T){
		"Stop":    func(t *testing.T) { Server(t).Stop() },
		"Pause":   func(t *testing.T) { Server(t).Pause() },
		"flags":   func(t *testing.T) { Server(t, "--maxmemory", "50mb") },
		"Cluster": func(t *testing.T) { Cluster(t) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if !t.Skipped() {
					t.Error("it is not skipped, and needs a server of its own")
				}
			}()
			needs(t)
		})
	}
	if c.Ping(t.Context()).Err() != nil {
		t.Error("the server was stopped")
	}
}
