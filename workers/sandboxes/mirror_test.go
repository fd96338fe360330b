package sandboxes

import (
	"context"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// The rows of other workers of the provider are followed, and removed when these remove them. Rows of other providers and rows of owners,
// which are in the same bucket, are ignored.
func TestRowsOfOtherWorkersAreFollowed(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		rows := streams.OpenBucket[schemas.Instance](b, streams.Boxes)
		row := schemas.Instance{
			Account: "acct_1", Sandbox: "sb_1", Ref: schemas.Ref{ID: "box"}, Used: b.Now(), Deadline: b.Now().Add(time.Hour), Hooked: b.Now(),
		}
		for _, key := range []string{"fake.before", "other.before", "owner.fake.before"} {
			if _, err := rows.Put(t.Context(), key, row); err != nil {
				t.Fatal(err)
			}
		}
		in := New(Options{
			Bus: b, Provider: keeps{}, Name: "fake", Records: records{}, Every: time.Minute,
			Lease: leases.New(b, leases.Record{Worker: "worker_1"}, nil, nil), WithJobs: func() map[schemas.Ref]bool { return nil },
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); in.Run(ctx) }()
		if _, err := rows.Put(t.Context(), "fake.later", row); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if all := in.list(); len(all) != 2 || all["before"].row.Ref != row.Ref || all["later"].row.Ref != row.Ref {
			t.Errorf("known: %+v", all)
		}
		if err := rows.Delete(t.Context(), "fake.before"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if all := in.list(); len(all) != 1 || all["later"].row.Ref != row.Ref {
			t.Errorf("known after one has ended: %+v", all)
		}
		stop()
		<-done
	})
}
