package maintenance

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestTheNextDueCallsAreRemembered: of a long queue, the calls that are due next are kept in memory, in whatever order they arrive. When a
// call is due that was left out, the queue is read again.
func TestTheNextDueCallsAreRemembered(t *testing.T) {
	t.Parallel()
	const most, all = 10, 1000
	begun := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	w := &waiting{most: most}
	for _, n := range rand.New(rand.NewPCG(1, 2)).Perm(all) {
		w.read = uint64(n + 1)
		if w.add(waitingCall{seq: uint64(n + 1), due: begun.Add(time.Duration(n) * time.Minute)}); len(w.calls) > 2*most {
			t.Fatalf("%d calls are remembered", len(w.calls))
		}
	}
	w.narrow()
	for n, c := range w.calls {
		if c.seq != uint64(n+1) {
			t.Errorf("the call that is due in place %d is that of sequence %d", n+1, c.seq)
		}
	}
	if later := begun.Add(most * time.Minute); len(w.calls) != most || !w.later.due.Equal(later) {
		t.Errorf("%d are remembered, the next is due at %s; want %d and %s", len(w.calls), w.later.due, most, later)
	}
	if w.begin(w.later.due.Add(-1)); w.read == 0 {
		t.Error("the queue is read again before a call is due that was left out")
	}
	ended := w.calls
	w.calls = w.calls[:1:1] // the others have ended
	if w.begin(w.later.due); w.read != 0 || len(w.calls) != 1 {
		t.Errorf("the queue is not read again from its beginning, or what has no end is forgotten: %+v", w)
	}
	for _, c := range ended {
		if w.add(c); len(w.calls) != 1 {
			t.Fatalf("a call that was looked after is remembered again: %+v", c)
		}
	}
	left, fresh := waitingCall{seq: most + 1, due: begun.Add(most * time.Minute)}, waitingCall{seq: all + 1, due: begun}
	w.add(left)
	w.add(fresh)
	if w.narrow(); len(w.calls) != 3 || w.calls[0].seq != 1 || w.calls[1] != fresh || w.calls[2] != left {
		t.Errorf("remembered are %+v; want what has no end, what is new, and what was left out", w.calls)
	}
}

// TestALongQueueEndsWithAShortMemory: more calls are overdue than are kept in memory, and each of them ends.
func TestALongQueueEndsWithAShortMemory(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const most, all = 3, 20
		now := b.Now()
		for n := range all {
			c := schemas.Call{
				ID: schemas.CallID(fmt.Sprint("call_", n)), Account: testAccount, Conversation: schemas.ConversationID(fmt.Sprint("c_", n)),
				Tool: schemas.ToolRead, Input: []byte(`{"file_path":"a"}`), Provider: "fake", Workspace: "ws_1", Sandbox: "sb_1",
				Accepted: now, Deadline: now.Add(time.Duration(all-n) * time.Second), Digest: "d",
			}
			if err := streams.Calls.Publish(t.Context(), b, c); err != nil {
				t.Fatal(err)
			}
			if err := streams.Events.Publish(t.Context(), b, schemas.AcceptedEvent(c)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(overdue + time.Minute)
		c, w := &CallExpirer{Bus: b, Log: slog.New(slog.DiscardHandler)}, &waiting{most: most}
		for range all/most + 1 {
			if err := c.sweepQueue(t.Context(), "fake", w); err != nil {
				t.Fatal(err)
			}
			if len(w.calls) > most {
				t.Errorf("%d calls are remembered", len(w.calls))
			}
		}
		var left []int
		for n := range all {
			id := schemas.CallID(fmt.Sprint("call_", n))
			call, err := b.Calls().Find(t.Context(), testAccount, id)
			if err != nil {
				t.Fatal(err)
			}
			state, err := b.States().Read(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			if state.Result == nil {
				left = append(left, n)
			}
		}
		if len(left) > 0 {
			t.Errorf("calls %v have no end", left)
		}
	})
}
