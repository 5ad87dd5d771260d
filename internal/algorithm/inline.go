package algorithm

import (
	"embed"
	"maps"
	"slices"
	"strings"
)

// The Lua files are complete programs: luacheck reads each of them alone. A script is put together
// of them by four rules:
//
//   - A part of lua/decide.lua between EACH LIMIT and END stands once for each limit, and one between
//     EACH BAN and END once for each limiter with bans.
//   - A statement that calls a function of `limit` or `ban` becomes the body of that function, because
//     real calls take Redis 15 to 28 % longer. If a limit has no such function, the statement goes.
//   - All other functions stand in the script once, as they are.
//   - A field of `limit`, `ban` or `script` becomes its value.
//
// A function that is called so has one return, which is its last statement, and assigns to none of
// its parameters. What it declares, and what of its parameters is not named as the argument, gets
// another name where the result is assigned to that name.
//
//go:embed lua/*.lua
var luaFiles embed.FS

// A luaFile is one of the files, by its parts.
type luaFile struct {
	shared    string            // what stands outside of the functions of `limit` and `ban`, and of that of the algorithm
	constants string            // it gives the constants their names; `at` is their position
	fields    map[string]string // of the table `limit`
	functions map[string]luaFunction
	bases     []*luaFile // files whose functions this one has, too
}

// A luaFunction is a function that is inlined.
type luaFunction struct {
	parameters, results, locals []string
	body                        string
}

func readText(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// readLua reads the file of a name. It panics if the file breaks the rules: when a program starts.
func readLua(name string, bases ...*luaFile) *luaFile {
	return parseLua(name, readText(name), bases...)
}

func parseLua(name, text string, bases ...*luaFile) *luaFile {
	l := &luaFile{fields: map[string]string{}, functions: map[string]luaFunction{}, bases: bases}
	_, text, _ = strings.Cut(text, "\n\n") // without what the file says first
	var outside []string
	for lines := strings.SplitAfter(text, "\n"); len(lines) > 0; lines = lines[1:] {
		head, isFunction := strings.CutPrefix(strings.TrimLeft(lines[0], " "), "function ")
		if !isFunction || !strings.HasPrefix(head, "limit.") && !strings.HasPrefix(head, "ban.") {
			outside = append(outside, lines[0])
			continue
		}
		for len(outside) > 0 && strings.HasPrefix(strings.TrimLeft(outside[len(outside)-1], " "), "--") {
			outside = outside[:len(outside)-1] // what the file says of the function
		}
		indent, _, _ := strings.Cut(lines[0], "function")
		end := slices.Index(lines, indent+"end\n")
		called, text, _ := strings.Cut(strings.Join(lines[:end], ""), ")\n")
		_, called, _ = strings.Cut(called, ".")
		function, parameters, _ := strings.Cut(called, "(")
		l.functions[function] = parseFunction(name+": "+function, listed(parameters), text, indent+"  ")
		lines = lines[end:]
	}
	text = strings.Join(outside, "")
	l.shared, text, _ = strings.Cut(text, "local function "+name+"(at)\n")
	l.shared = strings.TrimRight(l.shared, "\n") + "\n"
	if at := strings.LastIndex(l.shared, "\n-- "+name+" returns"); text != "" || at == 0 {
		l.shared = l.shared[:max(0, at)]
	}
	l.constants, text, _ = strings.Cut(text, "  local limit = ")
	if base, _, isBase := strings.Cut(text, "(at)"); isBase {
		l.bases = append([]*luaFile{readLua(base)}, bases...)
		maps.Copy(l.fields, l.bases[0].fields)
	}
	for _, f := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune("{},\n", c) }) {
		if field, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(f), "limit."), " = "); ok {
			l.fields[field] = value
		}
	}
	return l
}

// parseFunction returns a function with such a body.
func parseFunction(name string, parameters []string, body, indent string) luaFunction {
	f := luaFunction{parameters: parameters, body: body}
	if at := strings.LastIndex("\n"+body, "\n"+indent+"return "); at >= 0 {
		results, _, _ := strings.Cut(body[at+len(indent+"return "):], " --")
		f.body, f.results = body[:at], listed(results)
	}
	nested := "" // how a function ends that stands in the body
	for line := range strings.Lines(f.body) {
		code, _, _ := strings.Cut(strings.TrimSpace(line), "--")
		for _, word := range []string{"local ", "for "} {
			if declared, ok := strings.CutPrefix(code, word); ok {
				declared, _, _ = strings.Cut(strings.TrimPrefix(declared, "function "), " =")
				declared, _, _ = strings.Cut(declared, " in ")
				f.locals = append(f.locals, listed(declared)...)
			} else if strings.Contains(code, " "+word) {
				panic("algorithm: " + name + " declares a name where no line begins: " + code)
			}
		}
		switch {
		case nested != "":
			if line == nested {
				nested = ""
			}
			continue
		case strings.HasPrefix(code, "local function "):
			before, _, _ := strings.Cut(line, "local")
			nested = before + "end\n"
		}
		mapNames(code, func(word, _ string) string {
			if word == "return" && nested == "" {
				panic("algorithm: " + name + " returns before its last statement")
			}
			return ""
		})
		targets, _, _ := strings.Cut(code, " = ")
		for _, keyword := range []string{" then ", " do ", "else "} {
			targets = targets[max(0, strings.LastIndex(targets, keyword)+len(keyword))*min(1, strings.Count(targets, keyword)):]
		}
		for _, target := range listed(targets) {
			if slices.Contains(parameters, target) && target != code {
				panic("algorithm: " + name + " assigns to its parameter " + target)
			}
		}
	}
	return f
}

// listed returns the names, or the expressions, that a text separates by commas.
func listed(text string) (all []string) {
	depth, start, quoted := 0, 0, false
	for i, c := range text + "," {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '{' || c == '[':
			depth++
		case c == ')' || c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			if part := strings.TrimSpace(text[start:i]); part != "" {
				all = append(all, part)
			}
			start = i + 1
		}
	}
	return all
}

// mapNames returns text with each name replaced that is neither in a string nor in a comment. `field`
// is what follows a name, as in name.field, or empty. Names that begin with a dot stay.
func mapNames(text string, replace func(name, field string) string) string {
	var b strings.Builder
	copied := 0 // so much of text is in b
	for i := 0; i < len(text); {
		end := i + 1
		switch c := text[i]; {
		case c == '\'':
			end = i + 2 + strings.IndexByte(text[i+1:], '\'')
		case c == '-' && strings.HasPrefix(text[i:], "--"):
			if end = strings.IndexByte(text[i:], '\n'); end < 0 {
				end = len(text) - i
			}
			end += i
		case isNameByte(c) || c == '.':
			dot := 0
			for ; end < len(text) && (isNameByte(text[end]) || text[end] == '.' && end+1 < len(text) && text[end+1] != '.'); end++ {
				if text[end] == '.' && dot == 0 {
					dot = end
				}
			}
			if c <= '9' { // a number, or a field of what is no name
				break
			}
			name, field := text[i:end], ""
			if dot > 0 {
				name, field = text[i:dot], text[dot+1:end]
			}
			if word := replace(name, field); word != text[i:end] {
				b.WriteString(text[copied:i])
				b.WriteString(word)
				copied = end
			}
		}
		i = end
	}
	b.WriteString(text[copied:])
	return b.String()
}

func isNameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// setFields returns text with the fields of a table replaced by their values.
func setFields(text, table string, fields map[string]string) string {
	return mapNames(text, func(name, field string) string {
		if value, ok := fields[field]; ok && name == table {
			return value
		}
		return dotted(name, field)
	})
}

func dotted(name, field string) string {
	if field == "" {
		return name
	}
	return name + "." + field
}

// find returns a function of l or of its bases.
func (l *luaFile) find(name string) (luaFunction, bool) {
	f, ok := l.functions[name]
	for i := 0; i < len(l.bases) && !ok; i++ {
		f, ok = l.bases[i].find(name)
	}
	return f, ok
}

// inline returns text with each call of a function of l replaced by its body.
func (l *luaFile) inline(text string) string {
	var b strings.Builder
	for {
		start, local, targets, name, args, end := nextCall(text)
		if end == 0 {
			return b.String() + text
		}
		b.WriteString(text[:start])
		if f, ok := l.find(name); ok {
			b.WriteString(l.inline(f.call(local, targets, listed(args))))
		} else if local {
			b.WriteString("local " + strings.Join(targets, ", ") + "\n")
		}
		text = text[end:]
	}
}

// nextCall finds the first statement of text that calls a function of `limit` or `ban`. Its end is 0
// if there is none.
func nextCall(text string) (start int, local bool, targets []string, name, args string, end int) {
	for at := 0; ; at++ {
		next := strings.Index(text[at:], "limit.")
		if ban := strings.Index(text[at:], "ban."); next < 0 || ban >= 0 && ban < next {
			next = ban
		}
		if next < 0 {
			return 0, false, nil, "", "", 0
		}
		at += next
		start = strings.LastIndexByte(text[:at], '\n') + 1
		before := strings.TrimLeft(text[start:at], " ")
		_, called, _ := strings.Cut(text[at:], ".")
		open := strings.IndexByte(called, '(')
		if open < 0 || strings.IndexFunc(called[:open], func(c rune) bool { return !isNameByte(byte(c)) }) >= 0 ||
			before != "" && !strings.HasSuffix(before, " = ") {
			continue
		}
		for head := start; strings.HasSuffix(text[:head], ",\n"); head = start { // the names stand on several lines
			start = strings.LastIndexByte(text[:head-1], '\n') + 1
		}
		before = strings.TrimSuffix(strings.TrimSpace(text[start:at]), " =")
		before, local = strings.CutPrefix(before, "local ")
		name, end = called[:open], at+len(text[at:])-len(called)+open+1
		first := end
		for depth := 1; depth > 0; end++ {
			switch text[end] {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		return start, local, listed(before), name, text[first : end-1], end + len("\n")
	}
}

// call returns what stands for a statement that calls f.
func (f luaFunction) call(local bool, targets, args []string) string {
	var names, values, left, right []string
	for i, p := range f.parameters {
		if p != "_" && i < len(args) && (p != args[i] || local && slices.Contains(targets, p)) {
			names, values = append(names, p), append(values, args[i])
		}
	}
	taken := slices.DeleteFunc(slices.Concat(names, f.locals), func(name string) bool { return !slices.Contains(targets, name) })
	rename := func(text string) string {
		if len(taken) == 0 {
			return text
		}
		return mapNames(text, func(name, field string) string {
			if slices.Contains(taken, name) {
				name += "_"
			}
			return dotted(name, field)
		})
	}
	text, before := rename(f.body), ""
	var assigned strings.Builder
	if len(names) > 0 {
		text = "local " + rename(strings.Join(names, ", ")) + " = " + strings.Join(values, ", ") + "\n" + text
	}
	oneByOne := true // no value depends on what is assigned before
	for i, result := range f.results[:min(len(f.results), len(targets))] {
		if result = rename(result); targets[i] != "_" && targets[i] != result {
			mapNames(result, func(name, _ string) string {
				oneByOne = oneByOne && !slices.Contains(left, name)
				return ""
			})
			left, right = append(left, targets[i]), append(right, result)
			assigned.WriteString(targets[i] + " = " + result + "\n")
		}
	}
	if !oneByOne {
		assigned.Reset()
		assigned.WriteString(strings.Join(left, ", ") + " = " + strings.Join(right, ", ") + "\n")
	}
	if local {
		before = "local " + strings.Join(targets, ", ") + "\n"
		if text == "" && len(left) == len(targets) {
			return "local " + strings.Join(left, ", ") + " = " + strings.Join(right, ", ") + "\n"
		}
	}
	if text == "" {
		return before + assigned.String()
	}
	return before + "do\n" + text + assigned.String() + "end\n"
}
