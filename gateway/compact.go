package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A compact reader has a follower of its own, and not the shared frames: what it is told depends on where
// it began. Nothing is queued for it either: its follower waits while it does not read.

// compactItems follows a conversation for one compact reader.
func (g *Gateway) compactItems(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID, after schemas.Cursor) <-chan compactItem {
	c := make(chan compactItem)
	go func() {
		defer close(c)
		for item, err := range streams.Compact(ctx, g.Bus, a, conv, streams.Follow(ctx, g.Bus, a, conv, after)) {
			select {
			case c <- compactItem{item, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

type compactItem struct {
	streams.Item

	err error
}

// eventJSON is an event as it is told.
func eventJSON(e schemas.Event) json.RawMessage {
	data, err := json.Marshal(e)
	if err != nil {
		return []byte(`null`) // a stored event whose data is no JSON: tell it rather than leave a hole
	}
	return data
}

// compactPage answers a part of a conversation for a compact reader. It does not wait.
func (g *Gateway) compactPage(w http.ResponseWriter, r *http.Request, a schemas.AccountID, conv schemas.ConversationID, after schemas.Cursor, limit int) error {
	p, err := streams.Page(r.Context(), g.Bus, a, conv, after, limit)
	if err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	items, err := streams.CompactPage(r.Context(), g.Bus, a, conv, p)
	if err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	out := pageOut{Events: make([]eventOut, 0, len(items)), Next: p.Next, UpToDate: p.UpToDate, Recovered: p.Recovered, Gap: p.Gap}
	for _, i := range items {
		out.Events = append(out.Events, eventOut{i.Entry.Cursor, eventJSON(i.Entry.Value), i.Skipped, i.Snapshot})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// streamCompact is streamEvents for a compact reader.
func (g *Gateway) streamCompact(
	ctx context.Context, w http.ResponseWriter, a schemas.AccountID, conv schemas.ConversationID, after schemas.Cursor,
) error {
	request := ctx
	ctx, cancel := context.WithCancel(request)
	defer cancel()
	defer context.AfterFunc(g.draining, cancel)()
	items := g.compactItems(ctx, a, conv, after)
	out := &sseWriter{w: w, rc: http.NewResponseController(w), stall: g.Stall}
	begun := false
	beat := time.NewTicker(g.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case i, ok := <-items:
			switch {
			case !ok && !begun && g.draining.Err() != nil:
				return schemas.Errorf(schemas.Unavailable, "", "this gateway is stopping: come back")
			case !ok && begun && request.Err() != nil:
				out.control("", control{Error: schemas.Public(context.Cause(request))}) // a token's end: the client may have gone as well
				_ = out.flush()                                                         // as above
				return nil
			case !ok && request.Err() != nil:
				return context.Cause(request) //nolint:wrapcheck // it is coded already
			case !ok:
				return nil
			case i.err != nil && !begun:
				return i.err // still a proper answer: nothing was written yet
			case i.err != nil:
				out.control("", control{Error: schemas.Public(i.err)})
				_ = out.flush() // the stream ends here in any case
				return nil
			}
			if !begun {
				begun = true
				out.begin()
			}
			out.compact(i.Item)
		case <-beat.C:
			if !begun {
				continue
			}
			out.buf = append(out.buf, sseComment...)
		}
		if err := out.flush(); err != nil {
			g.metrics.dropped.WithLabelValues("sse").Inc()
			return nil
		}
	}
}

// compact adds an item.
func (s *sseWriter) compact(i streams.Item) {
	if i.Kind == streams.ItemAttached {
		s.buf = appendSSERetry(s.buf, comeBack())
	}
	if i.Gap != nil {
		s.control("", control{Recovered: new(false), Gap: i.Gap})
	}
	if i.Skipped > 0 || i.Snapshot != nil {
		s.control("", control{Skipped: i.Skipped, Snapshot: i.Snapshot})
	}
	switch i.Kind {
	case streams.ItemEvent:
		s.buf = appendSSE(s.buf, i.Entry.Cursor.String(), string(i.Entry.Value.Type), eventJSON(i.Entry.Value))
	case streams.ItemLive:
		id := ""
		if !i.Head.IsStart() {
			id = i.Head.String()
		}
		s.control(id, control{UpToDate: true})
	case streams.ItemAttached:
	}
}

// followCompact tells a compact attachment until it ends.
func (s *session) followCompact(ctx context.Context, at *attachment, after schemas.Cursor) {
	conv, prev := string(at.conv), after
	for i := range s.g.compactItems(ctx, s.account, at.conv, after) {
		if i.err != nil { // the conversation is detached by it; the client attaches again after its cursor
			s.tellCompact(at, serverOp{Op: "error", ID: at.id, Conv: conv, Error: schemas.Public(i.err)})
			s.mu.Lock()
			at.failed = true
			s.drop()
			s.mu.Unlock()
			return
		}
		if i.Gap != nil && i.Kind != streams.ItemAttached {
			s.tellCompact(at, serverOp{Op: "gap", Conv: conv, Recovered: new(false), Gap: i.Gap})
		}
		if i.Snapshot != nil {
			s.tellCompact(at, serverOp{Op: "snapshot", Conv: conv, Snapshot: i.Snapshot})
		}
		switch i.Kind {
		case streams.ItemAttached:
			op := serverOp{Op: "attached", ID: at.id, Conv: conv, Head: i.Head.String(), Recovered: new(i.Recovered)}
			if i.Gap != nil {
				op.Gap = i.Gap
			}
			if prev.IsTail() {
				prev = i.Head
			}
			s.tellCompact(at, op)
		case streams.ItemEvent:
			cur := i.Entry.Cursor
			s.tellCompact(at, serverOp{
				Op: "ev", Conv: conv, Cur: cur.String(), Prev: prev.String(), Replay: !at.live, Skipped: i.Skipped, Data: eventJSON(i.Entry.Value),
			})
			prev = cur
		case streams.ItemLive:
			at.live = true
			s.tellCompact(at, serverOp{Op: "live", Conv: conv, Cur: i.Head.String(), Skipped: i.Skipped})
		}
		s.pace()
	}
}

// tellCompact writes a frame of an attachment unless it has ended, and waits while the client does not
// read.
func (s *session) tellCompact(at *attachment, op serverOp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.gone {
		s.sayLocked(op)
	}
}
