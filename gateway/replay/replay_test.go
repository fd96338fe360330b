package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

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
		if !slices.Equal(late.events, ids("c", 0, n+5)) || !slices.Equal(empty.events, ids("d", 0, 3)) ||
			!slices.Equal(now.events, ids("c", n+3, n+5)) {
			t.Errorf("%d, %d and %d events", len(late.events), len(empty.events), len(now.events))
		}
	}, natstest.Shards(4))
}

// TestManyReadersAreOneRead: a storm of readers that come back at random places costs the log as
// much as a few.
//
//guarantee:a-conversation-has-no-holes
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

// TestNoReader: a conversation without readers is followed for a moment and then forgotten, but
// for what the budget keeps of it; an ended hub ends its readers.
func TestNoReader(t *testing.T) {
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
		if h.Follows(account, "c") || len(l.received) > 0 {
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

// TestFramesWithoutReadersAreForgotten: soon enough for the memory to come back, and not so soon that who comes back
// after a pause has the log read again.
func TestFramesWithoutReadersAreForgotten(t *testing.T) {
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
		if n := len(l.received); n == 0 || n > most {
			t.Errorf("%d are followed; want at most %d, and some", n, most)
		}
		if !h.Follows(account, schemas.ConversationID(fmt.Sprint("c_", conversations-1))) {
			t.Error("the last one is not followed any more")
		}
		stop()
	})
}
