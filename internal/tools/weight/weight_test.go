package main

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"
)

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
	want := report{"core": {8}, "core/guard": {1}, "internal/algorithm": {4}, "grpc": {1}}
	if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	const functions = module + "/core/a.go:10:\tAllow\t\t50.0%\n" + module + "/core/a.go:20:\tPeek\t0.0%\n" +
		module + "/internal/tools/weight/path/main.go:3:\tmain\t100.0%\ntotal\t(statements)\t50.0%\n"
	const blocks = "mode: atomic\n" + module + "/core/a.go:10.1,12.2 3 1\n" + module + "/core/a.go:12.2,13.2 4 0\n" +
		module + "/core/a.go:20.1,22.2 5 0\n" + module + "/core/b.go:1.1,2.2 1 1\n" + module + "/internal/tools/weight/path/main.go:3.1,4.1 9 1\n"
	first := read(functions, blocks)
	if got, want := first.count(), []int64{1, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("functions, files, statements: %v, want %v", got, want)
	}
	second := read(functions, "mode: atomic\n"+module+"/core/b.go:1.1,2.2 1 1\n"+module+"/core/c.go:1.1,2.2 1 1\n")
	if got, want := parts(nil).and(first).and(second).count(), []int64{1, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("functions, files, statements of both: %v, want %v", got, want)
	}
}
