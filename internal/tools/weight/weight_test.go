package main

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"
)

// TestRooms counts the lines of a small library. Comments, tests, tools and examples must not count, and Lua counts
// for the package above it.
func TestRooms(t *testing.T) {
	t.Parallel()
	code := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := rooms(fstest.MapFS{
		"core/a.go":                    code("// A comment.\npackage core\n\n/* of\nlines */\nvar s = `//\n\nno comment` // one beside\n\nfunc f() {\n\tg(1, // one\n\t\t2)\n}\n"),
		"core/a_test.go":               code("package core\n"),
		"core/guard/adapter/b.go":      code("package adapter\n"),
		"internal/algorithm/c.go":      code("package algorithm"),
		"internal/algorithm/lua/c.lua": code("-- A comment.\n--- rare\n\nlocal x = 1 -- one\n  -- another\nreturn '--'"),
		"internal/suite/d.go":          code("package suite\n"),
		"grpc/internal/suite/d.go":     code("package suite\n"),
		"grpc/d.go":                    code("package grpc\n"),
		"_examples/e.go":               code("package e\n"),
		".ci/tools/f.go":               code("package f\n"),
	})
	want := map[string]int{"core": 8, "core/guard/adapter": 1, "internal/algorithm": 4, "grpc": 1}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// TestAddCalls checks that the calls are added without moving any line, and to methods and named functions only.
func TestAddCalls(t *testing.T) {
	t.Parallel()
	const before = "// Package a is one.\npackage a // here\n\nimport \"fmt\"\n\n" +
		"func (m *m[K, V]) f() { go func() { fmt.Print() }() }\n\nfunc g() {\n}\n"
	const after = "// Package a is one.\npackage a; import weighttrace \"" + module +
		"/internal/tools/weight/trace\" // here\n\nimport \"fmt\"\n\n" +
		"func (m *m[K, V]) f() {weighttrace.Enter(1); go func() { fmt.Print() }() }\n\nfunc g() {weighttrace.Enter(2);\n}\n"
	all := []function{{"other.go", "f"}}
	got, err := addCalls("a.go", []byte(before), &all)
	if err != nil || string(got) != after {
		t.Errorf("got %s\n%v, want\n%s", got, err, after)
	}
	if want := []function{{"other.go", "f"}, {"a.go", "m.f"}, {"a.go", "g"}}; !slices.Equal(all, want) {
		t.Errorf("got functions %v, want %v", all, want)
	}
}

// TestWalks reads a path of two goroutines that take turns. The first one visits a/a.go, b/b.go and a/a.go, and the
// second one b/b.go and b/c.go.
func TestWalks(t *testing.T) {
	t.Parallel()
	functions := []function{{"a/a.go", "f"}, {"b/b.go", "g"}, {"b/c.go", "h"}, {"a/a.go", "i"}}
	entered, err := read("7 0\n9 1\n7 1\n7 1\n9 2\n7 3\n", functions)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]walk{"": {4, 3, 5, 2}, "a": {2, 1, 1, 0}, "b": {2, 2, 3, 1}}
	if got := walks(entered); !maps.Equal(got, want) {
		t.Errorf("got functions, files, switches and returns %v, want %v", got, want)
	}
	if _, err := read("7\n", functions); err == nil {
		t.Error("got no error for a line with one number, want one")
	}
}

// TestSummary checks the median and the range of three runs, and that a walk of only one run is left out.
func TestSummary(t *testing.T) {
	t.Parallel()
	runs := []map[string]walk{{"": {3, 1}}, {"": {1, 1}, "rare": {1}}, {"": {2, 1}}}
	if got, want := common(runs), []string{""}; !slices.Equal(got, want) {
		t.Errorf("got common walks %q, want %q", got, want)
	}
	if got, want := summary(runs, ""), []string{"2 (1-3)", "1", "0", "0"}; !slices.Equal(got, want) {
		t.Errorf("got summary %q, want %q", got, want)
	}
}
