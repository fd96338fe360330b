package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestGoroutinesAreJoined: the code that starts a goroutine can wait for its end. A `go` statement is fine when its function is written
// out and its body closes a channel, sends on one or calls Done; sync.WaitGroup.Go and errgroup need no `go` statement at all. The rest
// stands in joinedElsewhere, with what waits for it.
func TestGoroutinesAreJoined(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		if isTestPackage(p.Path) || below(p.Path, "bench") {
			continue // they end with their test, or their measurement
		}
		for _, f := range parse(t, p.files(p.GoFiles)) {
			for at, fn := range unjoined(f) {
				key := p.Path + " " + fn
				used[key] = true
				if joinedElsewhere[key] == "" {
					t.Errorf("%s: nobody can wait for this goroutine: use WaitGroup.Go, or close a channel in it; if something else joins it, "+
						"say what in joinedElsewhere under %q", sources.Position(at), key)
				}
			}
		}
	}
	for key := range joinedElsewhere {
		if !used[key] {
			t.Errorf("rules_goroutines_test.go: %s starts no such goroutine any more", key)
		}
	}
}

// unjoined finds the go statements that do not signal their end, with the function that each stands in.
func unjoined(f *ast.File) map[token.Pos]string {
	found := map[token.Pos]string{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				if lit, ok := g.Call.Fun.(*ast.FuncLit); !ok || !tellsItsEnd(lit.Body) {
					found[g.Pos()] = nameOf(fn)
				}
			}
			return true
		})
	}
	return found
}

// tellsItsEnd reports whether a goroutine's body closes a channel, sends on one or calls Done.
func tellsItsEnd(body *ast.BlockStmt) (tells bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SendStmt:
			tells = true
		case *ast.CallExpr:
			switch f := n.Fun.(type) {
			case *ast.Ident:
				tells = tells || f.Name == "close"
			case *ast.SelectorExpr:
				tells = tells || f.Sel.Name == "Done" && len(n.Args) == 0 && !isReceived(body, n)
			}
		case *ast.GoStmt:
			return false // that is another one
		}
		return true
	})
	return tells
}

// isReceived reports whether call is the channel of a receive, as in <-ctx.Done().
func isReceived(body *ast.BlockStmt, call *ast.CallExpr) (is bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if u, ok := n.(*ast.UnaryExpr); ok && u.Op == token.ARROW && u.X == call {
			is = true
		}
		return true
	})
	return is
}

// nameOf returns a function's name, with the type of its receiver before it.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
			continue
		case *ast.IndexExpr:
			e = x.X
			continue
		case *ast.IndexListExpr:
			e = x.X
			continue
		case *ast.Ident:
			return x.Name + "." + fn.Name.Name
		}
		return fn.Name.Name
	}
}

// TestLifecycleHasNoGoroutines: it is verbs and decisions; other packages run them in a loop.
func TestLifecycleHasNoGoroutines(t *testing.T) {
	found := false
	for _, p := range packages(t) {
		if p.Path != "lifecycle" {
			continue
		}
		found = true
		for _, f := range parse(t, p.files(p.GoFiles)) {
			for _, at := range goroutines(f) {
				t.Errorf("%s: lifecycle starts no goroutines: its caller does", sources.Position(at))
			}
		}
	}
	if !found {
		t.Error("there is no package lifecycle")
	}
}

// goroutines finds the places that start a goroutine: go statements, and calls of a method Go.
func goroutines(f *ast.File) (at []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			at = append(at, n.Pos())
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

func TestGoroutineRulesBite(t *testing.T) {
	for body, want := range map[string]int{
		"go f()":                                         1,
		"go func() { f() }()":                            1,
		"go func() { <-ctx.Done() }()":                   1,
		"go func() { go func() { close(c) }() }()":       1,
		"go func() { defer close(done); f() }()":         0,
		"go func() { c <- f() }()":                       0,
		"go func() { defer all.Done(); <-ctx.Done() }()": 0,
		"var all sync.WaitGroup; all.Go(func() { f() })": 0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\nfunc (t *T) m() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		got := unjoined(f)
		if len(got) != want {
			t.Errorf("%s: %d, want %d", body, len(got), want)
		}
		for _, fn := range got {
			if fn != "T.m" {
				t.Errorf("%s: in %s", body, fn)
			}
		}
		if n := len(goroutines(f)); n == 0 && strings.Contains(body, "go ") || n == 0 && strings.Contains(body, ".Go(") {
			t.Errorf("%s starts no goroutine", body)
		}
	}
}
