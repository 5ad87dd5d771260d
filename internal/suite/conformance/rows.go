package conformance

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

var rowMu sync.Mutex // tests that run at the same time add rows to the same document

// AddRow adds a row to a table of a document, for a test that has computed a row that the document lacks. It does so only if
// the environment variable REDISLIMIT_ADD_ROWS is set; otherwise, it reports false. The row goes below the row of another
// example or algorithm, whose first cell is or contains above. A row that is there already is not added again.
func AddRow(t *testing.T, document, above, row string) bool {
	t.Helper()
	if os.Getenv("REDISLIMIT_ADD_ROWS") == "" {
		return false
	}
	rowMu.Lock()
	defer rowMu.Unlock()
	path := fromRoot(t, document)
	text, err := os.ReadFile(path)
	check.Need(t, err)
	if strings.Contains(string(text), "\n"+row+"\n") {
		return true
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if strings.HasPrefix(line, "| ") && (first == above || strings.Contains(", "+first+", ", ", "+above+", ")) && sameTable(line, row) {
			lines = append(lines[:i+1], append([]string{row}, lines[i+1:]...)...)
			check.Need(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644))
			t.Logf("added to %s, below the row of %s: %s", document, above, row)
			return true
		}
	}
	t.Errorf("%s has no row of %s, below which to add this one: %s", document, above, row)
	return true
}

// sameTable reports whether two rows have the same number of cells, so that they can be in one table.
func sameTable(a, b string) bool {
	cells := func(row string) int { return strings.Count(strings.ReplaceAll(row, `\|`, ""), "|") }
	return cells(a) == cells(b)
}
