package live

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/gateway/sse"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// control is the data of an SSE event named "control".
type control struct {
	UpToDate  bool         `json:"upToDate,omitzero"`  // from here on it is live
	Recovered *bool        `json:"recovered,omitzero"` // false: there is a gap here
	Gap       *streams.Gap `json:"gap,omitzero"`
	Error     any          `json:"error,omitzero"` // the stream ends here; come back after retry
	// Skipped and Snapshot precede the event that they are about, for a compact reader: how many events were left out, and what the
	// event's call had printed before it.
	Skipped  int             `json:"skipped,omitzero"`
	Snapshot json.RawMessage `json:"snapshot,omitzero"`
}

// eventStream is a conversation that one client follows by server-sent events. Nothing is queued for the client: events that it has not
// read stay in the ring or on the log. Except for wake, the methods must not be called concurrently.
type eventStream struct {
	server        *Server
	who           credentials.Principal
	reader        *replay.Reader
	socket, place *quota.Place
	keepaliveDue  atomic.Bool
	woken         chan struct{} // wakes a handler that waits
	away          atomic.Pointer[eventConn]
	room          room
}

// Stream serves a conversation as server-sent events, within the limits of the account and until the credential ends. Over HTTP/1 it
// returns once the stream has begun, which frees net/http's buffers.
func (s *Server) Stream(w http.ResponseWriter, r *http.Request, who credentials.Principal, at View) error {
	leave, err := s.enter()
	if err != nil {
		web.Later(w.Header())
		return err
	}
	defer leave()
	stream, err := s.newEventStream(who, at)
	if err != nil {
		web.Later(w.Header())
		return err
	}
	hold := web.HoldOf(r.Context())
	hold.Release()
	hold.CountedElsewhere() // in the stream's room
	first, err := stream.begin(r.Context())
	if err != nil {
		stream.close()
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
	if stream.takeOver(w, r, first) {
		return nil
	}
	defer stream.close()
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		stream.serve(r.Context(), w, first)
	}
	return nil
}

// newEventStream takes the stream's slots and attaches its reader. Codes: exhausted, unavailable.
func (s *Server) newEventStream(who credentials.Principal, at View) (*eventStream, error) {
	socket, err := s.Places.Socket(who.Account)
	if err != nil {
		return nil, err
	}
	place, err := s.Places.Attachment(who.Account)
	if err != nil {
		socket.Release()
		return nil, err
	}
	e := &eventStream{server: s, who: who, socket: socket, place: place, woken: make(chan struct{}, 1)}
	s.Metrics.Following(eventStreams, 1)
	e.room.answers, e.room.copies, e.room.again = s.Answers, 2, e.wake // the frame, and its text in the stream
	e.reader = s.follow(at, e.wake)
	e.reader.Ask(web.SmallAnswer, func(frame int) bool { return e.room.take(who.Account, frame) })
	return e, nil
}

func (s *eventStream) close() {
	s.reader.Close()
	s.room.free()
	s.place.Release()
	s.socket.Release()
	s.server.Metrics.Following(eventStreams, -1)
}

// wake makes the writing goroutine check for something to send. It does not block.
func (s *eventStream) wake() {
	if c := s.away.Load(); c != nil {
		c.wake()
		return
	}
	notify(s.woken)()
}

// begin waits for the first events to send and returns them as text. An error can still be answered as a problem, since nothing was
// written.
func (s *eventStream) begin(ctx context.Context) ([]byte, error) {
	for {
		b, _, failed := gather(nil, s.reader)
		if why := s.lapsed(true); why != nil {
			return nil, why
		}
		switch {
		case s.server.Draining.Err() != nil:
			return nil, schemas.Errorf(schemas.Unavailable, "this gateway is stopping: reconnect")
		case failed != nil || len(b) > 0:
			return b, failed
		}
		select {
		case <-s.woken:
		case <-s.server.Draining.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lapsed returns why the client's credential is no longer valid, or nil. The end of a token is checked at each call, a revoked key only if
// look is set.
func (s *eventStream) lapsed(look bool) error {
	now := s.server.Credentials.Now()
	if t := s.who.Token; !look && (t == nil || now.Before(t.Expires)) {
		return nil
	}
	_, why := s.server.Credentials.Lapsed(s.who, now)
	return why
}

// next appends what can be sent now to b. More reports that there may be more at once, over that the stream ends after it. No events are
// sent after the end of a token.
func (s *eventStream) next(b []byte) (_ []byte, more, over bool) {
	beat := s.keepaliveDue.Swap(false)
	if why := s.lapsed(beat); why != nil {
		return appendControl(b, "", control{Error: schemas.Public(why)}), false, true
	}
	if beat {
		b = append(b, sse.Comment...)
	}
	from := len(b)
	b, more, failed := gather(b, s.reader)
	if s.server.Draining.Err() != nil {
		return b[:from], false, true // whatever failed, failed by it
	}
	return b, more, failed != nil
}

// serve writes the stream through net/http until it is over or the client disconnects.
func (s *eventStream) serve(ctx context.Context, w http.ResponseWriter, text []byte) {
	rc := http.NewResponseController(w)
	beat := time.NewTicker(s.server.Heartbeat)
	defer beat.Stop()
	for more, over := true, false; ; text, more, over = s.next(text[:0]) {
		if len(text) > 0 {
			if err := web.Push(w, rc, text, s.server.Stall); err != nil {
				s.dropped(err)
				return
			}
			beat.Reset(s.server.Heartbeat)
			s.room.free()
		}
		switch {
		case over:
			return
		case more:
			continue
		}
		text = nil // idle streams keep none
		select {
		case <-s.woken:
		case <-beat.C:
			s.keepaliveDue.Store(true)
		case <-s.server.Draining.Done():
		case <-ctx.Done():
			return
		}
	}
}

// dropped counts and logs that a write failed: the client has disconnected, or does not read.
func (s *eventStream) dropped(err error) {
	s.server.Metrics.Dropped(eventStreams)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.server.Log.Info("event stream dropped: a write stalled", "stall", s.server.Stall)
	}
}

// gather appends the reader's steps to b until that is enough for one write. More reports that there may be more; an error in failed ends
// the stream.
func gather(b []byte, reader *replay.Reader) (_ []byte, more bool, failed error) {
	for step := range reader.Ready() {
		b = appendStep(b, step)
		if step.Kind == replay.StepFailed {
			return b, false, step.Err
		}
		if len(b) >= wsconn.FlushAbove {
			return b, true, nil
		}
	}
	return b, false, nil
}

// appendStep appends one step of a conversation as server-sent events. Gaps are reported in the stream, since browsers cannot read the
// headers of an event stream.
func appendStep(b []byte, step replay.Step) []byte {
	if step.Skipped > 0 || step.Snapshot != nil {
		b = appendControl(b, "", control{Skipped: step.Skipped, Snapshot: step.Snapshot.Data()})
	}
	switch step.Kind {
	case replay.StepAttached:
		b = sse.AppendRetry(b, web.ComeBack())
		if step.Gap != nil {
			b = appendControl(b, "", control{Recovered: new(false), Gap: step.Gap})
		}
	case replay.StepGap:
		b = appendControl(b, "", control{Recovered: new(false), Gap: step.Gap})
	case replay.StepEvent:
		f := step.Frame
		b = sse.Append(b, f.Cursor().String(), string(f.Type), f.Data())
	case replay.StepLive:
		id := ""
		if !step.At.IsStart() {
			id = step.At.String()
		}
		b = appendControl(b, id, control{UpToDate: true})
	case replay.StepFailed:
		b = appendControl(b, "", control{Error: schemas.Public(step.Err)})
	}
	return b
}

func appendControl(b []byte, id string, c control) []byte {
	data, err := schemas.EncodeJSON(c)
	if err != nil {
		return b // a type of ours that always encodes
	}
	return sse.Append(b, id, "control", data)
}
