package apps

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/process"
)

const library = "github.com/redislimit/redislimit"

// webApps are apps that answer the same requests, each with another framework.
var webApps = []string{"nethttp", "gin", "echo", "echov5", "fiber", "fiberv3", "metrics"}

// apps are the programs whose main.go can be copied alone.
var apps = append(slices.Clone(webApps), "tokens", "users", "admin", "grpc", "mcp")

// packages are examples without a main function. They can be copied, too.
var packages = []string{"routers", "hertz", "recipes/alert", "recipes/contracts", "recipes/limitsfile", "recipes/login"}

// scratch is a folder that is removed when all tests have ended.
var scratch string

func TestMain(m *testing.M) {
	// Programs get only the variables that a test sets.
	for _, name := range []string{"REDIS_URL", "GOOS", "GOARCH"} {
		_ = os.Unsetenv(name)
	}
	dir, err := os.MkdirTemp("", "apps")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// folderOf returns the folder of an example.
func folderOf(name string) string { return filepath.Join("..", filepath.FromSlash(name)) }

// run runs a command in a folder, and returns its output. It ends the test if the command fails.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// binaries contains the paths of the programs that were built, by name.
var binaries struct {
	sync.Mutex
	paths map[string]string
}

// binary returns the path of the program of an example. The code is first copied to an empty module, as a user would
// copy it.
func binary(t *testing.T, name string) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	if path := binaries.paths[name]; path != "" {
		return path
	}
	path := buildCopy(t, name)
	if binaries.paths == nil {
		binaries.paths = make(map[string]string)
	}
	binaries.paths[name] = path
	return path
}

// buildCopy builds the code of an example in a module that contains nothing else, and returns the path of the program.
func buildCopy(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(scratch, filepath.FromSlash(name))
	path := filepath.Join(scratch, "bin-"+filepath.Base(dir))
	check.Need(t, os.MkdirAll(dir, 0o750))
	files, err := filepath.Glob(filepath.Join(folderOf(name), "*.go"))
	check.Need(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		check.Need(t, err)
		if regexp.MustCompile(`"` + library + `/(.*/)?internal/`).Match(code) {
			t.Errorf("%s imports an internal package, which users cannot", file)
		}
		check.Need(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), code, 0o600))
	}
	run(t, dir, "go", "mod", "init", "example.com/limited")
	run(t, dir, "go", append([]string{"mod", "edit"}, requirements(t, name)...)...)
	run(t, dir, "go", "mod", "tidy")
	run(t, dir, "go", "build", "-o", path, ".")
	return path
}

// requirements returns arguments of "go mod edit" that use this checkout for the modules of the library,
// and for other modules the versions in the example's own go.mod, so that a test does
// not change when a new version is published.
func requirements(t *testing.T, name string) (args []string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	check.Need(t, err)
	for _, module := range []string{"", "echov5", "fiberv3", "grpc", "otel"} {
		args = append(args, "-replace="+strings.TrimSuffix(library+"/"+module, "/")+"="+filepath.Join(root, module))
	}
	file, err := os.ReadFile(filepath.Join(folderOf(name), "go.mod"))
	if os.IsNotExist(err) {
		return args
	}
	check.Need(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:require )?(\S+) (v\d\S*)`).FindAllStringSubmatch(string(file), -1) {
		if !strings.HasPrefix(m[1], library) {
			args = append(args, "-require="+m[1]+"@"+m[2])
		}
	}
	return args
}

// A program is a running example.
type program struct {
	name, url string
	output    string // printed when it starts
	process   *process.Process
}

var listening = regexp.MustCompile(`(?m)^Listening on (http://\S+), try:$`)

// start starts an example on a free port of the loopback address. The program ends with the test.
func start(t *testing.T, name string, flags ...string) *program {
	t.Helper()
	return startAt(t, name, "127.0.0.1:0", flags...)
}

func startAt(t *testing.T, name, addr string, flags ...string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, name), append([]string{"-addr", addr}, flags...)...)
	cmd.Env = append(os.Environ(), "ADMIN_PASSWORD=opensesame")
	dir := t.TempDir()
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	check.Need(t, err)
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	check.Need(t, err)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	p := &program{name: name}
	p.process, err = process.Start(cmd)
	check.Need(t, err)
	t.Cleanup(func() {
		p.process.Kill()
		if log, err := os.ReadFile(stderr.Name()); t.Failed() && err == nil {
			t.Logf("%s wrote: %s", name, log)
		}
		_, _ = stdout.Close(), stderr.Close()
	})
	check.Eventually(t, name+" listens", func() bool {
		output, err := os.ReadFile(stdout.Name())
		check.Need(t, err)
		p.output = string(output) // the program prints the address and its suggestions in one write
		if m := listening.FindStringSubmatch(p.output); m != nil {
			p.url = m[1]
		}
		return p.url != "" || hasEnded(p.process)
	})
	if p.url == "" {
		t.Fatalf("%s ended before it listened", name)
	}
	return p
}

func hasEnded(p *process.Process) bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// suggested returns the commands that the program prints.
func (p *program) suggested() string {
	var commands strings.Builder
	for line := range strings.Lines(p.output) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			commands.WriteString(command)
		}
	}
	return commands.String()
}

// awaitServing waits until the program reads what a client sends. It prints its address a little earlier, before it handles
// signals.
func (p *program) awaitServing(t *testing.T) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	check.Need(t, err)
	defer func() { _ = conn.Close() }()
	check.Need(t, conn.SetDeadline(time.Now().Add(check.Patience)))
	_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	check.Need(t, err)
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) { // gRPC only closes the connection
		t.Errorf("%s: got no reaction to a request within %v", p.name, check.Patience)
	}
}

// stop sends SIGTERM. The program must end without an error.
func (p *program) stop(t *testing.T) {
	t.Helper()
	p.awaitServing(t)
	check.Need(t, p.process.Cmd.Process.Signal(syscall.SIGTERM))
	check.Receive(t, p.name+" ends after SIGTERM", p.process.Done)
	if state := p.process.Cmd.ProcessState; !state.Success() {
		t.Errorf("%s after SIGTERM: got %v, want an end without an error", p.name, state)
	}
}
