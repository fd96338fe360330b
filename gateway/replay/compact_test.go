package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// screen shows what calls have printed, as a client does.
type screen struct {
	texts map[string]string // of calls that run
	ended map[string]bool
	torn  []string // what came from the middle of a call
}

func newScreen() *screen { return &screen{texts: map[string]string{}, ended: map[string]bool{}} }

// show takes one event, and the snapshot before it. After a gap there may be a hole.
func (s *screen) show(t *testing.T, step replay.Step, gap bool) {
	t.Helper()
	var e schemas.Event
	if err := json.Unmarshal(step.Frame.Data(), &e); err != nil {
		t.Fatal(err)
	}
	if step.Snapshot != nil {
		var shot outputs.Snapshot
		if err := json.Unmarshal(step.Snapshot.Data(), &shot); err != nil || string(shot.Call) != e.Subject {
			t.Errorf("%s before an event of %s: %v", step.Snapshot.Op(), e.Subject, err)
		}
		s.texts[e.Subject] = ""
		for _, o := range shot.Output {
			if o.Offset > 0 && !gap {
				s.torn = append(s.torn, fmt.Sprintf("%s begins at %d", e.Subject, o.Offset))
			}
			s.texts[e.Subject] = fmt.Sprint(map[bool]string{true: "…"}[o.Offset > 0], o.Text)
		}
	}
	switch {
	case outputs.IsWhole(e.Type):
		delete(s.texts, e.Subject)
		s.ended[e.Subject] = true
	case outputs.IsPiece(e.Type):
		var d schemas.OutputData
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		if int64(len(s.texts[e.Subject])) != d.Offset && !gap {
			s.torn = append(s.torn, fmt.Sprintf("%s goes on at %d after %q", e.Subject, d.Offset, s.texts[e.Subject]))
		}
		s.texts[e.Subject] += d.Text
	}
}

// checkCompact compares what a compact reader received with the log. Events that it did not receive are pieces whose whole it received
// later, and it counts them. At the end its screen shows what was printed.
func (tr *transcript) checkCompact(t *testing.T, l *fakeLog) {
	t.Helper()
	if len(tr.screen.torn) > 0 {
		t.Errorf("%s: torn: %v", tr.conv, tr.screen.torn)
	}
	toldAt := map[uint64]bool{}
	for i, s := range tr.steps {
		if s.gap == nil && i > 0 && s.event.Epoch == tr.steps[i-1].event.Epoch && s.event.Seq <= tr.steps[i-1].event.Seq {
			t.Errorf("%s: %s after %s", tr.conv, s.event, tr.steps[i-1].event)
		}
		toldAt[s.event.Seq] = true
	}
	if tr.lost {
		return // what is on the screen may have holes
	}
	left, whole := 0, map[string]bool{} // seen from the end
	texts := map[string]string{}
	for _, seq := range slices.Backward(slices.Sorted(maps.Keys(l.stored))) {
		e := l.stored[seq].Value
		if seq <= tr.after.Seq && toldAt[seq] {
			t.Errorf("%s: was told %d, which is before it began", tr.conv, seq)
		}
		if e.Conversation != tr.conv {
			continue
		}
		var d schemas.OutputData
		if e.Type == schemas.CallOutput && json.Unmarshal(e.Data, &d) == nil && !whole[e.Subject] {
			texts[e.Subject] = d.Text + texts[e.Subject]
		}
		switch {
		case seq <= tr.after.Seq:
		case toldAt[seq]:
			whole[e.Subject] = whole[e.Subject] || e.Type == schemas.CallFinished
		case e.Type == schemas.CallOutput && whole[e.Subject]:
			left++
		default:
			t.Errorf("%s: was not told %d, %s of %s", tr.conv, seq, e.Type, e.Subject)
		}
	}
	if left > tr.skipped { // what was left out before a connection ended is left out again
		t.Errorf("%s: %d events were left out and %d counted", tr.conv, left, tr.skipped)
	}
	for subject, text := range tr.screen.texts {
		if texts[subject] != text {
			t.Errorf("%s: of %s it shows %q, printed was %q", tr.conv, subject, text, texts[subject])
		}
	}
}

// stories stores the output of calls one after the other; each prints four pieces.
func stories(t *testing.T, b *streams.Bus, from, to int, end bool) {
	t.Helper()
	for n := from; n < to; n++ {
		call := schemas.Call{ID: schemas.CallID(fmt.Sprint("call_", n)), Account: account, Conversation: "c"}
		for i := range 4 {
			publishEvent(t, b, schemas.NewEvent(call, schemas.CallOutput, fmt.Sprintf("%d.%d", n, i), time.Now(), schemas.OutputData{
				Call: call.ID, Stream: "stdout", Offset: int64(i), Text: "x", Bytes: 1, Attempt: 1,
			}))
		}
		if end {
			publishEvent(t, b, schemas.NewEvent(call, schemas.CallFinished, fmt.Sprintf("%d.end", n), time.Now(), schemas.Result{Call: call.ID}))
		}
	}
}

func publishEvent(t *testing.T, b *streams.Bus, e schemas.Event) {
	t.Helper()
	if err := streams.Events.Publish(t.Context(), b, e); err != nil {
		t.Fatal(err)
	}
}

func (c *counted) Snapshots(
	ctx context.Context, a schemas.AccountID, id schemas.ConversationID, of []outputs.PlacedPiece,
) ([]outputs.Snapshot, error) {
	c.n.Add(1)
	return c.Log.Snapshots(ctx, a, id, of)
}

// TestManyCompactReadersAreOneRead: what it takes to decide for them is read once, and so are the snapshots for
// those who come to the middle of a call that runs.
func TestManyCompactReadersAreOneRead(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		log := &counted{Log: replay.NewBusLog(b)}
		h, stop := running(t, log, replay.Options{})
		defer stop()
		const calls, readers = 60, 200
		stories(t, b, 0, calls, true)
		stories(t, b, calls, calls+1, false)
		page, err := streams.Page(t.Context(), b, account, "c", schemas.Cursor{}, streams.MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		n := len(page.Events)
		var all []*client
		for i := range readers {
			after := page.Events[(i*37)%(n-5)].Cursor
			switch i % 4 {
			case 0:
				after = page.Events[n-2].Cursor // within the call that runs
			case 1:
				after = schemas.Cursor{}
			}
			all = append(all, attachCompact(t, h, "c", after))
		}
		synctest.Wait()
		before := log.n.Load()
		publishEvent(t, b, schemas.NewEvent(schemas.Call{ID: "other", Account: account, Conversation: "c"},
			schemas.Message, "m", time.Now(), nil))
		synctest.Wait()
		if got := log.n.Load(); got != before || got > 12 {
			t.Errorf("%d readers cost %d reads of the log, and then %d", readers, before, got-before)
		}
		for i, c := range all {
			c.end()
			switch {
			case i%4 == 0 && (len(c.events) != 2 || c.snapshots != 1 || c.skipped != 0):
				t.Errorf("reader %d within a call: %v, %d snapshots, %d left out", i, c.events, c.snapshots, c.skipped)
			case i%4 == 1 && (len(c.events) != calls+4+1 || c.snapshots != 0 || c.skipped != calls*4):
				t.Errorf("reader %d from the beginning: %d events, %d snapshots, %d left out", i, len(c.events), c.snapshots, c.skipped)
			case i%4 > 1 && len(c.events)+c.skipped != n-(i*37)%(n-5):
				t.Errorf("reader %d: %d events and %d left out of %d", i, len(c.events), c.skipped, n-(i*37)%(n-5))
			}
		}
	})
}

// TestACompactReaderWaitsWhileTheLogIsAway: it delays no other reader, and continues by itself.
func TestACompactReaderWaitsWhileTheLogIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		h, stop := running(t, l, replay.Options{})
		defer stop()
		synctest.Wait()
		for range 100 {
			l.publish("c")
		}
		full := attach(t, h, "c", schemas.Cursor{})
		time.Sleep(time.Second)
		away := true
		l.mu.Lock()
		l.fail = func() bool { return away }
		l.mu.Unlock()
		c := attachCompact(t, h, "c", schemas.Cursor{Epoch: l.name(), Seq: 10})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if len(c.seen()) > 0 {
			t.Errorf("it was told %v before it was known where calls end", c.seen())
		}
		l.publish("c")
		synctest.Wait()
		if got := full.seen(); len(got) != 101 {
			t.Errorf("who reads beside it has %d events", len(got))
		}
		l.mu.Lock()
		away = false
		l.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := c.seen(); len(got) == 0 || got[len(got)-1] != "e1.101" || len(got) > 80 {
			t.Errorf("once it is back it was told %d events", len(got))
		}
		c.end()
		full.end()
	})
}
