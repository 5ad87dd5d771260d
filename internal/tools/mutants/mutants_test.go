package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApply applies a mutant to code whose names, white space and files have changed.
func TestApply(t *testing.T) { // not parallel: it changes the working directory
	const old, broken = "	if b.held > limit {\n		b.held = min(limit, b.most)", "	if b.held > limit {\n		b.held += 1"
	for _, c := range []struct {
		name, path, code, want string // want is the text of the mutant, or "" if it does not apply
	}{
		{
			"as it is", "a/b/c.go", "func f() {\n	if b.held > limit {\n		b.held = min(limit, b.most)\n	}\n}\n",
			"func f() {\n	if b.held > limit {\n		b.held += 1\n	}\n}\n",
		},
		{
			"receiver, field and local name", "a/b/c.go", "	if bucket.reserved > limit {\n		bucket.reserved = min(limit, bucket.most)\n",
			"	if bucket.reserved > limit {\n		bucket.reserved += 1\n",
		},
		{
			"all names, in another file", "a/b/d.go", "	if x.y >  z {\n		x.y = min(z, x.w)\n",
			"	if x.y > z {\n		x.y += 1\n",
		},
		{
			"another folder beside it", "a/e/c.go", "	if b.held > limit {\n		b.held = min(limit, b.most)\n",
			"	if b.held > limit {\n		b.held += 1\n",
		},
		{
			"the place with more of the names", "a/b/c.go",
			"	if b.held > most {\n		b.held = min(most, b.most)\n	if x.y > z {\n		x.y = min(z, x.w)\n",
			"	if b.held > most {\n		b.held += 1\n	if x.y > z {\n		x.y = min(z, x.w)\n",
		},
		{"two places", "a/b/c.go", strings.Repeat("	if bucket.held > limit {\n		bucket.held = min(limit, bucket.most)\n", 2), ""},
		{"another operator", "a/b/c.go", "	if b.held >= limit {\n		b.held = min(limit, b.most)\n", ""},
		{"another function", "a/b/c.go", "	if b.held > limit {\n		b.held = max(limit, b.most)\n", ""},
		{"one name has become two", "a/b/c.go", "	if b.held > limit {\n		b.held = min(other, b.most)\n", ""},
		{"a test", "a/b/c_test.go", "	if b.held > limit {\n		b.held = min(limit, b.most)\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "a/b/other.go", "package b\n")
			write(t, c.path, c.code)
			m := mutant{in: "a/b/c.go", old: old, new: broken}
			got, err := m.apply()
			switch {
			case c.want == "" && !errors.Is(err, errStale):
				t.Errorf("got error %v, text %q, want errStale", err, got.text)
			case c.want != "" && (err != nil || got.path != c.path || string(got.text) != c.want):
				t.Errorf("got error %v, %s:\n%s\nwant no error, %s:\n%s", err, got.path, got.text, c.path, c.want)
			}
		})
	}
}

// TestApplyLua applies a mutant to Lua code with names that are keywords of Go. Another keyword of Lua must not match.
func TestApplyLua(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "lua/a.lua", "if type and now >= go then return end\n")
	m := mutant{in: "lua", old: "if type and t >= go then", new: "if type and t > go then"}
	if got, err := m.apply(); err != nil || string(got.text) != "if type and now > go then return end\n" {
		t.Errorf("got error %v, text %q, want the code with > in place of >=", err, got.text)
	}
	m.old = "if type or t >= go then"
	if _, err := m.apply(); !errors.Is(err, errStale) {
		t.Errorf("another keyword: got error %v, want errStale", err)
	}
}

// TestUpdate checks that updateLists changes the names of the mutants that are found by other names, and nothing else.
func TestUpdate(t *testing.T) {
	t.Chdir(t.TempDir())
	const before = "# A list.\nin a\ntest ./a\n== one\n-b.held > limit &&\n-	c\n" +
		"+true ||\n+	limit > 0 && c\nsame No test.\n== two\n-d()\n+\n"
	write(t, folder+"/a.txt", before)
	write(t, "a/a.go", "if b.held > most &&\n	c {\n	d()\n")
	all, err := parse(before)
	if err != nil {
		t.Fatal(err)
	}
	if err := updateLists(all); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(folder + "/a.txt")
	const want = "# A list.\nin a\ntest ./a\n== one\n-b.held > most &&\n-	c\n" +
		"+true ||\n+	most > 0 && c\nsame No test.\n== two\n-d()\n+\n"
	if err != nil || string(got) != want {
		t.Errorf("got error %v and the list\n%s\nwant\n%s", err, got, want)
	}
}

// TestLists checks that lines returns the text by which -update finds each mutant in the lists.
func TestLists(t *testing.T) {
	t.Parallel()
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	files, _ := lists.ReadDir(".")
	for _, file := range files {
		list, _ := lists.ReadFile(file.Name())
		text.Write(append(list, '\n'))
	}
	for _, m := range all {
		if n := strings.Count(text.String(), m.lines()); n != 1 {
			t.Errorf("%s: got %d places in the lists, want 1, for\n%s", m.name, n, m.lines())
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}
