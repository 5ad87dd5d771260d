package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	startLimit = time.Minute // how long a child may take to start
	pollEvery  = 5 * time.Millisecond
)

// A child is a child process. It ends when this process ends.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
}

// spawn starts cmd so that it dies with this process, if the system supports that (Linux). Deferred calls would not
// be enough, because they do not run after a SIGKILL.
func spawn(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		// The signal is sent when the thread that forked ends (go.dev/issue/27505), so this goroutine keeps its
		// thread until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the child is killed, so its exit status has no meaning
		}
	}()
	return c, <-started
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only if it has ended already
	<-c.done
}

// A server is a redis-server that this program starts on a free loopback port. It stores nothing on disk.
type server struct {
	*child

	addr    string
	version string
	dir     string
}

func startServer(ctx context.Context, config ...string) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("a redis-server must be in PATH: %w", err)
	}
	dir, err := os.MkdirTemp("", "redislimit-bench-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
	cmd := exec.CommandContext(ctx, path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", dir, "--logfile", filepath.Join(dir, "redis.log"))
	cmd.Args = append(cmd.Args, config...)
	if s.child, err = spawn(cmd); err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *server) stop() {
	s.kill()
	_ = os.RemoveAll(s.dir) // a remaining log file does no harm
}

// await returns when this server answers. It makes sure that the answer is not from another process that took
// the port meanwhile.
func (s *server) await(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(pollEvery) {
		info, err := infoOf(ctx, rdb, "server")
		if err == nil && info["process_id"] == strconv.Itoa(s.cmd.Process.Pid) {
			s.version = info["redis_version"]
			return nil
		}
		select {
		case <-s.done:
			return errors.New("redis-server ended at once")
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
	return errors.New("redis-server does not answer")
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
