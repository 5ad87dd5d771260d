package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExportedNames checks that every exported name has a doc comment, and that every Example can be shown as a complete
// program. It does not require an Example for each name, because Examples show what users do.
func TestExportedNames(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"admin", "core", "core/guard", "core/guard/adapter", "keyfunc", "nethttp", "gin", "echo", "echov5", "fiber", "fiberv3", "grpc", "limittest", "otel"} {
		names, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(folder), "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatal(folder, err)
		}
		introduced := false
		for _, name := range names {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				for _, example := range doc.Examples(file) {
					if example.Play == nil {
						t.Errorf("%s: got Example %s, which uses names of another file, want one that can be shown as a program", folder, example.Name)
					}
				}
				continue
			}
			introduced = introduced || file.Doc != nil
			for _, name := range undocumented(file) {
				t.Errorf("%s: got no doc comment for %s, want one", set.Position(name.Pos()), name.Name)
			}
		}
		if !introduced {
			t.Errorf("%s: got no package comment, want one", folder)
		}
	}
}

// undocumented returns the exported names of a file that have no comment. The comment of a group counts for all names in
// the group, and a field may have its comment on the same line.
func undocumented(file *ast.File) (names []*ast.Ident) {
	check := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		for _, comment := range comments {
			if comment.Text() != "" {
				return
			}
		}
		if name.IsExported() {
			names = append(names, name)
		}
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiver.MatchString(types.ExprString(d.Recv.List[0].Type)) {
				check(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					check(s.Names[0], s.Doc, d.Doc)
				case *ast.TypeSpec:
					check(s.Name, s.Doc, d.Doc)
					structure, ok := s.Type.(*ast.StructType)
					for i := 0; ok && s.Name.IsExported() && i < len(structure.Fields.List); i++ {
						if field := structure.Fields.List[i]; len(field.Names) > 0 {
							check(field.Names[0], field.Doc, field.Comment)
						}
					}
				}
			}
		}
	}
	return names
}

// receiver matches an exported receiver type.
var receiver = regexp.MustCompile(`^\*?[A-Z]`)
