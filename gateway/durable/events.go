package durable

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/sse"
	"github.com/sandjet/sandjet/schemas"
)

// control is the control event that follows each data event in an event stream.
type control struct {
	Next     string `json:"streamNextOffset"`      //nolint:tagliatelle // the protocol's name
	Cursor   string `json:"streamCursor,omitzero"` //nolint:tagliatelle // as above
	UpToDate bool   `json:"upToDate,omitzero"`
	Closed   bool   `json:"streamClosed,omitzero"` //nolint:tagliatelle // as above
}

// events writes a stream as server-sent events until the stream is closed, the client disconnects, the gateway drains, or h.Life has
// passed, after which clients reconnect.
func (h *Handler) events(w http.ResponseWriter, r *http.Request, f found, after uint64, cursor string) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.Life)
	defer cancel()
	defer context.AfterFunc(h.Draining, cancel)()
	t, err := h.hub.join(ctx, f)
	if err != nil {
		return err
	}
	defer h.hub.leave(f, t)
	beat := time.NewTicker(h.Heartbeat)
	defer beat.Stop()
	var out *eventWriter
	for {
		wake := t.next()
		p, err := t.read(ctx, h.store, f, after)
		first := out == nil
		switch {
		case err != nil && first:
			return err // still a proper answer: nothing was written yet
		case err != nil:
			return nil // the reader comes back and gets it then
		case first:
			out = h.openEvents(w, f, cursor)
		}
		news := first || p.closed || len(p.messages) > 0
		if !news && p.upToDate && h.still(ctx, f) != nil { // something else than an append woke us
			return nil
		}
		if news && out.page(p) != nil || p.closed {
			return nil
		}
		after = p.next
		if p.upToDate && !h.pass(ctx, &f, out, wake, beat) {
			return nil
		}
	}
}

// pass waits until there may be more to read. It returns false if the event stream must end. Meanwhile it writes heartbeats, which count
// as uses of the stream.
func (h *Handler) pass(ctx context.Context, f *found, out *eventWriter, wake <-chan struct{}, beat *time.Ticker) bool {
	for {
		select {
		case <-wake:
			return true
		case <-ctx.Done():
			return false
		case <-beat.C: // a reader that waits is a use of the stream
			if h.store.touch(ctx, f) != nil || out.write([]byte(": still here\n\n")) != nil {
				return false
			}
		}
	}
}

// eventWriter writes pages as server-sent events.
type eventWriter struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	stall  time.Duration
	typ    string
	cursor string
}

func (h *Handler) openEvents(w http.ResponseWriter, f found, cursor string) *eventWriter {
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache")
	head.Set("X-Accel-Buffering", "no") // nginx would hold events back
	if !isText(f.ContentType) {
		head.Set(headerEncoding, "base64")
	}
	w.WriteHeader(http.StatusOK)
	return &eventWriter{w: w, rc: http.NewResponseController(w), stall: h.Stall, typ: f.ContentType, cursor: cursor}
}

// page writes a page: a data event if it has messages, then a control event.
func (o *eventWriter) page(p page) error {
	var b []byte
	if len(p.messages) > 0 {
		data := p.body(o.typ)
		if !isText(o.typ) {
			data = base64.StdEncoding.AppendEncode(nil, data)
		}
		b = appendEvent(b, "data", data)
	}
	c := control{Next: formatOffset(p.next), UpToDate: p.upToDate, Closed: p.closed}
	if !p.closed {
		o.cursor = nextCursor(o.cursor, time.Now())
		c.Cursor = o.cursor
	}
	line, err := schemas.EncodeJSON(c)
	if err != nil {
		return schemas.Wrap(schemas.Internal, "", "a control event cannot be written", err)
	}
	return o.write(appendEvent(b, "control", line))
}

func (o *eventWriter) write(b []byte) error {
	_ = o.rc.SetWriteDeadline(time.Now().Add(o.stall)) // a writer without deadlines, as in tests, is fine
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	err := o.rc.Flush()
	_ = o.rc.SetWriteDeadline(time.Time{}) // on HTTP/2 it would end a stream that is idle
	return err
}

// appendEvent appends an event to b, without the usual space after the colon: the protocol's public conformance suite compares the bytes.
func appendEvent(b []byte, name string, data []byte) []byte {
	b = append(append(append(b, "event: "...), name...), '\n')
	for line := range sse.Lines(data) {
		b = append(b, "data:"...)
		if len(line) > 0 && line[0] == ' ' { // readers take the first blank for decoration
			b = append(b, ' ')
		}
		b = append(append(b, line...), '\n')
	}
	return append(b, '\n')
}
