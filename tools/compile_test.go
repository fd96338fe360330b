package tools

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// TestCompile pins what is sent into a box: which script, and its standard input with the payload decoded.
func TestCompile(t *testing.T) {
	t.Parallel()
	forCases(t, "testdata/compile/*.txtar", func(t *testing.T, section func(string) string) string {
		t.Helper()
		name, raw, _ := strings.Cut(strings.TrimSpace(section("call")), " ")
		name, dialect, _ := strings.Cut(name, ":")
		c := schemas.Call{ID: "call_1", Tool: schemas.Tool(name), Dialect: schemas.Dialect(dialect)}
		in, err := schemas.DecodeInput(c.Tool, []byte(raw))
		if err != nil {
			return fmt.Sprintf("input: %v\n", err)
		}
		p, err := Compile(c, in)
		if err != nil {
			return fmt.Sprintf("error: %s %v\n", schemas.CodeOf(err), err)
		}
		var b strings.Builder
		script := p.Script
		for tool, s := range map[string]string{"read": prelude + readScript, "write": prelude + writeScript, "edit": prelude + editScript,
			"glob": prelude + globScript, "grep": prelude + grepScript, "ls": prelude + lsScript} {
			if p.Script == s {
				script = "(the script of " + tool + ")"
			}
		}
		fmt.Fprintf(&b, "script: %s\nread-only: %v, live: %v, output limit: %d\n", script, p.ReadOnly, p.Live, p.OutputLimit)
		lines := strings.SplitAfter(string(p.Stdin), "\n")
		for i, line := range lines {
			if c.Tool == schemas.ToolEdit && i > 1 || c.Tool == schemas.ToolWrite && i > 1 {
				content, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
				line = fmt.Sprintf("base64 of %q %v\n", content, err)
			}
			if line != "" {
				fmt.Fprintf(&b, "| %q\n", line)
			}
		}
		return b.String()
	})
}

// TestRenderBash pins the text of bash, in both dialects.
func TestRenderBash(t *testing.T) {
	t.Parallel()
	forCases(t, "testdata/bash/*.txtar", func(t *testing.T, section func(string) string) string {
		t.Helper()
		r := providers.Result{Runtime: "test", Stdout: []byte(section("stdout")), Stderr: []byte(section("stderr")),
			Duration: 31400 * time.Millisecond}
		for word := range strings.FieldsSeq(section("result")) {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "exit":
				if _, err := fmt.Sscan(value, &r.ExitCode); err != nil {
					t.Fatal(err)
				}
			case "timeout":
				r.TimedOut = true
			case "oom":
				r.OOMKilled = true
			case "truncated":
				r.Truncated, r.StdoutBytes = true, 1_000_000
			case "full":
				r.FullOutput = value
			case "chomp":
				r.Stdout = []byte(strings.TrimSuffix(string(r.Stdout), "\n"))
			case "invalid":
				r.Stdout = append([]byte{0xff, 0xfe}, r.Stdout...)
			case "invalid-stderr":
				r.Stderr = append([]byte{0xc3}, r.Stderr...)
			default:
				t.Fatalf("%q is not understood", word)
			}
		}
		var b strings.Builder
		for _, c := range []schemas.Call{
			{ID: "call_1", Tool: schemas.ToolBash, Timeout: schemas.Duration(30 * time.Second)},
			{ID: "call_1", Tool: schemas.ToolBash, Dialect: schemas.DialectDeepAgents},
		} {
			p, err := Compile(c, schemas.BashInput{Command: "x"})
			if err != nil {
				t.Fatal(err)
			}
			got := p.Render(r)
			fmt.Fprintf(&b, "%s, ok: %v\n%s\n", got.Status, got.Output.OK, got.Text)
		}
		return b.String()
	})
}

// forCases runs f for each case file and compares what it returns with the section "want".
func forCases(t *testing.T, pattern string, f func(t *testing.T, section func(string) string) string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases in %s: %v", pattern, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			raw, err := os.ReadFile(name) // source
			if err != nil {
				t.Fatal(err)
			}
			a := txtar.Parse(raw)
			var want *txtar.File
			got := f(t, func(section string) string {
				for _, s := range a.Files {
					if s.Name == section {
						return string(s.Data)
					}
				}
				return ""
			})
			for i := range a.Files {
				if a.Files[i].Name == "want" {
					want = &a.Files[i]
				}
			}
			switch {
			case *update && want == nil:
				a.Files = append(a.Files, txtar.File{Name: "want", Data: []byte(got)})
			case *update:
				want.Data = []byte(got)
			case want == nil || string(want.Data) != got:
				t.Errorf("got:\n%s", got)
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil { // source
					t.Fatal(err)
				}
			}
		})
	}
}
