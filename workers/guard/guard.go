package guard

import (
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Rule names the rule that a refused command violates.
type Rule string

// The rules.
const (
	Leave     Rule = "leave"     // cd or pushd to a folder outside the workspace
	Scan      Rule = "scan"      // a walk over the whole file system
	Write     Rule = "write"     // a write to a permanent place outside the workspace
	Absolute  Rule = "absolute"  // an absolute path outside the workspace
	Traversal Rule = "traversal" // a relative path out of the workspace
	Runtime   Rule = "runtime"   // a language runtime that the sandbox does not offer
)

// RefusalError is the error of a command that is not run.
type RefusalError struct {
	Rule   Rule
	Policy schemas.GuardPolicy // under which it was refused
	Text   string              // for the model: what was found, under which policy, and what to do instead
}

// Error is the refusal's text.
func (r *RefusalError) Error() string { return r.Text }

// long is the length in bytes above which a command needs a slot of places.
const long = 4 << 10

// places are the slots for checks of long commands. Sixteen of these at a time would need 800 MB of memory.
var places = make(chan struct{}, 2) //nolint:gochecknoglobals // the processors are common to all

// Check returns why a command is refused under a policy; nil if it is not. The zero policy is durable. Runtimes are those that the sandbox
// offers; none means that any may be used. A command that does not parse as bash, is longer than 256 KiB or is nested deeper than people
// write is allowed.
//
// It is safe for concurrent use. Its time and memory are proportional to the command's length: at most a fifth of a second and 50 MB. At
// most two commands of more than 4 KiB are checked at a time: it blocks until a slot is free.
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

// refuse stores the first refusal; the walk ends after it.
func (w *walker) refuse(r Rule, why, remedy string) {
	if w.refusal == nil {
		w.refusal = &RefusalError{Rule: r, Policy: w.policy, Text: fmt.Sprintf("refused by the bash guard (%s): %s. %s.", w.policy, why, remedy)}
	}
}

// shown returns a piece of the command shortened for a refusal's text.
func shown(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
