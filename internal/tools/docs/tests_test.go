package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// namedTest matches a test as the documents must name it: `TestRedis/Expires` (internal/suite/conformance).
var namedTest = regexp.MustCompile("`((?:Test|Fuzz)\\w+)((?:/\\w+)*)` \\(([\\w/]+)\\)")

// aTest matches any test's name in a document.
var aTest = regexp.MustCompile("`(?:Test|Fuzz)\\w+(?:/\\w+)*`")

// TestNamedTestsExist checks that the tests that the documents name exist, each in the
// folder that is named with it.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	texts := files(t)
	named := 0
	for name, text := range texts {
		if path.Ext(name) != ".md" {
			continue
		}
		found := namedTest.FindAllStringSubmatch(text, -1)
		if all := aTest.FindAllString(text, -1); len(all) != len(found) {
			t.Errorf("%s: %d tests are named, but only %d with a folder: %v", name, len(all), len(found), all)
		}
		for _, match := range found {
			named++
			function, testCase, folder := match[1], strings.TrimPrefix(match[2], "/"), match[3]
			if !contains(texts, folder, "func "+function+"(") || testCase != "" && !contains(texts, folder, `"`+testCase+`"`) {
				t.Errorf("%s: there is no %s", name, match[0])
			}
		}
	}
	if named == 0 {
		t.Error("no test is named: is SECURITY.md where it was?")
	}
}

// contains reports whether a Go file of a folder contains part.
func contains(texts map[string]string, folder, part string) bool {
	for name, text := range texts {
		if path.Dir(name) == folder && path.Ext(name) == ".go" && strings.Contains(text, part) {
			return true
		}
	}
	return false
}
