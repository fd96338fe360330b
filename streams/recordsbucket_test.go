package streams_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestDeletedAndMissingAreDistinguished: only the mark of a deletion says that a value was deleted.
func TestDeletedAndMissingAreDistinguished(t *testing.T) {
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

// bucketState is what the server says of the bucket of records.
type bucketState struct {
	Config map[string]any `json:"config"`
	State  struct {
		Messages int `json:"messages"`
		Bytes    int `json:"bytes"`
	} `json:"state"`
}

func stateOf(t *testing.T, c *natstest.Client) (s bucketState) {
	t.Helper()
	testwait.OK(t, json.Unmarshal(c.Request(t, "$JS.API.STREAM.INFO.KV_records", ""), &s))
	return s
}

// older makes the bucket of records one as topology 5 had it: five values of each key, and marks that stay.
func older(t *testing.T, c *natstest.Client) {
	t.Helper()
	config := stateOf(t, c).Config
	config["max_msgs_per_subject"] = 5
	delete(config, "subject_delete_marker_ttl")
	meta, _ := config["metadata"].(map[string]any)
	meta["sandjet.topology"] = "5"
	body := testwait.Must(json.Marshal(config))(t)
	if answer := c.Request(t, "$JS.API.STREAM.UPDATE.KV_records", string(body)); strings.Contains(string(answer), `"error"`) {
		t.Fatalf("%s", answer)
	}
}

// TestRecordsTakeNoRoomOnceTheyAreGone: a tenant that makes and deletes records, or changes one again and again, leaves nothing behind.
//
//guarantee:what-one-tenant-can-do-to-another
func TestRecordsTakeNoRoomOnceTheyAreGone(t *testing.T) {
	t.Parallel()
	const many, large = 200, 8 << 10
	l := natstest.Start(t, natstest.OnDisk(), natstest.Listen(natsauth.User{Name: "operator", Password: "p"}))
	c := natstest.Dial(t, l.Server.URL(), "operator", "p")
	k := streams.OpenBucket[string](l.Bus, streams.Records)
	value := strings.Repeat("x", large)
	for i := range many {
		testwait.Must(k.Put(t.Context(), "changed", value))(t)
		key := fmt.Sprint("made.", i)
		rev := testwait.Must(k.Create(t.Context(), key, value, 0))(t)
		testwait.OK(t, k.DeleteRevision(t.Context(), key, rev))
	}
	const mark = 512
	s := stateOf(t, c)
	if s.State.Messages != many+1 || s.State.Bytes > large+1024+many*mark {
		t.Errorf("%d messages of %d bytes are left of %d that were made and deleted", s.State.Messages, s.State.Bytes, many)
	}
	var raw struct {
		Message struct {
			Header []byte `json:"hdrs"`
		} `json:"message"`
	}
	testwait.OK(t, json.Unmarshal(c.Request(t, "$JS.API.STREAM.MSG.GET.KV_records", `{"last_by_subj":"$KV.records.made.0"}`), &raw))
	if want := "Nats-TTL: " + streams.MarksKept.String(); !strings.Contains(string(raw.Message.Header), want) {
		t.Errorf("the mark of a deletion has the header %q, want %s", raw.Message.Header, want)
	}
	rev := testwait.Must(k.Put(t.Context(), "changed", value))(t)
	testwait.OK(t, k.DeleteFor(t.Context(), "changed", rev, time.Second))
	testwait.Eventually(t, "the mark to end", func() bool { return stateOf(t, c).State.Messages == many })
}

// TestAnOlderBucketOfRecordsIsBroughtUpToDate: what it keeps of earlier values goes when the log is opened.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAnOlderBucketOfRecordsIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t, natstest.OnDisk(), natstest.Listen(natsauth.User{Name: "operator", Password: "p"}))
	c := natstest.Dial(t, l.Server.URL(), "operator", "p")
	k := streams.OpenBucket[string](l.Bus, streams.Records)
	older(t, c)
	for n := range 5 {
		testwait.Must(k.Put(t.Context(), "a", fmt.Sprint("a", n)))(t)
	}
	rev := testwait.Must(k.Put(t.Context(), "b", "b"))(t)
	testwait.OK(t, k.DeleteRevision(t.Context(), "b", rev))
	if n := stateOf(t, c).State.Messages; n != 6 {
		t.Fatalf("%d messages, want the five values of one key and the mark of the other", n)
	}
	newer := streams.OpenBucket[string](l.Open(), streams.Records)
	if s := stateOf(t, c); s.State.Messages != 2 || s.Config["max_msgs_per_subject"] != 1.0 || s.Config["allow_msg_ttl"] != true {
		t.Errorf("after it was opened again: %+v", s)
	}
	if p := testwait.Must(newer.Get(t.Context(), "a"))(t); p.Value != "a4" {
		t.Errorf("%+v", p)
	}
	if _, err := newer.Get(t.Context(), "b"); !errors.Is(err, streams.ErrDeleted) {
		t.Errorf("of the deleted one: %v", err)
	}
}

// TestAProcessThatWasAwayForgetsWhatWasDeleted: markers of deletions expire. A process that was disconnected meanwhile must not keep the
// record in its copy for ever, because it may be the key of an account.
//
//guarantee:tenants-are-isolated
func TestAProcessThatWasAwayForgetsWhatWasDeleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		away time.Duration
		drop bool // its connection is noticed to be lost in the end
		lost bool // the mark has gone before
	}{
		{name: "for a minute, and notices it", away: time.Minute, drop: true},
		{name: "for a minute, and does not notice it", away: time.Minute},
		{name: "for eleven minutes, and notices it", away: 11 * time.Minute, drop: true, lost: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var deaf atomic.Bool
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				b.Faults(streams.Fault{Deaf: deaf.Load})
				k := streams.OpenBucket[string](b, streams.Records)
				kept := testwait.Must(k.Put(t.Context(), "deleted", "v"))(t)
				testwait.Must(k.Put(t.Context(), "stays", "v"))(t)
				m := mirrored(t, k)
				settle(t)
				deaf.Store(true)
				testwait.OK(t, k.DeleteRevision(t.Context(), "deleted", kept))
				time.Sleep(c.away)
				if _, err := k.Get(t.Context(), "deleted"); errors.Is(err, streams.ErrDeleted) == c.lost {
					t.Errorf("the mark: %v", err)
				}
				if _, there := m.Get("deleted"); !there {
					t.Fatal("the copy has heard of it: this shows nothing")
				}
				deaf.Store(false)
				if c.drop {
					b.Drop()
					settle(t)
				} else {
					time.Sleep(streams.MarksKept)
				}
				if got := slices.Sorted(maps.Keys(m.All())); !slices.Equal(got, []string{"stays"}) {
					t.Errorf("the copy has %v", got)
				}
			})
		})
	}
}

// TestAQuietBucketIsNotReadAgain: where nothing happens for hours, and where the last that happened was a deletion, a watch knows that it
// has missed nothing.
func TestAQuietBucketIsNotReadAgain(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		k := streams.OpenBucket[string](b, streams.Records)
		for n := range 100 {
			testwait.Must(k.Put(t.Context(), fmt.Sprint("k", n), strings.Repeat("x", 8<<10)))(t)
		}
		mirrored(t, k)
		settle(t)
		rev := testwait.Must(k.Put(t.Context(), "deleted", "v"))(t)
		testwait.OK(t, k.DeleteRevision(t.Context(), "deleted", rev))
		before := b.Received()
		time.Sleep(2 * time.Hour)
		if n := b.Received() - before; n > 512<<10 {
			t.Errorf("%d bytes have come in two quiet hours", n)
		}
		if _, err := k.Get(t.Context(), "deleted"); !errors.Is(err, schemas.ErrNotFound) || errors.Is(err, streams.ErrDeleted) {
			t.Errorf("of the deleted one: %v", err)
		}
	})
}

// mirrored runs a mirror of everything in a bucket until the test ends.
func mirrored(t *testing.T, k *streams.Bucket[string]) *streams.Mirror[string, string] {
	t.Helper()
	m := &streams.Mirror[string, string]{Source: k, Keep: func(p streams.BucketEntry[string]) (string, bool) { return p.Value, true }}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() { stop(); testwait.OK(t, <-done) })
	return m
}
