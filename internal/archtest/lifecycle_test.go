package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	diagram  = regexp.MustCompile("(?s)```mermaid\n(.*?)```")
	edge     = regexp.MustCompile(`(?m)^ *(\S+ --> \S+)(?: :.*)?$`)
	stepRow  = regexp.MustCompile("(?m)^\\| `([^`]+ --> [^`]+)` \\| (.*) \\|$")
	verbName = regexp.MustCompile("`((?:lifecycle|streams)\\.\\w+)`")
)

// TestEveryStepOfAStateHasItsVerb: docs/STATES.md names for each step of a call, of a job and of an instance the function that
// writes it, and there is that function.
func TestEveryStepOfAStateHasItsVerb(t *testing.T) {
	verbs := map[string]bool{}
	for _, p := range packages(t) {
		if p.Path == "lifecycle" || p.Path == "streams" {
			for _, name := range functions(t, p) {
				verbs[p.Path+"."+name] = true
			}
		}
	}
	text := read(t, "docs/STATES.md")
	for _, of := range []string{"## A call\n", "## A background job\n", "## An instance of a sandbox\n"} {
		_, part, found := strings.Cut(text, of)
		if !found {
			t.Fatalf("docs/STATES.md has no part %q", of)
		}
		part, _, _ = strings.Cut(part, "\n## ")
		for _, err := range checkSteps(part, verbs) {
			t.Errorf("docs/STATES.md: %s: %v", strings.TrimSpace(of), err)
		}
	}
}

// checkSteps compares the diagrams of a text with its table of steps.
func checkSteps(text string, verbs map[string]bool) (errs []error) {
	drawn := map[string]bool{}
	for _, d := range diagram.FindAllStringSubmatch(text, -1) {
		for _, e := range edge.FindAllStringSubmatch(d[1], -1) {
			if !strings.HasSuffix(e[1], "--> [*]") { // an end is no step
				drawn[e[1]] = true
			}
		}
	}
	if len(drawn) == 0 {
		return []error{fmt.Errorf("it has no diagram")}
	}
	told := map[string]bool{}
	for _, row := range stepRow.FindAllStringSubmatch(text, -1) {
		step, by := row[1], row[2]
		if !drawn[step] {
			errs = append(errs, fmt.Errorf("%s is no step of the diagram", step))
		}
		told[step] = true
		names := verbName.FindAllStringSubmatch(by, -1)
		if len(names) == 0 && by != "the log" {
			errs = append(errs, fmt.Errorf("%s has no verb", step))
		}
		for _, n := range names {
			if !verbs[n[1]] {
				errs = append(errs, fmt.Errorf("%s: there is no function %s", step, n[1]))
			}
		}
	}
	for step := range drawn {
		if !told[step] {
			errs = append(errs, fmt.Errorf("%s is in no row of the table of verbs", step))
		}
	}
	return errs
}

func TestCheckStepsBites(t *testing.T) {
	const drawn = "```mermaid\nstateDiagram-v2\n    a --> b : why\n    b --> [*]\n```\n"
	verbs := map[string]bool{"lifecycle.Go": true}
	if errs := checkSteps(drawn+"| `a --> b` | `lifecycle.Go` |\n", verbs); len(errs) > 0 {
		t.Error(errs)
	}
	for _, table := range []string{"", "| `a --> b` | somebody |\n", "| `a --> b` | `lifecycle.Stop` |\n",
		"| `a --> b` | `lifecycle.Go` |\n| `a --> c` | `lifecycle.Go` |\n"} {
		if len(checkSteps(drawn+table, verbs)) == 0 {
			t.Errorf("nobody minds the table %q", table)
		}
	}
}

// functions are the exported functions of a package.
func functions(t *testing.T, p pkg) (names []string) {
	t.Helper()
	for _, f := range parse(t, p.files(p.GoFiles)) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.IsExported() {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// TestVerbsStartNothing: state changes are verbs and decisions. What runs for itself is in workers, delivery and the gateway.
func TestVerbsStartNothing(t *testing.T) {
	seen := false
	for _, p := range packages(t) {
		if p.Path != "lifecycle" {
			continue
		}
		for _, f := range parse(t, p.files(p.GoFiles)) {
			seen = true
			for _, what := range startsSomething(f) {
				t.Errorf("lifecycle %s: keep what runs for itself in the package that owns it", what)
			}
		}
	}
	if !seen {
		t.Error("there is no package lifecycle")
	}
}

// startsSomething lists what a file starts: goroutines, and services by their method Run.
func startsSomething(f *ast.File) (found []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "starts a goroutine")
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Go", "NewTicker", "AfterFunc"}, s.Sel.Name) {
				found = append(found, "calls "+s.Sel.Name)
			}
		case *ast.FuncDecl:
			if n.Recv != nil && n.Name.Name == "Run" {
				found = append(found, "has a service with Run")
			}
		}
		return true
	})
	return found
}

func TestStartsSomethingBites(t *testing.T) {
	for _, body := range []string{"go f()", "g.Go(f)", "time.NewTicker(1)"} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(startsSomething(f)) == 0 {
			t.Errorf("nobody minds %s", body)
		}
	}
}
