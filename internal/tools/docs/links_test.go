package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// A link within the repository, with the heading that it leads to.
var link = regexp.MustCompile(`\]\(([\w./-]*\.md)?(#[\w-]+)?\)`)

// notInAnchors are what a heading loses when it becomes an anchor.
var notInAnchors = regexp.MustCompile(`[^\w\- ]`)

// TestLinks follows the documents' links to documents and headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	texts := files(t)
	for name, text := range texts {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target := name
			if match[1] != "" {
				target = path.Join(path.Dir(name), match[1])
			}
			if at, ok := texts[target]; !ok || match[2] != "" && !anchors(at)[match[2]] {
				t.Errorf("%s: %s leads nowhere", name, match[0])
			}
		}
	}
}

// anchors returns the headings of a document as a link writes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			heading = notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			found["#"+strings.ReplaceAll(heading, " ", "-")] = true
		}
	}
	return found
}
