package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp/syntax"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/schemas"
)

// worst returns a pattern that is still accepted and takes as long as an accepted one can: for each character of the text, every
// instruction of its program is tried.
func worst() string { return strings.Repeat("[ab]{0,90}", 50) + "[cd]" }

// TestSearchesEndWithTheirContext: searches that would take many minutes, in one long line, in many short lines and in many file names,
// end soon after their context does.
//
//guarantee:what-one-tenant-can-do-to-another
func TestSearchesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	dir := t.TempDir()
	for name, content := range map[string]string{
		"one-line": strings.Repeat("a", size), "lines": strings.Repeat(strings.Repeat("ab", 40)+"\n", size/81),
		"medium": strings.Repeat(strings.Repeat("ab", 2000)+"\n", size/4001),
		"bytes":  strings.Repeat("ab\xff", size/3),
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "f"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deep := filepath.Join(dir, "deep", strings.Repeat("/"+strings.Repeat("a", 250), 14))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(deep, fmt.Sprintf("%s%04d", strings.Repeat("a", 200), i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	names := "**/" + strings.Repeat("*a", 12) + "z/**"
	for _, c := range []struct {
		name string
		tool schemas.Tool
		in   any
	}{
		{"one line", schemas.ToolGrep, schemas.GrepInput{Pattern: worst(), Path: "one-line"}},
		{"lines", schemas.ToolGrep, schemas.GrepInput{Pattern: worst(), Path: "lines", OutputMode: schemas.GrepCount}},
		{"lines of a few thousand", schemas.ToolGrep, schemas.GrepInput{Pattern: worst(), Path: "medium", OutputMode: schemas.GrepContent}},
		{"no characters", schemas.ToolGrep, schemas.GrepInput{Pattern: worst(), Path: "bytes"}},
		{"no case", schemas.ToolGrep, schemas.GrepInput{Pattern: worst(), Path: "lines", CaseInsensitive: true}},
		{"names of grep", schemas.ToolGrep, schemas.GrepInput{Pattern: "x", Path: "deep", Glob: names}},
		{"names", schemas.ToolGlob, schemas.GlobInput{Pattern: names, Path: "deep"}},
	} {
		for how, limit := range map[string]time.Duration{"cancelled": time.Minute, "out of time": 20 * time.Millisecond} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if how == "cancelled" {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				defer cancel()
				done := make(chan struct{})
				var r schemas.Result
				go func() {
					defer close(done)
					r, _, err = RunNative(ctx, root, schemas.Call{Tool: c.tool, Timeout: schemas.Duration(limit)}, c.in)
				}()
				select {
				case <-done:
				case <-time.After(30 * time.Second): // it is a moment on a machine that does nothing else
					t.Fatal("it goes on")
				}
				switch finished := err == nil && r.Status == schemas.StatusCompleted; {
				case finished && strings.HasPrefix(c.name, "names"): // few names may be done in time
				case how == "cancelled" && !errors.Is(err, context.Canceled):
					t.Errorf("got %v, %v; want that it was cancelled", r.Status, err)
				case how != "cancelled" && (err != nil || r.Error == nil || r.Error.Code != schemas.Timeout):
					t.Errorf("got %+v, %v; want that it took too long", r.Error, err)
				}
			})
		}
	}
}

// TestPatternsAreBounded compiles patterns that would take seconds and gigabytes if they were written out.
//
//guarantee:what-one-tenant-can-do-to-another
func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 100 << 20 // bytes that a compilation may allocate: most of it is gone at once
	var all []pattern
	for name, source := range map[string]string{
		"repetitions": strings.Repeat("([ab]){0,999}", 600) + "[cd]", "nested repetitions": "((a{30}){30}){30}",
		"classes": strings.Repeat(`\pL`, 2700), "negated classes": strings.Repeat(`[\PL\pM]`, 1000),
		"a class": "[" + strings.Repeat(`\pL`, 2700) + "]", "folded ranges": strings.Repeat("[B-\U0001e942]", 1000),
		"folded ranges of escapes": strings.Repeat(`[B-\x{1e942}]`, 600), "empty": strings.Repeat("(?:)", 2000),
		"alternatives": strings.Repeat(`\pL|`, 2000), "groups": strings.Repeat("(", 900) + strings.Repeat(")", 900), "worst": worst(),
	} {
		for _, fold := range []bool{false, true} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := newPattern(source, fold)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 4*most { // other tests run beside it
				t.Errorf("%s: %d MiB were allocated", name, used>>20)
			}
			if err != nil {
				if schemas.CodeOf(err) != schemas.Invalid {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			all = append(all, p)
		}
	}
	for _, p := range all {
		if n := instructions(t, p.re.String()); n > schemas.MaxPatternSteps+2 {
			t.Errorf("a pattern with %d instructions is let through", n)
		}
	}
	for _, source := range []string{
		strings.Repeat("{a,b}", 9) + strings.Repeat("*?", 3000), strings.Repeat("{a,", 2700),
		strings.Repeat("{a,", 2000) + strings.Repeat("}", 2000), strings.Repeat("{", 8000),
		strings.Repeat("{a,b}", 1600), "{" + strings.Repeat(",", 8000) + "}", strings.Repeat("[!a]", 2000), strings.Repeat("?", 8000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := newGlobPattern(source, false)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4*most {
			t.Errorf("glob %.20s…: %d MiB were allocated", source, used>>20)
		}
		if err != nil && schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("glob %.20s…: %v", source, err)
		}
	}
}

// instructions is the size of the program that an expression is compiled to.
func instructions(t interface{ Fatal(args ...any) }, expr string) int {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		t.Fatal(err)
	}
	return len(prog.Inst)
}

// TestProgramSize compares the count with what is compiled.
func TestProgramSize(t *testing.T) {
	t.Parallel()
	atom := rapid.SampledFrom([]string{"a", "abc", ".", "[a-z]", `\pL`, "(b)", "(?:cd|e|)", "^", "$", `\b`, "(?i:k)", "(?:)"})
	repeat := rapid.SampledFrom([]string{"", "", "*", "+", "?", "{3}", "{2,7}", "{4,}", "{0,5}", "{0}", "{1}"})
	var expr func(depth int) *rapid.Generator[string]
	expr = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			var b strings.Builder
			for range rapid.IntRange(1, 4).Draw(t, "parts") {
				one := atom
				if depth > 0 && rapid.Bool().Draw(t, "nested") {
					one = expr(depth - 1)
				}
				b.WriteString("(?:" + one.Draw(t, "atom") + ")" + repeat.Draw(t, "repeat"))
				if rapid.IntRange(0, 3).Draw(t, "or") == 0 {
					b.WriteByte('|')
				}
			}
			return b.String()
		})
	}
	proptest.Check(t, func(r *rapid.T) {
		source := expr(2).Draw(r, "pattern")
		tree, err := syntax.Parse(source, syntax.Perl)
		if err != nil {
			r.Skip(err)
		}
		size := programSize(tree)
		p, err := newPattern(source, false)
		if err != nil {
			return
		}
		if n := instructions(r, p.re.String()); n > size+2 { // the first fails, the last matches
			r.Fatalf("%q has %d instructions, counted as %d: %q", source, n, size, p.re)
		}
	})
}

// TestBracesExpandAsBefore compares the one-pass search for braces with the plain rule.
func TestBracesExpandAsBefore(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{"{", "}", ",", "a", "b", `\{`, `\,`, `\`, "*"})
	proptest.Check(t, func(r *rapid.T) {
		s := strings.Join(rapid.SliceOfN(piece, 0, 14).Draw(r, "pieces"), "")
		head, options, tail, ok := firstBrace(s)
		wantHead, wantOptions, wantTail, want := plainBrace(s)
		if ok != want || head != wantHead || tail != wantTail || !slices.Equal(options, wantOptions) {
			r.Fatalf("%q: %q %q %q %v; want %q %q %q %v", s, head, options, tail, ok, wantHead, wantOptions, wantTail, want)
		}
	})
}

// plainBrace looks from each brace for its partner.
func plainBrace(s string) (head string, options []string, tail string, ok bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		if s[i] != '{' {
			continue
		}
		depth, begin := 0, i+1
		var found []string
	partner:
		for j := i + 1; j < len(s); j++ {
			switch {
			case s[j] == '\\':
				j++
			case s[j] == '{':
				depth++
			case s[j] == ',' && depth == 0:
				found, begin = append(found, s[begin:j]), j+1
			case s[j] == '}' && depth > 0:
				depth--
			case s[j] == '}':
				if len(found) == 0 {
					break partner
				}
				return s[:i], append(found, s[begin:j]), s[j+1:], true
			}
		}
	}
	return "", nil, "", false
}

// TestGlobKeepsWhatItCanShow: however the order in which glob finds paths, it keeps the ones that it will show, the newest first, and not
// many bytes more.
func TestGlobKeepsWhatItCanShow(t *testing.T) {
	t.Parallel()
	began := time.Now()
	proptest.Check(t, func(r *rapid.T) {
		long := rapid.SampledFrom([]int{1, 30, 3000}).Draw(r, "length")
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range 300 {
				if !yield(i) {
					return
				}
			}
		})).Draw(r, "order")
		var first firstPaths
		var all []foundPath
		for _, i := range order {
			f := foundPath{path: fmt.Sprintf("%s%03d", strings.Repeat("x", long), i), time: began.Add(time.Duration(i%7) * time.Second)}
			all = append(all, f)
			first.add(f)
			if first.bytes > pathsBytes+2*long+10 {
				r.Fatalf("%d bytes are kept", first.bytes)
			}
		}
		slices.SortFunc(all, func(a, b foundPath) int { return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.path, b.path)) })
		end, bytes := 0, 0
		for ; end < len(all) && bytes < pathsBytes; end++ {
			bytes += len(all[end].path) + 1
		}
		if got := first.sorted(); !slices.Equal(got, all[:end]) || first.total != int64(len(all)) {
			r.Fatalf("%d of %d paths are kept, want %d", len(got), first.total, end)
		}
	})
}

// TestAnswersAreNotMultiplied: the text of a result is cut at its limit, also where a long path would be repeated for each of many short
// lines.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAnswersAreNotMultiplied(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(strings.Repeat("d", 200)+"/", 19)
	paths := []byte(strings.Repeat("a\n", 10_000))
	for name, r := range map[string]struct {
		in any
		a  answer
	}{
		"glob": {schemas.GlobInput{Pattern: "*", Path: long, Absolute: new(true)},
			answer{word: wordOK, numbers: []int64{10_000}, parts: [][]byte{paths}}},
		"content": {schemas.GrepInput{Pattern: "x", Path: long, OutputMode: schemas.GrepContent, HeadLimit: new(10_000)},
			answer{word: wordOK, parts: [][]byte{[]byte("Fa\n" + strings.Repeat("1:x\n", 10_000))}}},
		"files": {schemas.GrepInput{Pattern: "x", Path: long, HeadLimit: new(10_000)}, answer{word: wordOK, parts: [][]byte{paths}}},
		"counts": {schemas.GrepInput{Pattern: "x", Path: long, OutputMode: schemas.GrepCount, HeadLimit: new(10_000)},
			answer{word: wordOK, parts: [][]byte{[]byte(strings.Repeat("1:a\n", 10_000))}}},
	} {
		tool := schemas.ToolGrep
		if name == "glob" {
			tool = schemas.ToolGlob
		}
		p, err := Compile(schemas.Call{Tool: tool}, r.in)
		if err != nil {
			t.Fatal(err)
		}
		o := p.tool.present(r.a)
		if len(o.text) > shownBytes+1000 || len(o.text) < shownBytes/2 {
			t.Errorf("%s: %d bytes of text", name, len(o.text))
		}
		if !strings.Contains(o.text, "[truncated:") {
			t.Errorf("%s: it is not said that something is left out", name)
		}
	}
}

// TestReadReportsBinaryFilesWithoutReadingThem reads a late page of a binary file that is too large to be read in the test's time.
func TestReadReportsBinaryFilesWithoutReadingThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "sparse")
	if err := os.WriteFile(name, []byte("beginning\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const size = 1 << 40
	if err := os.Truncate(name, size); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	for way, carry := range map[string]func(context.Context, testing.TB, string, schemas.Call, any) schemas.Result{"native": carryNative,
		"script": shell("bash", programs(t))} {
		for _, d := range []schemas.Dialect{schemas.DialectClaude, schemas.DialectDeepAgents} {
			c := schemas.Call{Tool: schemas.ToolRead, Dialect: d, Timeout: schemas.Duration(20 * time.Second)}
			r := carry(t.Context(), t, dir, c, schemas.ReadInput{FilePath: "sparse", Offset: new(1 << 30)})
			if r.Error == nil || r.Error.Code == schemas.Timeout || !strings.Contains(strings.ToLower(r.Text), "binary") ||
				!strings.Contains(r.Text, "application/octet-stream") {
				t.Errorf("%s, %s: %s", way, d, r.Text)
			}
		}
	}
}
