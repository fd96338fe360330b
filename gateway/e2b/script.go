package e2b

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// process is a program to run in a sandbox.
type process struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs,omitempty"`
	Dir  string            `json:"cwd,omitempty"`
}

// script returns the shell command that runs the process. Code: invalid.
func (p process) script() (string, error) {
	if p.Cmd == "" {
		return "", schemas.Invalidf("process.cmd", "must not be empty")
	}
	if err := checkEnv("process.envs", p.Envs); err != nil {
		return "", err
	}
	words := []string{"exec"}
	for _, word := range append([]string{p.Cmd}, p.Args...) {
		words = append(words, quote(word))
	}
	s := prelude(p.Envs, p.Dir) + strings.Join(words, " ")
	return s, checkCommand("process", s)
}

// prelude returns the shell commands that set variables and the working folder.
func prelude(env map[string]string, dir string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) { // so that the same process is the same command
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(env[name]))
	}
	if dir != "" {
		fmt.Fprintf(&b, "cd -- %s || exit 1\n", quote(dir))
	}
	return b.String()
}

// checkCommand checks that a command is not too long and has no NUL. Code: invalid.
func checkCommand(field, s string) error {
	if strings.ContainsRune(s, 0) {
		return schemas.Invalidf(field, "has a NUL")
	}
	if len(s) > schemas.MaxCommand {
		return schemas.Invalidf(field, "has %d bytes as a command: at most %d; write it into a file and run that", len(s), schemas.MaxCommand)
	}
	return nil
}

// dirOf returns the working folder in the sandbox for a client's path; empty means the workspace.
func dirOf(dir string) string {
	switch p := path.Clean(dir); {
	case dir == "", p == home, p == workspace:
		return ""
	case strings.HasPrefix(p, home+"/"):
		return workspace + strings.TrimPrefix(p, home)
	case !path.IsAbs(p):
		return "./" + p
	}
	return dir
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// unquote parses a word that quote has made, and returns the rest of the text.
func unquote(s string) (word, rest string, ok bool) {
	if !strings.HasPrefix(s, "'") {
		return "", s, false
	}
	var b strings.Builder
	for s = s[1:]; ; {
		part, after, found := strings.Cut(s, "'")
		if !found {
			return "", s, false
		}
		b.WriteString(part)
		if !strings.HasPrefix(after, `\''`) {
			return b.String(), after, true
		}
		b.WriteByte('\'')
		s = after[len(`\''`):]
	}
}

// processOf parses a command that [process.script] has made; ok is false for any other.
func processOf(script string) (p process, ok bool) {
	s := script
	for strings.HasPrefix(s, "export ") {
		var word string
		name, after, _ := strings.Cut(s[len("export "):], "=")
		if word, s, ok = unquote(after); !ok {
			return p, false
		}
		if p.Envs == nil {
			p.Envs = map[string]string{}
		}
		p.Envs[name] = word
		s = strings.TrimPrefix(s, "\n")
	}
	if after, there := strings.CutPrefix(s, "cd -- "); there {
		if p.Dir, s, ok = unquote(after); !ok {
			return p, false
		}
		s = strings.TrimPrefix(s, " || exit 1\n")
	}
	s, ok = strings.CutPrefix(s, "exec ")
	if !ok {
		return p, false
	}
	if p.Cmd, s, ok = unquote(s); !ok {
		return p, false
	}
	p.Args = []string{}
	for s != "" {
		var word string
		if word, s, ok = unquote(strings.TrimPrefix(s, " ")); !ok {
			return p, false
		}
		p.Args = append(p.Args, word)
	}
	return p, true
}
