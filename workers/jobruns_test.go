package workers

import (
	"context"
	"testing"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// TestAJobRunsUntilItsRecordIsFinal also where its record cannot be read: a use of files that ends early would leave what it writes.
func TestAJobRunsUntilItsRecordIsFinal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j := w.job(nil, "1", func(*schemas.Job) {})
		runs := JobRuns(w.bus)
		if !runs(t.Context(), j.Account, j.ID) {
			t.Error("a running job has ended")
		}
		if runs(t.Context(), "acct_2", j.ID) || runs(t.Context(), j.Account, "job_none") {
			t.Error("a job without a record runs")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if !runs(ended, j.Account, j.ID) {
			t.Error("a job has ended, for its record could not be read")
		}
		j.State = schemas.JobCompleted
		if _, err := lifecycle.OpenJobs(w.bus).Put(t.Context(), j.Key(), j); err != nil {
			t.Fatal(err)
		}
		if runs(t.Context(), j.Account, j.ID) {
			t.Error("a completed job runs")
		}
	})
}
