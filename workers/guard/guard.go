package guard

import (
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Rule names what a refused command has broken.
type Rule string

// The rules.
const (
	Leave     Rule = "leave"     // cd or pushd to a place outside the workspace
	Scan      Rule = "scan"      // a walk over the whole filesystem
	Write     Rule = "write"     // something that would stay outside the workspace
	Absolute  Rule = "absolute"  // an absolute path outside the workspace
	Traversal Rule = "traversal" // a relative one
	Runtime   Rule = "runtime"   // a language runtime that the sandbox does not list
)

// RefusalError is why a command is not run.
type RefusalError struct {
	Rule   Rule
	Policy schemas.GuardPolicy // under which it was refused
	Text   string              // for the model: what was found, under which policy, and the remedy
}

// Error is the refusal's text.
func (r *RefusalError) Error() string { return r.Text }

// long is from how many bytes on a command takes one of the places.
const long = 4 << 10

// places are for long commands: sixteen of them at once would take 800 MB.
var places = make(chan struct{}, 2) //nolint:gochecknoglobals // the processors are common to all

// Check returns why a command is refused under a policy, nil when it is not. The zero policy is
// durable. Runtimes are those that the sandbox lists, none for "whatever there is". A command that
// does not parse as bash, is longer than 256 KiB or nests deeper than people write is let through.
//
// It may be called from many goroutines. It takes time and memory in proportion to the command's
// length: at most a fifth of a second and 50 MB. Two commands of more than 4 KiB are looked at at the same time: others wait.
func Check(command string, p schemas.GuardPolicy, runtimes []string) *RefusalError {
	switch p {
	case schemas.GuardOff:
		return nil
	case "":
		p = schemas.GuardDurable
	case schemas.GuardStrict, schemas.GuardDurable:
	}
	if len(command) > long {
		places <- struct{}{}
		defer func() { <-places }()
	}
	w := &walker{policy: p, runtimes: runtimes, at: spot{dir: workspace, known: true}, moves: map[string]bool{}}
	w.script(command)
	return w.refusal
}

// refuse keeps the first refusal: the walk ends after it.
func (w *walker) refuse(r Rule, why, remedy string) {
	if w.refusal == nil {
		w.refusal = &RefusalError{Rule: r, Policy: w.policy, Text: fmt.Sprintf("refused by the bash guard (%s): %s. %s.", w.policy, why, remedy)}
	}
}

// shown is text of the command as a refusal names it.
func shown(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
