package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestMovingRows checks that example_moving_test.go compiles everything that the tables of docs/moving.md name as a
// replacement for another library's options. In the tables, the arguments f, h, d, n and ... stand for any argument.
func TestMovingRows(t *testing.T) {
	t.Parallel()
	texts := files(t)
	code := strings.ReplaceAll(texts["internal/tools/docs/example_moving_test.go"], " ", "")
	argument := regexp.MustCompile(`\\\((?:f|h|d|n|\\\.\\\.\\\.)\\\)`)
	rows := 0
	for _, table := range strings.Split(texts["docs/moving.md"], " | redislimit |\n|---|---|\n")[1:] {
		for line := range strings.Lines(table) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if len(cells) != 4 {
				break
			}
			rows++
			for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
				pattern := argument.ReplaceAllString(regexp.QuoteMeta(strings.ReplaceAll(span[1], " ", "")), `\(.*\)`)
				if span[1] != "X-RateLimit-*" && !regexp.MustCompile(`\b`+pattern).MatchString(code) {
					t.Errorf("got no use of %s in example_moving_test.go, want one", span[1])
				}
			}
		}
	}
	if rows < 40 {
		t.Errorf("got %d rows, want at least 40", rows)
	}
}
