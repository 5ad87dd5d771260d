package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A function is a function of the library, and its file relative to the module's root.
type function struct{ file, name string }

// instrument writes a copy of each file of the library to dir. In the copy, each named function first calls
// trace.Enter with its number. instrument returns the functions in the order of their numbers, and the file for
// -overlay.
func instrument(dir string) (functions []function, overlay string, err error) {
	replace := make(map[string]string)
	err = library(os.DirFS("."), func(name string, text []byte) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		changed, err := addCalls(name, text, &functions)
		if err != nil || changed == nil {
			return err
		}
		original, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), path.Base(name)))
		return os.WriteFile(replace[original], changed, 0o600)
	})
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return functions, overlay, os.WriteFile(overlay, text, 0o600)
}

// addCalls returns the text of a file with a call of trace.Enter at the beginning of each function. It returns nil
// if the file has no functions. It appends the functions to all.
func addCalls(name string, text []byte, all *[]function) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	done := 0
	insert := func(after token.Pos, call string) {
		end := files.Position(after).Offset
		out.Write(text[done:end])
		out.WriteString(call)
		done = end
	}
	insert(file.Name.End(), fmt.Sprintf("; import weighttrace %q", module+"/internal/tools/weight/trace"))
	before := len(*all)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		insert(f.Body.Lbrace+1, fmt.Sprintf("weighttrace.Enter(%d);", len(*all)))
		*all = append(*all, function{file: name, name: receiver(f) + f.Name.Name})
	}
	if len(*all) == before {
		return nil, nil
	}
	out.Write(text[done:])
	return out.Bytes(), nil
}

// receiver returns the name of a method's type, followed by a dot.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		case *ast.IndexListExpr:
			t = inner.X
		case *ast.Ident:
			return inner.Name + "."
		default:
			return "?."
		}
	}
}

// library calls visit with each Go and Lua file of the library, except tests, tools and demonstrations.
func library(root fs.FS, visit func(name string, text []byte) error) error {
	return fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			hidden := base != "." && strings.ContainsAny(base[:1], "._")
			if hidden || path.Base(path.Dir(name)) == "internal" && aside[base] {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(name, "_test.go"), path.Ext(name) != ".go" && path.Ext(name) != ".lua":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return visit(name, text)
	})
}

// aside has the subfolders of internal folders that are not part of the library.
var aside = map[string]bool{"demo": true, "suite": true, "testkit": true, "tools": true}
