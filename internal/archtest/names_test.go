package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestReplacedNames: what has been given the field's word does not get its old name back.
func TestReplacedNames(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range parse(t, p.files(p.GoFiles)) {
			for _, id := range declared(f) {
				if instead := replacedName(id.Name); instead != "" {
					t.Errorf("%s: %s: %s", sources.Position(id.Pos()), id.Name, instead)
				}
			}
		}
	}
}

func replacedName(name string) (instead string) {
	for _, n := range replacedNames {
		if n.pattern.MatchString(name) {
			return n.instead
		}
	}
	return ""
}

// declared are the names that a file declares for its package: types, functions, methods, fields, constants, variables.
func declared(f *ast.File) (names []*ast.Ident) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
			return false // what is in a function is its own
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		}
		return true
	})
	return names
}

func TestReplacedNamesBite(t *testing.T) {
	for text, want := range map[string]int{
		"type Pair struct { Via string; fine int }":   2,
		"const Broken = 1":                            1,
		"func (s *Store) sceneOf() { Broken := 1 }":   1,
		"type Entry struct { ReportedBy, Owner int }": 0,
		"func pair() {}":                              0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, id := range declared(f) {
			if replacedName(id.Name) != "" {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
