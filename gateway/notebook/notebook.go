// Package notebook runs Python as notebooks do: the last expression of the code is shown, with what it has as a picture, a table or a
// page. The code of one call runs in a process of its own, by [Cell], or in one that stays between calls, a kernel, by [Ask].
//
// What it makes are commands for bash in a sandbox that has python3, 3.8 or later. They read the code from descriptor 3, see [Feed], so
// that no file of the workspace is written and standard input stays free.
package notebook

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

var (
	//go:embed display.py
	display string
	//go:embed cell.py
	cell string
	//go:embed kernel.py
	kernel string
	//go:embed ask.py
	ask string
)

// Room limits the output of one run of code in a kernel, in bytes of JSON: together with an error it fits into the live output of a call.
const Room = 960 << 10

// Exit codes of the command of [Ask], beside 0.
const (
	// ExitNoKernel: there is no kernel, and the code has not run.
	ExitNoKernel = 75
	// ExitKernelEnded: the kernel has ended while it had the code.
	ExitKernelEnded = 76
)

// Cell returns the command that runs code in a process of its own. Pictures, tables and pages are stored in outputs/, everything else is
// printed.
func Cell() string { return "python3 -c " + quote(display+cell) }

// Kernel returns the command of a kernel: a process that runs code repeatedly, in one namespace, until it is killed. name distinguishes it
// from other kernels of the sandbox; it must not be used again after the kernel has ended.
func Kernel(name string) string {
	return fmt.Sprintf("exec python3 -c %s", quote(fmt.Sprintf("%s%simport os\nrun_kernel(%s, %d)\n", display, kernel, socket(name), Room)))
}

// Ask returns the command that has a kernel run code with additional variables. It prints what the kernel shows, one JSON value per line,
// in the format of E2B's code interpreter. It waits up to patience for a kernel that is starting. If the command is killed, the kernel
// interrupts the code.
func Ask(name string, patience time.Duration, env map[string]string) (string, error) {
	if env == nil {
		env = map[string]string{}
	}
	text, err := json.Marshal(env)
	if err != nil {
		return "", schemas.Wrap(schemas.Internal, "ask", "the variables cannot be encoded", err)
	}
	program := fmt.Sprintf("%simport os, sys\nask(%s, %g, sys.argv[1])\n", ask, socket(name), patience.Seconds())
	return "python3 -I -S -c " + quote(program) + " " + quote(string(text)), nil
}

// Feed returns a command that runs command with code as the content of file descriptor 3.
func Feed(command, code string) string {
	sum := sha256.Sum256([]byte(code))
	end := "SANDJET_" + hex.EncodeToString(sum[:12]) // the code would have to contain its own hash
	return command + " 3<<'" + end + "'\n" + code + "\n" + end + "\n"
}

// socket returns a Python expression for the path of a kernel's socket. All users of a sandbox can access its folder.
func socket(name string) string {
	return "os.path.join(os.environ.get('TMPDIR') or '/tmp', " + strconv.QuoteToASCII("sandjet-"+name+".sock") + ")"
}

// quote quotes s as one word for bash.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
