package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/schemas"
)

// usage words a parse error, and adds where help is.
func usage(err error) error {
	where := "sandjet --help"
	p, ok := errors.AsType[*kong.ParseError](err)
	if ok && p.Context != nil {
		at := p.Context.Model.Node
		if n := p.Context.Selected(); n != nil {
			at, where = n, n.FullPath()+" --help"
		}
		if word, unknown := strings.CutPrefix(err.Error(), "unexpected argument "); unknown && len(commandNames(at)) > 0 {
			word, _, _ = strings.Cut(word, ", did you mean ")
			return schemas.Errorf(schemas.Invalid, "", "unknown command %q%s (see %s)", schemas.Quotable(word), hint(word, commandNames(at)), where)
		}
	}
	return schemas.Errorf(schemas.Invalid, "", "%v (see %s)", err, where)
}

// commandNames are the names and aliases of the commands below a node that help shows.
func commandNames(n *kong.Node) []string {
	var names []string
	for _, c := range n.Children {
		if c.Type == kong.CommandNode && !c.Hidden {
			names = append(append(names, c.Name), c.Aliases...)
		}
	}
	return names
}

// hint names what a wrong name may have meant; empty where nothing is near.
func hint(name string, known []string) string {
	near := schemas.NearestNames(name, known)
	if len(near) == 0 {
		return ""
	}
	for i, n := range near {
		near[i] = fmt.Sprintf("%q", n)
	}
	if last := len(near) - 1; last > 0 {
		return ": did you mean " + strings.Join(near[:last], ", ") + " or " + near[last] + "?"
	}
	return ": did you mean " + near[0] + "?"
}

// versionFlag prints the version in place of a command.
type versionFlag bool

// BeforeReset is called by kong when the flag is there, before anything that is missing is an error.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, readBuild())
	app.Exit(exitOK)
	return nil
}

// helpCommand is --help as a word. Parsing turns it into the flag, so it never runs.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"Command, such as: jobs logs."`
}
