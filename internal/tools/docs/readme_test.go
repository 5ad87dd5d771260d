// Package docs checks the documents against the code. The Go code that they show must compile, and the tests, documents
// and headings that they name must exist.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goBlock matches a Go snippet. Its first line may have more words after the language.
var goBlock = regexp.MustCompile("(?s)```go(?: [^\n]*)?\n(.*?)```")

// TestGoBlocks checks that each Go snippet in the documents is part of an Example function or an example app, line by
// line. Therefore all snippets are compiled.
func TestGoBlocks(t *testing.T) {
	t.Parallel()
	texts := files(t)
	var compiled []string
	for path, text := range texts {
		if isExample(path) {
			compiled = append(compiled, unindented(text))
		}
	}
	blocks := 0
	for path, text := range texts {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, block := range goBlock.FindAllStringSubmatch(text, -1) {
			blocks++
			if code := unindented(block[1]); !slices.ContainsFunc(compiled, func(text string) bool { return strings.Contains(text, code) }) {
				t.Errorf("%s: got code that no Example function contains:\n%s", path, code)
			}
		}
	}
	if blocks == 0 {
		t.Error("got no Go blocks, want some: was README.md moved?")
	}
}

// isExample reports whether a file has Example functions, or belongs to an example app or to a program that README.md
// shows completely.
func isExample(path string) bool {
	return strings.HasPrefix(filepath.Base(path), "example") && strings.HasSuffix(path, "_test.go") ||
		(strings.HasPrefix(path, "_examples") || strings.HasPrefix(path, "internal/tools/docs/start")) && strings.HasSuffix(path, ".go") ||
		strings.HasSuffix(path, "/internal/start/main.go") // in modules of their own
}

// files returns the texts of the documents and of the Go files. The keys are their paths in the repository, with slashes.
// It leaves out the output of a CI run, because other tests write and remove such files meanwhile.
func files(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	texts := map[string]string{}
	written := filepath.Join(root, ".ci", "out")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if path == written {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); err != nil || entry.IsDir() || ext != ".md" && ext != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		texts[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// unindented removes the indentation of each line, because a snippet is indented differently from the code.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}
