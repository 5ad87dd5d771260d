package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
)

const root = "../../../"

// TestMaps checks that the list of files in a doc.go names all files of its folder, and no others.
func TestMaps(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\w+\.go\b`)
	maps := 0
	for _, doc := range glob(t, "internal/*/doc.go") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"doc.go"}
		for line := range strings.Lines(string(text)) {
			if entry, ok := strings.CutPrefix(line, "//\t"); ok {
				names = append(names, named.FindAllString(entry, -1)...)
			}
		}
		if len(names) == 1 {
			continue
		}
		maps++
		for _, file := range glob(t, strings.TrimPrefix(filepath.Dir(doc), root)+"/*.go") {
			name := filepath.Base(file)
			if i := slices.Index(names, name); i >= 0 {
				names = slices.Delete(names, i, i+1)
			} else if !strings.HasSuffix(name, "_test.go") && !ofAlgorithm(doc, name) {
				t.Errorf("%s: got no entry for %s, want one", doc, name)
			}
		}
		for _, name := range names {
			t.Errorf("%s: got an entry for %s, which does not exist", doc, name)
		}
	}
	if maps < 2 {
		t.Errorf("got %d lists of files, want at least 2", maps)
	}
}

// ofAlgorithm reports whether a file is named after an algorithm. The list in internal/algorithm/doc.go leaves these
// files out.
func ofAlgorithm(doc, file string) bool {
	return strings.HasSuffix(doc, "internal/algorithm/doc.go") &&
		slices.ContainsFunc(algorithm.Kinds, func(k *algorithm.Kind) bool { return file == k.Name+".go" })
}

// TestRulesOfImports checks that each path in the linter's import rules matches files. A rule whose path matches no file
// would have no effect.
func TestRulesOfImports(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + ".golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile(`\$\{base-path\}/([^"]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(paths) < 10 {
		t.Errorf("got %d paths, want at least 10", len(paths))
	}
	for _, p := range paths {
		for _, pattern := range alternatives(strings.ReplaceAll(p[1], "/**", "/*")) {
			if len(glob(t, pattern)) == 0 {
				t.Errorf(".golangci.yml: got no file for %s of %s, want one", pattern, p[1])
			}
		}
	}
}

// alternatives expands {a,b} in a pattern into one pattern for each alternative.
func alternatives(pattern string) []string {
	before, rest, ok := strings.Cut(pattern, "{")
	list, after, _ := strings.Cut(rest, "}")
	if !ok {
		return []string{pattern}
	}
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		all = append(all, before+word+after)
	}
	return all
}

// glob returns the files and folders of the repository that match the pattern.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(root + pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
