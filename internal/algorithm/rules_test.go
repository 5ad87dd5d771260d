package algorithm

import (
	"slices"
	"strings"
	"testing"
)

// checkRules panics, as the composer does, if a file breaks one of the rules that the composer does not check,
// but without which it would change the meaning of a function. checkRules returns the names that the functions
// of the file declare, and the names to which they assign the results of calls, each with its line.
func checkRules(name, text string, f *luaFile) (inner map[string]luaLine) {
	for _, l := range tokenize(name, text) {
		if strings.HasPrefix(strings.TrimLeft(l.comment, " "), "--[") {
			l.refuse("a comment is on one line")
		}
		for i, t := range l.tokens {
			switch isString := t.text[0] == '\''; {
			case isString && (len(t.text) < 2 || t.text[len(t.text)-1] != '\'' || strings.Contains(t.text, `\`)):
				l.refuse("a string is on one line, and has no backslash")
			case isString:
			case strings.ContainsAny(t.text, "\";"):
				l.refuse("no line has a double quote or a semicolon")
			case strings.Contains(t.text, "..") && t.text != "..":
				l.refuse("spaces are around ..")
			case t.text == "[" && i+1 < len(l.tokens) && l.tokens[i+1].text == "[":
				l.refuse("no line has a long bracket")
			case strings.HasSuffix(t.text, "_") && t.text != "_":
				l.refuse("no name ends with _: where it needs another name for a variable, the composer adds that")
			}
		}
	}
	inner = map[string]luaLine{}
	for _, g := range f.functions {
		checkFunction(g, inner)
	}
	return inner
}

// checkFunction is checkRules for one function. It adds the names to inner.
func checkFunction(g *luaFunction, inner map[string]luaLine) {
	depth, nested, braces := 0, 0, 0
	var last luaLine
	for _, l := range g.body {
		last = l
		for i, t := range l.tokens {
			switch t.text {
			case "if", "do", "repeat":
				depth++
			case "function":
				if depth++; nested == 0 {
					nested = depth
				}
			case "end", "until":
				if depth--; depth < nested {
					nested = 0
				}
			case "{":
				braces++
			case "}":
				braces--
			case "return":
				if nested == 0 {
					l.refuse("a function has one return, which is its last line")
				}
			case "local", "for":
				for _, name := range namesAfter(l.tokens[i+1:]) {
					inner[name] = l
				}
			case "=":
				if i+1 < len(l.tokens) && l.tokens[i+1].text == "=" || strings.ContainsAny(l.tokens[i-1].text, "=~<>") {
					break // a comparison
				}
				if braces > 0 {
					l.refuse("no table has a field by name where it is made: the composer would take that for a variable")
				}
				for _, name := range namesBefore(l.tokens[:i]) {
					if slices.Contains(g.parameters, name) {
						l.refuse("a function assigns to none of its parameters: " + name)
					}
					if strings.HasPrefix(l.tokens[i+1].text, "limit.") {
						inner[name] = l
					}
				}
			}
		}
		if target, _, isCall := strings.Cut(l.code, " = limit."); isCall && strings.HasPrefix(target, "local ") {
			call := l.tokens[slices.IndexFunc(l.tokens, func(t token) bool { return t.text == "=" }):]
			for _, name := range namesAfter(l.tokens[1:]) {
				if name != "_" && slices.ContainsFunc(call, func(t token) bool { return t.text == name }) {
					l.refuse("a name that a line declares is no argument there")
				}
			}
		}
	}
	if depth != 0 {
		last.refuse("the first end as far from the margin as the head of a function ends it")
	}
	for _, p := range g.parameters {
		inner[p] = last
	}
}

// namesAfter returns the names with which tokens begin, separated by commas.
func namesAfter(tokens []token) (names []string) {
	for i, t := range tokens {
		if i%2 == 1 && t.text != "," {
			break
		}
		if i%2 == 0 {
			names = append(names, t.text)
		}
	}
	return names
}

// namesBefore returns the variables with which tokens end, separated by commas. If a field of a table is
// among them, its table is left out.
func namesBefore(tokens []token) (names []string) {
	for {
		end := len(tokens) - 1
		if tokens[end].text == "]" {
			for depth := 1; depth > 0; {
				end--
				switch tokens[end].text {
				case "]":
					depth++
				case "[":
					depth--
				}
			}
			end-- // the table
		} else if !strings.Contains(tokens[end].text, ".") {
			names = append(names, tokens[end].text)
		}
		if end == 0 || tokens[end-1].text != "," {
			return names
		}
		tokens = tokens[:end-1]
	}
}

// luaNames returns the names of the files that the composer puts together. holds is the last one, because it
// assigns to variables of prelude.
func luaNames(t *testing.T) (names []string) {
	t.Helper()
	entries, err := luaFiles.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		// The texts of clock and undeclared stand before the others, unchanged.
		if name := strings.TrimSuffix(e.Name(), ".lua"); name != "clock" && name != "undeclared" && name != "holds" {
			names = append(names, name)
		}
	}
	if names = append(names, "holds"); len(names) < 11 {
		t.Fatalf("only %d files", len(names))
	}
	return names
}

// everyKind returns a limit of each algorithm.
func everyKind() (all []Limit) {
	for _, k := range append([]*Kind{Calendar}, Kinds...) {
		all = append(all, Limit{Kind: k, Evaluator: k.New(Numbers{Count: 3, Period: 60_000_000, Burst: 3})})
	}
	return all
}

// outerNames returns the names that lines declare outside of functions, each with its line.
func outerNames(lines []luaLine) map[string]luaLine {
	outer, depth := map[string]luaLine{}, 0
	for _, l := range lines {
		if depth == 0 && strings.HasPrefix(l.code, "local ") && !strings.HasPrefix(l.code, "local function ") {
			for _, name := range namesAfter(l.tokens[1:]) {
				outer[name] = l
			}
		}
		for i, t := range l.tokens {
			switch t.text {
			case "function":
				if depth == 0 {
					outer[l.tokens[i+1].text] = l
				}
				depth++
			case "if", "do", "repeat":
				depth++
			case "end", "until":
				depth--
			}
		}
	}
	return outer
}

// TestRules checks each file alone. It also checks that no two variables get confused because they have the same
// name in files that the composer puts together.
func TestRules(t *testing.T) {
	t.Parallel()
	shared := map[string]luaLine{}
	for _, name := range luaNames(t) {
		f := readLua(name, nil)
		text, _ := luaFiles.ReadFile("lua/" + name + ".lua")
		refused := refusal(func() {
			checkRules(name, string(text), f)
			addShared(shared, f)
		})
		if refused != "" {
			t.Error(refused)
		}
	}
	for _, m := range everyKind() {
		inner := checkRules("", "", m.lua)
		for _, l := range decideLua.shared {
			for i, word := range l.tokens {
				if word.text == "local" && l.tokens[0].spaces != "" {
					for _, name := range namesAfter(l.tokens[i+1:]) {
						inner[strings.TrimSuffix(strings.TrimSuffix(name, "_i"), "_b")] = l
					}
				}
			}
		}
		for _, outer := range []map[string]luaLine{shared, outerNames(m.lua.constants)} {
			for name, l := range outer {
				if other, both := inner[name]; both {
					t.Errorf("%s: %s is a variable of lua/%s.lua:%d and another one of lua/%s.lua:%d", m.Name, name, l.file, l.number, other.file, other.number)
				}
			}
		}
	}
}

// addShared adds the names in the shared part of a file, and panics if another file has the same name in its
// shared part. Only holds.lua may repeat such names, because it assigns to variables that prelude.lua declares.
func addShared(shared map[string]luaLine, f *luaFile) {
	for name, l := range outerNames(f.shared) {
		if first, known := shared[name]; known && l.file != "holds" {
			l.refuse(name + " is in lua/" + first.file + ".lua, too")
		}
		shared[name] = l
	}
}

// TestSharedNames checks that two files must not have the same name in their shared parts.
func TestSharedNames(t *testing.T) {
	t.Parallel()
	shared := map[string]luaLine{}
	text := "-- A file.\n\nlocal function helper()\n  local inner = 1\nend\n"
	addShared(shared, parseLua("one", text, nil))
	refused := refusal(func() { addShared(shared, parseLua("two", text, nil)) })
	if want := "algorithm: lua/two.lua:3: helper is in lua/one.lua, too"; refused != want || len(shared) != 1 {
		t.Errorf("refused for %q, want %q; shared: %v", refused, want, shared)
	}
}

// refusal returns the message with which call panics, or "" if it does not panic.
func refusal(call func()) (refused string) {
	defer func() {
		if r := recover(); r != nil {
			refused = r.(string)
		}
	}()
	call()
	return ""
}
