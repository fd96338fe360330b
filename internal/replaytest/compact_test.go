package replaytest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/streams/outputs"
)

// screen is the state of a program that shows the output of a conversation's calls.
type screen struct {
	mu     sync.Mutex
	texts  map[schemas.CallID]string // of what runs, and of what has ended
	ended  map[schemas.CallID]bool
	pieces int
	torn   []string // pieces in the middle of what was left out
	gaps   int
	snaps  int
	last   schemas.Cursor
	more   chan struct{} // closed and replaced with each item
}

func newScreen() *screen {
	return &screen{texts: map[schemas.CallID]string{}, ended: map[schemas.CallID]bool{}, more: make(chan struct{})}
}

// show updates the screen with an item that a client has received.
func (s *screen) show(it client.Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case it.Gap != nil:
		s.gaps++
	case it.Snapshot != nil:
		var snap outputs.Snapshot
		if err := json.Unmarshal(it.Snapshot, &snap); err != nil {
			return fmt.Errorf("a snapshot: %w", err)
		}
		s.snaps++
		s.texts[snap.Call] = ""
		for _, o := range snap.Output {
			s.texts[snap.Call] = strings.Repeat("?", int(o.Offset)) + o.Text
		}
	case it.Live:
	case it.Event.Type == schemas.CallOutput:
		var d schemas.OutputData
		if err := json.Unmarshal(it.Event.Data, &d); err != nil {
			return fmt.Errorf("a piece: %w", err)
		}
		if have := len(s.texts[d.Call]); int(d.Offset) != have {
			s.torn = append(s.torn, fmt.Sprintf("%s at %d after %d", d.Call, d.Offset, have))
		}
		s.texts[d.Call] += d.Text
		s.pieces++
		s.last = it.Cursor
	case it.Event.Type == schemas.CallFinished:
		var r schemas.Result
		if err := json.Unmarshal(it.Event.Data, &r); err != nil {
			return fmt.Errorf("a result: %w", err)
		}
		if have := s.texts[r.Call]; !strings.HasPrefix(r.Output.Stdout, have) {
			s.torn = append(s.torn, fmt.Sprintf("%s ended with %q and its pieces say %q", r.Call, r.Output.Stdout, have))
		}
		s.texts[r.Call], s.ended[r.Call] = r.Output.Stdout, true
		s.last = it.Cursor
	default:
		s.last = it.Cursor
	}
	close(s.more)
	s.more = make(chan struct{})
	return nil
}

// watch follows a conversation and shows it on a new screen.
func (c *crowd) watch(follow replaytest.Follow, conv schemas.ConversationID) *screen {
	s := newScreen()
	c.work.Go(func() {
		for it, err := range follow(c.ctx, conv, schemas.Cursor{}) {
			if err == nil {
				err = s.show(it)
			}
			if c.ctx.Err() != nil {
				return
			}
			if err != nil {
				c.s.t.Errorf("%s: %v", conv, err)
				return
			}
		}
	})
	return s
}

// It returns one event of a call: for piece -1 that the call is accepted, for pieces its end, and between them a piece of output.
func told(conv schemas.ConversationID, call, piece, pieces int) schemas.Event {
	c := schemas.Call{ID: schemas.CallID(fmt.Sprintf("%s-%d", conv, call)), Account: alice, Conversation: conv}
	id := fmt.Sprintf("%s.%d", c.ID, piece)
	switch {
	case piece < 0:
		return schemas.NewEvent(c, schemas.CallAccepted, id, time.Now(), schemas.AcceptedData{Call: c.ID})
	case piece == pieces:
		var whole strings.Builder
		for n := range pieces {
			whole.WriteString(line(call, n))
		}
		return schemas.NewEvent(c, schemas.CallFinished, id, time.Now(), schemas.Result{
			Call: c.ID, Conversation: conv, Status: schemas.StatusCompleted, Output: &schemas.Output{Stdout: whole.String()},
		})
	}
	text := line(call, piece)
	return schemas.NewEvent(c, schemas.CallOutput, id, time.Now(), schemas.OutputData{
		Call: c.ID, Stream: "stdout", Offset: int64(piece * len(text)), Text: text, Bytes: len(text), Attempt: 1,
	})
}

// line returns one piece of output. All pieces have the same length.
func line(call, piece int) string { return fmt.Sprintf("%03d/%03d\n", call, piece) }

// TestCompactReadersShowTheSame: through cuts, a reader that leaves out what a later event contains whole has the same on the screen as a
// reader of everything, and never meets a call in its middle.
//
//guarantee:a-conversation-has-no-holes
func TestCompactReadersShowTheSame(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.single()
	s.proxy.Set(cuts())
	convs := []schemas.ConversationID{"c_1", "c_2"}
	const pieces, hanging = 12, 1000
	c := s.crowd()
	type pair struct {
		conv          schemas.ConversationID
		full, compact *screen
	}
	var all []pair
	join := func() {
		for _, conv := range convs {
			all = append(all, pair{conv, c.watch(c.socket().Follow, conv), c.watch(c.socket().FollowCompact, conv)})
		}
	}
	calls := pick(60, 15)
	for call := range calls {
		for piece := -1; piece <= pieces; piece++ {
			for _, conv := range convs { // in each two calls at a time, one of which has no end
				s.store(told(conv, call, piece, pieces))
				if piece > 0 {
					s.store(told(conv, hanging+call, piece-1, pieces))
				}
			}
			if piece == 0 && call%(calls/3) == 0 || piece == pieces && call == calls-1 {
				join() // some are there from the beginning, some come later
			}
			if piece == pieces/2 { // all continue in the middle of calls
				for _, p := range all {
					p.full.await(t, s.end(p.conv))
					p.compact.await(t, s.end(p.conv))
				}
				if call%4 == 0 {
					s.proxy.CutAll()
				}
			}
		}
	}
	for _, conv := range convs {
		s.store(note(conv, 1))
	}
	for i, p := range all {
		p.full.await(t, s.end(p.conv))
		p.compact.await(t, s.end(p.conv))
		if len(p.full.torn)+len(p.compact.torn) > 0 {
			t.Errorf("pair %d: in full %v, compact %v", i, p.full.torn, p.compact.torn)
		}
		if !maps.Equal(p.full.texts, p.compact.texts) || !maps.Equal(p.full.ended, p.compact.ended) || len(p.full.texts) != 2*calls {
			t.Errorf("pair %d: the screens differ, or show %d and %d calls, want %d", i, len(p.full.texts), len(p.compact.texts), 2*calls)
		}
		if p.full.gaps+p.compact.gaps > 0 {
			t.Errorf("pair %d was told gaps", i)
		}
	}
	if last := all[len(all)-1]; last.compact.pieces > last.full.pieces*3/4 { // half of them are of calls without an end
		t.Errorf("a compact reader who came last had %d pieces and a full one %d", last.compact.pieces, last.full.pieces)
	}
	snaps := 0
	for _, p := range all {
		snaps += p.compact.snaps
	}
	t.Logf("%d snapshots over %d connections, of which %d were cut", snaps, s.proxy.Connections(), s.proxy.Cuts())
	if snaps == 0 {
		t.Error("nobody came back in the middle of a call: that proves little")
	}
}

// await waits until a screen has shown an event.
func (s *screen) await(t *testing.T, end schemas.Cursor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		s.mu.Lock()
		last, more := s.last, s.more
		s.mu.Unlock()
		if last == end {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("the last shown is %s, want %s", last, end)
		}
	}
}

// TestCompactReadersBehindTheCut: a reader comes back to a call whose beginning is gone. It receives the gap, and what is still known of
// the call before its next piece.
func TestCompactReadersBehindTheCut(t *testing.T) {
	t.Parallel()
	role := natsauth.User{Name: "role", Password: "role"}
	s := open(t, natstest.Listen(role), natstest.Shards(1))
	const conv, pieces, kept = "c_1", 10, 4
	for n := -1; n < pieces; n++ {
		s.store(told(conv, 1, n, pieces+1))
	}
	natstest.Dial(t, s.log.Server.URL(), role.Name, role.Password).Purge(t, "EVENTS_00", "sandjet.events.>", kept)
	s.single()
	for name, tt := range map[string]struct {
		after int // the piece that it has
		want  []string
	}{
		"behind the cut": {2, []string{"gap", "snapshot", "6", "7", "8", "9", "live"}},
		"before the cut": {7, []string{"snapshot 6 7", "8", "9", "live"}},
		"at the cut":     {5, []string{"snapshot", "6", "7", "8", "9", "live"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.crowd()
			defer c.leave()
			after, err := schemas.ParseCursor(s.ever[conv][tt.after+1].Cursor) // the first is the acceptance
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var got []string
			for it, err := range c.socket().FollowCompact(ctx, conv, after) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, named(t, it)); it.Live {
					break
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("told %q, want %q", got, tt.want)
			}
		})
	}
}

// named is an item in a word; pieces are named by their numbers.
func named(t *testing.T, it client.Item) string {
	t.Helper()
	numbers := func(text string) string {
		var all []string
		for l := range strings.FieldsSeq(text) {
			all = append(all, strings.TrimLeft(l[len("001/"):], "0"))
		}
		return strings.Join(all, " ")
	}
	switch {
	case it.Gap != nil:
		return "gap"
	case it.Live:
		return "live"
	case it.Snapshot != nil:
		var snap outputs.Snapshot
		if err := json.Unmarshal(it.Snapshot, &snap); err != nil {
			t.Fatal(err)
		}
		var word strings.Builder
		word.WriteString("snapshot")
		for _, o := range snap.Output {
			word.WriteString(" " + numbers(o.Text))
		}
		return word.String()
	}
	var d schemas.OutputData
	if err := json.Unmarshal(it.Event.Data, &d); err != nil {
		t.Fatal(err)
	}
	return numbers(d.Text)
}
