package replay_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestTheStreamIsRecreated: readers receive a gap, because the stream was recreated.
//
//guarantee:a-conversation-has-no-holes
func TestTheStreamIsRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		h, stop := running(t, l, replay.Options{})
		defer stop()
		synctest.Wait()
		for range 3 {
			l.publish("c")
		}
		c := attach(t, h, "c", schemas.Cursor{})
		synctest.Wait()
		time.Sleep(time.Second)
		l.recreated() // without a notice: the connection was never lost
		l.publish("c")
		time.Sleep(2 * time.Minute)
		l.publish("c")
		synctest.Wait()
		c.end()
		if want := []string{"e1.1", "e1.2", "e1.3", "e2.1", "e2.2"}; !slices.Equal(c.events, want) || len(c.gaps) != 1 ||
			c.gaps[0].From.String() != "e1_00000000000000000003" {
			t.Errorf("events %v, gaps %v", c.events, c.gaps)
		}
	})
}

// TestANewStreamIsNoticedByItsFirstEvent: also by who has read all of the former one from the log, and
// received nothing of it live.
func TestANewStreamIsNoticedByItsFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		h, stop := running(t, l, replay.Options{})
		defer stop()
		for range 3 {
			l.publish("c")
		}
		c := attach(t, h, "c", schemas.Cursor{})
		time.Sleep(time.Second)
		l.recreated()
		l.publish("c")
		time.Sleep(time.Second)
		c.end()
		if want := []string{"e1.1", "e1.2", "e1.3", "e2.1"}; !slices.Equal(c.events, want) || len(c.gaps) != 1 {
			t.Errorf("events %v, gaps %v", c.events, c.gaps)
		}
	})
}

// cutting removes more between the read of a page and the question how much is gone.
type cutting struct {
	*fakeLog

	first uint64 // of what is left then
}

func (l *cutting) Locate(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, after schemas.Cursor) (streams.Place, error) {
	l.mu.Lock()
	l.fakeLog.first = l.first
	l.mu.Unlock()
	return l.fakeLog.Locate(ctx, a, c, after)
}

// TestAGapEndsBeforeTheNextEvent: what was read counts, though it was removed before the gap was known.
func TestAGapEndsBeforeTheNextEvent(t *testing.T) {
	at := func(seq uint64) schemas.Cursor { return schemas.Cursor{Epoch: "e1", Seq: seq} }
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[uint64][]streams.Gap{1: {{From: at(1), To: at(3)}}, 3: nil} {
			l := &cutting{fakeLog: newFakeLog(), first: 6}
			for range 6 {
				l.publish("c")
			}
			l.fakeLog.first = 4
			h, stop := running(t, l, replay.Options{})
			c := attach(t, h, "c", at(after))
			time.Sleep(time.Second)
			c.end()
			stop()
			if !slices.Equal(c.events, []string{"e1.4", "e1.5", "e1.6"}) || !slices.Equal(c.gaps, want) {
				t.Errorf("after %d: events %v, gaps %v, want %v", after, c.events, c.gaps, want)
			}
		}
	})
}

// TestACursorOfALostEndIsRecognised: another event has its sequence now. Readers in the ring, behind it, at the end and of other
// conversations' sequences receive a gap, and then everything. The other readers receive no gap.
//
//guarantee:a-conversation-has-no-holes
func TestACursorOfALostEndIsRecognised(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const n = 1500 // more than a ring
		publish(t, b, "c", 0, n)
		publish(t, b, "other", 0, 1)
		publish(t, b, "c", n, n+1)
		all := make(map[uint64]schemas.Cursor)
		for e, err := range streams.Events.Replay(t.Context(), b, string(account)+"/c", schemas.Cursor{}) {
			if err != nil {
				t.Fatal(err)
			}
			all[e.Cursor.Seq] = e.Cursor
		}
		for round := range 2 { // the second finds what the first has read
			h, stop := running(t, replay.NewBusLog(b), replay.Options{})
			for range round + 1 {
				for _, seq := range []uint64{1, 700, 1499, n, n + 1, n + 2} {
					right, is := all[seq]
					wrong := schemas.Cursor{Epoch: all[1].Epoch, Seq: seq, Mark: right.Mark ^ 0x5555}
					lost := attach(t, h, "c", wrong)
					synctest.Wait()
					lost.end()
					if len(lost.events) != n+1 || len(lost.gaps) != 1 || lost.gaps[0].From != wrong || lost.gaps[0].To.Seq != 0 {
						t.Errorf("%s: %d events, gaps %v", wrong, len(lost.events), lost.gaps)
					}
					if !is {
						continue
					}
					kept := attach(t, h, "c", right)
					synctest.Wait()
					kept.end()
					want := 0
					for other := range all {
						if other > seq {
							want++
						}
					}
					if len(kept.events) != want || len(kept.gaps) > 0 {
						t.Errorf("%s: %d events, gaps %v", right, len(kept.events), kept.gaps)
					}
				}
			}
			stop()
		}
	})
}

// TestALostEventIsAGap: its payload is gone, and readers receive a gap, from the ring and from the log.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestALostEventIsAGap(t *testing.T) {
	at := func(seq uint64) schemas.Cursor { return schemas.Cursor{Epoch: "e1", Seq: seq} }
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		for range 6 {
			l.publish("c")
		}
		lost := l.stored[3]
		lost.Lost, lost.Value = true, schemas.Event{Conversation: "c"}
		l.stored[3] = lost
		h, stop := running(t, l, replay.Options{})
		for range 2 {
			c := attach(t, h, "c", at(1))
			time.Sleep(time.Second)
			c.end()
			if !slices.Equal(c.events, []string{"e1.2", "e1.4", "e1.5", "e1.6"}) || !slices.Equal(c.gaps, []streams.Gap{{From: at(2), To: at(3)}}) {
				t.Errorf("events %v, gaps %v", c.events, c.gaps)
			}
		}
		stop()
	})
}

// TestALostLastEventIsFound: nothing comes behind it that would show the hole.
func TestALostLastEventIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		h, stop := running(t, l, replay.Options{})
		defer stop()
		c := attach(t, h, "c", schemas.Cursor{})
		time.Sleep(time.Second)
		l.lose = func() bool { return true }
		l.publish("c")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := c.seen(); !slices.Equal(got, []string{"e1.1"}) {
			t.Errorf("after a minute: %v", got)
		}
		c.end()
	})
}
