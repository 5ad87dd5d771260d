// Weight reports how large the library is and how far a reader goes to follow four of its operations. Nothing fails by it.
//
//	go run ./internal/tools/weight
//
// It first prints the lines of code of each package: Go and Lua, without comments and tests. Then it runs each path
// against an in-process Redis, in a copy of the library that records each function it enters (functions without a name
// count as part of the one that contains them), and prints
//
//	functions  how many different functions the path enters
//	files      how many different files have them
//	switches   how often the next function is in another file than the one before; the first counts, too
//	returns    how many of the switches go to a file that has been seen before
//
// for the whole library, and for each package as if the others were not there. Goroutines are read one after the other,
// in the order in which they first enter a function, because how they take turns differs from run to run. What happens
// in the background still differs, so each number is the median of several runs, and where runs differ the least and the
// greatest follow it.
package main

import (
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

const (
	module = "github.com/redislimit/redislimit"
	runs   = 9 // of each path
)

// paths are the operations, by the names that the program in path knows them by.
var paths = []struct{ name, title string }{
	{"allow", "Allow"},
	{"reserve", "Reserve and Settle"},
	{"lease", "a decision from a lease"},
	{"outage", "an outage and its end: Redis stops, two Allows, it returns, Allow"},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "weight:", err)
		os.Exit(1)
	}
}

func run() error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	lines, err := rooms(os.DirFS("."))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "lines of code\t")
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		_, _ = fmt.Fprintf(out, "%d\t  %s\n", lines[name], name)
	}
	work, err := os.MkdirTemp("", "weight")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	functions, overlay, err := instrument(work)
	if err != nil {
		return err
	}
	binary := filepath.Join(work, "path")
	if _, err := command("go", "build", "-overlay", overlay, "-o", binary, "./internal/tools/weight/path"); err != nil {
		return err
	}
	for _, p := range paths {
		var all []map[string]walk
		for range runs {
			text, err := command(binary, p.name)
			if err != nil {
				return err
			}
			entered, err := read(text, functions)
			if err != nil {
				return err
			}
			all = append(all, walks(entered))
		}
		_, _ = fmt.Fprintf(out, "\n%s\nfunctions\tfiles\tswitches\treturns\t\n", p.title)
		for _, name := range common(all) {
			for _, figure := range summary(all, name) {
				_, _ = fmt.Fprint(out, figure, "\t")
			}
			_, _ = fmt.Fprintln(out, " ", cmp.Or(name, "all"))
		}
	}
	return out.Flush()
}

// rooms returns the lines of code of each package of the library, with those of the files in folders without Go, such as
// Lua, counted for the package above.
func rooms(root fs.FS) (map[string]int, error) {
	lines := make(map[string]int)
	err := library(root, func(name string, text []byte) error {
		room := path.Dir(name)
		if path.Ext(name) == ".go" {
			lines[room] += goLines(text)
			return nil
		}
		for room != "." && !hasGo(root, room) {
			room = path.Dir(room)
		}
		lines[room] += luaLines(string(text))
		return nil
	})
	return lines, err
}

func hasGo(root fs.FS, dir string) bool {
	found, _ := fs.Glob(root, dir+"/*.go")
	return len(found) > 0
}

// goLines returns how many lines of Go have more than a comment.
func goLines(text []byte) int {
	files := token.NewFileSet()
	f := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(f, text, nil, 0) // leaves out comments
	lines := make(map[int]bool)
	for {
		at, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return len(lines)
		case tok == token.SEMICOLON && literal == "\n": // not written
			continue
		}
		for i := range 1 + strings.Count(literal, "\n") {
			lines[f.Line(at)+i] = true
		}
	}
}

// luaLines does the same for the library's Lua. It has no comments of several lines, and "---" declares something.
func luaLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && (!strings.HasPrefix(line, "--") || strings.HasPrefix(line, "---")) {
			n++
		}
	}
	return n
}

// command returns what a program prints.
func command(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, problem.String())
	}
	return string(out), err
}
