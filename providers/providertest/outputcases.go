package providertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

func outputCases() []testCase {
	return []testCase{
		{"the two streams are apart", streamsApart},
		{"every byte comes through", everyByte},
		{"the order is kept", orderKept},
		{"up to the limit nothing is dropped", limitExact},
		{"above the limit head and tail are kept", limitExceeded},
		{"each stream has the limit for itself", limitEach},
		{"the cut respects characters", limitCharacters},
		{"the default limit holds", limitDefault},
		{"dropped output is found in the workspace", fullOutput},
		{"the callback gets everything, once, in pieces", callbackEverything},
		{"the callback is never called concurrently or late", callbackAlone},
		{"the callback hears while the command runs", callbackLive},
		{"a slow callback slows the command", callbackSlow},
		{"a closed output is no failure", outputClosed},
	}
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func streamsApart(t *testing.T, s subject) {
	res := s.run(t, s.command("echo out; echo err >&2; printf more; printf more-err >&2"))
	want(t, "stdout", string(res.Stdout), "out\nmore")
	want(t, "stderr", string(res.Stderr), "err\nmore-err")
	want(t, "bytes", [2]int64{res.StdoutBytes, res.StderrBytes}, [2]int64{8, 12})
}

func everyByte(t *testing.T, s subject) {
	in := make([]byte, 0, 256*64)
	for range 64 {
		for b := range 256 {
			in = append(in, byte(b))
		}
	}
	cmd := s.command("tee /dev/stderr")
	cmd.Stdin = in
	cmd.OutputLimit = 1 << 20
	res := s.run(t, cmd)
	if !bytes.Equal(res.Stdout, in) || !bytes.Equal(res.Stderr, in) {
		t.Errorf("%d and %d bytes came back changed, %d were printed", len(res.Stdout), len(res.Stderr), len(in))
	}
}

func orderKept(t *testing.T, s subject) {
	cmd := s.command("for i in $(seq 20000); do echo $i; done")
	cmd.OutputLimit = 1 << 20
	var expected strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&expected, i+1)
	}
	if got := s.run(t, cmd); string(got.Stdout) != expected.String() {
		t.Errorf("%d bytes, want %d in order", len(got.Stdout), expected.Len())
	}
}

func limitExact(t *testing.T, s subject) {
	for _, size := range []int{0, 1, 999, 1000} {
		cmd := s.command(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size))
		cmd.OutputLimit = 1000
		res := s.run(t, cmd)
		if res.Truncated || string(res.Stdout) != strings.Repeat("x", size) {
			t.Errorf("%d bytes at a limit of 1000: truncated %v, %d bytes", size, res.Truncated, len(res.Stdout))
		}
	}
}

func limitExceeded(t *testing.T, s subject) {
	for _, c := range []struct{ limit, lines int }{{1000, 1000}, {1001, 5000}, {64 << 10, 200_000}} {
		cmd := s.command(fmt.Sprintf("printf %%07d, $(seq %d)", c.lines))
		cmd.OutputLimit = c.limit
		var printed bytes.Buffer
		for i := range c.lines {
			fmt.Fprintf(&printed, "%07d,", i+1)
		}
		res := s.run(t, cmd)
		want(t, "Truncated", res.Truncated, true)
		want(t, "StdoutBytes", res.StdoutBytes, int64(printed.Len()))
		checkExcerpt(t, res.Stdout, printed.Bytes(), c.limit)
	}
}

// checkExcerpt checks that got is the start and the end of printed with a line between them that says how much is missing. Printed must
// contain no newline.
func checkExcerpt(t *testing.T, got, printed []byte, limit int) {
	t.Helper()
	first, last := bytes.IndexByte(got, '\n'), bytes.LastIndexByte(got, '\n')
	if first < 0 || first == last {
		t.Fatalf("no line says that something is missing: %.200q", got)
	}
	head, line, tail := got[:first], got[first+1:last], got[last+1:]
	if !bytes.HasPrefix(printed, head) || !bytes.HasSuffix(printed, tail) {
		t.Errorf("head %.40q… and tail …%.40q are not what was printed", head, tail)
	}
	if kept := len(head) + len(tail); kept > limit || kept < limit-2*utf8.UTFMax-limit/8 || len(head) < limit/4 || len(tail) < limit/4 {
		t.Errorf("%d and %d bytes are kept at a limit of %d", len(head), len(tail), limit)
	}
	if bytes.ContainsRune(line, '\n') {
		t.Errorf("more than one line: %q", line)
	}
	if n, err := dropped(line); err != nil || n != int64(len(printed)-len(head)-len(tail)) {
		t.Errorf("the line %q tells %d bytes, %d are missing (%v)", line, n, len(printed)-len(head)-len(tail), err)
	}
}

func limitEach(t *testing.T, s subject) {
	cmd := s.command("head -c 900 /dev/zero | tr '\\0' o; head -c 900 /dev/zero | tr '\\0' e >&2")
	cmd.OutputLimit = 1000
	res := s.run(t, cmd)
	want(t, "Truncated", res.Truncated, false)
	cmd.Script = "echo small; head -c 5000 /dev/zero | tr '\\0' e >&2"
	res = s.run(t, cmd)
	want(t, "Truncated", res.Truncated, true)
	want(t, "stdout", string(res.Stdout), "small\n")
	checkExcerpt(t, res.Stderr, bytes.Repeat([]byte("e"), 5000), 1000)
}

func limitCharacters(t *testing.T, s subject) {
	for _, char := range []string{"é", "ᚱ", "🚀"} {
		for limit := 100; limit < 108; limit++ {
			cmd := s.command("for i in $(seq 200); do printf " + char + "; done")
			cmd.OutputLimit = limit
			res := s.run(t, cmd)
			if !utf8.Valid(res.Stdout) {
				t.Errorf("limit %d cuts through %s: %q", limit, char, res.Stdout)
			}
			want(t, "Truncated", res.Truncated, true)
		}
	}
}

func limitDefault(t *testing.T, s subject) {
	res := s.run(t, s.command(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", 3*schemas.DefaultOutputLimit)))
	checkExcerpt(t, res.Stdout, bytes.Repeat([]byte("x"), 3*schemas.DefaultOutputLimit), schemas.DefaultOutputLimit)
}

func fullOutput(t *testing.T, s subject) {
	cmd := s.command("for i in $(seq 20000); do echo line $i; done")
	cmd.OutputLimit = 1000
	res := s.run(t, cmd)
	want(t, "Truncated", res.Truncated, true)
	if res.FullOutput == "" {
		t.Skipf("%s keeps no whole output", s.profile.Name)
	}
	read := s.command(`cat -- "$FILE" | grep '^line ' | sha256sum | cut -c1-64`)
	read.Env = map[string]string{"FILE": res.FullOutput}
	var printed strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&printed, "line %d\n", i+1)
	}
	want(t, "content of "+res.FullOutput, s.ok(t, read), sha256Hex([]byte(printed.String())))
}

func callbackEverything(t *testing.T, s subject) {
	s.needLiveRuns(t)
	for _, limit := range []int{100, 1 << 20} {
		in := randomBytes(700_000)
		cmd := s.command("tee /dev/stderr")
		cmd.Stdin, cmd.OutputLimit = in, limit
		var got [2][]byte
		cmd.Output = func(c providers.Chunk) {
			if len(c.Data) == 0 || len(c.Data) > schemas.MaxChunk {
				t.Errorf("a chunk of %d bytes", len(c.Data))
			}
			i := 0
			if c.Stderr {
				i = 1
			}
			got[i] = append(got[i], c.Data...)
			clear(c.Data) // it is ours until we return: what the result keeps must not change with it
		}
		res := s.run(t, cmd)
		if !bytes.Equal(got[0], in) || !bytes.Equal(got[1], in) {
			t.Errorf("%d and %d bytes, want %d each, unchanged", len(got[0]), len(got[1]), len(in))
		}
		if limit > len(in) && !bytes.Equal(res.Stdout, in) {
			t.Error("the result changed with the callback's data")
		}
	}
}

func callbackAlone(t *testing.T, s subject) {
	var inside, calls, late atomic.Int32
	var ended atomic.Bool
	cmd := s.command("for i in $(seq 300); do echo $i; echo $i >&2; done")
	cmd.Output = func(providers.Chunk) {
		if inside.Add(1) != 1 {
			t.Error("called concurrently")
		}
		calls.Add(1)
		if ended.Load() {
			late.Add(1)
		}
		inside.Add(-1)
	}
	s.run(t, cmd)
	ended.Store(true)
	cmd.Output = nil
	cmd.Script = "sleep 0.2"
	s.run(t, cmd)
	if calls.Load() == 0 || late.Load() != 0 {
		t.Errorf("%d calls, %d after Run had returned", calls.Load(), late.Load())
	}
}

func callbackLive(t *testing.T, s subject) {
	s.needLiveRuns(t)
	s = s.together(t)
	h := listenFor("first")
	cmd := s.command("echo first; until [ -e go ]; do sleep 0.02; done; echo second")
	cmd.Output = h.output
	done := s.start(t.Context(), cmd)
	receive(t, "the first word", h.arrived)
	select {
	case o := <-done:
		t.Fatalf("it ended before it was told to: %+v, %v", o.res, o.err)
	default:
	}
	s.sh(t, "touch go")
	if o := receive(t, "the end", done); o.err != nil || string(o.res.Stdout) != "first\nsecond\n" {
		t.Errorf("%q, %v", o.res.Stdout, o.err)
	}
}

func callbackSlow(t *testing.T, s subject) {
	s.needLiveRuns(t)
	s = s.together(t)
	// Far more than pipes hold: the command cannot end before the callback continues.
	cmd := s.command("head -c 8000000 /dev/zero; echo written >&2; touch finished")
	release, blocked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var total int64
	cmd.Output = func(c providers.Chunk) {
		once.Do(func() { close(blocked); <-release })
		total += int64(len(c.Data))
	}
	done := s.start(t.Context(), cmd)
	receive(t, "the first output", blocked)
	want(t, "the command is held up", s.sh(t, "sleep 0.3; [ -e finished ] && echo finished || echo waiting"), "waiting")
	close(release)
	o := receive(t, "the end", done)
	if o.err != nil || o.res.ExitCode != 0 || o.res.StdoutBytes != 8_000_000 || total != 8_000_000+8 {
		t.Errorf("exit code %d, %d bytes, %d in the callback, %v", o.res.ExitCode, o.res.StdoutBytes, total, o.err)
	}
}

func outputClosed(t *testing.T, s subject) {
	res := s.run(t, s.command("exec >&- 2>&-; sleep 0.2; touch later; exit 4"))
	want(t, "exit code", res.ExitCode, 4)
	want(t, "it ran to its end", s.sh(t, "ls"), "later")
}
