package maintenance_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// names are the digests to which records refer.
type names map[string]bool

func (n names) Names(_ context.Context, a schemas.AccountID, digest string) (bool, error) {
	return n[string(a)+digest], nil
}

// TestBundlesThatNothingNamesGo: a bundle is removed only after it was unreferenced for an hour, and not while a client uploads the same
// content again.
func TestBundlesThatNothingNamesGo(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		store := func(a schemas.AccountID, text string) string {
			t.Helper()
			digest, err := streams.StoreSkill(t.Context(), b, a, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return digest
		}
		has := func(a schemas.AccountID, digest, text string) bool {
			_, err := streams.ReadSkill(t.Context(), b, a, digest, int64(len(text)))
			if err != nil && schemas.CodeOf(err) != schemas.NotFound {
				t.Fatal(err)
			}
			return err == nil
		}
		named, dropped, again := store("acct_1", "named"), store("acct_1", "dropped"), store("acct_1", "again")
		others := store("acct_2", "dropped") // the same content, of another account whose record refers to it
		known := names{"acct_1" + named: true, "acct_1" + dropped: true, "acct_2" + others: true}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&maintenance.SkillCleaner{Bus: b, Records: known}).Run(ctx) }()
		time.Sleep(3 * time.Hour) // older than an hour, but referenced all the time
		if has("acct_1", again, "again") || !has("acct_1", named, "named") || !has("acct_1", dropped, "dropped") {
			t.Error("what was named is gone, or what was not is there")
		}
		again = store("acct_1", "again")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		delete(known, "acct_1"+dropped)
		go func() { done <- (&maintenance.SkillCleaner{Bus: b, Records: known}).Run(t.Context()) }()
		time.Sleep(streams.DutyTakenOver + 50*time.Minute)
		if !has("acct_1", dropped, "dropped") || !has("acct_1", again, "again") {
			t.Error("a bundle is gone that a call may still read, or an upload is about to name")
		}
		if store("acct_1", "again") != again {
			t.Error("the same has another digest")
		}
		time.Sleep(25 * time.Minute)
		if has("acct_1", dropped, "dropped") || !has("acct_1", again, "again") {
			t.Error("what nothing names is still there, or what was just sent is not")
		}
		time.Sleep(time.Hour)
		if has("acct_1", again, "again") || !has("acct_1", named, "named") || !has("acct_2", others, "dropped") {
			t.Error("what nothing names is still there, or too much is gone")
		}
	})
}
