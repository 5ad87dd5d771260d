package main

import (
	"maps"
	"slices"
	"strings"
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
	want := budget{"core": {8}, "core/guard": {1}, "internal/algorithm": {4}, "grpc": {1}}
	if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	allowed, err := parse("core 100\npath:allow 10 5 200\npath:lease 20 9 500\n")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := parse(allowed.String()); err != nil || !maps.EqualFunc(again, allowed, slices.Equal) {
		t.Errorf("%v is read back as %v, %v", allowed, again, err)
	}
	for name, c := range map[string]struct {
		now   budget
		grown []string
	}{
		"as it was":        {allowed, nil},
		"smaller":          {budget{"core": {99}, "path:allow": {9, 9, 199}}, nil},
		"a room":           {budget{"core": {101}}, []string{"core has grown from 100 to 101"}},
		"a new room":       {budget{"core/guard": {1}}, []string{"core/guard has grown from 0 to 1"}},
		"more functions":   {budget{"path:allow": {11, 6, 200}}, nil},
		"paths":            {budget{"path:allow": {10, 5, 201}, "path:lease": {20, 9, 511}}, []string{"path:allow", "path:lease has grown from 500 to 511"}},
		"what may differ":  {budget{"path:lease": {20, 9, 510}}, nil},
		"more than a room": {budget{"core": {101}, "internal/server": {1}}, []string{"core has", "internal/server has"}},
	} {
		text := ""
		if err := c.now.within(allowed); err != nil {
			text = err.Error()
		}
		if lines := strings.Count(text, " has grown"); lines != len(c.grown) {
			t.Errorf("%s: %d have grown, want %d: %s", name, lines, len(c.grown), text)
		}
		for _, want := range c.grown {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %q", name, want, text)
			}
		}
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
