package maintenance

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/schemas"
)

var update = flag.Bool("update", false, "rewrite the goldens")

func result(change ...func(*schemas.JobResult)) schemas.JobResult {
	zero := 0
	r := schemas.JobResult{
		Job: "job_1", Call: "call_1", Tool: schemas.ToolBash, Command: "npm run build", State: schemas.JobCompleted, ExitCode: &zero,
		Logs: "built in 12 s\n", LogBytes: 14, DurationMS: 12_345,
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func ended(s schemas.JobState, exit int, reason string) func(*schemas.JobResult) {
	return func(r *schemas.JobResult) {
		r.State, r.Reason, r.ExitCode = s, reason, nil
		if exit >= 0 {
			r.ExitCode = &exit
		}
	}
}

func printed(logs string, all int64) func(*schemas.JobResult) {
	return func(r *schemas.JobResult) { r.Logs, r.LogBytes, r.LogTruncated = logs, all, all > int64(len(logs)) }
}

func TestFollowUpText(t *testing.T) {
	t.Parallel()
	second := func(r *schemas.JobResult) { r.Job, r.Command = "job_2", "make test\nmake lint" }
	for name, f := range map[string]struct {
		results []schemas.JobResult
		missing int
	}{
		"completed": {results: []schemas.JobResult{result()}},
		"failed":    {results: []schemas.JobResult{result(ended(schemas.JobFailed, 3, ""), printed("the end\n", 100_000))}},
		"killed": {results: []schemas.JobResult{result(ended(schemas.JobFailed, 137, ""), printed("", 0), func(r *schemas.JobResult) {
			r.OOMKilled, r.ChildrenLeft = true, 2
		})}},
		"stopped": {results: []schemas.JobResult{result(ended(schemas.JobStopped, 143, "enough"),
			func(r *schemas.JobResult) { r.ChildrenLeft = 1 })}},
		"expired": {results: []schemas.JobResult{result(ended(schemas.JobExpired, -1, reasonExpired), printed("", 7))}},
		"lost":    {results: []schemas.JobResult{result(ended(schemas.JobLost, -1, reasonLost), printed("", 0))}},
		"group": {results: []schemas.JobResult{result(),
			result(second, ended(schemas.JobUnstarted, -1, "Cancelled before it was started."))}, missing: 1},
		"many": {results: []schemas.JobResult{result()}, missing: 3},
		"artifacts": {results: []schemas.JobResult{result(func(r *schemas.JobResult) {
			r.JobArtifacts = schemas.JobArtifacts{
				Artifacts: []schemas.Artifact{{Path: "outputs/plot.png"}, {Path: "outputs/\u2028.csv"}}, MoreArtifacts: 2,
				SkippedArtifacts: []schemas.SkippedArtifact{{Path: "outputs/link", Reason: schemas.SkipLink}},
			}
		})}},
		"reported": {results: []schemas.JobResult{result(ended(schemas.JobFailed, -1, "the build service is away"),
			func(r *schemas.JobResult) { r.Command, r.DurationMS = "", 0 })}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, filepath.Join("testdata", "followups", name+".txt"), followUpText(f.results, f.missing)+"\n")
		})
	}
}

// golden compares got with a file, or rewrites the file with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run the test with -update and look at the difference. Got:\n%s", path, got)
	}
}

func TestAFollowUpIsBounded(t *testing.T) {
	t.Parallel()
	const jobs, each = 100, schemas.MaxJobLogs
	results := make([]schemas.JobResult, jobs)
	for i := range results {
		results[i] = result(printed(strings.Repeat("x", each-4)+"end\n", each))
		for range schemas.MaxArtifacts {
			a := schemas.NewArtifact(schemas.Call{ID: "call_1"}, "outputs/"+strings.Repeat("x", i%10), 1, "", nil, time.Now())
			results[i].Artifacts = append(results[i].Artifacts, a)
		}
	}
	results[7] = result() // a small result is not truncated
	f := groupFollowUp(schemas.Group{ID: "g", Account: testAccount}, results, time.Now())
	logs, listed := 0, 0
	for i, r := range f.Results {
		if !strings.HasSuffix(r.Logs, "end\n") != (i == 7) || r.LogTruncated != (i != 7) {
			t.Errorf("result %d has %d bytes of logs, truncated %v", i, len(r.Logs), r.LogTruncated)
		}
		logs, listed = logs+len(r.Logs), listed+r.ListSize()
		if i != 7 && len(r.Artifacts)+r.MoreArtifacts != schemas.MaxArtifacts {
			t.Errorf("result %d lists %d artifacts and counts %d", i, len(r.Artifacts), r.MoreArtifacts)
		}
	}
	if most := maxFollowUpArtifacts + jobs*len(`{"artifacts":[],"more_artifacts":20}`); listed > most || listed < maxFollowUpArtifacts/2 {
		t.Errorf("lists of artifacts of %d bytes, want at most %d", listed, most)
	}
	if logs > maxFollowUpLogs || logs < maxFollowUpLogs*9/10 {
		t.Errorf("%d bytes of logs, want about %d", logs, maxFollowUpLogs)
	}
	if most := maxFollowUpLogs + maxFollowUpArtifacts + jobs*300; len(f.Text) > most {
		t.Errorf("a text of %d bytes, want at most %d", len(f.Text), most)
	}
	if len(results[0].Logs) != each {
		t.Error("the caller's results were changed")
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		wanted := rapid.SliceOf(rapid.IntRange(0, 100)).Draw(t, "wanted")
		total := rapid.IntRange(0, 500).Draw(t, "total")
		sum, want, least := 0, 0, 100
		given := shares(wanted, total)
		for i, n := range given {
			if n < 0 || n > wanted[i] {
				t.Fatalf("%d of %d wanted", n, wanted[i])
			}
			sum, want = sum+n, want+wanted[i]
			if n < wanted[i] {
				least = min(least, n)
			}
		}
		if sum > total || want <= total && sum != want {
			t.Fatalf("gave %d of %d where %d was wanted", sum, total, want)
		}
		for _, n := range given {
			if n > least+1 {
				t.Fatalf("gave %v: one got more than another who wanted it", given)
			}
		}
	})
}
