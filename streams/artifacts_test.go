package streams_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// keepArtifact stores an artifact of a call with one chunk.
func keepArtifact(t *testing.T, b *streams.Bus, c schemas.Call, path, content string) schemas.Artifact {
	t.Helper()
	name, err := streams.StoreArtifactChunk(t.Context(), b, c.Account, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	k := streams.KeptArtifact{Chunks: []string{name}}
	k.Artifact = schemas.NewArtifact(c, path, int64(len(content)), name, []byte(content), b.Now())
	for range 2 { // the answer to the first was lost
		if err := streams.StoreArtifact(t.Context(), b, c.Account, k); err != nil {
			t.Fatal(err)
		}
	}
	return k.Artifact
}

// TestArtifactsOnTheLog: each account and conversation has its own, by pages, and what is removed is gone while the bytes that another
// has too stay.
func TestArtifactsOnTheLog(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		call := schemas.Call{Account: "acct_1", Conversation: "c/1", ID: "call.1"}
		one, two := keepArtifact(t, b, call, "outputs/a", "same"), keepArtifact(t, b, call, "outputs/b", "same")
		other := call
		other.Conversation, other.ID = "c/2", "call.2"
		three := keepArtifact(t, b, other, "outputs/a", "other")
		list, more, err := streams.ListArtifacts(t.Context(), b, "acct_1", "c/1", "", 1)
		if err != nil || !more || !slices.Equal(list, []schemas.Artifact{one}) {
			t.Errorf("first page: %+v %t %v", list, more, err)
		}
		list, more, err = streams.ListArtifacts(t.Context(), b, "acct_1", "c/1", one.ID, 10)
		if err != nil || more || !slices.Equal(list, []schemas.Artifact{two}) {
			t.Errorf("second page: %+v %t %v", list, more, err)
		}
		if n, size, err := streams.ArtifactsKept(t.Context(), b, "acct_1", "c/1"); err != nil || n != 2 || size != 8 {
			t.Errorf("%d of %d bytes, %v", n, size, err)
		}
		if n, _, err := streams.ArtifactsKept(t.Context(), b, "acct_2", "c/1"); err != nil || n != 0 {
			t.Errorf("another account has %d, %v", n, err)
		}
		if of, err := streams.ArtifactsOfCall(t.Context(), b, other); err != nil || !slices.Equal(of, []schemas.Artifact{three}) {
			t.Errorf("of a call: %+v %v", of, err)
		}
		for _, id := range []schemas.ArtifactID{one.ID, "art_x.y", "art_*", ">", ""} {
			if _, err := streams.FindArtifact(t.Context(), b, "acct_2", id); schemas.CodeOf(err) != schemas.NotFound {
				t.Errorf("%q for another account: %v", id, err)
			}
		}
		for range 2 {
			if err := streams.DeleteArtifact(t.Context(), b, "acct_1", one); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := streams.FindArtifact(t.Context(), b, "acct_1", one.ID); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("removed: %v", err)
		}
		k, err := streams.FindArtifact(t.Context(), b, "acct_1", two.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := streams.ReadArtifactChunk(t.Context(), b, "acct_1", k.Chunks[0]); err != nil || !bytes.Equal(got, []byte("same")) {
			t.Errorf("%q %v", got, err)
		}
		if u, err := b.Usage(t.Context(), "acct_1"); err != nil || u.Events.Messages < 4 || u.Events.Bytes < 9 {
			t.Errorf("usage %+v %v", u, err)
		}
	})
}

// TestOldArtifactsGo a day after events of their age, and what was stored again stays.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestOldArtifactsGo(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		call := schemas.Call{Account: "acct_1", Conversation: "c", ID: "call_1"}
		old := keepArtifact(t, b, call, "outputs/a", "old")
		keepArtifact(t, b, call, "outputs/b", "again")
		keep := 2 * time.Hour
		go func() { _ = (&streams.Retention{Bus: b, Keep: keep, Every: time.Hour}).Run(t.Context()) }()
		time.Sleep(keep + 23*time.Hour)
		if _, err := streams.FindArtifact(t.Context(), b, "acct_1", old.ID); err != nil {
			t.Fatalf("before its time: %v", err)
		}
		call.ID = "call_2"
		young := keepArtifact(t, b, call, "outputs/b", "again")
		time.Sleep(3 * time.Hour)
		if _, err := streams.FindArtifact(t.Context(), b, "acct_1", old.ID); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("after its time: %v", err)
		}
		k, err := streams.FindArtifact(t.Context(), b, "acct_1", young.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := streams.ReadArtifactChunk(t.Context(), b, "acct_1", k.Chunks[0]); err != nil {
			t.Errorf("the bytes of a young one: %v", err)
		}
	})
}
