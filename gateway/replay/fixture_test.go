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
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
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
