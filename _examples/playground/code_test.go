package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
)

// TestCode compiles every program that the page copies, and compares its limit with that
// of the lane.
func TestCode(t *testing.T) {
	t.Parallel()
	for n, c := range []config{defaults(), {Rate: 7, Burst: 1, Traffic: 1, Cost: 3, Shape: steady, Ban: true}} {
		dir := t.TempDir()
		var calls, want strings.Builder
		for i, p := range plans(c) {
			code := p.program()
			if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
				t.Errorf("%s: not as gofmt has it (%v):\n%s", p.name, err, code)
			}
			for i, n := range p.limits {
				if !strings.Contains(code, "\t\t"+n.expression()+",\n") || !strings.Contains(code, p.code) {
					t.Errorf("%s: the program lacks its limit %d:\n%s", p.name, i, code)
				}
				fmt.Fprintf(&calls, "\tfmt.Println(describe(%s))\n", n.expression())
				want.WriteString(describe(n.limit()) + "\n")
			}
			bans := c.Ban && p.group == algorithms && p.name != "in_flight"
			if strings.Contains(code, "\t\tcore.Ban(") != bans {
				t.Errorf("%s with %+v: whether it bans:\n%s", p.name, c, code)
			}
			costs := c.Cost > 1 && p.group == algorithms
			if strings.Contains(code, "{ return 3 }") != costs {
				t.Errorf("%s with %+v: what it costs:\n%s", p.name, c, code)
			}
			file := filepath.Join(dir, fmt.Sprintf("copied%d.go", i))
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			if n == 0 || costs && (i == 0 || !bans) { // the others differ in numbers only
				run(t, "vet", file)
			}
		}
		file := filepath.Join(dir, "limits.go")
		if err := os.WriteFile(file, fmt.Appendf(nil, printer, calls.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := run(t, "run", file); got != want.String() {
			t.Errorf("the copied limits are\n%s\nwant\n%s", got, want.String())
		}
	}
}

// describe returns all that makes up a limit.
func describe(l core.Limit) string { return fmt.Sprintf("%+v", l) }

const printer = `package main

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/core"
)

func describe(l core.Limit) string { return fmt.Sprintf("%%+v", l) }

func main() {
%s}
`

// run runs the go command, and returns what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

var documented = regexp.MustCompile(`(\w+\.md)#([\w-]+)`)

// TestLinks checks that the documents have what the page links to.
func TestLinks(t *testing.T) {
	t.Parallel()
	var links []string
	for _, name := range []string{"index.html", "lanes.js"} {
		text, err := web.ReadFile("web/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range documented.FindAllStringSubmatch(string(text), -1) {
			links = append(links, found[1]+"#"+found[2])
		}
	}
	texts, err := web.ReadFile("web/lanes.js")
	if err != nil {
		t.Fatal(err)
	}
	lanes := map[string]bool{}
	for _, p := range plans(defaults()) {
		lanes[p.name] = true
		if !strings.Contains(string(texts), "\n  "+p.name+": [") {
			t.Errorf("lanes.js has no texts of %s", p.name)
		}
	}
	if len(links) < len(lanes) {
		t.Errorf("only %v", links)
	}
	for _, link := range links {
		name, anchor, _ := strings.Cut(link, "#")
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Error(err)
		}
		found := false
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				found = found || strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == anchor
			}
		}
		if !found {
			t.Errorf("%s has no such section", link)
		}
	}
}
