package algorithm

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Each Lua file is a complete program, which luacheck reads alone. A script consists of lines of these
// files, which the composer changes by four rules:
//
//   - The lines of lua/decide.lua between EACH LIMIT and END are repeated for each limit, and the lines
//     between EACH BAN and END for each limiter with bans. In these lines, the ending _i of a name
//     becomes the number of the limit (it is removed if there is only one limit), and the ending _b the
//     number of the ban.
//   - A comment that names a part, such as PRELUDE, becomes that part. A line that ends with ONLY and a
//     mark, such as ONLY SEVERAL, is written only into the scripts to which the mark applies. See
//     decide.lua.
//   - A field of `limit`, `ban` or `script` becomes its value.
//   - A line that calls a function of `limit` or `ban` becomes the body of that function, because real
//     calls take Redis 15 to 28 % longer.
//
// Such a call is a whole line, and its results are assigned to names. The called function has at most one return,
// which is its last line. If a file or a call breaks one of these rules, the composer panics when the program
// starts or composes a script. The message has the name of the file, the number of the line, and the rule.
// The composer does not check rules such as that no function assigns to a parameter. TestRules checks those.
// That is enough, because the files are part of the program, so they cannot change after the test.
//
//go:embed lua/*.lua
var luaFiles embed.FS

// A luaFile has the parts of one of the files.
type luaFile struct {
	base      *luaFile  // the file from which the limits get the fields and functions that this file does not define
	shared    []luaLine // the part that a script has once
	constants []luaLine // the part that gives names to the constants of a limit
	// fields and functions have the fields and functions of limits or bans, including the ones of base. The names are
	// written as in the file, such as limit.window.
	fields    map[string]string
	functions map[string]*luaFunction
}

// A luaFunction is a function of a limit or a ban. Its calls become its body.
type luaFunction struct {
	parameters []string
	body       []luaLine
	results    []token
}

// A luaLine is a line of a file.
type luaLine struct {
	file          string
	number        int
	code, comment string // code has no spaces around it; comment begins with the spaces before it
	tokens        []token
}

// A token is a name with its fields, a number, a string or a sign. spaces has the spaces before it.
type token struct{ spaces, text string }

// refuse panics because l breaks a rule.
func (l luaLine) refuse(rule string) {
	panic(fmt.Sprintf("algorithm: lua/%s.lua:%d: %s", l.file, l.number, rule))
}

// readLua reads and parses the Lua file of the given name. base, which may be nil, is the file from which its
// limits get the fields and functions that this file does not define.
func readLua(name string, base *luaFile) *luaFile {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return parseLua(name, string(text), base)
}

// parseLua parses a file. A file begins with a comment and an empty line. The shared part follows, and then
// the function that has the name of the file. This function begins with the constants of a limit, which are
// followed by the fields and functions of the limit.
func parseLua(name, text string, base *luaFile) *luaFile {
	f := &luaFile{base: base, fields: map[string]string{}, functions: map[string]*luaFunction{}}
	if base != nil {
		maps.Copy(f.fields, base.fields)
		maps.Copy(f.functions, base.functions)
	}
	lines, part := tokenize(name, text), &f.shared
	lines = lines[slices.IndexFunc(lines, func(l luaLine) bool { return l.code+l.comment == "" })+1:]
	for i := 0; i < len(lines); i++ {
		code := lines[i].code
		field, value, isField := strings.Cut(code, " = ")
		switch {
		case strings.HasPrefix(code, "local function "+name+"("):
			part = &f.constants
		case strings.HasPrefix(code, "function limit."), strings.HasPrefix(code, "function ban."):
			i, part = i+f.addFunction(lines[i:]), nil
		case field == "local limit":
			part = nil
		case isField && strings.HasPrefix(field, "limit."):
			f.fields[field], part = value, nil
		case part != nil:
			*part = append(*part, lines[i])
		case !slices.Contains([]string{"", "end", "return limit", "return " + name}, code):
			lines[i].refuse("only fields and functions of limit follow its constants")
		}
	}
	return f
}

// addFunction adds the function with which lines begin, and returns the index of its last line.
func (f *luaFile) addFunction(lines []luaLine) (end int) {
	head := lines[0].tokens
	end = slices.IndexFunc(lines, func(l luaLine) bool { return l.code == "end" && l.tokens[0].spaces == head[0].spaces })
	if end < 0 || head[len(head)-1].text != ")" {
		lines[0].refuse("the head of a function is a whole line, and so is its end, which is as far from the margin")
	}
	g := &luaFunction{body: lines[1:end]}
	for _, p := range split(head[3 : len(head)-1]) {
		g.parameters = append(g.parameters, p[0].text)
	}
	if last := lines[end-1]; strings.HasPrefix(last.code, "return ") {
		g.body, g.results = lines[1:end-1], last.tokens[1:]
	}
	f.functions[head[1].text] = g
	return end
}

// tokenize returns the lines of a file. A line that ends with a comma and the line after it become one.
func tokenize(file, text string) (lines []luaLine) {
	number, line := 0, ""
	for next := range strings.Lines(text) {
		number++
		if line != "" {
			next = strings.TrimLeft(next, " ")
		}
		if line += strings.TrimRight(next, " \n"); strings.HasSuffix(line, ",") && !strings.Contains(line, "--") {
			line += " "
			continue
		}
		l := luaLine{file: file, number: number}
		for rest := line; rest != ""; {
			text := strings.TrimLeft(rest, " ")
			if strings.HasPrefix(text, "--") {
				l.comment = rest
				break
			}
			size := tokenSize(text)
			l.tokens = append(l.tokens, token{rest[:len(rest)-len(text)], text[:size]})
			rest = text[size:]
		}
		l.code = strings.Trim(strings.TrimSuffix(line, l.comment), " ")
		lines, line = append(lines, l), ""
	}
	return lines
}

// tokenSize returns the length of the token with which text begins. The fields of a name belong to its token,
// and a sign is always one character. TestRules refuses text for which this is wrong.
func tokenSize(text string) int {
	behind := strings.TrimLeft(text, "._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	if text[0] == '\'' {
		return len("''") + max(0, strings.IndexByte(text[1:], '\''))
	}
	return max(1, len(text)-len(behind))
}

// split splits a list at its commas, but not within brackets. It returns nil if the list is empty, or closes a
// bracket that it does not open.
func split(list []token) (parts [][]token) {
	depth, start := 0, 0
	for i, t := range list {
		switch t.text {
		case "(", "{", "[":
			depth++
		case ")", "}", "]":
			depth--
		case ",":
			if depth == 0 {
				parts, start = append(parts, list[start:i]), i+1
			}
		}
		if depth < 0 {
			return nil
		}
	}
	if len(list) == 0 {
		return nil
	}
	return append(parts, list[start:])
}

// A scope says how lines are written to a script: outside of its limits and bans, for one of its limits or
// bans, or within a call.
type scope struct {
	*strings.Builder

	functions map[string]*luaFunction
	values    map[string]string // the values of the fields of limit, ban and script, and of constants_at
	suffixes  map[string]string // what the endings _i and _b of names become
	marks     map[string]bool   // whether the lines with a mark are written
	parts     map[string][]luaLine
	each      map[string][]*scope // the scopes of the limits, and of the bans
	targets   []string            // the names to which a call assigns its results; in the body of the function, such names get a _
}

// write writes lines, changed by the four rules.
func (s *scope) write(lines []luaLine) {
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		comment, mark, isMarked := strings.Cut(l.comment, " -- ONLY ")
		if on, known := s.marks[mark]; isMarked && !known {
			l.refuse("there is no mark " + mark)
		} else if isMarked && !on {
			continue
		}
		name := strings.TrimPrefix(l.code+strings.TrimLeft(comment, " "), "-- ")
		if each, ok := s.each[name]; ok {
			begin := i + 1
			i = begin + slices.IndexFunc(lines[begin:], func(l luaLine) bool { return strings.HasSuffix(l.comment, "-- END") })
			for _, one := range each {
				one.write(lines[begin:i])
			}
		} else if part, ok := s.parts[name]; ok {
			s.write(part)
		} else if !s.inline(l) {
			s.WriteString(s.text(l, l.tokens) + comment + "\n")
		}
	}
}

// text returns the text of tokens, which are of l, with its names and fields replaced.
func (s *scope) text(l luaLine, tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.spaces)
		name, _, _ := strings.Cut(t.text, ".")
		fields := t.text[len(name):]
		if value, ok := s.values[t.text]; ok {
			name, fields = value, ""
			if strings.Contains(value, " ") { // the value may become a part of any expression
				name = "(" + value + ")"
			}
		} else if name == "limit" || name == "ban" || name == "script" {
			l.refuse(t.text + " has no value, and is no function")
		}
		end := name[max(0, len(name)-2):]
		if number, ok := s.suffixes[end]; ok {
			name = strings.TrimSuffix(name, end) + number
		}
		if name != "_" && slices.Contains(s.targets, name) {
			name += "_"
		}
		b.WriteString(name + fields)
	}
	return b.String()
}

// inline writes the body of the function that l calls. It reports false, and writes nothing, if l calls no
// function of a limit or a ban.
func (s *scope) inline(l luaLine) bool {
	at := slices.IndexFunc(l.tokens, func(t token) bool { return s.functions[t.text] != nil })
	if at < 0 {
		return false
	}
	f, before, end := s.functions[l.tokens[at].text], l.tokens[:max(0, at-1)], len(l.tokens)-1
	isLocal := l.tokens[0].text == "local"
	if isLocal {
		before = before[1:]
	}
	inner := *s
	inner.targets = s.list(l, before)
	arguments, results := s.list(l, l.tokens[min(at+2, end):end]), inner.list(l, f.results)
	isWhole := (at == 0 || l.tokens[at-1].text == "=") && l.tokens[end].text == ")" && (arguments != nil || end == at+2) &&
		!strings.Contains(strings.Join(inner.targets, ""), " ")
	if !isWhole || len(arguments) < len(f.parameters) || !fit(results, len(inner.targets)) {
		l.refuse(fmt.Sprintf("a call of %s is a whole line with %d arguments or more, and its results are assigned to names",
			l.tokens[at].text, len(f.parameters)))
	}
	if isLocal {
		s.WriteString("local " + strings.Join(inner.targets, ", ") + "\n")
	}
	s.WriteString("do\n")
	var names, values []string
	for i, p := range f.parameters {
		if p != "_" && (p != arguments[i] || slices.Contains(inner.targets, p)) {
			names, values = append(names, inner.text(l, []token{{" ", p}})), append(values, arguments[i])
		}
	}
	if names != nil {
		s.WriteString("local" + strings.Join(names, ",") + " = " + strings.Join(values, ", ") + "\n")
	}
	inner.write(f.body)
	results = append(results, slices.Repeat([]string{"nil"}, len(inner.targets))...)
	for i, target := range inner.targets {
		if target != "_" && target != results[i] && (!isLocal || results[i] != "nil") {
			s.WriteString(target + " = " + results[i] + "\n")
		}
	}
	s.WriteString("end\n")
	return true
}

// fit reports whether results can be assigned to a number of targets. As in Lua, a missing result is nil, and
// an extra result is dropped. If results are missing, the last one must not be a call, because a call could
// return the missing ones. And an extra result must not contain a call, because the call would not be made.
func fit(results []string, targets int) bool {
	if n := len(results); n > targets {
		return !strings.Contains(strings.Join(results[targets:], ""), "(")
	} else if n > 0 && n < targets {
		return !strings.HasSuffix(results[n-1], ")")
	}
	return true
}

// list splits tokens, which are of l, at their commas, and returns the texts of the parts.
func (s *scope) list(l luaLine, tokens []token) (texts []string) {
	for _, part := range split(tokens) {
		texts = append(texts, strings.TrimLeft(s.text(l, part), " "))
	}
	return texts
}
