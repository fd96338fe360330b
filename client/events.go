package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Item is one step of a conversation. It is exactly one of four things: an event (Event.ID is set), the end of the history (Live), a gap
// (Gap), or, for a compact reader, the earlier output of a call (Snapshot).
type Item struct {
	Event schemas.Event
	// Cursor resumes after this event.
	Cursor schemas.Cursor
	// Live says that everything before was history, and further items come as they happen. It is delivered once, also if the connection is
	// re-established.
	Live bool
	// Gap says that events after the last cursor are no longer stored, or that the conversation was recreated; it is the gateway's JSON
	// about it, nil for all other items.
	Gap json.RawMessage
	// Snapshot is the earlier output of a call that a compact reader meets in its middle: the gateway's JSON, nil for all other items.
	// After a reconnect it may be delivered again.
	Snapshot json.RawMessage
}

// Events reads a conversation after a cursor (the zero Cursor is its beginning, [schemas.Tail] its present end) and continues live until
// ctx ends or the loop breaks. If the connection ends, it reconnects and resumes after the last event, so each event is delivered once and
// in order. An error ends the sequence: ctx's, or a permanent one, such as a wrong key.
func (c *Client) Events(ctx context.Context, conversation schemas.ConversationID, after schemas.Cursor) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		r := reader{transport: c.transport(), conversation: conversation, after: after, yield: yield}
		for try := 0; ; try++ {
			ending, err := r.once(ctx)
			switch {
			case r.stopped:
				return
			case ctx.Err() != nil:
				yield(Item{}, fmt.Errorf("read %s: %w", conversation, ctx.Err()))
				return
			case !ending.again:
				yield(Item{}, err)
				return
			}
			if ending.any {
				try = 0
			}
			if err := r.transport.pause(ctx, try); err != nil {
				yield(Item{}, err)
				return
			}
		}
	}
}

// reader is the state of one sequence over its connections.
type reader struct {
	transport    transport
	conversation schemas.ConversationID
	after        schemas.Cursor
	yield        func(Item, error) bool
	live         bool
	stopped      bool
}

// ending says how a connection ended: whether to reconnect (again), and whether it delivered anything (any).
type ending struct{ again, any bool }

// silence is how long a stream may be still: gateways send a comment every ten seconds.
const silence = 35 * time.Second

// once reads from one connection until it ends.
func (r *reader) once(ctx context.Context) (ending, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	path := "/v1/conversations/" + url.PathEscape(string(r.conversation)) + "/events?after=" + url.QueryEscape(r.after.String())
	resp, err := r.transport.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		code := schemas.CodeOf(err)
		return ending{again: code == schemas.Unavailable || code == schemas.Interrupted}, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status says enough
		return ending{again: passing(resp.StatusCode)}, problem(resp.StatusCode, body)
	}
	out := ending{again: true}
	frames := newSSE(alive{resp.Body, func() { watchdog.Reset(silence) }})
	for {
		f, err := frames.next()
		if err != nil {
			out.again = !errors.Is(err, errFrame)
			return out, err
		}
		item, ok, err := r.read(f)
		if err != nil {
			out.again = false
			return out, err
		}
		if ok {
			out.any = true
			if r.stopped = !r.yield(item, nil); r.stopped {
				return out, nil
			}
		}
	}
}

// read converts a frame into an item; ok is false if there is nothing to deliver.
func (r *reader) read(f frame) (_ Item, ok bool, _ error) {
	cursor := r.after
	if f.id != "" {
		var err error
		if cursor, err = schemas.ParseCursor(f.id); err != nil {
			return Item{}, false, fmt.Errorf("the stream's id is not a cursor: %w", err)
		}
	}
	if f.name != "control" {
		e, err := schemas.DecodeEvent(f.data)
		if err != nil {
			return Item{}, false, fmt.Errorf("the stream's event cannot be read: %w", err)
		}
		r.after = cursor
		return Item{Event: e, Cursor: cursor}, true, nil
	}
	var c struct {
		UpToDate  bool            `json:"upToDate"`
		Recovered *bool           `json:"recovered"`
		Gap       json.RawMessage `json:"gap"`
	}
	if err := json.Unmarshal(f.data, &c); err != nil {
		return Item{}, false, fmt.Errorf("the stream's control cannot be read: %w", err)
	}
	switch {
	case c.Recovered != nil && !*c.Recovered:
		if c.Gap == nil {
			c.Gap = json.RawMessage("{}")
		}
		return Item{Gap: c.Gap, Cursor: cursor}, true, nil
	case c.UpToDate:
		r.after = cursor
		first := !r.live
		r.live = true
		return Item{Live: true, Cursor: cursor}, first, nil
	}
	return Item{}, false, nil // of a later version
}

// alive is a reader that calls seen whenever data arrives.
type alive struct {
	io.Reader

	seen func()
}

func (a alive) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	if n > 0 {
		a.seen()
	}
	return n, err
}

// frame is one server-sent event.
type frame struct {
	id, name string
	data     []byte
}

// mostFrame bounds one event, and one message of a socket, in bytes. The largest result is 6.3 MiB: half a MiB of output twice, each byte as
// a character that JSON writes with six.
const mostFrame = 8 << 20

// errFrame is the error for a larger event. Another connection would deliver it again.
var errFrame error = schemas.Errorf(schemas.Exhausted,
	"the gateway has sent an event of more than 8 MiB, which this client does not take: use a newer client, or see whether the URL is a gateway's")

// errStreamEnded is the usual end of a connection: the gateway stopped or a proxy grew tired.
var errStreamEnded = errors.New("the stream ended")

// sse reads server-sent events.
type sse struct {
	lines *bufio.Scanner
}

func newSSE(r io.Reader) *sse {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 16<<10), mostFrame)
	return &sse{s}
}

// next returns the next event with data. It skips comments, retry and unknown fields.
func (s *sse) next() (frame, error) {
	var f frame
	has := false
	for s.lines.Scan() {
		line := s.lines.Text()
		if line == "" {
			if has {
				return f, nil
			}
			f = frame{}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			f.id = value
		case "event":
			f.name = value
		case "data":
			if has {
				f.data = append(f.data, '\n')
			}
			has = true
			f.data = append(f.data, value...)
			if len(f.data) > mostFrame {
				return frame{}, errFrame
			}
		}
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return frame{}, errFrame
	case err != nil:
		return frame{}, fmt.Errorf("read the stream: %w", err)
	}
	return frame{}, errStreamEnded
}
