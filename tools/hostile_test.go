package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/schemas"
)

// hostileFiles fills a workspace with what makes tools work hard: long lines, many lines, many names, long names.
func hostileFiles(tb testing.TB) *safefs.Root {
	tb.Helper()
	dir := tb.TempDir()
	files := map[string]string{
		"line": strings.Repeat("a", 2<<20), "ends": strings.Repeat("\n", 1<<20),
		"crlf": strings.Repeat("\r\n", 1<<19), "short": "ab\n", "empty": "",
		"words": strings.Repeat("abc def ", 1<<17), "lines": strings.Repeat(strings.Repeat("ab", 60)+"\n", 1<<13),
		"wrong": strings.Repeat("a\xff\n", 1<<17), "nul": "a\x00b",
		strings.Repeat("n", 255): "x\n", "é": "é\n", "sub/.hidden": "a\n", "sub/a.go": "a\n",
	}
	long := strings.Repeat("/"+strings.Repeat("d", 250), 14)
	for i := range 300 {
		files[fmt.Sprintf("%s/%s%03d", long, strings.Repeat("a", 200), i)] = "a\n"
	}
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "empty"), 9<<20); err != nil { // a hole
		tb.Fatal(err)
	}
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := root.Close(); err != nil {
			tb.Error(err)
		}
	})
	return root
}

// hostile draws a file tool and an input for it that is made to take much memory or time.
func hostile(t *rapid.T) (schemas.Tool, any) {
	path := rapid.SampledFrom([]string{
		"line", "ends", "crlf", "short", "empty", "words", "lines", "wrong", "nul", "é", "sub", ".", "", "none", "a/b/c",
		strings.Repeat("n", 255), strings.Repeat(strings.Repeat("d", 250)+"/", 14),
		strings.Repeat("x/", 2000), "..", "a\nb", strings.Repeat("n", 300), "sub/a.go/x",
	}).Draw(t, "path")
	text := rapid.Custom(func(t *rapid.T) string {
		piece := rapid.SampledFrom([]string{"a", "b", "\n", "\r\n", "ab", "é", " ", "x"}).Draw(t, "piece")
		return strings.Repeat(piece, rapid.SampledFrom([]int{1, 2, 100, 4000, 500_000}).Draw(t, "times"))
	})
	pattern := rapid.Custom(func(t *rapid.T) string {
		piece := rapid.SampledFrom([]string{
			"a", "[ab]", "[^a]", `\pL`, `[\PL\pM]`, ".", "a?", "a*", "(a|b)", "a{0,90}", "(a{9}){9}", "a{999}", `\b`, "^", "$", "(?i)k", "|", "(",
			")", "[B-\U0001e942]", `\x{10fffe}`, "{", "}", "{a,b}", "{a,", "*", "**/", "?", "[!a]", "/", ".", `\`, "é", "\xff", "\x00", "\n",
		})
		var b strings.Builder
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			b.WriteString(strings.Repeat(piece.Draw(t, "piece"), rapid.SampledFrom([]int{1, 1, 2, 9, 50, 900, 4000}).Draw(t, "times")))
		}
		return b.String()[:min(b.Len(), schemas.MaxPattern)]
	})
	number := rapid.SampledFrom([]int{-1 << 62, -1, 0, 1, 2, 1000, 1 << 20, 1 << 40, 1<<63 - 1})
	flag := rapid.Bool()
	switch tool := rapid.SampledFrom([]schemas.Tool{schemas.ToolRead, schemas.ToolWrite, schemas.ToolEdit, schemas.ToolGlob, schemas.ToolGrep,
		schemas.ToolGrep, schemas.ToolLS}).Draw(t, "tool"); tool {
	case schemas.ToolRead:
		return tool, schemas.ReadInput{FilePath: path, Offset: new(number.Draw(t, "offset")), Limit: new(number.Draw(t, "limit"))}
	case schemas.ToolWrite:
		mode := rapid.SampledFrom([]schemas.WriteMode{"", schemas.WriteCreate, schemas.WriteOverwrite}).Draw(t, "mode")
		return tool, schemas.WriteInput{FilePath: "new/" + path, Content: text.Draw(t, "content"), Mode: mode,
			IfMatch: rapid.SampledFrom([]string{"", strings.Repeat("a", 64)}).Draw(t, "match")}
	case schemas.ToolEdit:
		return tool, schemas.EditInput{
			FilePath: path, OldString: text.Draw(t, "old"), NewString: strings.Repeat(text.Draw(t, "new"), rapid.IntRange(0, 2).Draw(t, "times")),
			ReplaceAll: rapid.IntRange(0, 3).Draw(t, "all") > 0,
		}
	case schemas.ToolGlob:
		return tool, schemas.GlobInput{Pattern: pattern.Draw(t, "pattern"), Path: path, IncludeDirs: new(flag.Draw(t, "dirs")),
			Absolute: new(flag.Draw(t, "absolute")), Sort: schemas.GlobSort(rapid.SampledFrom([]string{"newest", "name"}).Draw(t, "sort"))}
	case schemas.ToolLS:
		return tool, schemas.LSInput{Path: path, Limit: new(number.Draw(t, "limit"))}
	default:
		return tool, schemas.GrepInput{
			Pattern: pattern.Draw(t, "pattern"), Path: path,
			OutputMode: rapid.SampledFrom([]schemas.GrepMode{schemas.GrepFiles, schemas.GrepContent, schemas.GrepCount}).Draw(t, "mode"),
			Glob:       rapid.OneOf(rapid.Just(""), rapid.Just(""), pattern).Draw(t, "glob"), CaseInsensitive: flag.Draw(t, "fold"),
			LineNumbers: flag.Draw(t, "numbers"), Fixed: new(flag.Draw(t, "fixed")),
			HeadLimit: new(number.Draw(t, "head")),
		}
	}
}

// TestHostileInputsAreBounded runs file tools with random inputs that are made to take much memory and time. Each run is cancelled after a
// moment and must then end. The memory that it allocates and the length of its text have limits.
//
//guarantee:what-one-tenant-can-do-to-another
func TestHostileInputsAreBounded(t *testing.T) {
	root := hostileFiles(t) // not beside other tests: what is allocated is measured for the whole process
	const (
		most   = raceShare * (160 << 20) // bytes that a call may allocate from its begin to its end; most of it is gone at once
		moment = 20 * time.Millisecond
	)
	runs, cut, worst := 0, 0, uint64(0)
	check := func(r *rapid.T) {
		tool, in := hostile(r)
		c := schemas.Call{Tool: tool,
			Dialect: rapid.SampledFrom([]schemas.Dialect{schemas.DialectClaude, schemas.DialectDeepAgents}).Draw(r, "dialect")}
		ctx, cancel := context.WithTimeout(t.Context(), moment)
		defer cancel()
		type ended struct {
			r   schemas.Result
			err error
		}
		done := make(chan ended, 1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		go func() {
			result, _, err := RunNative(ctx, root, c, in)
			done <- ended{result, err}
		}()
		var e ended
		select {
		case e = <-done:
		case <-time.After(30 * time.Second):
			r.Fatalf("%s goes on after its end: %+.200v", tool, in)
		}
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		worst = max(worst, used)
		runs++
		if used > most {
			r.Fatalf("%s allocated %d MiB: %+.200v", tool, used>>20, in)
		}
		if errors.Is(e.err, context.DeadlineExceeded) || e.r.Error != nil && e.r.Error.Code == schemas.Timeout {
			cut++
		} else if code := schemas.CodeOf(e.err); e.err != nil && code != schemas.Invalid && code != schemas.Unsupported {
			r.Fatalf("%s: %v", tool, e.err)
		}
		if len(e.r.Text) > 2<<20 {
			r.Fatalf("%s says %d bytes: %+.200v", tool, len(e.r.Text), in)
		}
	}
	for runs == 0 || longtest.Asked() && runs < 3000 {
		proptest.Check(t, check)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d calls, %d of them cut off, at most %d MiB allocated", runs, cut, worst>>20)
}
