package spool

import (
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

//go:embed begin.sh
var beginScript string

//go:embed fetch.sh
var fetchScript string

// The purposes of short commands. Those in [Repeatable] may be run again if it is unknown whether they ran, because they are idempotent,
// as is uploading a file again. A sandbox accepts each part of the input once.
const (
	Begin  = "begin"  // starts the program
	Word   = "word"   // writes to its input a part passed as an argument
	Input  = "input"  // writes to its input a part that was uploaded
	Fetch  = "fetch"  // fetches its output
	Finish = "finish" // ends it and removes its folder
	Look   = "look"   // reads something, without relevant changes
	Sweep  = "sweep"  // kills the remaining processes of a program that is gone
)

// Repeatable returns the purposes of [Box.Execute] that may be retried.
func Repeatable() []string { return []string{Word, Input, Fetch, Look, Sweep} }

const (
	fetchFor   = 10 * time.Second // how long a fetch waits for output
	fetchSpan  = 5 * time.Second  // additional time for the request
	endTimeout = 30 * time.Second // of other short commands
	// Messages of begin.sh and fetch.sh.
	wordBegun, wordFull, wordAnother = "begun", "full", "another"
	wordEnd, wordGone                = "end", "gone"
)

// Box gives access to a sandbox. Its methods must be safe for concurrent use.
type Box interface {
	// Execute runs a script of bash with arguments in the sandbox, without input. What is one of the purposes above. The script is short:
	// after limit it is killed or abandoned, and its output is lost. After an error it is unknown whether it ran.
	Execute(ctx context.Context, what string, limit time.Duration, script string, args ...string) (Executed, error)
	// Upload writes a file atomically.
	Upload(ctx context.Context, path string, content []byte) error
}

// Executed is the result of a short command.
type Executed struct {
	Exit   int
	Result string // both outputs together
}

// Run runs a script in the sandbox and returns its output, without surrounding space. A nonzero exit code is an error. Code: unavailable.
func Run(ctx context.Context, box Box, what, script string, args ...string) (string, error) {
	said, err := box.Execute(ctx, what, endTimeout, script, args...)
	if err == nil && said.Exit != 0 {
		err = schemas.OpErrorf(schemas.Unavailable, "run", "a program in the sandbox failed with %d: %s", said.Exit, Excerpt(said.Result))
	}
	return strings.TrimSpace(said.Result), err
}

// rootOrSelf is a script that runs its arguments as root if the sandbox's user may become root without a password, otherwise as that user.
const rootOrSelf = `[ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null || exec sudo -n "$@"
exec "$@"`

// SweepOnce kills, once, the remaining processes of a command whose program is gone, by their mark. It does so as root if possible,
// because the command may have become root. Its error is that of [boxrun.SweepResult], or of the request.
func SweepOnce(ctx context.Context, box Box, path, mark string) error {
	said, err := box.Execute(ctx, Sweep, endTimeout, rootOrSelf, boxrun.TrySweepArguments("bash", path, mark)...)
	if err != nil {
		return err
	}
	return boxrun.SweepResult(said.Exit, Excerpt(said.Result))
}

// Epoch returns the current epoch of a sandbox, which changes with each of its starts. Code: unavailable.
func Epoch(ctx context.Context, box Box) (string, error) {
	text, err := Run(ctx, box, Look, beginScript, "epoch")
	if err == nil && (text == "" || len(strings.Fields(text)) != 1 || len(text) > 100) {
		err = schemas.OpErrorf(schemas.Unavailable, "reserve", "the sandbox does not say when it was started: %s", Excerpt(text))
	}
	return text, err
}

// Excerpt returns the beginning of a text, on one line.
func Excerpt(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// piece is a part of an output; parts are counted from 1.
type piece struct {
	output string // o or e
	n      int
	data   []byte
}

// readPieces parses the answer to a fetch: a line "o 1 base64" for each piece, or one word for the end of both outputs (over).
func readPieces(text string) (pieces []piece, over bool, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case len(words) == 1 && (words[0] == wordEnd || words[0] == wordGone):
			return pieces, true, nil
		case len(words) == 3 && (words[0] == "o" || words[0] == "e"):
			n, err := strconv.Atoi(words[1])
			data, err2 := base64.StdEncoding.DecodeString(words[2])
			if err := errors.Join(err, err2); err != nil || n < 1 {
				return nil, false, errors.New("what the sandbox says of its output is not understood")
			}
			pieces = append(pieces, piece{words[0], n, data})
		default:
			return nil, false, errors.New("what the sandbox says of its output is not understood: " + Excerpt(line))
		}
	}
	return pieces, false, nil
}
