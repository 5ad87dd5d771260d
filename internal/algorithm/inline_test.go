package algorithm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInlineRules reads files with functions that cannot be inlined: each is refused.
func TestInlineRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, refused string }{
		"return in a branch":      {"  if a then return 1 end\n  return 2\n", "returns before"},
		"return in a loop":        {"  while a do\n    return 1\n  end\n  return 2\n", "returns before"},
		"parameter":               {"  a = 1\n  return a\n", "parameter a"},
		"parameter among others":  {"  local c\n  c, b = 1, 2\n  return c\n", "parameter b"},
		"parameter in a branch":   {"  if b then a = 1 end\n  return a\n", "parameter a"},
		"name within a line":      {"  if a then local c = b end\n  return a\n", "declares a name"},
		"plain":                   {"  local c = a\n  if c then c = b end\n  return c\n", ""},
		"field of a parameter":    {"  a.c = b\n  return a\n", ""},
		"comparison":              {"  local c = a == b\n  return c\n", ""},
		"return of its own":       {"  local function c()\n    if a then return 1 end\n    return 2\n  end\n  return c()\n", ""},
		"return that is no code":  {"  local c = 'they return it' -- to return\n  return c\n", ""}, //nolint:dupword // Lua
		"nothing to return":       {"  b()\n", ""},
		"assignment in a comment": {"  -- a = b\n  return a\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := ""
			func() {
				defer func() {
					if r := recover(); r != nil {
						refused = r.(string)
					}
				}()
				parseLua("file", "-- A file.\n\nfunction limit.f(a, b)\n"+c.body+"end\n")
			}()
			if c.refused == "" && refused != "" || !strings.Contains(refused, c.refused) {
				t.Errorf("refused for %q, want %q", refused, c.refused)
			}
		})
	}
}

// TestInline inlines functions, and compares the text that stands in the place of their calls.
func TestInline(t *testing.T) {
	t.Parallel()
	//nolint:dupword // Lua declares a name, and then assigns to it
	file := parseLua("file", `-- A file.

local shared = 1

-- sum is inlined.
function limit.sum(a, _, b)
  local x = a + b
  return x, a
end

function limit.twice(a)
  local y
  y = limit.sum(a, 0, a)
  return y
end

function limit.swap(a, b)
  return b, a
end

function limit.act(a)
  redis.call('SET', a, 'x = a') -- a
end
`)
	for name, c := range map[string]struct{ text, want string }{
		"parameters":         {"p, q = limit.sum(1, f(2, 3), z)", "do\nlocal a, b = 1, z\n  local x = a + b\np = x\nq = a\nend"},
		"same names":         {"p = limit.sum(a, 0, b)", "do\n  local x = a + b\np = x\nend"},
		"declared":           {"local p, q = limit.sum(a, 0, b)", "local p, q\ndo\n  local x = a + b\np = x\nq = a\nend"},
		"name that is taken": {"x, a = limit.sum(a, 0, 2)", "do\nlocal b = 2\n  local x_ = a + b\nx = x_\nend"},
		"own parameter":      {"local a = limit.sum(a, 0, b)", "local a\ndo\nlocal a_ = a\n  local x = a_ + b\na = x\nend"},
		"call within":        {"p = limit.twice(3)", "do\nlocal a = 3\n  local y\ndo\nlocal b = a\n  local x = a + b\ny = x\nend\np = y\nend"},
		"exchange":           {"b, a = limit.swap(a, b)", ""},
		"exchange of others": {"a, b = limit.swap(a, b)", "a, b = b, a"},
		"fewer results":      {"p, q, r = limit.swap(a, b)", "p = b\nq = a"},
		"ignored result":     {"_, p = limit.swap(a, b)", "p = a"},
		"no result":          {"limit.act(k)", "do\nlocal a = k\n  redis.call('SET', a, 'x = a') -- a\nend"},
		"several lines":      {"local p,\n  q = limit.swap(a,\n  b)", "local p, q = b, a"},
		"missing":            {"p = limit.nothing(a)\nq()", "q()"},
		"missing, declared":  {"local p, q = limit.nothing(a)", "local p, q"},
		"field":              {"local p = limit.field + 1", "local p = limit.field + 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := strings.TrimSpace(file.inline(c.text + "\n")); got != c.want {
				t.Errorf("%s\nis\n%s\nwant\n%s", c.text, got, c.want)
			}
		})
	}
	if file.shared != "local shared = 1\n" {
		t.Errorf("shared: %q", file.shared)
	}
}

// TestNames checks that no name of a constant is declared by what its functions are put into, and that each field that a file
// uses has a value: Lua would find another value, or none.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, m := range everyKind() {
		declared := map[string]bool{}
		for _, l := range []*luaFile{holdsLua, bansLua} {
			for _, f := range l.functions {
				for _, name := range append(f.locals, f.parameters...) {
					declared[name] = true
				}
			}
		}
		for line := range strings.Lines(readText("decide")) {
			if names, ok := strings.CutPrefix(strings.TrimSpace(line), "local "); ok {
				names, _, _ = strings.Cut(names, " =")
				for _, name := range listed(names) {
					declared[strings.TrimSuffix(name, "_i")] = true
				}
			}
		}
		constants, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(m.lua.constants), "local "), " =")
		for _, name := range listed(constants) {
			if declared[name] {
				t.Errorf("%s: the constant %s is another variable in lua/decide.lua, lua/holds.lua or lua/bans.lua", m.Name, name)
			}
		}
		for _, f := range []Form{{}, {Own: true}, {Bans: Bans{1}}} {
			for _, limits := range [][]Member{{m}, {m, m}} {
				mapNames(Script(limits, f), func(name, field string) string {
					if field != "" && (name == "limit" || name == "ban" || name == "script") {
						t.Errorf("%s: %s.%s has no value", m.Name, name, field)
					}
					return ""
				})
			}
		}
	}
}

func everyKind() (all []Member) {
	for _, k := range append([]*Kind{Calendar}, Kinds...) {
		all = append(all, Member{Kind: k, Evaluator: k.New(Numbers{Count: 3, Period: 60_000_000, Burst: 3})})
	}
	return all
}

// TestCompiles has Lua read the scripts of as many limits as there may be: a function has at most 200 variables, and shares 60.
func TestCompiles(t *testing.T) {
	t.Parallel()
	compiler, err := exec.LookPath("luac5.1")
	if err != nil {
		t.Skip("no luac5.1")
	}
	for _, m := range everyKind() {
		limits := make([]Member, MaxLimits)
		for i := range limits {
			limits[i] = m
		}
		groups := make([]Group, MaxLimits/2)
		for i := range groups {
			groups[i] = Group{1, Bans{1, 2}}
		}
		for _, script := range []string{
			Script(limits, Form{}), Script(limits, Form{Own: true, Undeclared: true, Bans: Bans{1, 2}}), Script(limits[:len(groups)], Form{Groups: groups}),
		} {
			command := exec.Command(compiler, "-p", "-")
			command.Stdin = strings.NewReader(script)
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", m.Name, err, out)
			}
		}
	}
}

// TestLuacheck has luacheck read each file alone.
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
