package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue // tests alone
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) && !strings.HasPrefix(p.Doc, "The "+p.Path[strings.LastIndexByte(p.Path, '/')+1:]+" ") {
			t.Errorf("%s: its comment begins %q, not with %q", p.Path, p.Doc, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, p := range packages(t) {
		for part := range strings.SplitSeq(p.Path, "/") {
			switch part {
			case "util", "utils", "common", "helpers", "misc", "base", "impl", "types", "pkg", "core":
				t.Errorf("%s: a package is named after what it owns", p.Path)
			}
		}
		for _, f := range p.GoFiles {
			switch f {
			case "util.go", "utils.go", "helpers.go", "types.go", "common.go", "misc.go":
				t.Errorf("%s/%s: a file is named after what is in it", p.Path, f)
			}
		}
	}
}

func TestNothingHappensAtInitialisation(t *testing.T) {
	usedInits := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range parse(t, p.files(p.GoFiles)) {
			for _, err := range checkFile(p.Path, sources, f, usedInits) {
				t.Error(err)
			}
		}
	}
	for path := range inits {
		if !usedInits[path] {
			t.Errorf("rules_test.go: %s has no init function any more", path)
		}
	}
}

// checkFile looks for init functions and for package-level variables that may change.
// An exception stands beside the variable: //nolint:gochecknoglobals // and the reason why it never
// changes.
func checkFile(path string, fset *token.FileSet, f *ast.File, usedInits map[string]bool) (errs []error) {
	excused := map[int]bool{} // lines
	for _, g := range f.Comments {
		for _, c := range g.List {
			if _, reason, ok := strings.Cut(c.Text, "nolint:gochecknoglobals //"); ok && len(strings.TrimSpace(reason)) > 5 {
				excused[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	line := func(p token.Pos) int { return fset.Position(p).Line }
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil || d.Name.Name != "init" {
				continue
			}
			usedInits[path] = true
			if inits[path] == "" {
				errs = append(errs, fmt.Errorf("%s has an init function: what must happen first is called by whoever needs it", path))
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || constantInSpirit(d, v) || excused[line(d.Pos())] || excused[line(v.Pos())] || excused[line(v.End())] {
					continue
				}
				for _, n := range v.Names {
					errs = append(errs, fmt.Errorf("%s.%s is a variable of the package: make it a constant, a function or a field, "+
						"or say beside it why it never changes (//nolint:gochecknoglobals // why)", path, n.Name))
				}
			}
		}
	}
	return errs
}

// constantInSpirit recognises the variables that Go has no constants for: checks of an interface,
// errors, compiled patterns, embedded files.
func constantInSpirit(d *ast.GenDecl, v *ast.ValueSpec) bool {
	for i, n := range v.Names {
		if n.Name == "_" || strings.HasPrefix(n.Name, "Err") || strings.HasPrefix(n.Name, "err") {
			continue
		}
		if hasEmbed(d.Doc) || hasEmbed(v.Doc) {
			continue
		}
		if i < len(v.Values) && callsMustCompile(v.Values[i]) {
			continue
		}
		return false
	}
	return true
}

func hasEmbed(g *ast.CommentGroup) bool {
	if g == nil {
		return false
	}
	for _, c := range g.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

func callsMustCompile(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "MustCompile"
}

func TestInitialisationRulesBite(t *testing.T) {
	for text, want := range map[string]int{
		"package a\nfunc init() {}":                                      1,
		"package a\nvar cache = map[string]int{}":                        1,
		"package a\nvar (\n\ta int\n\tb, c = 1, 2\n)":                    3,
		"package a\nvar errX = 1\nvar ErrY = 2\nvar _ = 3":               0,
		"package a\nvar p = regexp.MustCompile(`a`)":                     0,
		"package a\nvar t = 1 //nolint:gochecknoglobals // read only":    0,
		"package a\nvar t = 1 //nolint:gochecknoglobals":                 1,
		"package a\n//go:embed a.txt\nvar s string":                      0,
		"package a\nfunc f() { var x int; _ = x }\nfunc (t T) init() {}": 0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if errs := checkFile("gateway", fset, f, map[string]bool{}); len(errs) != want {
			t.Errorf("%q: %v; want %d", text, errs, want)
		}
	}
}

// A test that is skipped says why, and never where the dependency is required.
func TestSkipsNameTheirReason(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range parse(t, append(p.files(p.TestGoFiles), p.files(p.XTestGoFiles)...)) {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if ok && (sel.Sel.Name == "SkipNow" || sel.Sel.Name == "Skip" && len(call.Args) == 0) {
					t.Errorf("%s: a skip without a reason", sources.Position(call.Pos()))
				}
				return true
			})
		}
	}
}
