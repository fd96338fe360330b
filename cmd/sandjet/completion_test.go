package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/internal/longtest"
)

func TestCandidates(t *testing.T) {
	t.Parallel()
	k, err := grammar(&cli{}, kong.Name("sandjet"))
	if err != nil {
		t.Fatal(err)
	}
	known := func(k knownKind) []string {
		return map[knownKind][]string{"sandbox": {"build", "default"}, "workspace": {"docs"}, "call": {"one"}, "job": {"job_1"}, "conversation": {"talk"}}[k]
	}
	for line, want := range map[string]string{
		"call --sandbox ":               "build default",
		"call --sandbox=b":              "--sandbox=build",
		"call -w d":                     "docs",
		"calls ls -c ":                  "talk",
		"calls show ":                   "one",
		"calls cancel o":                "one",
		"jobs logs ":                    "job_1",
		"sandboxes show d":              "default",
		"workspaces set ":               "docs",
		"sandboxes create ":             "",
		"tail ":                         "talk",
		"sandb":                         "sandboxes",
		"call":                          "call calls",
		"complete":                      "", // hidden
		"jobs lo":                       "logs",
		"call b":                        "bash",
		"call -c talk re":               "read",
		"call --conversation=talk re":   "read",
		"call bash b":                   "",
		"call bash --backg":             "--background",
		"--outp":                        "--output",
		"calls ls --output js":          "json",
		"calls ls --output=n":           "--output=name",
		"calls ls --output = n":         "name", // as bash splits it
		"calls ls -o ta":                "table",
		"tokens c":                      "create", // an alias
		"completion f":                  "fish",
		"help appr":                     "approvals",
		"worker --provider lo":          "local",
		"nosuch command":                "",
		"call --wait-for-worker read -": "",
	} {
		got := candidates(k.Model.Node, strings.Split(line, " "), known)
		if line == "call --wait-for-worker read -" { // all flags
			if !slices.Contains(got, "--sandbox") || !slices.Contains(got, "--data-dir") || slices.Contains(got, "--all") {
				t.Errorf("%q becomes %q", line, got)
			}
			continue
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
	if all := candidates(k.Model.Node, nil, known); !slices.Contains(all, "up") || slices.Contains(all, "complete") {
		t.Errorf("nothing becomes %q", all)
	}
}

// TestShellsComplete has the shells themselves load the scripts and ask for candidates.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	ask := map[string]string{
		"bash": `source "$1"; COMP_WORDS=(sandjet call re); COMP_CWORD=2; COMP_LINE='sandjet call re'; COMP_POINT=15; _sandjet; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh":  `compdef() { :; }; compadd() { shift; print -l -- "$@"; }; _files() { :; }; source "$1"; words=(sandjet call re); CURRENT=3; _sandjet`,
		"fish": `source $argv[1]; complete -C 'sandjet call re'`,
	}
	for shell, script := range ask {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell)
			if err != nil {
				if shell == "bash" {
					longtest.Missing(t, "%s is not installed", shell)
				}
				t.Skipf("%s is not installed: its script is not tried", shell)
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "completion")
			if err := os.WriteFile(file, []byte(completionScript(shell)), 0o600); err != nil {
				t.Fatal(err)
			}
			own, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(own, filepath.Join(dir, "sandjet")); err != nil {
				t.Fatal(err)
			}
			args := []string{"-c", script, shell, file}
			if shell == "fish" {
				args = []string{"--no-config", "-c", script, file}
			}
			cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
			cmd.Dir = dir // where no file begins as the word does
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
			out, err := cmd.CombinedOutput()
			if got := strings.Fields(string(out)); err != nil || len(got) != 1 || got[0] != "read" {
				t.Errorf("it offers %q (%v), want read", out, err)
			}
		})
	}
}
