package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestRowsOfAlgorithms checks that every registered algorithm has a constructor, a row in the guide and texts for its lane in
// the playground.
func TestRowsOfAlgorithms(t *testing.T) {
	t.Parallel()
	rows := named(t, "Choose an algorithm")
	lanes, err := os.ReadFile(root + "_examples/playground/web/lanes.js")
	if err != nil {
		t.Fatal(err)
	}
	constructors, err := os.ReadFile(root + "core/algorithms.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range algorithm.Kinds {
		if !strings.Contains(string(constructors), "\nfunc "+limits.Constructor(k)+"(") {
			t.Errorf("core/algorithms.go: got no function %s, want the constructor of %s", limits.Constructor(k), k.Name)
		}
		if !strings.Contains(rows, "`"+limits.Constructor(k)+"`") {
			t.Errorf("docs/guide.md: got no row for %s in the table of algorithms, want one", limits.Constructor(k))
		}
		if !strings.Contains(string(lanes), "\n  "+k.Name+": [") {
			t.Errorf("_examples/playground/web/lanes.js: got no texts for %s, want some", k.Name)
		}
	}
}

// TestRowsOfOptions checks that every option of the middleware and every key function has a row in the guide.
func TestRowsOfOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		folder   string
		returned []string
		section  string
	}{
		{"core/guard", []string{"Option", "AnswerOption"}, "Adjust it"},
		{"keyfunc", []string{"Func"}, "Choose the key"},
	} {
		rows, functions := named(t, c.section), returning(t, c.folder, c.returned...)
		if len(functions) < 10 {
			t.Errorf("%s: got the functions %v, want at least 10", c.folder, functions)
		}
		for _, name := range functions {
			if !strings.Contains(rows, "."+name+"(") && !strings.Contains(rows, "`"+name+"(") {
				t.Errorf("docs/guide.md: got no row in %q for %s of %s, want one", c.section, name, c.folder)
			}
		}
	}
}

// named returns the first column of the first table in a section of the guide.
func named(t *testing.T, section string) string {
	t.Helper()
	_, text, ok := strings.Cut(files(t)["docs/guide.md"], "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/guide.md: got no section %q, want one", section)
	}
	var rows strings.Builder
	for line := range strings.Lines(text) {
		if first, ok := strings.CutPrefix(line, "|"); ok {
			first, _, _ = strings.Cut(first, "|")
			rows.WriteString(first + "\n")
		} else if rows.Len() > 0 {
			break
		}
	}
	return rows.String()
}

// returning returns the names of the exported functions of a folder that return exactly one of the given types.
func returning(t *testing.T, folder string, results ...string) (names []string) {
	t.Helper()
	for _, name := range glob(t, folder+"/*.go") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.IsExported() && !strings.HasSuffix(name, "_test.go") &&
				f.Type.Results.NumFields() == 1 && slices.Contains(results, types.ExprString(f.Type.Results.List[0].Type)) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// TestDenyCacheSecond checks that the documents and comments that say how long a denial is repeated agree with the
// constant.
func TestDenyCacheSecond(t *testing.T) {
	t.Parallel()
	figure, ok := map[time.Duration]string{time.Second: "second"}[denials.MaxStale]
	if !ok {
		figure = denials.MaxStale.String()
	}
	texts := files(t)
	for _, place := range []struct{ file, says string }{
		{"core/option.go", "and for at most one SECOND"},
		{"core/option.go", "and within a SECOND in other processes"},
		{"core/ban.go", "within the duration of the lease, or a SECOND"},
		{"docs/algorithms.md", "when they ask Redis next: within a SECOND"},
		{"docs/guide.md", "without asking Redis, for a SECOND at most"},
		{"docs/operating.md", "a denial is repeated for a SECOND more"},
		{"docs/recipes.md", "repeat a denial for a SECOND"},
		{"SECURITY.md", "cost Redis one decision a SECOND for each key and process"},
	} {
		words := strings.Fields(strings.ReplaceAll(texts[place.file], "\n//", "\n"))
		if want := strings.ReplaceAll(place.says, "SECOND", figure); !strings.Contains(strings.Join(words, " "), want) {
			t.Errorf("%s: got no %q, want it, because a denial is repeated for %v", place.file, want, denials.MaxStale)
		}
	}
}
