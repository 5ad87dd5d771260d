package algorithm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// composed returns the lines that the composer writes for lines that call functions of a file. It panics if the
// file breaks a rule.
func composed(file, lines string) string {
	f := parseLua("file", file, nil)
	checkRules("file", file, f)
	s := &scope{
		Builder: &strings.Builder{}, functions: f.functions, suffixes: map[string]string{"_i": "_2"}, marks: map[string]bool{"SEVERAL": false, "ONCE": true},
		values: map[string]string{"limit.field": "1 + 2", "limit.number": "7", "constants_at": "3"},
	}
	s.write(tokenize("decide", lines))
	return s.String()
}

// TestRefused checks that the composer or checkRules refuses files and calls whose meaning would change in a
// script.
func TestRefused(t *testing.T) {
	t.Parallel()
	function := func(body string) string { return "-- A file.\n\nfunction limit.f(a, b)\n" + body + "end\n" }
	plain := function("  local c = a + b\n  return c, a\n")
	for name, c := range map[string]struct{ file, line, refused string }{
		"call as the last result": {function("  return a, redis.call(b)\n"), "x, y, z = limit.f(1, 2)", "decide.lua:1: a call of limit.f"},
		"call that is dropped":    {function("  return a, redis.call(b)\n"), "x = limit.f(1, 2)", "decide.lua:1: a call of limit.f"},
		"call in a branch":        {plain, "if a then x, y = limit.f(1, 2) end", "decide.lua:1: a call of limit.f"},
		"call in a loop":          {plain, "while a do limit.f(1, 2) end", "decide.lua:1: a call of limit.f"},
		"call in an expression":   {plain, "x = 1 + limit.f(1, 2)", "decide.lua:1: a call of limit.f"},
		"call before an operator": {plain, "x, y = limit.f(1, 2) + (3)", "decide.lua:1: a call of limit.f"},
		"call as an argument":     {plain, "print(limit.f(1, 2))", "decide.lua:1: a call of limit.f"},
		"comparison with a call":  {plain, "x, y == limit.f(1, 2)", "decide.lua:1: a call of limit.f"},
		"call before brackets":    {"-- A file.\n\nfunction limit.f()\n  return 1\nend\n", "x = limit.f() + (3)", "decide.lua:1: a call of limit.f"},
		"missing argument":        {plain, "x, y = limit.f(1)", "decide.lua:1: a call of limit.f is a whole line with 2 arguments"},
		"function that is none":   {plain, "x, y = limit.g(1, 2)", "decide.lua:1: limit.g has no value, and is no function"},
		"field that is none":      {plain, "x = limit.g", "decide.lua:1: limit.g has no value"},
		"table itself":            {plain, "f(limit)", "decide.lua:1: limit has no value"},
		"mark that is none":       {plain, "x = 1 -- ONLY SEVERLA", "decide.lua:1: there is no mark SEVERLA"},
		"function on one line":    {"-- A file.\n\nfunction limit.f(a) return a end\n", "", "file.lua:3: the head of a function"},
		"function without an end": {"-- A file.\n\nfunction limit.f(a)\n  return a\n", "", "file.lua:3: the head of a function"},
		"end at another place":    {function("  if a then\n  b()\nend\n"), "", "file.lua:5: the first end"},
		"return in a branch":      {function("  if a then return 1 end\n  return 2\n"), "", "file.lua:4: a function has one return"},
		"return before the last":  {function("  return 1\n  b()\n"), "", "file.lua:4: a function has one return"},
		"return with a comment":   {function("  return a, -- so\n    b\n"), "", "file.lua:4: a function has one return"},
		"parameter":               {function("  a = 1\n  return a\n"), "", "file.lua:4: a function assigns to none of its parameters: a"},
		"parameter among others":  {function("  local c\n  c, x[b], b = 1, 2, 3\n  return c\n"), "", "file.lua:5: a function assigns to none of its parameters: b"},
		"second assignment":       {function("  c = 1 b = 2\n  return c\n"), "", "file.lua:4: a function assigns to none of its parameters: b"},
		"semicolon":               {function("  c = 1; d = 2\n  return c\n"), "", "file.lua:4: no line has a double quote or a semicolon"},
		"field in a table":        {function("  local c = { a = b }\n  return c\n"), "", "file.lua:4: no table has a field by name"},
		"argument that it names":  {function("  local c, d = limit.f(c, 1)\n  return c\n"), "", "file.lua:4: a name that a line declares"},
		"double quotes":           {function("  return \"a\"\n"), "", "file.lua:4: no line has a double quote"},
		"escape":                  {function("  return '\\n'\n"), "", "file.lua:4: a string is on one line, and has no backslash"},
		"open string":             {function("  return 'a\n"), "", "file.lua:4: a string is on one line"},
		"long string":             {function("  return [[a]]\n"), "", "file.lua:4: no line has a long bracket"},
		"long comment":            {function("  --[[ a ]]\n"), "", "file.lua:4: a comment is on one line"},
		"name beside dots":        {function("  return 'x'..a\n"), "", "file.lua:4: spaces are around .."},
		"name of the composer":    {function("  local c_ = 1\n  return c_\n"), "", "file.lua:4: no name ends with _"},
		"helper after a limit": {
			"-- A file.\n\nlocal function file(constants_at)\n  local limit = {}\n  local function helper() end\n", "",
			"file.lua:5: only fields and functions of limit",
		},
		"statement after a function": {
			"-- A file.\n\nfunction limit.f(a)\n  return a\nend\nlocal x = 1\n", "", "file.lua:6: only fields and functions of limit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := ""
			refused := refusal(func() { text = composed(c.file, c.line+"\n") })
			if !strings.HasPrefix(refused, "algorithm: lua/"+c.refused) {
				t.Errorf("refused for %q, want %q; composed: %s", refused, c.refused, text)
			}
		})
	}
}

// TestComposed checks what the composer writes for a line.
func TestComposed(t *testing.T) {
	t.Parallel()
	const file = `-- A file.

function limit.sum(a, _, b)
  local x = a + b
  return x, a
end

function limit.twice(a)
  local y = limit.sum(a, 0, a)
  return y
end

function limit.swap(a, b)
  return b, a
end

function limit.act(a)
  redis.call('SET', a, 'x = a') -- a
end

function limit.declares(a)
  local c,
    x = a, 1
  local d local y = x
  local function inner(z)
    return z .. 'y' .. y
  end
  return y, inner(c), d
end
`
	for name, c := range map[string]struct{ line, want string }{
		"parameters":         {"p, q = limit.sum(1, f(2, 3), z)", "do\nlocal a, b = 1, z\n  local x = a + b\np = x\nq = a\nend"},
		"same names":         {"p, q = limit.sum(a, 0, b)", "do\n  local x = a + b\np = x\nq = a\nend"},
		"declared":           {"local p, q = limit.sum(a, 0, b)", "local p, q\ndo\n  local x = a + b\np = x\nq = a\nend"},
		"name that is taken": {"x, a = limit.sum(a, 0, 2)", "do\nlocal a_, b = a, 2\n  local x_ = a_ + b\nx = x_\na = a_\nend"},
		"call within":        {"p = limit.twice(3)", "do\nlocal a = 3\nlocal y\ndo\nlocal b = a\n  local x = a + b\ny = x\nend\np = y\nend"},
		"exchange":           {"a, b = limit.swap(a, b)", "do\nlocal a_, b_ = a, b\na = b_\nb = a_\nend"},
		"more arguments":     {"p, q = limit.swap(a, b, 5)", "do\np = b\nq = a\nend"},
		"fewer results":      {"p, q, r = limit.swap(a, b)", "do\np = b\nq = a\nr = nil\nend"},
		"fewer, declared":    {"local p, q, r = limit.swap(a, b)", "local p, q, r\ndo\np = b\nq = a\nend"},
		"more results":       {"p = limit.swap(a, b)", "do\np = b\nend"},
		"ignored result":     {"_, p = limit.swap(a, b)", "do\np = a\nend"},
		"no result":          {"limit.act(k)", "do\nlocal a = k\n  redis.call('SET', a, 'x = a') -- a\nend"},
		"several lines":      {"local p,\n  q = limit.swap(a,\n  b)", "local p, q\ndo\np = b\nq = a\nend"},
		"all that it declares": {
			"x, y, z = limit.declares(d)",
			"do\nlocal a = d\n  local c, x_ = a, 1\n  local d local y_ = x_\n  local function inner(z_)\n    return z_ .. 'y' .. y_\n  end\nx = y_\ny = inner(c)\nz = d\nend",
		},
		"in a comment":   {"-- p, q = limit.swap(a, b)", "-- p, q = limit.swap(a, b)"},
		"in a string":    {"p = 'limit.swap(a, b)'", "p = 'limit.swap(a, b)'"},
		"field":          {"p = 2 * limit.field", "p = 2 * (1 + 2)"},
		"simple field":   {"p = KEYS[limit.number] -- limit.number", "p = KEYS[7] -- limit.number"},
		"number":         {"p_i, q_i.err = x_i .. 'x_i', x.y_i", "p_2, q_2.err = x_2 .. 'x_i', x.y_i"},
		"constants":      {"local p = ARGV[constants_at + 1]", "local p = ARGV[3 + 1]"},
		"mark":           {"p = 1 -- ONLY ONCE\nq = 1 -- ONLY SEVERAL", "p = 1"},
		"mark on a call": {"p, q = limit.swap(1, b) -- ONLY SEVERAL\nlimit.act(a) -- ONLY ONCE", "do\n  redis.call('SET', a, 'x = a') -- a\nend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := strings.TrimSpace(composed(file, c.line+"\n")); got != c.want {
				t.Errorf("%s\nis\n%s\nwant\n%s", c.line, got, c.want)
			}
		})
	}
}

// TestCompiles compiles scripts of the largest number of limits: Lua refuses a function with more than 200 local
// variables, or 60 variables of outer functions.
func TestCompiles(t *testing.T) {
	t.Parallel()
	compiler, err := exec.LookPath("luac5.1")
	if err != nil {
		t.Skip("no luac5.1")
	}
	for _, m := range everyKind() {
		limits := make([]Limit, MaxLimits)
		for i := range limits {
			limits[i] = m
		}
		groups := make([]Group, MaxLimits/2)
		for i := range groups {
			groups[i] = Group{1, Bans{1, 2}}
		}
		for _, script := range []string{
			Script(limits, Form{}), Script(limits, Form{PerCallConstants: true, Undeclared: true, Groups: []Group{{len(limits), Bans{1, 2}}}}), Script(limits[:len(groups)], Form{Groups: groups}),
		} {
			command := exec.Command(compiler, "-p", "-")
			command.Stdin = strings.NewReader(script)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", m.Name, err, out)
			}
		}
	}
}

// TestLuacheck runs luacheck on each file.
func TestLuacheck(t *testing.T) {
	t.Parallel()
	checker, err := exec.LookPath("luacheck")
	if err != nil {
		t.Skip("no luacheck")
	}
	files, _ := filepath.Glob("lua/*.lua")
	out, err := exec.Command(checker, append([]string{"--no-color", "--config", "../../.ci/luacheckrc"}, files...)...).CombinedOutput()
	if err != nil || len(files) < 10 {
		t.Errorf("%v: %s", err, out)
	}
}
