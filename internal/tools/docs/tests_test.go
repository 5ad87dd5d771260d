package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// namedTest matches a test with its folder, as the documents have to write it: `TestRedis/Expires` (internal/suite/conformance).
var namedTest = regexp.MustCompile("`((?:Test|Fuzz)\\w+)((?:/\\w+)*)` \\(([\\w/]+)\\)")

// aTest matches the name of a test in a document, with or without a folder.
var aTest = regexp.MustCompile("`(?:Test|Fuzz)\\w+(?:/\\w+)*`")

// TestNamedTestsExist checks that each test that a document names exists in the folder that the document names with it.
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
			t.Errorf("%s: got %d names of tests, but only %d with a folder, want all of them: %v", name, len(all), len(found), all)
		}
		for _, match := range found {
			named++
			function, testCase, folder := match[1], strings.TrimPrefix(match[2], "/"), match[3]
			if !contains(texts, folder, "func "+function+"(") || testCase != "" && !contains(texts, folder, `"`+testCase+`"`) {
				t.Errorf("%s: got no test %s, want one", name, match[0])
			}
		}
	}
	if named == 0 {
		t.Error("got no named tests, want some: was SECURITY.md moved?")
	}
}

// contains reports whether one of a folder's Go files contains part.
func contains(texts map[string]string, folder, part string) bool {
	for name, text := range texts {
		if path.Dir(name) == folder && path.Ext(name) == ".go" && strings.Contains(text, part) {
			return true
		}
	}
	return false
}
