package docs

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// link matches a link within the repository, to a document, a heading, or both.
var link = regexp.MustCompile(`\]\(([\w./-]*\.md)?(#[\w-]+)?\)`)

// notInAnchors matches the characters of a heading that are left out of its anchor.
var notInAnchors = regexp.MustCompile(`[^\w\- ]`)

// TestLinks checks that all links between documents and headings resolve.
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
				t.Errorf("%s: got the link %s, which does not resolve", name, match[0])
			}
		}
	}
}

// TestRunbooks checks that the runbook of each alert is a heading of docs/operating.md.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../../docs/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	headings := anchors(files(t)["docs/operating.md"])
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		_, url, _ := strings.Cut(rule, "runbook_url: https://github.com/redislimit/redislimit/blob/main/docs/operating.md")
		if anchor, _, _ := strings.Cut(url, "\n"); !headings[anchor] {
			t.Errorf("%s: got no heading %q in docs/operating.md, want one", name, anchor)
		}
	}
}

// anchors returns the anchors of a document's headings.
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
