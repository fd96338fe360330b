package streams_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/usage"
)

// TestRecordsOfJobsCountForTheirAccount: what a bucket keeps of an account is in its usage as it is written, without a count, and again
// what a count finds. What is replaced counts by the difference, and what is deleted counts no more.
//
//guarantee:what-one-tenant-can-do-to-another
func TestRecordsOfJobsCountForTheirAccount(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		keeps := func() int64 {
			t.Helper()
			u := testwait.Must(b.Usage(ctx, account))(t)
			return u.Events.Bytes
		}
		about := func(when string, want int64, messages int64) {
			t.Helper()
			const around = 2000
			u := testwait.Must(b.Usage(ctx, account))(t)
			if got := u.Events; got.Bytes < want || got.Bytes > want+around || got.Messages != messages {
				t.Errorf("%s: %+v, want %d bytes and %d messages", when, got, want, messages)
			}
		}
		if got := keeps(); got != 0 { // counted: what follows is known without a count
			t.Fatalf("%d bytes of nothing", got)
		}
		const small, large = 10_000, 100_000
		jobs := streams.OpenBucket[schemas.Job](b, streams.JobRecords)
		job := func(size int) schemas.Job {
			return schemas.Job{ID: "job_1", Account: account, Conversation: "c", Command: strings.Repeat("x", size)}
		}
		key := job(0).Key()
		rev := testwait.Must(jobs.Create(ctx, key, job(small), 0))(t)
		about("made", small, 1)
		rev = testwait.Must(jobs.Update(ctx, key, job(large), rev))(t)
		about("larger", large, 1)
		_ = testwait.Must(jobs.UpdateFor(ctx, key, job(small), rev, time.Hour))(t)
		about("smaller", small, 1)
		approvals := streams.OpenBucket[schemas.Approval](b, streams.ApprovalRecords)
		asked := schemas.Approval{ID: "appr_1", Account: account, Reason: strings.Repeat("x", small)}
		made := testwait.Must(approvals.Create(ctx, asked.Key(), asked, 0))(t)
		other := asked
		other.Account = neighbour
		testwait.Must(approvals.Create(ctx, other.Key(), other, 0))(t)
		about("with an approval", 2*small, 2)
		time.Sleep(2 * usage.CountPause)
		about("counted", 2*small, 2)
		testwait.OK(t, approvals.DeleteRevision(ctx, asked.Key(), made))
		about("without it", small, 1)
		time.Sleep(2 * time.Hour) // the job's life has ended
		if u := testwait.Must(b.Usage(ctx, account))(t); u.Events.Bytes > 1000 {
			t.Errorf("when all is gone: %+v", u.Events)
		}
		durable := streams.OpenBucket[map[string]string](b, streams.DurableRecords)
		rev = testwait.Must(durable.Create(ctx, string(account)+".cA", map[string]string{"a": strings.Repeat("x", small)}, 0))(t)
		if u := testwait.Must(b.Usage(ctx, account))(t); u.Durable.Bytes < small || u.Durable.Messages != 1 {
			t.Errorf("a durable stream: %+v", u.Durable)
		}
		testwait.OK(t, streams.OpenDurable(b).Forget(ctx, string(account)+".cA", rev))
		if u := testwait.Must(b.Usage(ctx, account))(t); u.Durable.Bytes != 0 || u.Durable.Messages != 0 {
			t.Errorf("a durable stream that is gone: %+v", u.Durable)
		}
	})
}

// TestWhatBucketsKeepCountsAgainstTheQuota: an account whose job records fill its quota can start nothing more, but its running work
// ends. Once its records are removed, it can start work again.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhatBucketsKeepCountsAgainstTheQuota(t *testing.T) {
	const quota = 1 << 20
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		jobs := streams.OpenBucket[schemas.Job](b, streams.JobRecords)
		revisions := map[string]uint64{}
		for n := range 16 {
			j := schemas.Job{ID: schemas.JobID(fmt.Sprint("job_", n)), Account: account, Command: strings.Repeat("x", quota/16)}
			revisions[j.Key()] = testwait.Must(jobs.Create(ctx, j.Key(), j, 0))(t)
		}
		if err := streams.Calls.Publish(ctx, b, callOf("one")); schemas.CodeOf(err) != schemas.Exhausted {
			t.Errorf("a call of an account whose records fill its quota: %v", err)
		}
		c := callOf("two")
		c.Account = neighbour
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		for key, rev := range revisions { // the end of a job is written whatever is kept
			j := schemas.Job{Account: account, State: schemas.JobCompleted, Command: strings.Repeat("x", quota/16)}
			testwait.Must(jobs.UpdateFor(ctx, key, j, rev, time.Hour))(t)
		}
		time.Sleep(2 * time.Hour)
		testwait.OK(t, streams.Calls.Publish(ctx, b, callOf("three")))
	}, func(s *natstest.Settings) { s.Log.Quotas = &streams.Quotas{Log: quota} })
}
