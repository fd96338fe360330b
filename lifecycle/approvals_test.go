package lifecycle_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
)

func asked(id schemas.CallID) schemas.Call {
	now := time.Now().UTC()
	return schemas.Call{
		ID: id, Account: "acct_1", Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`), Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Accepted: now, Deadline: now.Add(time.Hour), Approval: schemas.NewApprovalID(), Digest: "d",
	}
}

// With files that are synced too, where calls are written together.
func TestAParkedCallIsReleasedOnce(t *testing.T) {
	t.Parallel()
	for _, durability := range []embedded.Durability{"os", "always"} {
		b := natstest.Start(t, natstest.Durability(durability)).Bus
		ctx := t.Context()
		c := asked("a.b")
		if err := streams.Parked.Publish(ctx, b, c); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"parked again": streams.Parked.Publish(ctx, b, c), "called": streams.Calls.Publish(ctx, b, c)} {
			if !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("%s, %s: %v", durability, name, err)
			}
		}
		released := c
		released.Deadline = c.Deadline.Add(time.Hour)
		for range 2 {
			if err := lifecycle.ReleaseCall(ctx, b, released); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for e, err := range streams.Calls.Replay(ctx, b, "fake", schemas.Cursor{}) {
			if n++; err != nil || !e.Value.Deadline.Equal(released.Deadline) {
				t.Errorf("%+v, %v", e.Value, err)
			}
		}
		if got, err := b.Calls().Find(ctx, c.Account, c.ID); n != 1 || err != nil || !got.Deadline.Equal(released.Deadline) {
			t.Errorf("%s: %d calls, found %+v, %v", durability, n, got, err)
		}
		other := asked(c.ID)
		if err := lifecycle.ReleaseCall(ctx, b, other); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("another call of the id: %v", err)
		}
		if err := lifecycle.ReleaseCall(ctx, b, asked("aged-out")); err != nil {
			t.Errorf("a call whose parked message is gone: %v", err)
		}
	}
}

func TestNoProviderIsCalledAsParkedCallsAre(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t).Bus
	c := asked("x")
	for _, provider := range []string{"_parked", "auto", "a.b", ""} {
		c.Provider = provider
		for _, err := range []error{streams.Parked.Publish(t.Context(), b, c), streams.Calls.Publish(t.Context(), b, c)} {
			if !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("provider %q: %v", provider, err)
			}
		}
	}
}
