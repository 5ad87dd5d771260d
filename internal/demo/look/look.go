// Package look has the colours and the typeface that the playground, the page of package admin and the
// pictures of the documents share.
package look

import (
	_ "embed"
	"regexp"
	"strings"
)

// CSS defines them as custom properties, such as --ink, for light and for dark.
//
//go:embed palette.css
var CSS string

// Values returns the custom properties without the leading "--", by name: those for
// light, and those that differ for dark.
func Values() (light, dark map[string]string) {
	before, after, _ := strings.Cut(CSS, "@media")
	return values(before), values(after)
}

func values(css string) map[string]string {
	property := regexp.MustCompile(`--(\w+): ([^;]+);`) // here: a service with the page of package admin need not run it
	all := make(map[string]string)
	for _, match := range property.FindAllStringSubmatch(css, -1) {
		all[match[1]] = match[2]
	}
	return all
}
