package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLogStyle: a message is constant, so that it can be searched for; what varies is an attribute, whose key is in
// snake case, and for an error always the same; and neither a message nor the help of a flag uses a word that has been replaced.
func TestLogStyle(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if isTestPackage(p.Path) {
			continue
		}
		for _, f := range parse(t, p.files(p.GoFiles)) {
			n, errs := checkLogs(sources, f)
			found += n
			for _, err := range append(errs, checkHelp(sources, f)...) {
				t.Error(err)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d log lines were found: the rule does not see them", found)
	}
}

var (
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	lastSign  = regexp.MustCompile(`[.!:;,\s]$`)
	article   = regexp.MustCompile(`^(?i:a|an|the|it|its|there|what|who) `)
)

// checkLogs looks at the calls of a logger: Debug, Info, Warn and Error of something that is named log, Log, logger or
// slog, or made by With.
func checkLogs(fset *token.FileSet, f *ast.File) (found int, errs []error) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isLogger(sel.X) {
			return true
		}
		args := call.Args
		switch sel.Sel.Name {
		case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
			args = args[min(1, len(args)):]
		case "Debug", "Info", "Warn", "Error":
		default:
			return true
		}
		if len(args) == 0 {
			return true // another Error
		}
		found++
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("%s: %s", fset.Position(call.Pos()), fmt.Sprintf(format, a...)))
		}
		message, ok := constant(args[0])
		switch {
		case !ok:
			bad("the message is put together: make it constant, and what varies an attribute")
		case lastSign.MatchString(message) || strings.ContainsAny(message, "\n%"):
			bad("the message %q ends with a sign, or has a line break or a %% in it", message)
		case article.MatchString(message):
			bad("the message %q begins with an article: begin with what it is about, as in \"lease not renewed, retrying\"", message)
		default:
			if word, instead := replaced(message); word != "" {
				bad("the message %q says %q: %s", message, word, instead)
			}
		}
		for i := 1; i < len(args); i += 2 {
			if _, isCall := args[i].(*ast.CallExpr); isCall || call.Ellipsis.IsValid() && i == len(args)-1 {
				i-- // an attribute in one piece, or a list of them
				continue
			}
			if key, ok := constant(args[i]); !ok || !snakeCase.MatchString(key) {
				bad("the key of attribute %d is %q: use a constant in snake_case", (i+1)/2, key)
			} else if key == "err" {
				bad("an error is under %q: whoever searches the log knows one key", "error")
			}
		}
		return true
	})
	return found, errs
}

func isLogger(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name == "log" || x.Name == "logger" || x.Name == "slog"
	case *ast.SelectorExpr:
		return x.Sel.Name == "log" || x.Sel.Name == "Log" || x.Sel.Name == "logger"
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "With" && isLogger(sel.X)
	}
	return false
}

// constant returns the value of a string literal or of several that are added. It is false for anything else.
func constant(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		return s, err == nil && x.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := constant(x.X)
		b, also := constant(x.Y)
		return a + b, ok && also && x.Op == token.ADD
	}
	return "", false
}

// checkHelp looks for replaced words in the help of flags and commands, which is in struct tags.
func checkHelp(fset *token.FileSet, f *ast.File) (errs []error) {
	ast.Inspect(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag, err := strconv.Unquote(field.Tag.Value)
		if err != nil || !strings.Contains(tag, `help:"`) {
			return true
		}
		if word, instead := replaced(tag); word != "" {
			errs = append(errs, fmt.Errorf("%s: the help says %q: %s", fset.Position(field.Pos()), word, instead))
		}
		return true
	})
	return errs
}

// replaced returns the first word of text that is no longer used for operators, and what to use instead; both are "" if there is none.
func replaced(text string) (word, instead string) {
	for _, w := range replacedWords {
		if found := w.pattern.FindString(text); found != "" {
			return found, w.instead
		}
	}
	return "", ""
}

func TestLogRulesBite(t *testing.T) {
	for text, want := range map[string]int{
		`log.Info("fine", "call", id, "error", err)`:            0,
		`log.Info("fine", "call", id, "err", err)`:              1,
		`s.Log.Warn("fine " + "too", slog.Any("x", y), "n", 1)`: 0,
		`log.With("a", 1).Error("fine", attrs...)`:              0,
		`err.Error()`:                                                0,
		`log.Info("call " + id)`:                                     1,
		`log.Info(fmt.Sprintf("call %s", id))`:                       1,
		`log.Info("call %s", "id", id)`:                              1,
		`log.InfoContext(ctx, "ended.")`:                             1,
		`log.Info("fine", "max-store", 1)`:                           1,
		`log.Info("fine", key, 1)`:                                   1,
		`log.Info("fine", slog.Any("x", y), "Call", 1)`:              1,
		`log.Info("sweeper ended", "call", 1)`:                       1,
		`log.Info("the worker ended", "call", 1)`:                    1,
		`b.log.Info("start not told, retrying", "call", c.ID)`:       1,
		`_ = struct{ A int ` + "`help:\"Run the sweeper.\"`" + `}{}`: 1,
		`_ = struct{ A int ` + "`help:\"Run the worker.\"`" + `}{}`:  0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", "package a\nfunc f() { "+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		_, errs := checkLogs(fset, f)
		if errs = append(errs, checkHelp(fset, f)...); len(errs) != want {
			t.Errorf("%s: %v; want %d", text, errs, want)
		}
	}
}
