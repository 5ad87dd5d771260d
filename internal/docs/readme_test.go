// Package docs holds the documents to the code: what they show must compile.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestGoBlocks finds each Go snippet of the documents, line by line, in an
// Example function or an example app: code that the compiler reads.
func TestGoBlocks(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	var compiled []string
	var documents []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "example_test.go") || strings.Contains(path, "_examples") && strings.HasSuffix(path, ".go") {
			source, err := os.ReadFile(path)
			compiled = append(compiled, unindented(string(source)))
			return err
		}
		if filepath.Ext(path) == ".md" {
			documents = append(documents, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			blocks++
			if !anyContains(compiled, unindented(block[1])) {
				t.Errorf("%s: no Example function holds\n%s", filepath.Base(path), block[1])
			}
		}
	}
	if blocks == 0 {
		t.Error("no Go block found: is README.md where it was?")
	}
}

func anyContains(texts []string, part string) bool {
	for _, text := range texts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// unindented drops what leads each line: snippets stand further left than code.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}
