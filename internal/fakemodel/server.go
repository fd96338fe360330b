package fakemodel

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The limits of a server.
const (
	MaxBody  = 32 << 20 // bytes of a request
	MaxKept  = 100      // requests that it shows
	MaxBytes = 16 << 20 // bytes of their bodies
)

// Server answers requests by a script. It is safe for concurrent use.
type Server struct {
	script Script

	mu    sync.Mutex
	count int
	used  []int // how often each rule has answered
	seen  []Request
	bytes int
}

// Request is a request that was received.
type Request struct {
	Number int             `json:"number"`
	Wire   string          `json:"wire"`
	Model  string          `json:"model,omitzero"`
	Status int             `json:"status"`
	Rule   int             `json:"rule,omitzero"` // from 1 on; 0: none matched
	Body   json.RawMessage `json:"body,omitzero"` // nil: it was invalid JSON, or was dropped to save memory
}

// New returns a server. It fails if the script is invalid.
func New(s Script) (*Server, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return &Server{script: s, used: make([]int, len(s.Rules))}, nil
}

// wire is the format of a service's requests and answers.
type wire interface {
	name() string
	// read decodes a request, or returns the service's error for it.
	read(h http.Header, body []byte, key string) (question, *failure)
	failed(f failure) any
	// whole returns an answer in one piece, events those of a stream.
	whole(q question, r Reply) any
	events(q question, r Reply) []string
}

// failure is an error of a service.
type failure struct {
	status                    int
	kind, code, param, reason string
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /requests":
		s.show(w)
	case "POST /v1/messages":
		s.answer(w, r, anthropic{})
	case "POST /v1/chat/completions", "POST /chat/completions":
		s.answer(w, r, openai{})
	default:
		http.Error(w, "a fake model has POST /v1/messages, POST /v1/chat/completions and GET /requests", http.StatusNotFound)
	}
}

// Requests returns the last requests, and how many there were in all.
func (s *Server) Requests() (list []Request, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen), s.count
}

func (s *Server) show(w http.ResponseWriter) {
	list, count := s.Requests()
	writeJSON(w, http.StatusOK, map[string]any{"count": count, "requests": list})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, by wire) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		large := failure{status: http.StatusRequestEntityTooLarge, kind: "request_too_large", reason: "Request exceeds the maximum size"}
		writeJSON(w, large.status, by.failed(large))
		return
	}
	q, wrong := by.read(r.Header, body, s.script.Key)
	q.size = len(body)
	reply := s.note(&q, by.name(), body, wrong)
	if wrong != nil {
		writeJSON(w, wrong.status, by.failed(*wrong))
		return
	}
	if !sleep(r, reply.Wait) {
		return
	}
	if reply.Status != 0 {
		if reply.RetryAfter != "" {
			w.Header().Set("Retry-After", reply.RetryAfter)
		}
		if reply.Status < http.StatusBadRequest {
			w.Header().Set("Location", "/elsewhere")
		}
		writeJSON(w, reply.Status, by.failed(failure{status: reply.Status, kind: reply.Type, code: reply.Code, reason: reply.Message}))
		return
	}
	out := &cutWriter{w: w, left: reply.BreakAfter, bounded: reply.BreakAfter > 0}
	if !q.stream {
		text := encode(by.whole(q, reply))
		if reply.BadJSON {
			text = text[:len(text)/2]
		}
		w.Header().Set("Content-Type", "application/json")
		out.write(text)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	events := by.events(q, reply)
	if reply.BadJSON {
		events = append(events[:len(events)/2:len(events)/2], "data: {\"type\": broken\n\n")
	}
	for _, e := range events {
		if !sleep(r, reply.Pace) {
			return
		}
		out.write([]byte(e))
	}
}

// note numbers a request, stores it, and chooses its answer. Requests are in the order of these calls.
func (s *Server) note(q *question, by string, body []byte, wrong *failure) (r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	q.n = s.count
	kept := Request{Number: q.n, Wire: by, Model: q.model, Status: http.StatusOK}
	if wrong != nil {
		kept.Status = wrong.status
	} else if r, kept.Rule = s.script.reply(*q, s.used); r.Status != 0 {
		kept.Status = r.Status
	}
	if json.Valid(body) {
		kept.Body = body
	}
	s.seen = append(s.seen, kept)
	s.bytes += len(kept.Body)
	if len(s.seen) > MaxKept {
		s.bytes -= len(s.seen[0].Body)
		s.seen = slices.Delete(s.seen, 0, 1)
	}
	for i := 0; s.bytes > MaxBytes && i < len(s.seen); i++ {
		s.bytes -= len(s.seen[i].Body)
		s.seen[i].Body = nil
	}
	return r
}

// sleep waits for d. It returns false if the client disconnects before.
func sleep(r *http.Request, d Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(time.Duration(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// cutWriter breaks the connection after a number of bytes.
type cutWriter struct {
	w       http.ResponseWriter
	left    int
	bounded bool
}

func (c *cutWriter) write(text []byte) {
	broken := c.bounded && len(text) >= c.left
	if broken {
		text = text[:c.left]
	}
	c.left -= len(text)
	_, _ = c.w.Write(text) // the client may have disconnected
	_ = http.NewResponseController(c.w).Flush()
	if broken {
		panic(http.ErrAbortHandler)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // the client may have disconnected
}

// encode returns v as JSON without HTML escapes, as services send it.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it consists of texts and numbers
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
