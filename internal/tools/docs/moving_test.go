package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestMovingRows checks that what the tables of docs/moving.md name in place of another library's options is compiled, by
// example_moving_test.go. An argument f, h, d or n stands for any, and so does what is left out.
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
					t.Errorf("no Example has %s", span[1])
				}
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d rows found", rows)
	}
}
