package guard

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandjet/sandjet/schemas"
)

// maxNested is how many levels of scripts within scripts are checked: bash -c, eval, trap.
const maxNested = 5

// walker goes through a command in the order in which bash would run it, and tracks the working directory.
type walker struct {
	policy   schemas.GuardPolicy
	runtimes []string
	nested   int
	at, old  spot            // the working directory, and the one before
	stack    []spot          // of pushd
	moves    map[string]bool // declared functions, and whether calling one changes the working directory
	refusal  *RefusalError
}

func (w *walker) strict() bool { return w.policy == schemas.GuardStrict }

// script judges a text that bash would run at this point.
func (w *walker) script(text string) {
	if w.nested > maxNested {
		return
	}
	w.nested++
	if f := parse(text); f != nil {
		w.stmts(f.Stmts)
	}
	w.nested--
}

func (w *walker) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		if w.refusal != nil {
			return
		}
		w.stmt(s)
	}
}

func (w *walker) stmt(s *syntax.Stmt) {
	if s == nil {
		return
	}
	if s.Background {
		defer w.isolate()()
	}
	for _, r := range s.Redirs {
		w.redirect(r)
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		w.call(c, s.Redirs)
	case *syntax.BinaryCmd:
		w.chain(c)
	case *syntax.Block:
		w.stmts(c.Stmts)
	case *syntax.Subshell:
		defer w.isolate()()
		w.stmts(c.Stmts)
	case *syntax.IfClause:
		w.stmts(c.Cond)
		w.branches(func() { w.stmts(c.Then) }, func() {
			if c.Else != nil {
				w.stmt(&syntax.Stmt{Cmd: c.Else})
			}
		})
	case *syntax.WhileClause:
		w.branches(func() { w.stmts(c.Cond); w.stmts(c.Do) })
	case *syntax.ForClause:
		w.inside(c.Loop)
		w.branches(func() { w.stmts(c.Do) })
	case *syntax.CaseClause:
		w.inside(c.Word)
		var bodies []func()
		for _, item := range c.Items {
			bodies = append(bodies, func() { w.stmts(item.Stmts) })
		}
		w.branches(bodies...)
	case *syntax.FuncDecl:
		w.declare(c)
	case *syntax.TimeClause:
		w.stmt(c.Stmt)
	case *syntax.CoprocClause:
		defer w.isolate()()
		w.stmt(c.Stmt)
	case nil:
	default:
		w.inside(c) // declarations, tests and arithmetic: only their command substitutions
	}
}

// isolate begins a subshell: its changes of the working directory do not affect the parent.
func (w *walker) isolate() (end func()) {
	at, old, stack := w.at, w.old, w.stack
	return func() { w.at, w.old, w.stack = at, old, stack }
}

// branches walks alternatives, any of which may run. If one of them changes the working directory, it is unknown afterwards.
func (w *walker) branches(bodies ...func()) {
	before, moved := w.at, false
	for _, body := range bodies {
		w.at = before
		body()
		moved = moved || w.at != before
	}
	if w.at = before; moved {
		w.lose()
	}
}

// lose makes the working directory unknown.
func (w *walker) lose() { w.at, w.old, w.stack = spot{}, spot{}, nil }

// chain walks a && b || c and a | b | c. It is a loop because bash's grammar is left-recursive and a list may be long.
func (w *walker) chain(b *syntax.BinaryCmd) {
	piped := func(b *syntax.BinaryCmd) bool { return b.Op == syntax.Pipe || b.Op == syntax.PipeAll }
	parts := []*syntax.Stmt{b.Y}
	for {
		x, ok := b.X.Cmd.(*syntax.BinaryCmd)
		if !ok || piped(x) != piped(b) {
			parts = append(parts, b.X)
			break
		}
		parts, b = append(parts, x.Y), x
	}
	for i := len(parts) - 1; i >= 0 && w.refusal == nil; i-- {
		back := func() {}
		if piped(b) {
			back = w.isolate()
		}
		w.stmt(parts[i])
		back()
	}
}

// declare walks the body of a function as if it were called here, and records whether it changes the working directory.
func (w *walker) declare(f *syntax.FuncDecl) {
	if f.Name == nil {
		return
	}
	back, before := w.isolate(), w.at
	w.moves[f.Name.Value] = false // for recursive calls
	w.stmt(f.Body)
	w.moves[f.Name.Value] = w.at != before
	back()
}

// inside walks the commands that are substituted within a word or an expression.
func (w *walker) inside(n syntax.Node) {
	if n == nil {
		return
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		var list []*syntax.Stmt
		switch n := n.(type) {
		case *syntax.CmdSubst:
			list = n.Stmts
		case *syntax.ProcSubst:
			list = n.Stmts
		default:
			return w.refusal == nil
		}
		defer w.isolate()()
		w.stmts(list)
		return false
	})
}

// redirect judges the target of a redirection.
func (w *walker) redirect(r *syntax.Redirect) {
	if r.Word == nil {
		return
	}
	w.inside(r.Word)
	if r.Hdoc != nil { // its text is data, except command substitutions
		w.inside(r.Hdoc)
		return
	}
	switch v := w.valueOf(r.Word); r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut, syntax.DplOut:
		if r.Op != syntax.DplOut || strings.Contains(v.text, "/") {
			w.write(v)
		}
	case syntax.RdrIn:
		w.read(v)
	default:
	}
}

// call walks a simple command.
func (w *walker) call(c *syntax.CallExpr, redirs []*syntax.Redirect) {
	for _, a := range c.Assigns {
		w.inside(a)
	}
	args := make([]value, 0, len(c.Args))
	for _, a := range c.Args {
		w.inside(a)
		args = append(args, w.valueOf(a))
	}
	if w.refusal == nil && len(args) > 0 {
		w.command(args, func() (string, bool) { return w.stdin(redirs) })
	}
}

// stdin returns the text that a command reads, if it is part of the command itself.
func (w *walker) stdin(redirs []*syntax.Redirect) (text string, ok bool) {
	for _, r := range redirs {
		word := r.Hdoc
		if r.Op == syntax.WordHdoc {
			word = r.Word
		}
		if word == nil {
			continue
		}
		if v := w.valueOf(word); v.whole {
			text, ok = v.text, true
		}
	}
	return text, ok
}
