// Package replaytest follows conversations by all transports that clients have, records what they receive and compares it with the log.
// Its tests disturb the gateway, the log or the clients while events are published.
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

// Follow follows a conversation after a cursor until ctx ends, by one transport.
type Follow func(ctx context.Context, c schemas.ConversationID, after schemas.Cursor) iter.Seq2[client.Item, error]

// Transcript records what one client received of one conversation. It is safe for concurrent use.
type Transcript struct {
	Conversation schemas.ConversationID
	// Way names the client in messages.
	Way string

	mu    sync.Mutex
	legs  []leg
	count int
	last  schemas.Cursor
	lives int
	more  chan struct{} // closed and replaced when an item is added
}

// leg is a part of a transcript without gaps.
type leg struct {
	after schemas.Cursor
	saw   []streamcheck.Seen
	end   schemas.Cursor // begin of the gap after it
	ended bool
}

// Gap is a part that was reported to a client as missing.
type Gap struct {
	From schemas.Cursor `json:"from"`
	To   schemas.Cursor `json:"to"`
}

// NewTranscript returns the transcript of a client that has not received anything yet.
func NewTranscript(c schemas.ConversationID, way string) *Transcript {
	return &Transcript{Conversation: c, Way: way, more: make(chan struct{})}
}

// Write follows the conversation and records what it receives, until ctx ends. It may be called again, and then continues after the last
// event. It returns an error if the client failed.
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

// Digest returns a digest of an event, including its data byte by byte.
func Digest(e schemas.Event) (string, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("encode an event: %w", err)
	}
	return streamcheck.Bytes(b), nil
}

// Count returns the number of events received.
func (t *Transcript) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// First returns the sequence of the first event received; 0 if there is none.
func (t *Transcript) First() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.legs {
		if len(l.saw) > 0 {
			c, err := schemas.ParseCursor(l.saw[0].Cursor)
			if err != nil {
				return 0 // cannot happen: take has formatted it
			}
			return c.Seq
		}
	}
	return 0
}

// Lives returns how often the client was informed that it had caught up.
func (t *Transcript) Lives() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lives
}

// Gaps returns the gaps that were reported to the client.
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

// Until waits until done returns true for the last cursor and the number of events, or until ctx ends.
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

// Judge compares the transcript with all events that the log ever had of the conversation (ever) and with those that it still has (still).
// It returns a fault for each difference that no reported gap explains, and for each event in a gap that the log still has.
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

// part returns the events that a leg must have: those stored in its epoch of the log after its beginning, up to the gap that ended it.
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

// epoch returns the epoch of the log, which changes when the stream is recreated, to which a leg belongs.
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
