package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestPlainWords counts the words of plainWords in the comments and declared names of each package, and in each document. A count may
// only fall: plainBudget and documentBudget hold it, and a change that lowers one pastes the printed row. With -v it lists what is counted:
//
//	go test ./internal/archtest -run TestPlainWords/gateway$ -v
func TestPlainWords(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		if len(p.GoFiles)+len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		seen[p.Path] = true
		t.Run(p.Path, func(t *testing.T) {
			var got wordCount
			for _, f := range parse(t, p.files(slices.Concat(p.GoFiles, p.IgnoredGoFiles))) {
				got.Comments += count(t, commentsOf(f))
				got.Names += count(t, namesOf(f))
			}
			for _, f := range parse(t, p.files(p.testsOnly())) {
				got.Tests += count(t, commentsOf(f))
			}
			if want := plainBudget[p.Path]; got != want {
				t.Errorf("{Comments, Names, Tests} are %v, the budget is %v. If no number grew, paste this row into rules_budget_test.go:\n%s", got, want, got.row(p.Path))
			}
		})
	}
	for _, file := range markdown(t) {
		name := filepath.ToSlash(strings.TrimPrefix(file, top+string(filepath.Separator)))
		if seen[name] = true; name == "CHANGELOG.md" {
			continue // what was written at the time
		}
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := count(t, [][2]string{{name, notProse.ReplaceAllString(string(text), "")}})
			if want := documentBudget[name]; got != want {
				t.Errorf("%d words, the budget is %d. If it is less, paste this row into rules_budget_test.go: %q: %d,", got, want, name, got)
			}
		})
	}
	for name := range plainBudget {
		if !seen[name] {
			t.Errorf("rules_budget_test.go: there is no package %s any more", name)
		}
	}
	for name := range documentBudget {
		if !seen[name] {
			t.Errorf("rules_budget_test.go: there is no document %s any more", name)
		}
	}
}

// wordCount is the count of one package: production comments, declared names of production, comments of tests.
type wordCount struct{ Comments, Names, Tests int }

func (n wordCount) row(path string) string {
	if n == (wordCount{}) {
		return fmt.Sprintf("(no row: delete the one of %q)", path)
	}
	return fmt.Sprintf("\t%q: {%d, %d, %d},", path, n.Comments, n.Names, n.Tests)
}

func (p pkg) testsOnly() []string {
	return slices.Concat(p.TestGoFiles, p.XTestGoFiles)
}

// count returns how many words of plainWords the texts have; with -v it lists them, each with the first part of its text, where it is.
func count(t *testing.T, texts [][2]string) (n int) {
	t.Helper()
	for _, text := range texts {
		for _, w := range plainWords {
			for _, found := range w.pattern.FindAllString(text[1], -1) {
				if n++; testing.Verbose() {
					t.Logf("%s: %q: %s", text[0], found, w.instead)
				}
			}
		}
	}
	return n
}

func commentsOf(f *ast.File) (texts [][2]string) {
	if !ast.IsGenerated(f) {
		for _, g := range f.Comments {
			texts = append(texts, [2]string{position(g.Pos()), g.Text()})
		}
	}
	return texts
}

// namesOf returns the names that f declares for its package, split into words.
func namesOf(f *ast.File) (texts [][2]string) {
	if !ast.IsGenerated(f) {
		for _, id := range declared(f) {
			texts = append(texts, [2]string{position(id.Pos()), humps.ReplaceAllString(id.Name, "$1 $2")})
		}
	}
	return texts
}

var humps = regexp.MustCompile(`([a-z0-9])([A-Z])`)

func position(p token.Pos) string { return sources.Position(p).String() }

func TestPlainWordsBite(t *testing.T) {
	for text, want := range map[string]wordCount{
		"// F tells whoever reads.\nfunc F() {}":                      {Comments: 2},
		"// F goes\n// on.\nfunc heardTold() { told := 1; _ = told }": {Comments: 1, Names: 2},
		"// F reports the rest to the caller.\nfunc F() {}":           {},
		"//nolint:x // told\nfunc F() {}":                             {},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := (wordCount{Comments: count(t, commentsOf(f)), Names: count(t, namesOf(f))}); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestDocumentationHasItsBudget counts the words of all documentation but docs/PROOFS.md, which is generated. The count may only fall:
// a change that lowers it by more than 200 words lowers documentationBudget too.
func TestDocumentationHasItsBudget(t *testing.T) {
	words := 0
	for _, file := range markdown(t) {
		name := filepath.ToSlash(strings.TrimPrefix(file, top+string(filepath.Separator)))
		if !documentation(name) {
			continue
		}
		words += wordsOf(readFile(t, file))
	}
	if words > documentationBudget || words < documentationBudget-200 {
		t.Errorf("the documentation has %d words, the budget is %d. If it is less, set documentationBudget in rules_budget_test.go to %d", words, documentationBudget, words)
	}
}

// wordsOf counts words: what stands between spaces and has a letter or a digit. Bars of tables and marks of lists are none.
func wordsOf(text string) (n int) {
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// documentation reports whether the words of a document count: those of its root and of docs.
func documentation(name string) bool {
	switch name {
	case "README.md", "CONTRIBUTING.md", "SECURITY.md":
		return true
	case "docs/PROOFS.md":
		return false
	}
	return strings.HasPrefix(name, "docs/")
}
