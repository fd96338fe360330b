package gateway

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Page is a part of a conversation as JSON.
type Page struct {
	Events []PageEvent `json:"events"`
	// Next is the cursor after the last event here: ask again with ?after= it.
	Next schemas.Cursor `json:"next"`
	// UpToDate says that nothing more was there.
	UpToDate bool `json:"up_to_date"`
	// Recovered is false when what followed the given cursor is no longer all there: Gap says what
	// is missing, and Events goes on behind it.
	Recovered bool         `json:"recovered"`
	Gap       *streams.Gap `json:"gap,omitzero"`
}

// PageEvent is one event with the cursor that resumes after it.
type PageEvent struct {
	Cursor schemas.Cursor `json:"cursor"`
	Event  schemas.Event  `json:"event"`
}

// control is the data of an SSE event named "control".
type control struct {
	UpToDate  bool         `json:"upToDate,omitzero"`  // from here on it is live
	Recovered *bool        `json:"recovered,omitzero"` // false: there is a gap here
	Gap       *streams.Gap `json:"gap,omitzero"`
	Error     any          `json:"error,omitzero"` // the stream ends here; come back after retry
}

// getEvents reads a conversation: as a stream for who accepts text/event-stream, else as a page.
func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	conv := schemas.ConversationID(r.PathValue("id"))
	if err := conv.Validate(); err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	q, err := parseQuery(r.URL.RawQuery, "after", "limit", "wait")
	if err != nil {
		return err
	}
	after, err := q.after(r.Header)
	if err != nil {
		return err
	}
	if accepts(r.Header, "text/event-stream") {
		return g.streamEvents(w, r, a, conv, after)
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	wait, err := q.wait(g.MaxWait)
	if err != nil {
		return err
	}
	return g.pageEvents(w, r, a, conv, after, limit, wait)
}

// accepts reports whether the client asks for a type of content by name.
func accepts(h http.Header, want string) bool {
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), want) {
				return true
			}
		}
	}
	return false
}

func (g *Gateway) pageEvents(
	w http.ResponseWriter, r *http.Request, a schemas.AccountID, conv schemas.ConversationID,
	after schemas.Cursor, limit int, wait time.Duration,
) error {
	p, err := streams.Page(r.Context(), g.Bus, a, conv, after, limit)
	if err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	if wait > 0 && len(p.Events) == 0 && p.Gap == nil {
		from := after
		if !p.Next.IsStart() {
			from = p.Next // "now" has become a place: nothing between the two looks is missed
		}
		if err := g.awaitEvent(r.Context(), a, conv, from, wait); err != nil {
			return err
		}
		if p, err = streams.Page(r.Context(), g.Bus, a, conv, from, limit); err != nil {
			return err //nolint:wrapcheck // it is coded already
		}
	}
	out := Page{Events: make([]PageEvent, 0, len(p.Events)), Next: p.Next, UpToDate: p.UpToDate, Recovered: p.Recovered, Gap: p.Gap}
	for _, e := range p.Events {
		out.Events = append(out.Events, PageEvent{Cursor: e.Cursor, Event: e.Value})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// awaitEvent returns once there is an event after the cursor, wait has passed or the gateway
// drains. Only a failure of the log is an error.
func (g *Gateway) awaitEvent(
	ctx context.Context, a schemas.AccountID, conv schemas.ConversationID, after schemas.Cursor, wait time.Duration,
) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(g.draining, cancel)()
	for item, err := range streams.Follow(ctx, g.Bus, a, conv, after) {
		if ctx.Err() != nil {
			return nil // the wait is over, that is all
		}
		if err != nil {
			return err //nolint:wrapcheck // it is coded already
		}
		if item.Kind == streams.ItemEvent || item.Gap != nil {
			return nil // the client is gone or does not read; it resumes after its cursor
		}
	}
	return nil
}

// streamEvents writes a conversation as server-sent events until the client goes or the gateway
// drains.
func (g *Gateway) streamEvents(
	w http.ResponseWriter, r *http.Request, a schemas.AccountID, conv schemas.ConversationID, after schemas.Cursor,
) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.draining, cancel)()
	g.metrics.following.WithLabelValues("sse").Inc()
	defer g.metrics.following.WithLabelValues("sse").Dec()

	items := pump(ctx, streams.Follow(ctx, g.Bus, a, conv, after))
	first, ok := <-items
	if !ok {
		return schemas.Errorf(schemas.Unavailable, "", "this gateway is stopping: come back")
	}
	if first.err != nil {
		return first.err // still a proper answer: nothing was written yet
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)

	out := &sseWriter{w: w, rc: http.NewResponseController(w), stall: g.Stall}
	out.buf = appendSSERetry(out.buf, comeBack())
	out.item(first.item)
	beat := time.NewTicker(g.Heartbeat)
	defer beat.Stop()
	for {
		if err := out.flush(); err != nil {
			g.metrics.dropped.WithLabelValues("sse").Inc()
			return nil
		}
		select {
		case got, ok := <-items:
			if !ok {
				return nil
			}
			out.next(got)
			for more := true; more && len(out.buf) < flushAbove; { // what is there already goes into one write
				select {
				case got, ok := <-items:
					if more = ok; ok {
						out.next(got)
					}
				default:
					more = false
				}
			}
			beat.Reset(g.Heartbeat)
		case <-beat.C:
			out.buf = append(out.buf, sseComment...)
		}
	}
}

// flushAbove is how many bytes are gathered into one write.
const flushAbove = 32 << 10

// sseWriter gathers events and writes them in as few writes as possible.
type sseWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	buf   []byte
}

func (s *sseWriter) next(got follow) {
	if got.err != nil {
		s.control("", control{Error: schemas.Public(got.err)})
		return
	}
	s.item(got.item)
}

// item adds one item of a conversation. Loss is told in band: a browser cannot read headers.
func (s *sseWriter) item(it streams.Item) {
	if it.Gap != nil {
		s.control("", control{Recovered: new(false), Gap: it.Gap})
	}
	switch it.Kind {
	case streams.ItemEvent:
		data, err := json.Marshal(it.Entry.Value)
		if err != nil { // a stored event whose data is no JSON: tell it rather than leave a hole
			data = []byte(`null`)
		}
		s.buf = appendSSE(s.buf, it.Entry.Cursor.String(), string(it.Entry.Value.Type), data)
	case streams.ItemLive:
		id := ""
		if !it.Head.IsStart() {
			id = it.Head.String()
		}
		s.control(id, control{UpToDate: true})
	case streams.ItemAttached:
	}
}

func (s *sseWriter) control(id string, c control) {
	data, err := json.Marshal(c)
	if err != nil {
		return // a type of ours that always encodes
	}
	s.buf = appendSSE(s.buf, id, "control", data)
}

// flush writes what was gathered. It fails when the client does not take it within the stall.
func (s *sseWriter) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.stall)) // a writer without deadlines, as in tests, is fine
	if _, err := s.w.Write(s.buf); err != nil {
		return err //nolint:wrapcheck // only its being there counts
	}
	if s.buf = s.buf[:0]; cap(s.buf) > 8*flushAbove {
		s.buf = nil
	}
	return s.rc.Flush() //nolint:wrapcheck // as above
}

// follow is one step of a conversation.
type follow struct {
	item streams.Item
	err  error
}

// pump turns a sequence into a channel, so that it can be selected on. The channel is closed at
// the sequence's end, after its error if it had one, and when ctx ends; the goroutine ends with it.
func pump(ctx context.Context, seq iter.Seq2[streams.Item, error]) <-chan follow {
	const ahead = 8 // events of at most 768 KiB
	c := make(chan follow, ahead)
	go func() {
		defer close(c)
		for item, err := range seq {
			if ctx.Err() != nil {
				return
			}
			select {
			case c <- follow{item, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}
