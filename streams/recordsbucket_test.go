package streams_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// TestALogWithoutItsRecordsIsNotOpened: they were there, so that an empty bucket in their place would hide the loss.
func TestALogWithoutItsRecordsIsNotOpened(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t, natstest.OnDisk(), natstest.Listen(natsauth.User{Name: "operator", Password: "p"}))
	open := func(o streams.Options) (*streams.Bus, error) {
		o.Server = l.Server
		b, err := streams.Open(t.Context(), o)
		if err == nil {
			t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
		}
		return b, err
	}
	b := testwait.Must(open(streams.Options{}))(t)
	testwait.Must(streams.OpenBucket[string](b, streams.Records).Put(t.Context(), "account.acct_1", "old"))(t)
	natstest.Dial(t, l.Server.URL(), "operator", "p").DeleteStream(t, "KV_records")

	if _, err := open(streams.Options{}); !errors.Is(err, schemas.ErrConflict) {
		t.Fatalf("the log without its records: %v; want a conflict", err)
	}
	b = testwait.Must(open(streams.Options{RecreateRecords: true}))(t)
	if _, err := streams.OpenBucket[string](b, streams.Records).Get(t.Context(), "account.acct_1"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a record of the lost bucket: %v", err)
	}
	testwait.Must(open(streams.Options{}))(t)
}

// TestWhatWasDeletedIsToldFromWhatIsMissing: only the mark of a deletion says that a value was deleted.
func TestWhatWasDeletedIsToldFromWhatIsMissing(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		bucket := streams.OpenBucket[string](b, streams.Records)
		testwait.Must(bucket.Put(t.Context(), "deleted", "v"))(t)
		testwait.OK(t, bucket.Delete(t.Context(), "deleted"))
		testwait.Must(bucket.Put(t.Context(), "back", "v"))(t)
		testwait.OK(t, bucket.Delete(t.Context(), "back"))
		testwait.Must(bucket.Put(t.Context(), "back", "w"))(t)
		for key, c := range map[string]struct{ there, deleted bool }{"deleted": {false, true}, "back": {true, false}, "never": {false, false}} {
			_, err := bucket.Get(t.Context(), key)
			if (err == nil) != c.there || !c.there && !errors.Is(err, schemas.ErrNotFound) || errors.Is(err, streams.ErrDeleted) != c.deleted {
				t.Errorf("%s: %v; want it there: %v, deleted: %v", key, err, c.there, c.deleted)
			}
		}
		testwait.OK(t, bucket.DropHistory(t.Context()))
		if _, err := bucket.Get(t.Context(), "deleted"); !errors.Is(err, streams.ErrDeleted) {
			t.Errorf("after its history was dropped: %v", err)
		}
	})
}
