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

// TestCode compiles every program that the page lets users copy, and compares the limits in it with the limits of
// the lane.
func TestCode(t *testing.T) {
	t.Parallel()
	for n, c := range []config{defaults(), {Rate: 7, Burst: 1, Traffic: 1, Cost: 3, Shape: steady, Ban: true}} {
		dir := t.TempDir()
		var calls, want strings.Builder
		for i, p := range plans(c) {
			code := p.program()
			if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
				t.Errorf("%s: the program is not formatted as by gofmt (error %v):\n%s", p.name, err, code)
			}
			for i, n := range p.limits {
				if !strings.Contains(code, "\t\t"+n.expression()+",\n") || !strings.Contains(code, p.code) {
					t.Errorf("%s: the program does not contain limit %d or the option:\n%s", p.name, i, code)
				}
				fmt.Fprintf(&calls, "\tfmt.Println(describe(%s))\n", n.expression())
				want.WriteString(describe(n.limit()) + "\n")
			}
			bans := c.Ban && p.group == algorithms && p.name != "in_flight"
			if strings.Contains(code, "\t\tcore.Ban(") != bans {
				t.Errorf("%s with %+v: want the option Ban in the program: %t; got\n%s", p.name, c, bans, code)
			}
			costs := c.Cost > 1 && p.group == algorithms
			if strings.Contains(code, "{ return 3 }") != costs {
				t.Errorf("%s with %+v: want a cost of 3 in the program: %t; got\n%s", p.name, c, costs, code)
			}
			file := filepath.Join(dir, fmt.Sprintf("copied%d.go", i))
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			if n == 0 || costs && (i == 0 || !bans) { // the other programs differ only in numbers
				run(t, "vet", file)
			}
		}
		file := filepath.Join(dir, "limits.go")
		if err := os.WriteFile(file, fmt.Appendf(nil, printer, calls.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := run(t, "run", file); got != want.String() {
			t.Errorf("the programs have the limits\n%s\nwant\n%s", got, want.String())
		}
	}
}

// describe returns a text that contains everything that distinguishes limits.
func describe(l core.Limit) string { return fmt.Sprintf("%+v", l) }

// printer is a program that describes limits.
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

// run runs the go command, and returns its output.
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

// documented matches the links of the page to sections of documents.
var documented = regexp.MustCompile(`(\w+\.md)#([\w-]+)`)

// TestLinks checks that the sections to which the page links exist, and that lanes.js has the texts of each lane.
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
			t.Errorf("lanes.js has no texts of the lane %s", p.name)
		}
	}
	if len(links) < len(lanes) {
		t.Errorf("the page has the links %v, want one or more for each of %d lanes", links, len(lanes))
	}
	for _, link := range links {
		name, anchor, _ := strings.Cut(link, "#")
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Errorf("%s: %v", link, err)
		}
		found := false
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				found = found || strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == anchor
			}
		}
		if !found {
			t.Errorf("the document has no section for the link %s", link)
		}
	}
}
