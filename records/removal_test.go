package records_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// added makes a record of a collection and returns its id.
func added(t *testing.T, s *records.Store, a schemas.AccountID, c schemas.Collection, body string) string {
	t.Helper()
	return testwait.Must(s.Documents.Add(t.Context(), a, c, []byte(body)))(t).ID
}

// TestADeletionIsKnownForAsLongAsSomethingDependsOnTheRecord: a box is ended, and what an account leaves behind is removed, only where the
// log says that the record was deleted. All other deletions leave nothing behind for long.
//
//guarantee:tenants-are-isolated
func TestADeletionIsKnownForAsLongAsSomethingDependsOnTheRecord(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		s := open(t, b)
		a := testwait.Must(s.Accounts.Ensure(t.Context(), records.Bootstrap{Key: key, Provider: "local"}))(t).ID
		used, free := added(t, s, a, schemas.Sandboxes, `{"name":"used"}`), added(t, s, a, schemas.Sandboxes, `{"name":"free"}`)
		files := added(t, s, a, schemas.Workspaces, `{"name":"files"}`)
		i := schemas.Instance{Account: a, Provider: "docker", Sandbox: schemas.SandboxID(used), Workspace: schemas.WorkspaceID(files)}
		testwait.Must(streams.OpenBucket[schemas.Instance](b, streams.Boxes).Create(t.Context(), i.Key(), i, 0))(t)
		for _, id := range []string{used, free} {
			testwait.OK(t, s.Documents.Remove(t.Context(), a, schemas.Sandboxes, id, 0))
		}
		testwait.Must(s.Accounts.Remove(t.Context(), a, 0))(t)

		raw := streams.OpenBucket[json.RawMessage](b, streams.Records)
		known := func(when string, want map[string]bool) {
			t.Helper()
			for key, deleted := range want {
				if _, err := raw.Get(t.Context(), key); !errors.Is(err, schemas.ErrNotFound) || errors.Is(err, streams.ErrDeleted) != deleted {
					t.Errorf("%s, %s: %v; want it to be known as deleted: %v", when, key, err, deleted)
				}
			}
		}
		one := func(kind, id string) string { return kind + "." + string(a) + "." + id }
		account, usedKey, freeKey, filesKey := "account."+string(a), one("sandbox", used), one("sandbox", free), one("workspace", files)
		known("at once", map[string]bool{account: true, usedKey: true, freeKey: true, filesKey: true})
		time.Sleep(streams.MarksKept + time.Minute)
		known("eleven minutes later", map[string]bool{account: true, usedKey: true, freeKey: false, filesKey: true})
	})
}

// TestARecordDeletedDuringALongSleepIsForgotten: a process read the records, was suspended before it followed them, and continues when
// the log has no trace of the sandbox any more. Its copy must not keep what it has read.
//
//guarantee:tenants-are-isolated
func TestARecordDeletedDuringALongSleepIsForgotten(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		other := open(t, b)
		a := testwait.Must(other.Accounts.Ensure(t.Context(), records.Bootstrap{Key: key, Provider: "local"}))(t).ID
		box := added(t, other, a, schemas.Sandboxes, `{"name":"box"}`)
		asleep := open(t, b)
		for n := range 20 { // so that what it has read last is not there either
			testwait.OK(t, other.Documents.Remove(t.Context(), a, schemas.Sandboxes, added(t, other, a, schemas.Sandboxes,
				fmt.Sprintf(`{"name":"n%d"}`, n)), 0))
		}
		testwait.OK(t, other.Documents.Remove(t.Context(), a, schemas.Sandboxes, box, 0))
		time.Sleep(streams.MarksKept + time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- asleep.Run(ctx) }()
		t.Cleanup(func() { stop(); testwait.OK(t, <-done) })
		testwait.Eventually(t, "the copy to lose the sandbox", func() bool {
			list, err := asleep.Documents.List(t.Context(), a, schemas.Sandboxes)
			return err == nil && len(list) == 1 // that of the account's beginning
		})
	})
}
