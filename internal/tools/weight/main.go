// Weight reports how large the library is, and how far a reader has to go to follow four of its operations. It is
// a report and no check: nothing fails because of its numbers.
//
//	go run ./internal/tools/weight
//
// It first prints the lines of code of each package: Go and Lua, without comments and tests. Then it runs each path
// against an in-process Redis, in a copy of the library that records each function it enters. Functions without a name
// count as part of the function that contains them. For each path, it prints
//
//	functions  how many different functions the path enters
//	files      how many different files contain these functions
//	switches   how often a function is in another file than the previous one, including the first
//	returns    how many of the switches go to a file that was visited before
//
// for the whole library, and for each package as if the others did not exist. Goroutines are read one after the other,
// in the order in which they first enter a function, because the order in which they run differs from run to run. What
// happens in the background still differs, so each number is the median of several runs. If the runs differ, the
// smallest and the largest number follow it.
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

// paths are the operations, by the names under which the program in path knows them.
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

// rooms returns the lines of code of each package of the library. Files in folders without Go, such as Lua, are
// counted for the package that contains the folder.
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

// goLines counts the lines of Go that contain more than a comment.
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
		case tok == token.SEMICOLON && literal == "\n": // inserted by the scanner
			continue
		}
		for i := range 1 + strings.Count(literal, "\n") {
			lines[f.Line(at)+i] = true
		}
	}
}

// luaLines counts the lines of Lua in the same way. The library's Lua has no multi-line comments, and "---" begins a
// declaration.
func luaLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && (!strings.HasPrefix(line, "--") || strings.HasPrefix(line, "---")) {
			n++
		}
	}
	return n
}

// command runs a program, and returns what it prints.
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
