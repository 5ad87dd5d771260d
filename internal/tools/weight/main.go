// Weight counts how large the library is, and how much of it four operations run. It is a report: nothing fails by it.
//
//	go run ./internal/tools/weight
//
// A line is a room with its lines of Go and Lua, without comments and tests; or a path, with the
// functions, files and statements of core and internal that it runs.
package main

import (
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
	"strconv"
	"strings"
)

const (
	module = "github.com/redislimit/redislimit"
	runs   = 5 // of each path; what all of them ran counts: what goes on beside the operation is not the same in each
)

// paths are the operations.
var paths = []string{"path:allow", "path:reserve", "path:lease", "path:outage"}

// A report has the numbers of each room and path.
type report map[string][]int64

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "weight:", err)
		os.Exit(1)
	}
}

func run() error {
	now, err := rooms(os.DirFS("."))
	if err != nil {
		return err
	}
	if err := measure(now); err != nil {
		return err
	}
	fmt.Print(now)
	return nil
}

func (b report) String() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b)) {
		fmt.Fprintln(&text, name, strings.Trim(fmt.Sprint(b[name]), "[]"))
	}
	return text.String()
}

// rooms returns the lines of each room below root: a folder of the module, or of internal.
func rooms(root fs.FS) (report, error) {
	b := make(report)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if base := path.Base(name); base != "." && strings.ContainsAny(base[:1], "._") ||
				path.Base(path.Dir(name)) == "internal" && slices.Contains([]string{"demo", "suite", "testkit", "tools"}, base) {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(name, "_test.go"), path.Ext(name) != ".go" && path.Ext(name) != ".lua":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parts, depth := strings.Split(path.Dir(name), "/"), 1
		if parts[0] == "internal" || strings.HasPrefix(name, "core/guard/") {
			depth = 2
		}
		room := strings.Join(parts[:depth], "/")
		if b[room] == nil {
			b[room] = []int64{0}
		}
		if path.Ext(name) == ".lua" {
			b[room][0] += luaLines(string(text))
		} else {
			b[room][0] += goLines(text)
		}
		return nil
	})
	return b, err
}

// goLines returns how many lines of Go have more than a comment.
func goLines(text []byte) int64 {
	files := token.NewFileSet()
	f := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(f, text, nil, 0) // leaves out comments
	lines := make(map[int]bool)
	for {
		at, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return int64(len(lines))
		case tok == token.SEMICOLON && literal == "\n": // not written
			continue
		}
		for i := range 1 + strings.Count(literal, "\n") {
			lines[f.Line(at)+i] = true
		}
	}
}

// luaLines does the same for the library's Lua. It has no comments of several lines, and "---" declares something.
func luaLines(text string) (n int64) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && (!strings.HasPrefix(line, "--") || strings.HasPrefix(line, "---")) {
			n++
		}
	}
	return n
}

// measure runs each path, and adds what it took.
func measure(b report) error {
	work, err := os.MkdirTemp("", "weight")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	binary := filepath.Join(work, "path")
	engine := module + "/core," + module + "/internal/..."
	if _, err := command("", "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+engine, "-o", binary, "./internal/tools/weight/path"); err != nil {
		return err
	}
	for _, name := range paths {
		var all parts
		for i := range runs {
			ran, err := runPath(binary, name, filepath.Join(work, fmt.Sprint(name, i)))
			if err != nil {
				return err
			}
			all = all.and(ran)
		}
		b[name] = all.count()
	}
	return nil
}

// parts are what a path runs: functions with 0, and blocks with their statements, both as the profiles name them.
type parts map[string]int64

// and returns what both ran. No parts are those of no run.
func (p parts) and(other parts) parts {
	if p == nil {
		return other
	}
	maps.DeleteFunc(p, func(name string, _ int64) bool { _, both := other[name]; return !both })
	return p
}

// count returns how many functions, files and statements there are.
func (p parts) count() []int64 {
	functions, files, statements := int64(0), map[string]bool{}, int64(0)
	for name, n := range p {
		if statements += n; n == 0 {
			functions++
		}
		file, _, _ := strings.Cut(name, ":")
		files[file] = true
	}
	return []int64{functions, int64(len(files)), statements}
}

// runPath runs a path once.
func runPath(binary, name, dir string) (parts, error) {
	exit := filepath.Join(dir, "exit") // where the program writes what it took all in all
	if err := os.MkdirAll(exit, 0o700); err != nil {
		return nil, err
	}
	if _, err := command(exit, binary, strings.TrimPrefix(name, "path:"), dir); err != nil {
		return nil, err
	}
	functions, err := command("", "go", "tool", "covdata", "func", "-i="+dir)
	if err != nil {
		return nil, err
	}
	profile := filepath.Join(dir, "profile.txt")
	if _, err := command("", "go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+profile); err != nil {
		return nil, err
	}
	blocks, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return read(functions, string(blocks)), nil
}

// read returns what ran by the profiles of functions and blocks.
func read(functions, blocks string) parts {
	ran := make(parts)
	for line := range strings.Lines(functions) { // file:line: name percent
		if f := strings.Fields(line); strings.HasPrefix(line, module) && ours(line) && f[len(f)-1] != "0.0%" {
			ran[f[0]] = 0
		}
	}
	for line := range strings.Lines(blocks) { // file:range statements count
		f := strings.Fields(line)
		if len(f) != 3 || f[1] == "0" || f[2] == "0" || !ours(line) {
			continue
		}
		ran[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
	}
	return ran
}

// ours reports whether a line of a profile is of the library, and not of the program that measures it.
func ours(line string) bool {
	return !strings.HasPrefix(line, module+"/internal/tools/") && !strings.HasPrefix(line, module+"/internal/demo/")
}

// command returns the output of a program, which writes its own coverage to dir.
func command(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, problem.String())
	}
	return string(out), err
}
