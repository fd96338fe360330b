package archtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the gate makes of the words of go test: which tests it may run again, and what it shows of them.
func TestTheGateTellsWhatFailed(t *testing.T) {
	t.Parallel()
	const fine = "=== RUN   TestFine\n    fine_test.go:1: said by one that passes\n--- PASS: TestFine (0.00s)\nPASS\nok  \tx/fine\t0.010s\n"
	const mixed = "=== RUN   TestA\n=== PAUSE TestA\n=== RUN   TestB\n=== PAUSE TestB\n=== CONT  TestB\n=== RUN   TestB/part_one\n=== CONT  TestA\n    a_test.go:3: a is fine\n--- PASS: TestA (0.00s)\n" +
		"=== NAME  TestB/part_one\n    a_test.go:4: the part said\n        more\n--- FAIL: TestB (0.00s)\n    --- FAIL: TestB/part_one (0.00s)\nFAIL\nFAIL\tx/mixed\t0.027s\n"
	for name, c := range map[string]struct{ log, names, shows, hides string }{
		"nothing failed": {log: fine},
		"a part failed":  {log: fine + mixed + fine, names: "x/mixed ^TestB$/^part_one$\n", shows: "the part said\n        more\n", hides: "fine"},
		"a data race": {
			log:   "=== RUN   TestC\nWARNING: DATA RACE\n--- FAIL: TestC (0.01s)\nFAIL\nFAIL\tx/race\t0.046s\n" + mixed,
			names: "x/race !\nx/mixed ^TestB$/^part_one$\n", shows: "WARNING: DATA RACE\n",
		},
		"a name with signs": {log: "=== RUN   TestS\n--- FAIL: TestS/a_(b)_c? (0.00s)\n--- FAIL: TestS (0.00s)\nFAIL\nFAIL\tx/signs\t0.030s\n", names: "x/signs ^TestS$/^a_\\(b\\)_c\\?$\n", shows: "TestS"},
		"a panic":           {log: "=== RUN   TestP\n--- FAIL: TestP (0.00s)\npanic: no\n\ngoroutine 7 [running]:\nFAIL\tx/panics\t0.030s\nFAIL\n", names: "x/panics !\n", shows: "goroutine 7"},
		"too long":          {log: "=== RUN   TestL\npanic: test timed out after 1s\nFAIL\tx/long\t1.030s\n", names: "x/long !\n", shows: "timed out"},
		"no build":          {log: fine + "FAIL\tx/bad [build failed]\n" + fine, names: "x/bad !\n", shows: "x/bad", hides: "said by"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := failedTests(t, "names", c.log); got != c.names {
				t.Errorf("names %q, want %q", got, c.names)
			}
			words := failedTests(t, "words", c.log)
			if !strings.Contains(words, c.shows) || c.hides != "" && strings.Contains(words, c.hides) {
				t.Errorf("it shows\n%s", words)
			}
		})
	}
}

func failedTests(t *testing.T, show, log string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(top, ".ci/failed"), "-v", "show="+show)
	cmd.Stdin = strings.NewReader(log)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
