// Package toolstest is the one suite that defines the behavior of the tools. All implementations are tested with it: in this process, as
// scripts in a bare shell, and in the boxes of each provider.
package toolstest

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandjet/sandjet/schemas"
)

//go:embed testdata/*.txtar
var cases embed.FS

// Carry runs one call in a workspace whose files are in dir.
type Carry func(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) schemas.Result

// Run runs every case. accept lists what this implementation cannot do: a case whose name begins with one of its keys is skipped, with the
// value as the reason.
func Run(t *testing.T, carry Carry, accept map[string]string) {
	t.Helper()
	RunSome(t, carry, accept, 1)
}

// RunSome runs every each-th case, always the same ones.
func RunSome(t *testing.T, carry Carry, accept map[string]string, each int) {
	t.Helper()
	files, err := cases.ReadDir("testdata")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	count := 0
	for _, f := range files {
		raw, err := cases.ReadFile("testdata/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range parse(t, f.Name(), raw) {
			if count++; count%each != 0 {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				for prefix, why := range accept {
					if strings.HasPrefix(c.name, prefix) {
						t.Skip(why)
					}
				}
				c.run(t, carry)
			})
		}
	}
	const least = 150
	if count < least {
		t.Errorf("the suite has %d cases: it is to have at least %d", count, least)
	}
}

// testcase is a call, the files before it, and the expected result.
type testcase struct {
	name  string
	call  string // "tool dialect? {json}"
	files []string
	want  string
}

// parse parses the cases of one file. Each begins with a section "case NAME" that has the files, one per line, a blank line, and the call;
// a section "want" follows.
func parse(t *testing.T, file string, raw []byte) []testcase {
	t.Helper()
	var list []testcase
	archive := txtar.Parse(raw)
	for i := range archive.Files {
		f := &archive.Files[i]
		name, isCase := strings.CutPrefix(f.Name, "case ")
		switch {
		case isCase:
			lines := strings.Split(strings.TrimSpace(string(f.Data)), "\n")
			n := len(lines) - 1
			list = append(list, testcase{
				name: strings.TrimSuffix(file, ".txtar") + "/" + strings.ReplaceAll(name, " ", "-"), call: lines[n], files: lines[:n],
			})
		case f.Name == "want" && len(list) > 0:
			list[len(list)-1].want = string(f.Data)
		default:
			t.Fatalf("%s: section %q is neither a case nor a want", file, f.Name)
		}
	}
	return list
}

func (c testcase) run(t *testing.T, carry Carry) {
	t.Helper()
	got := c.found(t, carry)
	if got != c.want {
		t.Errorf("call: %s\ngot:\n%swant:\n%s", c.call, got, c.want)
	}
}

// found runs the case and describes its result.
func (c testcase) found(t *testing.T, carry Carry) string {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "files")
	must(t, os.Mkdir(dir, 0o755)) //nolint:gosec // a box with another owner must read it
	must(t, os.Chmod(dir, 0o777)) //nolint:gosec // as above
	must(t, os.WriteFile(filepath.Join(base, "secret"), []byte("outside\n"), 0o600))
	now := time.Now().Truncate(time.Minute) // read once, so that equal ages stay equal
	for _, line := range c.files {
		if line != "" {
			c.populate(t, dir, line, now)
		}
	}
	call, input := c.decode(t)
	if input == nil {
		return "input: " + call.Digest + "\n"
	}
	before := snapshot(t, dir)
	r := carry(t.Context(), t, dir, call, input)
	if outside, err := os.ReadFile(filepath.Join(base, "secret")); string(outside) != "outside\n" { // our own
		t.Errorf("a file outside of the workspace was changed: %q, %v", outside, err)
	}
	return describe(t, r, before, snapshot(t, dir), now)
}

// aged replaces the times in a text, which differ in each run, by the time between them and now. Changes since now, such as of a folder
// that a case does not name, are "just now".
func aged(text string, now time.Time) string {
	return timestamp.ReplaceAllStringFunc(text, func(s string) string {
		at, err := time.Parse(time.RFC3339, s)
		switch {
		case err != nil:
			return s
		case !at.Before(now):
			return "just now"
		}
		return now.Sub(at).String()
	})
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// decode decodes the call of a case. If its input is invalid, the error is in the call's Digest and the input is nil.
func (c testcase) decode(t *testing.T) (schemas.Call, any) {
	t.Helper()
	head, raw, _ := strings.Cut(c.call, " {")
	words := strings.Fields(head)
	call := schemas.Call{
		ID: "call_1", Account: "acct_1", Conversation: "c_1", Tool: schemas.Tool(words[0]), Input: expand("{" + raw),
		Timeout: schemas.Duration(time.Minute),
	}
	for _, w := range words[1:] {
		call.Dialect = schemas.Dialect(w)
	}
	input, err := schemas.DecodeInput(call.Tool, call.Input)
	if err != nil {
		call.Digest = err.Error()
		return call, nil
	}
	return call, input
}

// expand replaces «x*n» by n times x, so that large inputs stay readable.
func expand(s string) []byte {
	for {
		head, rest, ok := strings.Cut(s, "«")
		if !ok {
			return []byte(s)
		}
		what, tail, _ := strings.Cut(rest, "»")
		text, times, _ := strings.Cut(what, "*")
		n := 0
		if _, err := fmt.Sscan(times, &n); err != nil {
			panic("toolstest: bad repetition " + what)
		}
		s = head + strings.Repeat(text, n) + tail
	}
}

// populate creates one file: "NAME = JSON string", "NAME base64 …", "NAME -> TARGET", "NAME/", "NAME fifo", "NAME link OTHER", "NAME size
// N". A prefix such as "3| " is its age in minutes.
func (c testcase) populate(t *testing.T, dir, line string, now time.Time) {
	t.Helper()
	age := 1
	if n, rest, ok := strings.Cut(line, "| "); ok {
		if _, err := fmt.Sscan(n, &age); err != nil {
			t.Fatal(err)
		}
		line = rest
	}
	var name, value string
	var err error
	cut := func(sep string) bool {
		n, v, ok := strings.Cut(line, sep)
		if ok {
			var unquoted string
			if json.Unmarshal([]byte(n), &unquoted) == nil {
				n = unquoted
			}
			name, value = filepath.Join(dir, n), v
			must(t, os.MkdirAll(filepath.Dir(name), 0o777)) //nolint:gosec // as the workspace
		}
		return ok
	}
	switch {
	case cut(" = "):
		var content string
		must(t, json.Unmarshal(expand(value), &content))
		err = os.WriteFile(name, []byte(content), 0o666) //nolint:gosec // as above
	case cut(" base64 "):
		var content []byte
		content, err = base64.StdEncoding.DecodeString(value)
		must(t, err)
		err = os.WriteFile(name, content, 0o666) //nolint:gosec // as above
	case cut(" -> "):
		must(t, os.Symlink(value, name))
		return
	case cut(" fifo"):
		err = syscall.Mkfifo(name, 0o666)
	case cut(" link "):
		err = os.Link(filepath.Join(dir, value), name)
	case cut(" size "):
		n := int64(0)
		_, err = fmt.Sscan(value, &n)
		must(t, err)
		must(t, os.WriteFile(name, []byte("beginning\n"), 0o666)) //nolint:gosec // as above
		err = os.Truncate(name, n)
	case strings.HasSuffix(line, "/"):
		err = os.MkdirAll(filepath.Join(dir, line), 0o777) //nolint:gosec // as above
		name = filepath.Join(dir, line)
	default:
		t.Fatalf("file %q: not understood", line)
	}
	must(t, err)
	when := now.Add(-time.Duration(age) * time.Minute)
	must(t, os.Chtimes(name, when, when))
}

// describe returns a result and its changes as text.
func describe(t *testing.T, r schemas.Result, before, after map[string]string, now time.Time) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "status: %s\n", r.Status)
	if r.Error != nil {
		fmt.Fprintf(&b, "error: %s %s\n", r.Error.Code, r.Error.Field)
	}
	b.WriteString("text:\n")
	indented(&b, aged(strings.ReplaceAll(r.Text, "\r", "␍"), now))
	if r.Output != nil && r.Output.Data != nil {
		data, err := json.MarshalIndent(r.Output.Data, "", "  ")
		must(t, err)
		indented(&b, aged(string(data), now))
	}
	names := make([]string, 0, len(after))
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	for name := range after {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if now, was := after[name], before[name]; now != was {
			fmt.Fprintf(&b, "now: %s %s\n", name, abridge(now))
		}
	}
	return b.String()
}

// indented writes a text; of long ones the beginning, the end, and a hash of the whole.
func indented(b *strings.Builder, text string) {
	const most, shown = 40, 3
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case len(lines) <= most, i < shown, i >= len(lines)-2*shown:
			b.WriteString("  " + abridge(line) + "\n")
		case i == shown:
			fmt.Fprintf(b, "  … (%d lines, %.8x)\n", len(lines), sha256.Sum256([]byte(text)))
		}
	}
}

func abridge(s string) string {
	const most = 160
	if len(s) <= most {
		return strings.TrimRight(s, " ")
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

// snapshot returns every file with its content.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[rel] = d.Type().String()
		const readable = 1 << 20
		switch {
		case d.Type().IsRegular() && info.Size() <= readable:
			content, err := os.ReadFile(path) //nolint:gosec // our own
			if err != nil {
				return err
			}
			files[rel] = fmt.Sprintf("%q %s", content, info.Mode())
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			files[rel] = "-> " + target
		}
		return nil
	}))
	return files
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Rewrite rewrites every expected result with the one that carry produces, in the folder dir of the case files.
func Rewrite(t *testing.T, dir string, carry Carry) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	must(t, err)
	for _, name := range names {
		raw, err := os.ReadFile(name) // our own
		must(t, err)
		archive := txtar.Parse(raw)
		out := &txtar.Archive{Comment: archive.Comment}
		for _, f := range archive.Files {
			if !strings.HasPrefix(f.Name, "case ") {
				continue
			}
			c := parse(t, filepath.Base(name), txtar.Format(&txtar.Archive{Files: []txtar.File{f}}))[0]
			t.Run(c.name, func(t *testing.T) {
				out.Files = append(out.Files, f, txtar.File{Name: "want", Data: []byte(c.found(t, carry))})
			})
		}
		must(t, os.WriteFile(name, txtar.Format(out), 0o644)) //nolint:gosec // source
	}
}
