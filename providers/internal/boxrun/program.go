package boxrun

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

//go:embed run.sh
var program string

// longestArgument is the maximal length of a script that is passed as an argument of its shell. A longer one is passed in a file.
const longestArgument = 64 << 10

// Command is a command for the program to run.
type Command struct {
	ID     string            // for [MarkOf]; empty: no other process can end the command
	Shell  string            // name or path of the shell that runs the script: bash or sh
	Script string            // its text
	Dir    string            // working directory, an absolute path
	Env    map[string]string // all its variables; the names are valid in a shell
	Stdin  []byte
	// Limit is the time after which the command is ended if nothing has arrived from the worker: longer than the worker would wait.
	Limit time.Duration
}

// Arguments returns the command line that starts the program in a box: in a shell without variables except PATH.
func Arguments(shell, path string) []string {
	return []string{"env", "-i", "PATH=" + path, shell, "-c", program, "sandjet-run"}
}

// SweepArguments returns the command line of a process that kills the remaining processes of a session whose program was killed. It exits
// with an error if some processes stay.
func SweepArguments(shell, path, mark string) []string {
	return append(Arguments(shell, path), "sweep", mark)
}

// TrySweepArguments is [SweepArguments] for callers that repeat a failed sweep: the process stops early if the same processes stay.
func TrySweepArguments(shell, path, mark string) []string {
	return append(SweepArguments(shell, path, mark), "20")
}

// ErrStays is the error of a sweep that has checked all processes of the sandbox and could not kill some of the command's.
var ErrStays = errors.New("processes of the command cannot be ended")

// sweepStays is the exit code of a sweep that left processes.
const sweepStays = 75

// SweepResult maps the exit code of a sweep to an error. It is an [ErrStays] only if the sweep itself reports remaining processes: a sweep
// that was not started, or was killed, proves nothing. Code: unavailable.
func SweepResult(code int, said string) error {
	switch code {
	case 0:
		return nil
	case sweepStays:
		return schemas.Wrap(schemas.Unavailable, "sweep", "something of the command in the sandbox stays", ErrStays)
	default:
		return schemas.OpErrorf(schemas.Unavailable, "sweep", "a program in the sandbox failed with %d: %s", code, said)
	}
}

// CheckEnv returns an error for names and values that cannot be shell variables. Code: invalid.
func CheckEnv(env map[string]string) error {
	for name, value := range env {
		if !isName(name) || strings.Contains(value, "\x00") {
			return schemas.Invalidf("env",
				"%q cannot be a variable: names are letters, digits and _, and nothing may hold NUL", schemas.Quotable(name))
		}
	}
	return nil
}

func isName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// secret returns a new random number in hex. It authenticates the program's messages.
func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// markBits is the size of a mark: below the values that shells and kernels read as unlimited.
const markBits = 52

// newMark returns a random mark: a value for the file lock limit (RLIMIT_LOCKS), by which the command's processes are found.
func newMark() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<markBits))
	if err != nil {
		panic(err) // never fails
	}
	return fmt.Sprint(n.Int64() + 1<<markBits)
}

// MarkOf returns the mark of the processes of the command with that id, for [SweepArguments]. A command that sets the mark of another one
// on itself is ended with it.
func MarkOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprint(binary.BigEndian.Uint64(sum[:])>>(64-markBits) + 1<<markBits)
}

// input returns the bytes that the program reads before it is ready.
func (c Command) input(nonce, mark string) []byte {
	script := c.Script
	var file string
	if len(script) > longestArgument {
		script, file = "", script
	}
	var code bytes.Buffer
	fmt.Fprintf(&code, "directory=%s\nscript=%s\nvariables() {\n", quote(c.Dir), quote(script))
	names := make([]string, 0, len(c.Env))
	for name := range c.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&code, "export %s=%s\n", name, quote(c.Env[name]))
	}
	code.WriteString(":\n}\n")
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %d %d %d %d %s\n", nonce, mark, int(c.Limit.Seconds())+1, code.Len(), len(file), len(c.Stdin), c.Shell)
	b.Write(code.Bytes())
	b.WriteString(file)
	b.Write(c.Stdin)
	return b.Bytes()
}

// quote quotes s as one word of a shell command.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
