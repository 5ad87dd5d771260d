package apps

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestCopied copies the code of each example to an empty module, in which it must compile. Other tests run the examples that have
// a main function.
func TestCopied(t *testing.T) {
	for _, name := range packages {
		buildCopy(t, name)
	}
	for _, name := range apps {
		binary(t, name)
	}
}

// TestPlumbing checks that the code that is not about limits is the same in each app.
func TestPlumbing(t *testing.T) {
	plumbing := func(name string) string {
		code, err := os.ReadFile(folderOf(name) + "/main.go")
		check.Need(t, err)
		_, rest, ok := strings.Cut(string(code), "\n// The rest is not about limits")
		if !ok {
			t.Errorf("%s/main.go has no comment that says where the part about limits ends", name)
		}
		return rest
	}
	for _, name := range apps[1:] {
		if plumbing(name) != plumbing(apps[0]) {
			t.Errorf("%s and %s differ in the code that is not about limits, want the same code", name, apps[0])
		}
	}
}

// TestFlags starts each app with wrong flags. The app must end at once, and say in one line what is
// wrong and what to do.
func TestFlags(t *testing.T) {
	for _, name := range apps {
		path := binary(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running := start(t, name)
			inUse := strings.TrimPrefix(running.url, "http://")
			for _, c := range []struct{ want, flags string }{
				{`"redis://localhost" is not a flag`, "redis://localhost"},
				{`redis://localhost:6379\n$`, "-redis localhost:6379"},
				{`redis://localhost:6379\n$`, "-redis redis://:secret@localhost:port"},
				{`-addr 127\.0\.0\.1:8081\n$`, "-addr " + inUse},
			} {
				cmd := exec.CommandContext(t.Context(), path, strings.Fields(c.flags)...)
				cmd.Env = append(os.Environ(), "ADMIN_PASSWORD=opensesame")
				var stderr strings.Builder
				cmd.Stderr = &stderr
				if err := cmd.Run(); err == nil {
					t.Errorf("%s: the app ended without an error", c.flags)
				}
				if got := stderr.String(); strings.Count(got, "\n") != 1 || !regexp.MustCompile(c.want).MatchString(got) {
					t.Errorf("%s: got the output %q, want one line that matches %q", c.flags, got, c.want)
				}
			}
			running.stop(t)
		})
	}
}

// TestSuggestions runs the commands that each app prints, while the app listens on all addresses of the machine. At least one
// request must be denied, so that users see a denial.
func TestSuggestions(t *testing.T) {
	denied := regexp.MustCompile(`(?m)^((HTTP/1\.1 )?429|grpc-status: 8)|too many calls`)
	for _, name := range apps {
		binary(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startAt(t, name, ":0")
			if !strings.HasPrefix(p.url, "http://localhost:") {
				t.Errorf("on all addresses, the app prints %q, want http://localhost:port", p.url)
			}
			// curl must use no proxy, and must not wait forever.
			cmd := exec.CommandContext(t.Context(), "bash", "-c",
				`curl() { command curl -q --noproxy '*' --max-time 30 "$@"; }`+"\n"+p.suggested())
			var stderr strings.Builder
			cmd.Stderr = &stderr
			answers, err := cmd.Output()
			if err != nil {
				t.Errorf("the commands failed: %v\n%s", err, stderr.String())
			}
			if !denied.Match(answers) {
				t.Errorf("got the answers %s, want a denial in one of them", answers)
			}
			if name == "metrics" && (!strings.Contains(string(answers), "\nredislimit_decisions_total") || strings.Contains(string(answers), "alice\"")) {
				t.Errorf("got the answers %s, want metrics without the name of a user", answers)
			}
			p.stop(t)
		})
	}
}

// TestStopsWithOpenStream sends SIGTERM to the gRPC app while a stream is open. The app must wait five seconds for the
// stream, and then end.
func TestStopsWithOpenStream(t *testing.T) {
	p := start(t, "grpc")
	call := exec.CommandContext(t.Context(), "curl", "-q", "-sS", "-N", "--noproxy", "*", "--max-time", "60", "--http2-prior-knowledge",
		"-H", "Content-Type: application/grpc", "-H", "TE: trailers", "--data-binary", "@-", "-D", "-", "-o", os.DevNull,
		p.url+"/grpc.health.v1.Health/Watch")
	call.Stdin = strings.NewReader("\x00\x00\x00\x00\x00")
	header, err := call.StdoutPipe()
	check.Need(t, err)
	check.Need(t, call.Start())
	t.Cleanup(func() { _ = call.Wait() })
	lines := bufio.NewScanner(header)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "x-ratelimit-remaining: 1") {
		continue
	}
	if lines.Err() != nil || lines.Text() == "" {
		t.Errorf("the stream was not served: %v", lines.Err())
	}
	p.stop(t)
}
