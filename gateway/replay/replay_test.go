package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const account schemas.AccountID = "acct_a"

// client reads a conversation as a socket does: woken, it takes what is there.
type client struct {
	t    *testing.T
	r    *replay.Reader
	wake chan struct{}
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	events []string
	marks  []string
	gaps   []streams.Gap
	err    error

	skipped, snapshots int // of a compact one
}

func attach(t *testing.T, h *replay.Hub, conv schemas.ConversationID, after schemas.Cursor) *client {
	t.Helper()
	return attachBy(t, h.Attach, conv, after)
}

func attachCompact(t *testing.T, h *replay.Hub, conv schemas.ConversationID, after schemas.Cursor) *client {
	t.Helper()
	return attachBy(t, h.AttachCompact, conv, after)
}

func attachBy(
	t *testing.T, attach func(schemas.AccountID, schemas.ConversationID, schemas.Cursor, func()) *replay.Reader,
	conv schemas.ConversationID, after schemas.Cursor,
) *client {
	t.Helper()
	c := &client{t: t, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	c.r = attach(account, conv, after, func() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	})
	go c.run()
	return c
}

func (c *client) run() {
	defer close(c.done)
	defer c.r.Close()
	last, begun := schemas.Cursor{}, false
	for {
		for s := range c.r.Ready() {
			c.mu.Lock()
			c.skipped += s.Skipped
			if s.Snapshot != nil {
				c.snapshots++
			}
			switch s.Kind {
			case replay.StepAttached:
				c.marks = append(c.marks, "attached")
				if s.Gap != nil {
					c.gaps = append(c.gaps, *s.Gap)
				}
			case replay.StepEvent:
				var frame struct {
					Cur, Prev schemas.Cursor
					Replay    bool
					Data      schemas.Event
				}
				text := s.AppendEvent(nil)
				if err := json.Unmarshal(text, &frame); err != nil || len(text) != s.EventSize() {
					c.t.Errorf("%s (%d bytes, said to be %d): %v", text, len(text), s.EventSize(), err)
				}
				if begun && frame.Prev != last || frame.Replay == slices.Contains(c.marks, "live") {
					c.t.Errorf("%s after %s, marks %v", text, last, c.marks)
				}
				last, begun = frame.Cur, true
				c.events = append(c.events, frame.Data.ID)
			case replay.StepGap:
				c.gaps = append(c.gaps, *s.Gap)
			case replay.StepLive:
				c.marks = append(c.marks, "live")
			case replay.StepFailed:
				c.err = s.Err
			}
			c.mu.Unlock()
		}
		select {
		case <-c.wake:
		case <-c.stop:
			return
		}
	}
}

func (c *client) end() {
	close(c.stop)
	<-c.done
}

func (c *client) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// running runs a hub until the returned function is called.
func running(t *testing.T, from replay.Log, o replay.Options) (h *replay.Hub, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h = replay.New(from, o)
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	return h, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	}
}

func publish(t *testing.T, b *streams.Bus, conv schemas.ConversationID, from, to int) {
	t.Helper()
	call := schemas.Call{ID: "call", Account: account, Conversation: conv}
	for n := from; n < to; n++ {
		e := schemas.NewEvent(call, schemas.CallOutput, fmt.Sprintf("%s.%d", conv, n), time.Now(), schemas.OutputData{Text: strconv.Itoa(n)})
		if err := streams.Events.Publish(t.Context(), b, e); err != nil {
			t.Fatal(err)
		}
	}
}

func ids(conv schemas.ConversationID, from, to int) []string {
	var s []string
	for n := from; n < to; n++ {
		s = append(s, fmt.Sprintf("%s.%d", conv, n))
	}
	return s
}

func TestReplayThenLive(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h, stop := running(t, replay.NewBusLog(b), replay.Options{})
		defer stop()
		const n = 1200 // more than a ring, more than a page
		publish(t, b, "c", 0, n)
		late, empty := attach(t, h, "c", schemas.Cursor{}), attach(t, h, "d", schemas.Cursor{})
		synctest.Wait()
		publish(t, b, "c", n, n+3)
		publish(t, b, "d", 0, 3)
		now := attach(t, h, "c", schemas.Tail)
		synctest.Wait()
		publish(t, b, "c", n+3, n+5)
		synctest.Wait()
		for _, c := range []*client{late, empty, now} {
			c.end()
			if !slices.Equal(c.marks, []string{"attached", "live"}) || len(c.gaps) > 0 || c.err != nil {
				t.Errorf("marks %v, gaps %v, %v", c.marks, c.gaps, c.err)
			}
		}
		if !slices.Equal(late.events, ids("c", 0, n+5)) || !slices.Equal(empty.events, ids("d", 0, 3)) || !slices.Equal(now.events, ids("c", n+3, n+5)) {
			t.Errorf("%d, %d and %d events", len(late.events), len(empty.events), len(now.events))
		}
	}, natstest.Shards(4))
}

// counted counts what is read from a log.
type counted struct {
	replay.Log
	n atomic.Int64
}

func (c *counted) Last(ctx context.Context, a schemas.AccountID, id schemas.ConversationID) (schemas.Cursor, error) {
	c.n.Add(1)
	return c.Log.Last(ctx, a, id)
}

func (c *counted) Read(ctx context.Context, a schemas.AccountID, id schemas.ConversationID, from uint64) (streams.EventPage, error) {
	c.n.Add(1)
	return c.Log.Read(ctx, a, id, from)
}

func (c *counted) Locate(ctx context.Context, a schemas.AccountID, id schemas.ConversationID, after schemas.Cursor) (streams.Place, error) {
	c.n.Add(1)
	return c.Log.Locate(ctx, a, id, after)
}

func (c *counted) State(ctx context.Context, shard int) (streams.ShardState, error) {
	c.n.Add(1)
	return c.Log.State(ctx, shard)
}

// TestManyReadersAreOneRead: a storm of readers that come back at random places costs the log as
// much as a few.
func TestManyReadersAreOneRead(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		log := &counted{Log: replay.NewBusLog(b)}
		h, stop := running(t, log, replay.Options{})
		defer stop()
		const n, readers = 400, 200
		publish(t, b, "c", 0, n)
		page, err := streams.Page(t.Context(), b, account, "c", schemas.Cursor{}, n)
		if err != nil {
			t.Fatal(err)
		}
		var all []*client
		for i := range readers {
			all = append(all, attach(t, h, "c", page.Events[(i*37)%n].Cursor))
		}
		synctest.Wait()
		publish(t, b, "c", n, n+10)
		synctest.Wait()
		for i, c := range all {
			c.end()
			if want := ids("c", (i*37)%n+1, n+10); !slices.Equal(c.events, want) {
				t.Errorf("reader %d has %d events, want %d", i, len(c.events), len(want))
			}
		}
		if got := log.n.Load(); got > 8 {
			t.Errorf("%d readers cost %d reads of the log", readers, got)
		}
	})
}

// TestTheStreamIsMadeAnew: readers are told that what they had is not that any more.
func TestTheStreamIsMadeAnew(t *testing.T) {
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
		l.anew() // and nobody says so: the connection was never lost
		l.publish("c")
		time.Sleep(2 * time.Minute)
		l.publish("c")
		synctest.Wait()
		c.end()
		if want := []string{"e1.1", "e1.2", "e1.3", "e2.1", "e2.2"}; !slices.Equal(c.events, want) || len(c.gaps) != 1 || c.gaps[0].From.String() != "e1_00000000000000000003" {
			t.Errorf("events %v, gaps %v", c.events, c.gaps)
		}
	})
}

// TestANewStreamIsNoticedByItsFirstEvent: also by who has read all of the former one from the log, and
// heard nothing of it live.
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
		l.anew()
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

// TestAGapEndsBeforeWhatIsTold: what was read counts, though it was removed before the gap was known.
func TestAGapEndsBeforeWhatIsTold(t *testing.T) {
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

// TestACursorOfALostEndIsRecognised: another event lies at its place now. Readers in the ring, behind it, at the end and
// of other conversations' places are told of a gap, and then everything; the others are told of none.
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

// TestALostEventIsAGap: its payload is gone, and readers are told so, from the ring and from the log.
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

// TestNobodyReads: a conversation without readers is followed for a moment and then forgotten, but
// for what the budget keeps of it; an ended hub ends its readers.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		h, stop := running(t, l, replay.Options{})
		c := attach(t, h, "c", schemas.Cursor{})
		time.Sleep(time.Second)
		synctest.Wait()
		if !h.Follows(account, "c") {
			t.Error("it is not followed")
		}
		c.end()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if h.Follows(account, "c") || len(l.heard) > 0 {
			t.Error("it is still followed")
		}
		last := attach(t, h, "c", schemas.Cursor{})
		time.Sleep(time.Second)
		stop()
		synctest.Wait()
		last.end()
		if schemas.CodeOf(last.err) != schemas.Unavailable {
			t.Errorf("ended with %v", last.err)
		}
		late := attach(t, h, "c", schemas.Cursor{})
		synctest.Wait()
		late.end()
		if schemas.CodeOf(late.err) != schemas.Unavailable {
			t.Errorf("after the end: %v", late.err)
		}
	})
}

// TestFramesThatNobodyReadsAreForgotten: soon enough for the memory to come back, and not so soon that who comes back
// after a pause has the log read again.
func TestFramesThatNobodyReadsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		for range 50 {
			l.publish("c")
			l.publish("read")
		}
		h, stop := running(t, l, replay.Options{})
		defer stop()
		read := attach(t, h, "read", schemas.Cursor{})
		c := attach(t, h, "c", schemas.Cursor{})
		time.Sleep(time.Second)
		synctest.Wait()
		all := h.Bytes()
		c.end()
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if got := h.Bytes(); got != all {
			t.Errorf("after nine minutes %d bytes are kept, want %d", got, all)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := h.Bytes(); got == 0 || got > all*2/3 {
			t.Errorf("after twelve minutes %d bytes are kept of %d: want those that are read", got, all)
		}
		read.end()
	})
}

// TestAReaderThatGoesThroughManyConversationsLeavesFewBehind: each is followed on for a moment after it, but not any number.
func TestAReaderThatGoesThroughManyConversationsLeavesFewBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conversations, most = 6000, 4096
		l := newFakeLog()
		h, stop := running(t, l, replay.Options{})
		for n := range conversations {
			c := attach(t, h, schemas.ConversationID(fmt.Sprint("c_", n)), schemas.Cursor{})
			time.Sleep(3 * time.Millisecond)
			synctest.Wait()
			c.end()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(l.heard); n == 0 || n > most {
			t.Errorf("%d are followed; want at most %d, and some", n, most)
		}
		if !h.Follows(account, schemas.ConversationID(fmt.Sprint("c_", conversations-1))) {
			t.Error("the last one is not followed any more")
		}
		stop()
	})
}
