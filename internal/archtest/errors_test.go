package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsUseStandardWords: the text of an error uses the words that a reader would search for, as log messages do.
func TestErrorsUseStandardWords(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if isTestPackage(p.Path) {
			continue
		}
		for _, f := range parse(t, p.files(p.GoFiles)) {
			n, errs := checkErrors(sources, f, below(p.Path, "providers/local") || below(p.Path, "bench"))
			found += n
			for _, err := range errs {
				t.Error(err)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d texts of errors were found: the rule does not see them", found)
	}
}

// checkErrors looks at what makes errors: errors.New, fmt.Errorf, schemas.Errorf, schemas.OpErrorf and schemas.Invalidf. boxes says that the package is
// of the provider local, whose sandboxes are boxes, or measures them.
func checkErrors(fset *token.FileSet, f *ast.File, boxes bool) (found int, errs []error) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		at, ok := map[string]int{"errors.New": 0, "fmt.Errorf": 0, "schemas.Errorf": 1, "schemas.OpErrorf": 2, "schemas.Invalidf": 1}[pkg.Name+"."+sel.Sel.Name]
		if !ok || len(call.Args) <= at {
			return true
		}
		text, ok := constant(call.Args[at])
		if !ok {
			return true
		}
		found++
		if word, instead := wrongInError(text, boxes); word != "" {
			errs = append(errs, fmt.Errorf("%s: the error %q says %q: %s", fset.Position(call.Pos()), text, word, instead))
		}
		return true
	})
	return found, errs
}

var (
	negated = regexp.MustCompile(`\b(\w+|%\w|%\[\d\]\w|") (?:is|are) no (\w+)|^(?:is|are) no (\w+)`)
	aFlag   = regexp.MustCompile(`--[a-z-]+`)
	aBox    = regexp.MustCompile(`(?i)\bbox(es)?\b`)
)

func wrongInError(text string, boxes bool) (word, instead string) {
	if word, instead = replaced(text); word != "" {
		return word, instead
	}
	for _, w := range wordsOfDocs {
		if word = w.pattern.FindString(text); word != "" {
			return word, w.instead
		}
	}
	for _, m := range negated.FindAllStringSubmatch(text, -1) {
		if !strings.EqualFold(m[1], "there") && m[2]+m[3] != "longer" && m[2]+m[3] != "more" {
			return m[0], "say what it is not: is not a URL"
		}
	}
	if word = aBox.FindString(aFlag.ReplaceAllString(text, "")); word != "" && !boxes {
		return word, "use sandbox, or instance: boxes are those of the provider local"
	}
	return "", ""
}

func TestErrorWordsBite(t *testing.T) {
	for text, want := range map[string]int{
		`errors.New("there is no such thing, and it is no longer kept")`:      0,
		`errors.New("the sandbox is gone: " + "reserve it again")`:            0,
		`schemas.Invalidf("url", "%q is no URL", u)`:                          1,
		`schemas.Invalidf("url", "is no URL", u)`:                             1,
		`schemas.OpErrorf(schemas.NotFound, "run", "the box is gone: %w", e)`: 1,
		`fmt.Errorf("tell the answer: %w", err)`:                              1,
		`errors.New("nobody knows")`:                                          1,
		`errors.New("it was made anew")`:                                      1,
		`errors.New(text)`:                                                    0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", "package a\nfunc f() { _ = "+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, errs := checkErrors(fset, f, false); len(errs) != want {
			t.Errorf("%s: %v; want %d", text, errs, want)
		}
	}
}
