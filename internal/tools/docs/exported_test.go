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

// shownElsewhere names the Example that shows an exported name, for names that make no
// sense alone.
var shownElsewhere = map[string]string{
	"guard.Adapter.New":      "Adapter",
	"guard.Adapter.Key":      "Adapter",
	"guard.Adapter.OnDenied": "Adapter",
	"guard.Adapter.OnError":  "Adapter",
	"guard.Guard":            "Adapter",
	"guard.Guard.Check":      "Adapter",
	"guard.Guard.Finish":     "Adapter",
	"guard.Guard.Settles":    "Adapter",
	"guard.Handlers":         "Adapter",
	"guard.Handlers.For":     "Adapter",
	"guard.Header":           "Adapter",
	"guard.BytesHeader":      "Adapter",
	"guard.Seen":             "Adapter",
	"guard.Seen.Logger":      "Adapter",
	"guard.Seen.Result":      "Adapter",
	"guard.Seen.SetCost":     "Adapter",
	"guard.Verdict":          "Adapter",
}

// TestExamples checks that every exported function, type and method has an Example,
// and that every exported name has a doc comment.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"core", "core/guard", "keyfunc", "nethttp", "gin", "echo", "echov5", "fiber", "fiberv3", "limittest"} {
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
		c := checker{t, pkg, map[string]bool{}}
		c.check()
	}
}

type checker struct {
	t     *testing.T
	pkg   *doc.Package
	shown map[string]bool // the names that have an Example
}

func (c checker) check() {
	c.name("", c.pkg.Doc, append(c.pkg.Examples, c.all()...))
	for _, typ := range c.pkg.Types {
		c.shown[typ.Name] = len(typ.Examples) > 0
	}
	c.funcs(c.pkg.Funcs)
	for _, typ := range c.pkg.Types {
		var examples []*doc.Example
		for _, f := range slices.Concat(typ.Funcs, typ.Methods) {
			examples = append(examples, f.Examples...)
		}
		c.name(typ.Name, typ.Doc, append(examples, typ.Examples...))
		c.funcs(typ.Funcs)
		for _, method := range typ.Methods {
			if method.Name == "String" || method.Name == "Error" || method.Name == "Format" { // fmt calls them
				method.Examples = append(method.Examples, typ.Examples...)
			}
			c.name(typ.Name+"."+method.Name, method.Doc, method.Examples)
		}
		c.values(typ.Consts)
		c.values(typ.Vars)
		c.fields(typ)
	}
	c.values(c.pkg.Consts)
	c.values(c.pkg.Vars)
}

func (c checker) funcs(funcs []*doc.Func) {
	for _, f := range funcs {
		c.name(f.Name, f.Doc, f.Examples)
	}
}

// all returns the Examples of the package's functions and types. A package that has
// some needs no Example of its own.
func (c checker) all() []*doc.Example {
	var examples []*doc.Example
	for _, f := range c.pkg.Funcs {
		examples = append(examples, f.Examples...)
	}
	for _, typ := range c.pkg.Types {
		examples = append(examples, typ.Examples...)
	}
	return examples
}

func (c checker) name(name, comment string, examples []*doc.Example) {
	if comment == "" {
		c.t.Errorf("%s.%s has no doc comment", c.pkg.Name, name)
	}
	if len(examples) == 0 && !c.shown[shownElsewhere[c.pkg.Name+"."+name]] {
		c.t.Errorf("%s.%s has no Example", c.pkg.Name, name)
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
