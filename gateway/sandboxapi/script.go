package sandboxapi

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/gateway/notebook"
	"github.com/sandjet/sandjet/schemas"
)

// quote quotes s as one word for bash.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// exports returns the commands that set variables, sorted by name, so that equal requests give equal commands.
func exports(env map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(env[name]))
	}
	return b.String()
}

// commandOf returns the command of a bash request. dir is relative to the workspace.
func commandOf(q BashRequest, dir string) string {
	command := exports(q.Env)
	if dir != "." {
		command += "cd -- " + quote("./"+dir) + " || exit 1\n"
	}
	return command + q.Command
}

// The programs that read code from descriptor 3.
const (
	runPython = `python3 -c 'exec(compile(open(3, encoding="utf-8").read(), "main.py", "exec"))'`
	runBash   = `bash /dev/fd/3`
	runNode   = `node -e 'require("vm").runInThisContext(require("fs").readFileSync(3, "utf8"), {filename: "main.js"})'`
)

// program returns the command that runs the code of an execute request. Code: invalid.
func program(q ExecuteRequest) (string, error) {
	var run string
	python := false
	switch q.Language {
	case "", "python", "python3", "py":
		run, python = runPython, true
		if q.Result {
			run = notebook.Cell()
		}
	case "bash", "sh":
		run = runBash
	case "node", "nodejs", "js", "javascript":
		run = runNode
	default:
		return "", schemas.Invalidf("language", "%q is unknown: use python, bash or node", schemas.Quotable(q.Language))
	}
	if q.Result && !python {
		return "", schemas.Invalidf("result", "is for python: print what you want to see")
	}
	return exports(q.Env) + notebook.Feed(run, q.Code), nil
}

// statAll returns a command that prints a line for each path that exists: size, time, kind and the path.
func statAll(paths []string) string {
	var b strings.Builder
	b.WriteString("stat -c '%s|%Y|%F|%n' --")
	for _, p := range paths {
		b.WriteString(" " + quote("./"+p))
	}
	b.WriteString(" 2>/dev/null\ntrue")
	return b.String()
}

// piece is the bytes of a file that one call of read_binary gives: as base64 it fits into the output of a session's sandbox.
const piece = 180 << 10

// readPiece returns a command that prints a piece of a file as base64; for the first piece also a line with the file's kind, size and
// SHA-256.
func readPiece(name string, offset int64) string {
	f := quote("./" + name)
	if offset == 0 {
		return "f=" + f + `
if [ -d "$f" ]; then echo directory; exit; fi
if [ ! -e "$f" ]; then echo missing; exit; fi
if [ ! -f "$f" ] || [ ! -r "$f" ]; then echo other; exit; fi
case $(realpath -- "$f") in "$(pwd -P)"/*) ;; *) echo outside; exit ;; esac
echo "file $(stat -L -c %s -- "$f") $(sha256sum < "$f" | cut -d ' ' -f 1)"
head -c ` + strconv.Itoa(piece) + ` -- "$f" | base64 | tr -d '\n'`
	}
	return "tail -c +" + strconv.FormatInt(offset+1, 10) + " -- " + f + " | head -c " + strconv.Itoa(piece) + " | base64 | tr -d '\\n'"
}

// bundle returns the contents of the files as text, one line of base64 for each. [unpack] reads it.
func bundle(list []file) string {
	var b strings.Builder
	for _, f := range list {
		b.WriteString(base64.StdEncoding.EncodeToString(f.data))
		b.WriteByte('\n')
	}
	return b.String()
}

// unpack returns a command that stores the files of a bundle, each atomically, and prints a line for each: ok and the SHA-256, or the
// reason why not. It removes the bundle.
func unpack(name string, list []file) string {
	var b strings.Builder
	b.WriteString("bundle=" + quote("./"+name) + `
root=$(pwd -P)
unpack() { # line path mode replace if_match
	local to=$2 dir=${2%/*} tmp
	if [ -d "$to" ]; then echo directory; return; fi
	if ! mkdir -p -- "$dir" 2>/dev/null; then echo folder; return; fi
	case $(cd -- "$dir" && pwd -P)/ in "$root"/*) ;; *) echo outside; return ;; esac
	if [ -n "$5" ] && [ "$(sha256sum < "$to" 2>/dev/null | cut -d ' ' -f 1)" != "$5" ]; then echo changed; return; fi
	tmp=$(mktemp -- "$dir/.sandjet.XXXXXXXX" 2>/dev/null) || { echo denied; return; }
	if ! sed -n "$1{p;q}" "$bundle" | base64 -d > "$tmp" || ! chmod "$3" "$tmp"; then rm -f -- "$tmp"; echo failed; return; fi
	if [ "$4" = 1 ]; then
		mv -fT -- "$tmp" "$to" 2>/dev/null || { rm -f -- "$tmp"; echo denied; return; }
	elif ! ln -T -- "$tmp" "$to" 2>/dev/null; then
		rm -f -- "$tmp"
		if [ -e "$to" ] || [ -L "$to" ]; then echo exists; else echo denied; fi
		return
	else
		rm -f -- "$tmp"
	fi
	echo "ok $(sha256sum < "$to" | cut -d ' ' -f 1)"
}
`)
	for i, f := range list {
		replace := "0"
		if f.replace {
			replace = "1"
		}
		fmt.Fprintf(&b, "unpack %d %s %s %s %s\n", i+1, quote("./"+f.path), f.mode, replace, quote(f.ifMatch))
	}
	b.WriteString(`rm -f -- "$bundle"`)
	return b.String()
}

// emptied removes everything that is in the workspace.
const emptied = `find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} +`
