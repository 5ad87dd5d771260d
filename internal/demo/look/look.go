// Package look has the colors and the typeface that the playground, the page of package admin and the pictures in the
// documents share.
package look

import (
	_ "embed"
	"regexp"
	"strings"
)

// CSS defines the colors and the typeface as custom properties, such as --ink, for light and for dark mode.
//
//go:embed palette.css
var CSS string

// Values returns the custom properties by name, without the leading "--". light has all values, and dark has those that
// differ in dark mode.
func Values() (light, dark map[string]string) {
	before, after, _ := strings.Cut(CSS, "@media")
	return values(before), values(after)
}

func values(css string) map[string]string {
	property := regexp.MustCompile(`--(\w+): ([^;]+);`) // not a package variable, so that programs that only import package admin do not compile it
	all := make(map[string]string)
	for _, match := range property.FindAllStringSubmatch(css, -1) {
		all[match[1]] = match[2]
	}
	return all
}
