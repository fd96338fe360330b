package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestToolInput(t *testing.T) {
	for _, c := range []struct {
		tool  schemas.Tool
		args  []string
		stdin string
		want  string
	}{
		{schemas.ToolBash, []string{"echo hi"}, "", `{"command":"echo hi"}`},
		{schemas.ToolBash, []string{`{"command":"x"}`}, "", `{"command":"x"}`},
		{schemas.ToolBash, []string{"{ echo hi; }"}, "", `{"command":"{ echo hi; }"}`},
		{schemas.ToolRead, []string{"a"}, "", `{"file_path":"a"}`},
		{schemas.ToolWrite, []string{"a", "b"}, "", `{"content":"b","file_path":"a"}`},
		{schemas.ToolWrite, []string{"a", "-"}, "from stdin\n", `{"content":"from stdin\n","file_path":"a"}`},
		{schemas.ToolEdit, []string{"a", "-", "c"}, "", `{"file_path":"a","new_string":"c","old_string":"-"}`},
		{schemas.ToolGlob, []string{"*"}, "", `{"pattern":"*"}`},
		{schemas.ToolLS, nil, "", `{}`},
		{schemas.ToolLS, []string{"dir"}, "", `{"path":"dir"}`},
		{schemas.ToolGrep, []string{"x", "dir"}, "", `{"path":"dir","pattern":"x"}`},
	} {
		got, err := toolInput(c.tool, c.args, strings.NewReader(c.stdin))
		if err != nil || string(got) != c.want {
			t.Errorf("%s %q = %s, %v; want %s", c.tool, c.args, got, err, c.want)
		}
		if _, err := schemas.DecodeInput(c.tool, got); err != nil {
			t.Errorf("%s is no input of %s: %v", got, c.tool, err)
		}
	}
	for _, c := range []struct {
		tool schemas.Tool
		args []string
	}{{"dance", []string{"x"}}, {schemas.ToolBash, nil}, {schemas.ToolBash, []string{"a", "b"}}, {schemas.ToolEdit, []string{"a", "b"}},
		{schemas.ToolRead, []string{"a", "b"}}, {schemas.ToolBash, []string{`{"command": "ls",}`}}, {schemas.ToolRead, []string{` {"file_path": a}`}}} {
		if _, err := toolInput(c.tool, c.args, strings.NewReader("")); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s %q: %v, want invalid", c.tool, c.args, err)
		}
	}
}

// TestAnInputThatNoCommandReadsIsNoticed: unreadInput reports a file on stdin of which nothing has been read. It does not report a pipe,
// nor a file of which a line was read, as in a shell loop over its lines.
func TestAnInputThatNoCommandReadsIsNoticed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(name, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if !unreadInput(f) || unreadInput(r) || unreadInput(strings.NewReader("x")) {
		t.Error("a file, a pipe or a reader is taken for another")
	}
	if _, err := f.Read(make([]byte, 4)); err != nil || unreadInput(f) {
		t.Errorf("after its first line: %v", err)
	}
}

// TestEveryToolHasAForm: a tool that is added to the vocabulary needs its place on the command line.
func TestEveryToolHasAForm(t *testing.T) {
	for _, tool := range schemas.Tools() {
		if _, ok := forms()[tool]; !ok {
			t.Errorf("%s has no form", tool)
		}
	}
}

// TestEveryEndHasAnExitCode: no status but completed may look like success, and every code is mapped.
func TestEveryEndHasAnExitCode(t *testing.T) {
	for _, s := range schemas.Statuses() {
		got := resultCode(schemas.Result{Status: s})
		if (got == exitOK) != (s == schemas.StatusCompleted) || got == exitInternal {
			t.Errorf("%s ends with %d", s, got)
		}
	}
	for _, c := range schemas.Codes() {
		if got := exitCode(schemas.Errorf(c, "x")); got == exitOK {
			t.Errorf("%s ends with success", c)
		}
	}
	if got := resultCode(schemas.Result{Status: schemas.StatusCompleted, Output: &schemas.Output{ExitCode: 7}}); got != 7 {
		t.Errorf("exit code 7 became %d", got)
	}
	if got := resultCode(schemas.Result{Status: schemas.StatusFailed, Output: &schemas.Output{TimedOut: true}}); got != exitTimeout {
		t.Errorf("a timeout became %d", got)
	}
}

func TestPrintableTamesTerminals(t *testing.T) {
	if got := printable("a\x1b[31mb\nc\td\u009b2J\x7f\x00é"); got != "a\uFFFD[31mb\nc\td\uFFFD2J\uFFFD\uFFFDé" {
		t.Errorf("%q", got)
	}
}
