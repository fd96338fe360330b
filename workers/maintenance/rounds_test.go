package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const busy, quiet schemas.AccountID = "acct_busy", "acct_quiet"

// TestALostJobIsNotDelayedByThousandsThatWait: one account has 10,000 waiting jobs, and the search for the call of each takes 20 ms. A job
// of another account whose worker dies is ended as soon as without them.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestALostJobIsNotDelayedByThousandsThatWait(t *testing.T) {
	inWorld(t, func(w *world) {
		r := rescuing(w.bus)
		r.absent = map[string]time.Time{}
		old := w.bus.Now().Add(-2 * time.Hour)
		for n := range 10_000 {
			j := schemas.Job{ID: schemas.JobID(fmt.Sprint("job_", n)), Account: busy, State: schemas.JobWaiting, Created: old}
			r.jobs.Take(streams.BucketEntry[schemas.Job]{Key: j.Key(), Value: j, Revision: 1}, nil)
		}
		looked := 0
		r.fate = func(context.Context, openJob) (callFate, string, error) {
			looked++
			time.Sleep(20 * time.Millisecond)
			return callOpen, "", nil
		}
		ctx, stop := context.WithCancel(w.Context())
		var parts sync.WaitGroup
		parts.Go(func() { r.loop(ctx) })
		time.Sleep(17 * time.Second) // the first round is in progress
		lost := w.running("lost", "gone", func(j *schemas.Job) { j.Account = quiet })
		r.jobs.Take(streams.BucketEntry[schemas.Job]{Key: lost.Key(), Value: lost, Revision: 2}, nil)
		time.Sleep(time.Minute)
		if c, ended := w.completed(lost); !ended || c.State != schemas.JobLost {
			t.Errorf("a minute after its worker died it is %q", c.State)
		}
		time.Sleep(10 * time.Minute)
		stop()
		parts.Wait()
		if looked != 10_000 {
			t.Errorf("the calls of %d jobs of 10,000 were looked for", looked)
		}
	})
}

// TestARoundIsSharedByAccounts: however many records of one account are due, another account's are handled in the same round. Records that
// failed are handled last of their account.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestARoundIsSharedByAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type due struct {
			account schemas.AccountID
			n       int
		}
		r := rounds[due]{
			account: func(d due) schemas.AccountID { return d.account }, key: func(d due) string { return fmt.Sprint(d) },
			first: func(a, b due) int { return a.n - b.n },
		}
		left := []due{{quiet, 20_000}}
		for n := range 10_000 {
			left = append(left, due{busy, n})
		}
		var order []due
		tries := 0
		for round := 1; len(left) > 0 && round < 1000; round++ {
			begun := time.Now()
			more := r.run(t.Context(), slices.Clone(left), func(d due) error {
				time.Sleep(10 * time.Millisecond)
				if tries++; d.n == 0 && tries < 2000 {
					return errors.New("not yet")
				}
				order = append(order, d)
				left = slices.DeleteFunc(left, func(o due) bool { return o == d })
				return nil
			})
			if took := time.Since(begun); took > roundWithin+time.Second {
				t.Fatalf("round %d took %s", round, took)
			}
			if more != (len(left) > 0) && round > 1 {
				t.Errorf("round %d says %v, and %d are left", round, more, len(left))
			}
		}
		if len(order) != 10_001 || order[0].account != quiet && order[1].account != quiet {
			t.Errorf("%d handled, first %v", len(order), order[:min(3, len(order))])
		}
		if at := slices.Index(order, due{busy, 0}); at < 1000 {
			t.Errorf("what failed was tried before the others: %d", at)
		}
	})
}
