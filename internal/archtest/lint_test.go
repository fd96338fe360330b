package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNolintNamesALinterThatRuns: a directive for a linter that .golangci.yaml has off excuses nothing, and is
// read as if it did.
func TestNolintNamesALinterThatRuns(t *testing.T) {
	off := lintersOff(t)
	for _, p := range packages(t) {
		for _, f := range parse(t, p.allFiles()) {
			for _, err := range checkDirectives(sources, f, off) {
				t.Error(err)
			}
		}
	}
}

func checkDirectives(fset *token.FileSet, f *ast.File, off map[string]bool) (errs []error) {
	for _, g := range f.Comments {
		for _, c := range g.List {
			list, ok := strings.CutPrefix(c.Text, "//nolint:")
			if !ok {
				continue
			}
			list, _, _ = strings.Cut(list, " ")
			for name := range strings.SplitSeq(list, ",") {
				if off[name] {
					errs = append(errs, fmt.Errorf("%s: %s is off in .golangci.yaml: remove it from the directive", fset.Position(c.Pos()), name))
				}
			}
		}
	}
	return errs
}

// lintersOff reads which linters .golangci.yaml disables.
func lintersOff(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, ".golangci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\n  disable:\n")
	list, _, _ = strings.Cut(list, "\n  settings:\n")
	off := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    - (\w+)`).FindAllStringSubmatch(list, -1) {
		off[m[1]] = true
	}
	if len(off) < 10 || off["errcheck"] {
		t.Fatalf(".golangci.yaml is not read as it is meant: %v", off)
	}
	return off
}

func TestNolintRuleBites(t *testing.T) {
	for text, want := range map[string]int{
		"package a\nvar a = 1 //nolint:wrapcheck // why":       1,
		"package a\nvar a = 1 //nolint:wrapcheck,mnd // why":   2,
		"package a\nvar a = 1 //nolint:gosec,wrapcheck // why": 1,
		"package a\nvar a = 1 //nolint:gosec // wrapcheck,mnd": 0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if errs := checkDirectives(fset, f, lintersOff(t)); len(errs) != want {
			t.Errorf("%q: %v; want %d", text, errs, want)
		}
	}
}
