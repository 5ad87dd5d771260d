package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExportedNames checks that every exported name has a doc comment, and that every
// Example can be shown as a program. Examples are for what users do, not for each name.
func TestExportedNames(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"core", "core/guard", "core/guard/adapter", "keyfunc", "nethttp", "gin", "echo", "echov5", "fiber", "fiberv3", "limittest", "otel"} {
		set := token.NewFileSet()
		names, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(folder), "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatal(folder, err)
		}
		var parsed []*ast.File
		for _, name := range names {
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, file)
		}
		pkg, err := doc.NewFromFiles(set, parsed, "github.com/redislimit/redislimit/"+folder)
		if err != nil {
			t.Fatal(err)
		}
		checker{t, pkg}.check()
	}
}

type checker struct {
	t   *testing.T
	pkg *doc.Package
}

func (c checker) check() {
	c.name("", c.pkg.Doc, c.pkg.Examples)
	for _, f := range c.pkg.Funcs {
		c.name(f.Name, f.Doc, f.Examples)
	}
	for _, typ := range c.pkg.Types {
		c.name(typ.Name, typ.Doc, typ.Examples)
		for _, f := range slices.Concat(typ.Funcs, typ.Methods) {
			c.name(f.Name, f.Doc, f.Examples)
		}
		c.values(slices.Concat(typ.Consts, typ.Vars))
		c.fields(typ)
	}
	c.values(slices.Concat(c.pkg.Consts, c.pkg.Vars))
}

func (c checker) name(name, comment string, examples []*doc.Example) {
	if comment == "" {
		c.t.Errorf("%s.%s has no doc comment", c.pkg.Name, name)
	}
	for _, example := range examples {
		if example.Play == nil {
			c.t.Errorf("%s: Example %s uses names of another file, so it cannot be shown as a program", c.pkg.Name, example.Name)
		}
	}
}

// values checks that each constant and variable has a comment, or its group has one.
func (c checker) values(values []*doc.Value) {
	for _, value := range values {
		for _, spec := range value.Decl.Specs {
			spec, ok := spec.(*ast.ValueSpec)
			if ok && spec.Doc == nil && value.Doc == "" {
				c.t.Errorf("%s.%s has no doc comment", c.pkg.Name, spec.Names[0].Name)
			}
		}
	}
}

// fields checks that each exported field has a comment, before it or on its line.
func (c checker) fields(typ *doc.Type) {
	for _, spec := range typ.Decl.Specs {
		spec, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range structure.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() && strings.TrimSpace(field.Doc.Text()+field.Comment.Text()) == "" {
					c.t.Errorf("%s.%s.%s has no doc comment", c.pkg.Name, typ.Name, name.Name)
				}
			}
		}
	}
}
