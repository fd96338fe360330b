package kubernetes

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

//go:embed sweepmark.sh
var sweepMark string

//go:embed runner.sh
var runnerProgram string

//go:embed end.sh
var endProgram string

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// reservedVariables returns the variables that the runner sets, whatever is declared.
func reservedVariables() []string { return []string{"PATH", "HOME", "TMPDIR", "LANG"} }

// runnerInput returns the input of the runner for a command.
func runnerInput(token string, cmd providers.Command, fresh bool) ([]byte, error) {
	if strings.Contains(cmd.Script, "\x00") {
		return nil, schemas.Invalidf("script", "NUL is not allowed")
	}
	env, err := environment(cmd)
	if err != nil {
		return nil, err
	}
	kind := 0
	if fresh {
		kind = 1
	}
	var b bytes.Buffer
	b.Grow(len(sweepMark) + len(runnerProgram) + len(cmd.Script) + len(env) + len(cmd.Stdin) + 200)
	fmt.Fprintf(&b, "%s%s\x00%s %s %s %s %d %d %d %d\n", sweepMark, runnerProgram, token, runsPath, seconds(cmd.Timeout), seconds(cmd.Grace), kind,
		len(cmd.Script), len(env), len(cmd.Stdin))
	b.WriteString(cmd.Script)
	b.Write(env)
	b.Write(cmd.Stdin)
	return b.Bytes(), nil
}

// environment returns the working directory and the declared variables, each terminated by NUL.
func environment(cmd providers.Command) ([]byte, error) {
	dir := cmd.Dir
	if dir == "" {
		dir = tempPath
		if len(cmd.Mounts) > 0 {
			dir = cmd.Mounts[0].Path()
		}
	}
	all := map[string]string{}
	maps.Copy(all, cmd.Spec.Env)
	maps.Copy(all, cmd.Env)
	var b bytes.Buffer
	if strings.Contains(dir, "\x00") {
		return nil, schemas.Invalidf("dir", "NUL is not allowed")
	}
	b.WriteString(dir + "\x00")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case slices.Contains(reservedVariables(), name):
			continue
		case !variable.MatchString(name):
			return nil, schemas.Invalidf("env", "%q is not the name of a variable", schemas.Quotable(name))
		case strings.Contains(all[name], "\x00"):
			return nil, schemas.Invalidf("env", "the value of %s has a NUL", name)
		}
		b.WriteString(name + "=" + all[name] + "\x00")
	}
	return b.Bytes(), nil
}

// endInput returns the input of the program that ends a run.
func endInput(token string) []byte {
	return []byte(sweepMark + endProgram + "\x00" + runsPath + "/" + token + "\n")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d.Seconds(), 0.001)) }
