package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/schemas"
)

// usage returns a parse error in plain words, with the command that prints the help.
func usage(err error) error {
	where := "sandjet --help"
	p, ok := errors.AsType[*kong.ParseError](err)
	if ok && p.Context != nil {
		at := p.Context.Model.Node
		if n := p.Context.Selected(); n != nil {
			at, where = n, wordsOf(n)+" --help"
		}
		if word, unknown := strings.CutPrefix(err.Error(), "unexpected argument "); unknown && len(commandNames(at)) > 0 {
			word, _, _ = strings.Cut(word, ", did you mean ")
			return schemas.Errorf(schemas.Invalid, "unknown command %q%s (see %s)", schemas.Quotable(word), hint(word, commandNames(at)), where)
		}
	}
	return schemas.Errorf(schemas.Invalid, "%s (see %s)", plainly(err.Error()), where)
}

// plainly rewords kong's error about missing arguments: expected "<conversations> ...". It returns others as they are.
func plainly(said string) string {
	word, missing := strings.CutPrefix(said, `expected "<`)
	if !missing {
		return said
	}
	var names []string
	for name := range strings.FieldsSeq(strings.ToUpper(word)) {
		if name = strings.Trim(name, `<>"`); name != "..." {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return "the argument " + names[0] + " is missing"
	}
	return "the arguments " + strings.Join(names, " ") + " are missing"
}

// wordsOf returns a command as it is typed, without aliases.
func wordsOf(n *kong.Node) string {
	if n.Parent == nil {
		return n.Name
	}
	return wordsOf(n.Parent) + " " + n.Name
}

// commandNames returns the names and aliases of the visible commands below a node.
func commandNames(n *kong.Node) []string {
	var names []string
	for _, c := range n.Children {
		if c.Type == kong.CommandNode && !c.Hidden {
			names = append(append(names, c.Name), c.Aliases...)
		}
	}
	return names
}

// hint suggests names for an unknown one; empty if none is similar.
func hint(name string, known []string) string {
	near := schemas.NearestNames(name, known)
	if len(near) == 0 {
		return ""
	}
	for i, n := range near {
		near[i] = fmt.Sprintf("%q", n)
	}
	return ": did you mean " + orList(near) + "?"
}

// orList joins words to "a, b or c".
func orList(words []string) string {
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " or " + words[last]
	}
	return strings.Join(words, "")
}

// versionFlag prints the version in place of a command.
type versionFlag bool

// BeforeReset is called by kong when the flag is given, before missing arguments are reported.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, readBuild())
	app.Exit(exitOK)
	return nil
}

// helpCommand is --help as a word. Parsing turns it into the flag, so it never runs.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"Command, such as: jobs logs."`
}
