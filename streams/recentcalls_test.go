package streams_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// TestRecentCallsAreTheNewestFirst stores calls of two accounts, some so large that a page of the log has only a few of them, and reads
// those of one backward, page by page.
func TestRecentCallsAreTheNewestFirst(t *testing.T) {
	t.Parallel()
	b := natstest.Start(t).Bus
	ctx := t.Context()
	now := time.Now().UTC()
	var want []schemas.CallID
	for i := range 700 {
		c := schemas.Call{
			ID: schemas.CallID(fmt.Sprintf("call-%d", i)), Account: "acct_1",
			Conversation: schemas.ConversationID(fmt.Sprintf("c%d", i%3)), Tool: schemas.ToolBash,
			Input: json.RawMessage(`{"command":"true"}`), Provider: []string{"fake", "other"}[i%2], Workspace: "ws_1",
			Sandbox: "sb_1", Accepted: now,
			Deadline: now.Add(time.Hour), Digest: "d",
		}
		switch {
		case i%7 == 0:
			c.Account = "acct_2"
		case i%50 == 1: // an eighth of a page
			c.Input = json.RawMessage(`{"command":"` + strings.Repeat("x", 130<<10) + `"}`)
		}
		if err := streams.Calls.Publish(ctx, b, c); err != nil {
			t.Fatal(err)
		}
		if c.Account == "acct_1" {
			want = append(want, c.ID)
		}
	}
	slices.Reverse(want)
	all := func(schemas.Call) bool { return true }
	for _, limit := range []int{1, 50, 100, 1000} {
		var got []schemas.CallID
		before, more := schemas.CallID(""), true
		for pages := 0; more && (limit > 1 || pages < 20); pages++ {
			var list []callstore.Listed
			var err error
			list, before, more, err = b.Calls().Recent(ctx, "acct_1", before, limit, all)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				got = append(got, r.Call.ID)
			}
		}
		if limit == 1 {
			want = want[:20]
			if !slices.Equal(got, want) {
				t.Errorf("one by one: %v, want %v", got, want)
			}
			want = nil
			for i := 699; i >= 0; i-- {
				if i%7 != 0 {
					want = append(want, schemas.CallID(fmt.Sprintf("call-%d", i)))
				}
			}
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d at a time: %d calls, want %d", limit, len(got), len(want))
		}
	}
	list, _, more, err := b.Calls().Recent(ctx, "acct_1", "", 3, func(c schemas.Call) bool { return c.Conversation == "c0" })
	if err != nil || !more || len(list) != 3 || list[0].Call.Conversation != "c0" {
		t.Errorf("of one conversation: %+v, %v, %v", list, more, err)
	}
	if list, _, more, err := b.Calls().Recent(ctx, "acct_3", "", 10, all); err != nil || more || len(list) != 0 {
		t.Errorf("of who has none: %v, %v, %v", list, more, err)
	}
	if _, _, _, err := b.Calls().Recent(ctx, "acct_2", "call-1", 10, all); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("before another's call: %v", err)
	}
}

// TestRecentStatesSayHowFarCallsAre also where the payload of a large result is gone: a list does not read it.
func TestRecentStatesSayHowFarCallsAre(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t, natstest.Listen(natsauth.User{Name: "role", Password: "r"}))
	b := l.Bus
	ctx := t.Context()
	var calls []schemas.Call
	for _, id := range []schemas.CallID{"queued", "running", "done"} {
		now := time.Now().UTC()
		c := schemas.Call{
			ID: id, Account: "acct_1", Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`), Provider: "fake",
			Workspace: "ws_1", Sandbox: "sb_1", Accepted: now, Deadline: now.Add(time.Hour), Digest: "d",
		}
		calls = append(calls, c)
		if err := streams.Calls.Publish(ctx, b, c); err != nil {
			t.Fatal(err)
		}
	}
	say := func(c schemas.Call, kind schemas.EventType, suffix string, data any) {
		t.Helper()
		if err := streams.Events.Publish(ctx, b, schemas.NewEvent(c, kind, c.EventID()+"."+suffix, time.Now(), data)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range calls[1:] {
		say(c, schemas.CallStarted, "started.1", schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "w", Attempt: 1})
	}
	large := strings.Repeat("x", 1_000_000)
	say(calls[2], schemas.CallFinished, "finished", schemas.Result{Call: "done", Tool: schemas.ToolBash, Status: schemas.StatusCompleted,
		Text: large, Output: &schemas.Output{ExitCode: 3, Stdout: large}})
	list, _, _, err := b.Calls().Recent(ctx, "acct_1", "", 10, func(schemas.Call) bool { return true })
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	natstest.Dial(t, l.Server.URL(), "role", "r").Purge(t, "OBJ_payloads_39d", ">", 0)
	states, err := b.States().Recent(ctx, list)
	if err != nil {
		t.Fatal(err)
	}
	if s, known := states["queued"]; !known || len(s.Started) != 0 || s.Result != nil {
		t.Errorf("queued: %+v", s)
	}
	if s := states["running"]; len(s.Started) != 1 || s.Result != nil {
		t.Errorf("running: %+v", s)
	}
	if s := states["done"]; s.Result == nil || s.Result.Status != schemas.StatusCompleted || s.Result.Output.ExitCode != 3 {
		t.Errorf("done: %+v", s)
	} else if s.Result.Text+s.Result.Output.Stdout != "" {
		t.Error("the list keeps what was printed")
	}
	for _, c := range list {
		if c.Call.Input != nil || c.Summary != "true" {
			t.Errorf("%s: input %s, summary %q", c.Call.ID, c.Call.Input, c.Summary)
		}
	}
}
