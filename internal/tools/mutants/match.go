package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// A change is a mutant whose place in the code was found. It has the new text of the file, and the two texts of the mutant
// with the names that the code has now.
type change struct {
	path     string
	text     []byte
	old, new string
}

// errStale is the error of a mutant whose place in the code is not found. Such a mutant is reported, and does not fail the
// run.
var errStale = errors.New("the code has changed")

// apply finds the place in the code that m changes. It first looks for m's literal text, and then for the same text with
// other names. It searches the file or folder that the list names, and then the folders above it, because code moves. A
// literal text must occur exactly once. If several places match with other names, one of them must be more similar to m than
// the rest.
func (m mutant) apply() (change, error) {
	var problem error
	for _, find := range []func(code map[string][]byte) (change, error){m.exact, m.renamed} {
		for place := m.in; ; place = filepath.Dir(place) {
			code, err := readCode(place)
			if err == nil {
				var c change
				if c, err = find(code); err == nil {
					return c, nil
				}
			}
			if problem == nil {
				problem = fmt.Errorf("%w: %w in %s", errStale, err, place)
			}
			if place == "." || filepath.Dir(place) == "." {
				break
			}
		}
	}
	return change{}, problem
}

// readCode returns the Go and Lua files at or below a path, except tests.
func readCode(place string) (map[string][]byte, error) {
	code := make(map[string][]byte)
	err := filepath.WalkDir(place, func(p string, d fs.DirEntry, err error) error {
		isCode := filepath.Ext(p) == ".go" && !strings.HasSuffix(p, "_test.go") || filepath.Ext(p) == ".lua"
		if err != nil || d.IsDir() || !isCode {
			return err
		}
		code[p], err = os.ReadFile(p)
		return err
	})
	return code, err
}

// exact looks for m's literal text.
func (m mutant) exact(code map[string][]byte) (c change, err error) {
	count := 0
	for path, text := range code {
		if n := bytes.Count(text, []byte(m.old)); n > 0 {
			count += n
			c = change{path, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), m.old, m.new}
		}
	}
	if count != 1 {
		return c, fmt.Errorf("its text occurs %d times", count)
	}
	return c, nil
}

// renamed looks for m's text with other names. Operators, numbers and keywords must be the same, and white space within a
// line is ignored. Each name of m's text must stand for the same name of the code wherever it occurs. A name after a dot,
// such as a field, is treated as a different name than the same word without a dot. If there are several places, renamed
// takes the one with the most names of m's text. That place must have at least half of the names, unless it is the only
// place and has several names.
func (m mutant) renamed(code map[string][]byte) (best change, err error) {
	places, most, all, equal := 0, -1, 0, 0 // all is the number of names in m's text, and most is how many of them the best place has
	for path, text := range code {
		keywords := isKeyword(path)
		for _, at := range pattern(m.old, keywords).FindAllSubmatchIndex(text, -1) {
			names, same, total := match(m.old, text, at, keywords)
			mutated := rename(m.new, names, keywords)
			if names == nil || mutated == string(text[at[0]:at[1]]) {
				continue
			}
			if places++; same < most {
				continue
			}
			if same > most {
				most, all, equal = same, total, 0
			}
			equal++
			best = change{
				path: path, old: string(text[at[0]:at[1]]), new: mutated,
				text: bytes.Join([][]byte{text[:at[0]], []byte(mutated), text[at[1]:]}, nil),
			}
		}
	}
	if equal != 1 || 2*most < all && (places > 1 || all < several) {
		return best, errors.New("no place is like its text")
	}
	return best, nil
}

// several is the number of names in the right places that identify a text that occurs once, even if all of them differ.
const several = 6

// part matches a word with the dot before it, or white space, or another character.
var part = regexp.MustCompile(`\.?[\pL_][\pL\pN_]*|\s+|.`)

// word returns the name in a part, and the key under which the name is matched: with a dot if there is one before it. A
// part that is no name, or that is a keyword, has neither.
func word(part string, keywords func(string) bool) (name, key string) {
	name = strings.TrimPrefix(part, ".")
	if name == "" || !unicode.IsLetter([]rune(name)[0]) && name[0] != '_' || keywords(name) {
		return "", ""
	}
	if part[0] == '.' {
		return name, "." + name
	}
	return name, name
}

// pattern returns an expression with a group for each name of the text, in order.
func pattern(text string, keywords func(string) bool) *regexp.Regexp {
	var b strings.Builder
	for _, p := range part.FindAllString(text, -1) {
		name, _ := word(p, keywords)
		switch {
		case strings.Contains(p, "\n"):
			b.WriteString(`\s*\n\s*`)
		case strings.TrimSpace(p) == "":
			b.WriteString(`[ \t]*`)
		case name != "":
			b.WriteString(regexp.QuoteMeta(p[:len(p)-len(name)]) + `([\pL_][\pL\pN_]*)`)
		default:
			b.WriteString(regexp.QuoteMeta(p))
		}
	}
	return regexp.MustCompile(b.String())
}

// match returns which names the code has in place of the names of old. It returns nil if a name would stand for two names
// of the code. It also returns how many of all the names are the same.
func match(old string, code []byte, at []int, keywords func(string) bool) (names map[string]string, same, total int) {
	names = make(map[string]string)
	for _, p := range part.FindAllString(old, -1) {
		name, key := word(p, keywords)
		if name == "" {
			continue
		}
		total++
		now := string(code[at[2*total]:at[2*total+1]])
		if before, known := names[key]; keywords(now) || known && before != now {
			return nil, 0, 0
		}
		if names[key] = now; now == name {
			same++
		}
	}
	return names, same, total
}

// rename replaces the names in text by those that the code has.
func rename(text string, names map[string]string, keywords func(string) bool) string {
	return part.ReplaceAllStringFunc(text, func(p string) string {
		name, key := word(p, keywords)
		now, known := names[key]
		if !known { // old has the name only with a dot, or only without
			now, known = names[strings.TrimPrefix("."+key, "..")]
		}
		if name == "" || !known {
			return p
		}
		return p[:len(p)-len(name)] + now
	})
}

var (
	luaKeywords = regexp.MustCompile(
		`^(and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while)$`)
	builtins = regexp.MustCompile(`^(ceil|false|floor|len|max|min|nil|true)$`) // min in place of max is another rule, and not another name
)

// isKeyword returns a function that reports whether a word of the file cannot be renamed.
func isKeyword(path string) func(string) bool {
	return func(word string) bool {
		isLua := filepath.Ext(path) == ".lua"
		return builtins.MatchString(word) || isLua && luaKeywords.MatchString(word) || !isLua && token.IsKeyword(word)
	}
}
