package jobs

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// HeaderOffset is the header with the offset at which a log in plain text begins.
const HeaderOffset = "Sandjet-Offset"

// LogPage is a piece of a job's output, in Text or Data; both are absent if it is empty.
type LogPage struct {
	Text   string `json:"text,omitzero"`
	Data   []byte `json:"data,omitzero"` // base64: it is not UTF-8
	Offset int64  `json:"offset"`        // of its first byte, counted from the job's first
	Next   int64  `json:"next"`          // where to read on
	Size   int64  `json:"size"`          // of all that was printed so far
	Ended  bool   `json:"ended"`         // the job has ended: after Size there is no more
}

// Logs serves a page of a job's log as JSON; or the log's bytes, if the client accepts text/plain or follows the log.
func (h *Jobs) Logs(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "offset", "limit", "follow")
	if err != nil {
		return err
	}
	offset, err := q.Integer("offset", 0, -1, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", schemas.MaxJobLogPage, 1, schemas.MaxJobLogPage)
	if err != nil {
		return err
	}
	follow, err := q.Flag("follow")
	if err != nil {
		return err
	}
	cmd := schemas.JobCommand{Account: a, Job: pathID(r), Action: schemas.JobActionLogs, Offset: offset, Limit: int(limit)}
	if follow || web.Accepts(r.Header, "text/plain") {
		web.HoldOf(r.Context()).CountedElsewhere() // by the stream, before it writes
		s := logStream{o: h.o, w: w, rc: http.NewResponseController(w), cmd: cmd}
		s.follow, s.once = follow && r.Method != http.MethodHead, q.Values.Has("limit")
		if s.follow {
			place, err := h.o.Wait(w, a)
			if err != nil {
				return err
			}
			defer place.Release()
			web.HoldOf(r.Context()).Release()
		}
		ctx, end := h.o.Credentials.WhileGood(r.Context(), credentials.OfKey(r, a))
		defer end()
		return s.run(ctx)
	}
	reply, err := lifecycle.ControlJob(r.Context(), h.o.Bus, cmd)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, logPage(reply))
	return nil
}

// logPage returns a page for a worker's reply. A character that is cut in two by the end of the page is left to the next page, so that
// text stays text; but if the page is smaller than one character it is returned as data, so that the reader advances.
func logPage(r schemas.JobReply) LogPage {
	data := r.Data
	behind := r.Offset+int64(len(data)) < r.Size // there is more to read now
	if text := data[:schemas.WholeText(data)]; behind && len(text) > 0 || !behind && !r.Ended {
		data = text
	}
	p := LogPage{Offset: r.Offset, Next: r.Offset + int64(len(data)), Size: r.Size, Ended: r.Ended}
	if utf8.Valid(data) {
		p.Text = string(data)
	} else {
		p.Data = data
	}
	return p
}

// logStream sends the bytes of a log.
type logStream struct {
	o      Options
	w      http.ResponseWriter
	rc     *http.ResponseController
	cmd    schemas.JobCommand // its offset moves on
	follow bool               // until the job has ended
	once   bool               // only one page, unless it follows
	begun  bool               // the answer is under way
}

// run sends the log until it is complete, the client disconnects, its key is revoked, or the gateway drains. A stream never omits bytes
// silently: it ends where the sandbox has dropped some, and the next request begins after them.
func (s *logStream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.o.Draining, func() {
		cancel(schemas.Errorf(schemas.Unavailable, "this gateway is stopping: reconnect"))
	})()
	between := wait.Backoff{First: 250 * time.Millisecond, Most: time.Second}
	for idle := 0; ; { // looks in a row that found nothing
		reply, err := s.look(ctx)
		switch {
		case err != nil && s.begun && (ctx.Err() != nil || !errors.Is(err, schemas.ErrUnavailable)):
			return nil // the client asks for what follows and gets the reason why there is none
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !s.begun:
			return err
		case err == nil:
			place, ok := s.room(len(reply.Data))
			if !ok {
				break // it is read again once other clients of the account have read theirs
			}
			more, err := s.send(reply)
			place.Release()
			if err != nil || !more {
				return nil // the client is gone or does not read
			}
			if len(reply.Data) > 0 {
				idle = 0
			}
			if s.cmd.Offset < reply.Size && len(reply.Data) > 0 {
				continue
			}
		}
		idle++
		between.Sleep(ctx, idle) // the end of ctx is seen above
	}
}

// look reads the next piece of the log. A client may follow a job that has not started: then the piece is empty.
func (s *logStream) look(ctx context.Context) (schemas.JobReply, error) {
	reply, err := lifecycle.ControlJob(ctx, s.o.Bus, s.cmd)
	if !s.follow || !errors.Is(err, schemas.ErrConflict) {
		return reply, err
	}
	p, ferr := lifecycle.FindJob(ctx, s.o.Bus, s.cmd.Account, s.cmd.Job)
	switch {
	case ferr != nil:
		return reply, err
	case p.Value.State == schemas.JobWaiting || p.Value.State == schemas.JobLaunching:
		return schemas.JobReply{Offset: max(s.cmd.Offset, 0)}, nil
	}
	return lifecycle.ControlJob(ctx, s.o.Bus, s.cmd)
}

// room reserves memory for a piece that the client may not read at once. It returns false if there is none.
func (s *logStream) room(bytes int) (*quota.Place, bool) {
	if bytes <= web.SmallAnswer {
		return nil, true
	}
	place, full := s.o.Answers.TakeMany(s.cmd.Account, int64(bytes))
	return place, full == quota.Free
}

// send writes a piece and reports whether there may be more.
func (s *logStream) send(reply schemas.JobReply) (bool, error) {
	switch {
	case !s.begun:
		h := s.w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // nginx would hold the bytes back
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set(HeaderOffset, strconv.FormatInt(reply.Offset, 10))
		s.w.WriteHeader(http.StatusOK)
		s.begun = true
	case reply.Offset != s.cmd.Offset:
		return false, nil
	}
	if err := web.Push(s.w, s.rc, reply.Data, s.o.Stall); err != nil {
		return false, err
	}
	s.cmd.Offset = reply.Offset + int64(len(reply.Data))
	caughtUp := s.cmd.Offset >= reply.Size || len(reply.Data) == 0
	if s.follow {
		return !reply.Ended || !caughtUp, nil
	}
	return !caughtUp && !s.once, nil
}
