// Package replaytest follows conversations the ways a client can, writes down what was seen and holds
// it against the log. Its tests let a gateway, the log or the clients go through what happens to
// them in the world, while events are published.
package replaytest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
)

// Follow is a way to follow a conversation after a cursor until ctx ends.
type Follow func(ctx context.Context, c schemas.ConversationID, after schemas.Cursor) iter.Seq2[client.Item, error]

// Transcript is what one client saw of one conversation. Its methods may be called from many
// goroutines.
type Transcript struct {
	Conversation schemas.ConversationID
	// Way names the client, for messages.
	Way string

	mu    sync.Mutex
	legs  []leg
	count int
	last  schemas.Cursor
	lives int
	more  chan struct{} // closed and replaced with each item
}

// leg is a part of a transcript without gaps.
type leg struct {
	after schemas.Cursor
	saw   []streamcheck.Seen
	end   schemas.Cursor // where the gap begins that ended it
	ended bool
}

// Gap is a part that a client was informed is missing.
type Gap struct {
	From schemas.Cursor `json:"from"`
	To   schemas.Cursor `json:"to"`
}

// NewTranscript makes the transcript of a client that has seen nothing yet.
func NewTranscript(c schemas.ConversationID, way string) *Transcript {
	return &Transcript{Conversation: c, Way: way, more: make(chan struct{})}
}

// Write follows the conversation and writes down what it sees, until ctx ends. It may be called again then: it continues behind what was
// seen. It returns an error if the client could not continue.
func (t *Transcript) Write(ctx context.Context, follow Follow) error {
	t.mu.Lock()
	after := t.last
	if len(t.legs) == 0 {
		t.legs = []leg{{}}
	}
	t.mu.Unlock()
	for it, err := range follow(ctx, t.Conversation, after) {
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = t.take(it)
		}
		if err != nil {
			return fmt.Errorf("%s after %d events of %s: %w", t.Way, t.Count(), t.Conversation, err)
		}
	}
	return nil
}

func (t *Transcript) take(it client.Item) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case it.Gap != nil:
		var gap Gap
		if err := json.Unmarshal(it.Gap, &gap); err != nil {
			return fmt.Errorf("a gap that says nothing: %w", err)
		}
		at := &t.legs[len(t.legs)-1]
		at.end, at.ended = gap.From, true
		t.legs = append(t.legs, leg{after: gap.To})
		t.last = gap.To
	case it.Live:
		t.lives++
	case it.Snapshot != nil:
	default:
		digest, err := Digest(it.Event)
		if err != nil {
			return err
		}
		at := &t.legs[len(t.legs)-1]
		at.saw = append(at.saw, streamcheck.Seen{Conversation: string(t.Conversation), Cursor: it.Cursor.String(), Digest: digest})
		t.last = it.Cursor
		t.count++
	}
	close(t.more)
	t.more = make(chan struct{})
	return nil
}

// Digest stands for the content of an event, with its data as they were written.
func Digest(e schemas.Event) (string, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("encode an event: %w", err)
	}
	return streamcheck.Bytes(b), nil
}

// Count is how many events were seen.
func (t *Transcript) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// First is the sequence of the first event that was seen, 0 if there is none.
func (t *Transcript) First() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.legs {
		if len(l.saw) > 0 {
			c, err := schemas.ParseCursor(l.saw[0].Cursor)
			if err != nil {
				return 0 // take has written it
			}
			return c.Seq
		}
	}
	return 0
}

// Lives is how often the client got the message that it had caught up.
func (t *Transcript) Lives() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lives
}

// Gaps are those that were reported to the client.
func (t *Transcript) Gaps() []Gap {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gaps []Gap
	for i, l := range t.legs {
		if l.ended {
			gaps = append(gaps, Gap{l.end, t.legs[i+1].after})
		}
	}
	return gaps
}

// Until waits until done is true of what was seen last and how much that is, or ctx ends.
func (t *Transcript) Until(ctx context.Context, done func(last schemas.Cursor, count int) bool) error {
	for {
		t.mu.Lock()
		last, count, more := t.last, t.count, t.more
		t.mu.Unlock()
		if done(last, count) {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("%s has %d events of %s, the last at %s: %w", t.Way, count, t.Conversation, last, context.Cause(ctx))
		}
	}
}

// Judge holds the transcript against all that the log ever had of the conversation, and against what
// it still has. Nothing may be wrong but for reported gaps; and in a gap there may lie nothing
// that is still there.
func (t *Transcript) Judge(ever, still []streamcheck.Seen) ([]streamcheck.Fault, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var faults []streamcheck.Fault
	for i, l := range t.legs {
		part, err := l.part(ever)
		if err != nil {
			return nil, err
		}
		after := map[string]string{string(t.Conversation): l.after.String()}
		faults = append(faults, streamcheck.NewLog(part).Check(l.saw, after)...)
		if !l.ended {
			continue
		}
		for _, s := range still {
			c, err := schemas.ParseCursor(s.Cursor)
			if err != nil {
				return nil, fmt.Errorf("the log: %w", err)
			}
			to := t.legs[i+1].after
			if c.Epoch == l.end.Epoch && c.Seq > l.end.Seq && (to.Epoch != l.end.Epoch || c.Seq <= to.Seq) {
				faults = append(faults, streamcheck.Fault{Kind: streamcheck.Missing, Conversation: s.Conversation, Cursor: s.Cursor, At: len(l.saw)})
			}
		}
	}
	return faults, nil
}

// part is what a leg must have seen: what was stored in its incarnation of the log behind its
// beginning, and up to the gap that ended it.
func (l leg) part(ever []streamcheck.Seen) ([]streamcheck.Seen, error) {
	epoch, err := l.epoch(ever)
	if err != nil {
		return nil, err
	}
	var part []streamcheck.Seen
	for _, s := range ever {
		c, err := schemas.ParseCursor(s.Cursor)
		if err != nil {
			return nil, fmt.Errorf("the log: %w", err)
		}
		if c.Epoch == epoch && c.Seq > l.after.Seq && (!l.ended || c.Seq <= l.end.Seq) {
			part = append(part, s)
		}
	}
	return part, nil
}

// epoch is the incarnation of the log that a leg lies in.
func (l leg) epoch(ever []streamcheck.Seen) (string, error) {
	var text string
	switch {
	case l.after.Epoch != "":
		return l.after.Epoch, nil
	case l.end.Epoch != "":
		return l.end.Epoch, nil
	case len(l.saw) > 0:
		text = l.saw[0].Cursor
	case len(ever) > 0:
		text = ever[len(ever)-1].Cursor
	}
	c, err := schemas.ParseCursor(text)
	if err != nil {
		return "", fmt.Errorf("what was seen: %w", err)
	}
	return c.Epoch, nil
}
