package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// manifestFlags are the flags that name a manifest.
type manifestFlags struct {
	gatewayTarget

	File  []string `short:"f" placeholder:"FILE" sep:"none" required:"" use:"" help:"YAML or JSON, a folder of it, or - for stdin. Repeat for more: all together are one manifest."`
	Prune bool     `use:"" help:"Delete this project's resources that the manifest no longer has."`
}

// load reads the manifest.
func (f manifestFlags) load(stdin io.Reader) (sheet, error) {
	sources, err := readSources(f.File, stdin)
	if err != nil {
		return sheet{}, err
	}
	return readManifest(sources)
}

// connect connects to the gateway. If that fails and the manifest is invalid, it returns the manifest's error.
func (f manifestFlags) connect(ctx context.Context, t terminal, s sheet) (*client.Client, error) {
	cl, err := f.dial(ctx, t)
	if err != nil && s.wrong != nil {
		return nil, s.wrong
	}
	return cl, err
}

// send applies the manifest at the gateway, or with dry only compares it. Errors name the lines of the files. An invalid manifest is sent
// too, so that the gateway adds the errors that depend on the account to one list. If the gateway does not answer, the errors found here
// are returned.
func (f manifestFlags) send(ctx context.Context, cl *client.Client, s sheet, dry bool) (schemas.ManifestAnswer, error) {
	const patience = 5 * time.Second
	bounded := ctx
	if s.wrong != nil {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	answer, err := cl.Manifests(client.Me).ApplyJSON(bounded, s.raw, f.Prune, dry)
	switch {
	case err == nil || ctx.Err() != nil:
		return answer, err
	case s.wrong != nil && (bounded.Err() != nil || schemas.CodeOf(err).Retryable()):
		return answer, s.wrong
	}
	return answer, s.places.name(err)
}

type applyCommand struct {
	manifestFlags

	Yes    bool `short:"y" use:"" help:"With --prune: delete without asking."`
	DryRun bool `use:"" help:"Change nothing; show what would change."`
}

// Help returns the detailed help, for kong.
func (*applyCommand) Help() string {
	return `Creates and updates sandboxes, workspaces, models and agents as a manifest says. Applied twice it changes nothing; applied again
after a failure it creates the rest. Records of another project are refused; records without a project are adopted.
With --prune it asks before it deletes; without a terminal it then needs --yes.

Examples:
  sandjet apply -f sandjet.yaml
  sandjet apply -f deploy/ --prune --yes
  go run ./sandjet.go | sandjet apply -f -              a program that prints it, see the package define
  sandjet diff -f sandjet.yaml`
}

// Run applies.
func (c *applyCommand) Run(ctx context.Context, t terminal) error {
	s, err := c.load(t.in)
	if err != nil {
		return err
	}
	cl, err := c.connect(ctx, t, s)
	if err != nil {
		return err
	}
	if c.Prune && !c.Yes && !c.DryRun {
		if err := c.confirm(ctx, cl, s, t); err != nil {
			return err
		}
	}
	answer, err := c.send(ctx, cl, s, c.DryRun)
	if err != nil {
		return err
	}
	return printAnswer(t, answer)
}

// confirm lists what --prune would delete and asks the user to confirm. Code denied: the user refuses. Code invalid: no answer, or no
// terminal.
func (c *applyCommand) confirm(ctx context.Context, cl *client.Client, s sheet, t terminal) error {
	answer, err := c.send(ctx, cl, s, true)
	if err != nil {
		return err
	}
	var names []string
	for _, change := range answer.Changes {
		if change.Action == schemas.ActionDelete {
			names = append(names, string(change.Kind)+" "+printable(change.Name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	what := strings.Join(names, ", ")
	if !isTerminal(t.in) {
		return schemas.Errorf(schemas.Invalid, "--prune would delete %s: allow it with --yes", what)
	}
	fmt.Fprintf(t.err, "This deletes %s. Go on? [y/N] ", what)
	said, err := bufio.NewReader(t.in).ReadString('\n')
	if err != nil && said == "" {
		return schemas.Errorf(schemas.Invalid, "not confirmed: nothing was changed")
	}
	if said = strings.ToLower(strings.TrimSpace(said)); said != "y" && said != "yes" {
		return schemas.Errorf(schemas.Denied, "nothing was changed")
	}
	return nil
}

type diffCommand struct{ manifestFlags }

// Help returns the detailed help, for kong.
func (*diffCommand) Help() string {
	return `Says what "sandjet apply" would change, and changes nothing. It ends with 0 when nothing would change, with 2
when something would, and with another code when it cannot tell.

Examples:
  sandjet diff -f sandjet.yaml
  sandjet diff -f deploy/ --prune`
}

// Run compares.
func (c *diffCommand) Run(ctx context.Context, t terminal) error {
	s, err := c.load(t.in)
	if err != nil {
		return err
	}
	cl, err := c.connect(ctx, t, s)
	if err != nil {
		return err
	}
	answer, err := c.send(ctx, cl, s, true)
	if err != nil {
		return err
	}
	if err := printAnswer(t, answer); err != nil {
		return err
	}
	if answer.Differs() {
		return &exitError{code: exitDiffers}
	}
	return nil
}

// printAnswer prints the changes that were or would be made: a line for each record, and its changed fields below.
func printAnswer(t terminal, a schemas.ManifestAnswer) error {
	if t.json {
		return printJSON(t.out, a)
	}
	_, err := io.WriteString(unguarded(t.out), answerText(a, t.colored())) // its colors are ours, the rest is printable
	return wrapOutput(err)
}

// mark is the sign with which the line of a change begins, and its ANSI color.
type mark struct{ sign, color string }

func answerText(a schemas.ManifestAnswer, colored bool) string {
	marks := map[schemas.ManifestAction]mark{
		schemas.ActionCreate: {"+", "32"}, schemas.ActionUpdate: {"~", "33"}, schemas.ActionRename: {">", "36"},
		schemas.ActionDelete: {"-", "31"},
	}
	var b strings.Builder
	count := map[schemas.ManifestAction]int{}
	for _, c := range a.Changes {
		count[c.Action]++
		m, shown := marks[c.Action]
		if !shown {
			continue
		}
		line := fmt.Sprintf("%s %s %s", m.sign, c.Kind, printable(c.Name))
		if c.From != "" {
			line += " (was " + printable(c.From) + ")"
		}
		if c.Adopted {
			line += " (made by hand: adopted)"
		}
		if colored {
			line = "\x1b[" + m.color + "m" + line + "\x1b[0m"
		}
		b.WriteString(line + "\n")
		for _, f := range c.Fields {
			b.WriteString("    " + fieldText(f) + "\n")
		}
	}
	words := []string{"created", "changed", "renamed", "deleted", "unchanged"}
	if !a.Applied {
		words = []string{"to create", "to change", "to rename", "to delete", "unchanged"}
	}
	var sums []string
	for i, action := range []schemas.ManifestAction{schemas.ActionCreate, schemas.ActionUpdate, schemas.ActionRename,
		schemas.ActionDelete, schemas.ActionNone} {
		if n := count[action]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, words[i]))
		}
	}
	if len(sums) == 0 {
		sums = []string{"The manifest is empty"}
	}
	b.WriteString(strings.Join(sums, ", ") + ".\n")
	for _, n := range a.Warnings.Notes {
		b.WriteString("Note: " + printable(n) + ".\n")
	}
	for _, name := range a.Warnings.MissingEnv {
		b.WriteString("Missing: " + printable(name) + ", which a sandbox names: sandjet variables set " + printable(name) + "\n")
	}
	return b.String()
}

func fieldText(f schemas.FieldChange) string {
	const none = "(none)"
	from, to := none, none
	if len(f.From) > 0 {
		from = short(string(f.From))
	}
	if len(f.To) > 0 {
		to = short(string(f.To))
	}
	if from == to { // values that are never shown, such as variables of a sandbox
		return printable(f.Path) + ": changed (its values are hidden)"
	}
	return printable(f.Path) + ": " + from + " → " + to
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if _, ok := stream.(*guarded); ok {
		return true
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
