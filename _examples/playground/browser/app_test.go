package browser

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = time.Minute      // how long a server may take until it listens
	stopLimit  = 10 * time.Second // how long a server may take to stop
)

var listening = regexp.MustCompile(`^Listening on (http://127\.0\.0\.1:\d+), try:$`)

// build builds an example in a folder, and returns the path of the program.
func build(dir, name string) (binary string, err error) {
	binary = filepath.Join(dir, name)
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", binary, ".")
	cmd.Dir = filepath.Join("..", "..", name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
}

// An app is a running example.
type app struct {
	url  string
	cmd  *exec.Cmd
	done chan error // receives when the process ends
}

// start starts a playground, which ends with the test.
func start(t *testing.T) *app {
	t.Helper()
	return startApp(t, shared.playground, "-redis", "")
}

// startApp starts a program with flags, and waits until it listens.
func startApp(t *testing.T, binary string, flags ...string) *app {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), binary, append(flags, "-addr", "127.0.0.1:0")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &app{cmd: cmd, done: make(chan error, 1)}
	url := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				url <- m[1]
			}
		}
		a.done <- cmd.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	select {
	case a.url = <-url:
	case err := <-a.done:
		t.Fatalf("%s ended before it listened: %v", binary, err)
	case <-time.After(startLimit):
		t.Fatalf("%s did not listen within %v", binary, startLimit)
	}
	return a
}

// stop sends SIGTERM. The app must end without an error.
func (a *app) stop(t *testing.T) {
	t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.done:
		if err != nil {
			t.Errorf("after SIGTERM, the app ended with %v, want no error", err)
		}
	case <-time.After(stopLimit):
		t.Errorf("the app still runs %v after SIGTERM", stopLimit)
	}
}
