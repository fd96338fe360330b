package tools

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// TestEditIsLiteral replaces texts that mean something to regular expressions, awk and shells.
func TestEditIsLiteral(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"$&", "$1", "$$", "${x}", "\\", "\\1", "\\n", "&", "%s", "%", "'", "\"", "`id`", "$(id)", "\n", "\r\n", "\t", " ", "a", "b", "ab", "é",
		"日", ".*", "[x]", "^", "|", "{2}", "/",
	})
	text := func(least int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, least, 5).Draw(t, "pieces"), "") })
	}
	path := programs(t)
	all, tried := longtest.Asked(), 0
	proptest.Check(t, func(r *rapid.T) {
		tried++
		before, old, replacement := text(0).Draw(r, "before"), text(1).Draw(r, "old"), text(0).Draw(r, "new")
		content := before + old + text(0).Draw(r, "after")
		in := schemas.EditInput{FilePath: "f", OldString: old, NewString: replacement, ReplaceAll: true, AllowNoop: new(true)}
		want := strings.ReplaceAll(content, old, replacement)
		for i, carry := range []func(string) schemas.Result{
			func(dir string) schemas.Result {
				return carryNative(t.Context(), t, dir, schemas.Call{Tool: schemas.ToolEdit}, in)
			},
			func(dir string) schemas.Result {
				return shell("dash", path)(t.Context(), t, dir, schemas.Call{Tool: schemas.ToolEdit}, in)
			},
		} {
			dir, err := os.MkdirTemp(t.TempDir(), "")
			if err != nil {
				r.Fatal(err)
			}
			file := filepath.Join(dir, "f")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				r.Fatal(err)
			}
			if i == 1 && (!available("dash") || !all && tried%4 != 0) { // a script takes a hundred times as long
				continue
			}
			result := carry(dir)
			got, err := os.ReadFile(file) // our own
			if err != nil || string(got) != want || result.Status != schemas.StatusCompleted {
				r.Fatalf("way %d: %q with %q by %q: %q, %v, %s; want %q", i, content, old, replacement, got, err, result.Text, want)
			}
		}
	})
}

func available(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// TestPatternsAgree searches random lines for random patterns in this process, by grep and by ripgrep.
func TestPatternsAgree(t *testing.T) {
	t.Parallel()
	atom := rapid.SampledFrom([]string{
		"a", "b", "é", "日", ".", `\d`, `\w`, `\W`, `\s`, `\S`, `\b`, `\B`, "[ab]", "[^a]", "[^é]", "[a-é]", "[à-ü]", `[\]^-]`, `[^\x00-a]`, "^",
		"$", `\.`, `\-`, "-", "]", "}", "{", "(a|b)",
		"(?:aé|)", "(?i:é)", "(?i:k)", `\pL`, `\p{Greek}`, "[[:alpha:]]", "/", `\\`, "#", "~", "'", "\"", " ", "&&",
		"[a&&b]", "\ufffd", "\U0010fffe",
	})
	repeat := rapid.SampledFrom([]string{"", "", "", "", "*", "+", "?", "*?", "{2}", "{1,2}", "{0,}", "{0}"})
	pattern := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(1, 5).Draw(t, "atoms") {
			fmt.Fprintf(&b, "(?:%s)%s", atom.Draw(t, "atom"), repeat.Draw(t, "repeat"))
		}
		return b.String()
	})
	char := rapid.SampledFrom([]string{
		"a", "b", "A", "K", "\u212a", "é", "É", "日", "ü", "0", "_", "-", "]", "^", ".", "\\", " ", "\t", "\r", "/", "{", "}", "&", "α", "\xff",
		"\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80",
		"\xc0\x80", "\U0001F600", "\ufffd", "\U0010fffe", "\U0010ffff", "'", "\"", "#", "~",
	})
	line := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(char, 0, 4).Draw(t, "chars"), "") })
	dir := t.TempDir()
	expression, file := filepath.Join(dir, "expression"), filepath.Join(dir, "file")
	proptest.Check(t, func(r *rapid.T) {
		source, fold := pattern.Draw(r, "pattern"), rapid.Bool().Draw(r, "fold")
		p, err := newPattern(source, fold)
		if err != nil {
			return // that it is refused is the same for all
		}
		data := []byte(strings.Join(rapid.SliceOfN(line, 1, 12).Draw(r, "lines"), "\n"))
		if rapid.Bool().Draw(r, "ended") {
			data = append(data, '\n')
		}
		inside := strings.Contains(source, `\B`) && bytes.ContainsFunc(data, func(r rune) bool { return r >= utf8.RuneSelf })
		if len(data) == 0 || inside { // \B may hold inside a character for engines that see bytes: doc.go says so
			return
		}
		if rapid.Bool().Draw(r, "small") { // so that lines go over the edges of what is looked at
			p.window, p.stride = rapid.IntRange(1, 9).Draw(r, "window"), rapid.IntRange(1, 9).Draw(r, "stride")
		}
		var own []byte
		err = p.lines(t.Context(), bytes.NewReader(data), int64(len(data)), func(n int, line []byte) bool {
			own = append(append(fmt.Appendf(own, "%d:", n), line...), '\n')
			return true
		})
		if err != nil {
			r.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			r.Fatal(err)
		}
		search := func(expr, program string, args ...string) {
			if !available(program) {
				return
			}
			if err := os.WriteFile(expression, []byte(expr+"\n"), 0o600); err != nil {
				r.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), program, append(args, "-f", expression, "--", file)...)
			cmd.Env = []string{"LC_ALL=C"}
			stderr := &buffer{}
			cmd.Stderr = stderr
			got, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code > 1 {
				r.Fatalf("%s refuses %q (from %q): %v, %s", program, expr, source, err, stderr.b)
			}
			if !bytes.Equal(got, own) {
				r.Fatalf("pattern %q, fold %v, lines %q\nhere: %q\n%s:  %q\nwith %q", source, fold, data, own, program, got, expr)
			}
		}
		search(p.ere, "grep", "-a", "-h", "-n", "-E")
		if p.rust == "(" { // the script takes grep
			return
		}
		search(p.rust, "rg", "--no-config", "--encoding", "none", "--text", "--no-filename", "--color", "never", "--no-heading", "-n")
	})
}

// FuzzCompile compiles any input that is decoded, and renders what a box may make of it.
func FuzzCompile(f *testing.F) {
	for _, seed := range [][3]string{
		{"bash", "", `{"command":"ls"}`}, {"read", "", `{"file_path":"/a","offset":-3,"limit":0}`},
		{"write", "deepagents", `{"file_path":"a","content":"x"}`},
		{"edit", "deepagents", `{"file_path":"a","old_string":"\n","new_string":"\r\n"}`}, {"glob", "", `{"pattern":"{a,b}[!c]*/**\\*"}`},
		{"grep", "", `{"pattern":"(?i)[^a]\\b.{2}","glob":"*.{a,b}"}`}, {"grep", "deepagents", `{"pattern":"]^[\\"}`},
		{"ls", "deepagents", `{"path":"/a b/","limit":3,"missing":"empty"}`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, tool, d, input string) {
		c := schemas.Call{ID: "call_1", Tool: schemas.Tool(tool), Dialect: schemas.Dialect(d), Input: []byte(input)}
		in, err := schemas.DecodeInput(c.Tool, c.Input)
		if err != nil {
			return
		}
		p, err := Compile(c, in)
		if err != nil {
			if code := schemas.CodeOf(err); code != schemas.Invalid && code != schemas.Unsupported {
				t.Errorf("code %s: %v", code, err)
			}
			return
		}
		lines := map[schemas.Tool]int{schemas.ToolRead: 2, schemas.ToolWrite: 3, schemas.ToolGlob: 3, schemas.ToolGrep: 5, schemas.ToolLS: 2}
		if want, ok := lines[c.Tool]; ok && bytes.Count(p.Stdin, []byte("\n")) != want {
			t.Errorf("a parameter broke out of its line: %q", p.Stdin)
		}
		if c.Tool != schemas.ToolBash && !strings.HasPrefix(p.Script, prelude) {
			t.Errorf("the script is not constant: %q", p.Script)
		}
		if again, err := Compile(c, in); err != nil || again.Script != p.Script || !bytes.Equal(again.Stdin, p.Stdin) {
			t.Errorf("compiled twice, it differs: %v", err)
		}
	})
}

// FuzzRender renders what a hostile box prints.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		"", "sandjet ok\n.\n", "sandjet ok\n=3\n=1\n=0\n#x\n-\nYWI=\n-\nYWIK\n.\n", "sandjet not_found\n.\n", "sandjet many\n=-9\n.\n",
		"sandjet ok\n-\nCg==\n.\n", "sandjet ok\n=9223372036854775807\n=9223372036854775807\n=0\n-\n-\nYQ==\n.\n",
		"sandjet ok\n-\nRmEKMTphCg==\n.\n",
		"sandjet ok\n=3\n-\nODFhNCAxMiAxIGEKODEgLTEgLSBiCg==\n.\n", "sandjet \xff\n.\n", "sandjet ok\n-\n!\n.\n",
	} {
		f.Add([]byte(seed), 0, false)
	}
	inputs := map[schemas.Tool]any{
		schemas.ToolBash: schemas.BashInput{Command: "x"}, schemas.ToolRead: schemas.ReadInput{FilePath: "a"},
		schemas.ToolWrite: schemas.WriteInput{FilePath: "a"},
		schemas.ToolEdit:  schemas.EditInput{FilePath: "a", OldString: "x"}, schemas.ToolGlob: schemas.GlobInput{Pattern: "*"},
		schemas.ToolGrep: schemas.GrepInput{Pattern: "x", OutputMode: schemas.GrepContent},
		schemas.ToolLS:   schemas.LSInput{},
	}
	f.Fuzz(func(t *testing.T, stdout []byte, exit int, truncated bool) {
		for tool, in := range inputs {
			for _, d := range []schemas.Dialect{schemas.DialectClaude, schemas.DialectDeepAgents} {
				p, err := Compile(schemas.Call{Tool: tool, Dialect: d}, in)
				if err != nil {
					t.Fatal(err)
				}
				r := p.Render(providers.Result{Stdout: stdout, ExitCode: exit, Truncated: truncated})
				if r.Status != schemas.StatusCompleted && r.Status != schemas.StatusFailed || r.Text == "" || r.Output == nil ||
					(r.Status == schemas.StatusFailed) != (r.Error != nil) {
					t.Errorf("%s: %+v", tool, r)
				}
				if valid([]byte(r.Text)) != r.Text {
					t.Errorf("%s: the text is not UTF-8: %q", tool, r.Text)
				}
			}
		}
	})
}
