package servicetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// When is the moment at which a connection is dropped.
type When string

// The moments.
const (
	Before When = "before" // the request was read, and nothing is done
	After  When = "after"  // it was carried out, and the response is lost
	Half   When = "half"   // it was carried out, and half of the response arrives
)

// Fault is a failure that a fake service injects.
type Fault struct {
	Route      string // method and path, such as "POST /v2/sandboxes"; a final * matches any rest
	Has        string // matches only request bodies that contain it; empty: any
	Times      int    // how often; 0: once
	Pass       int    // how many matching requests are served before it
	Status     int    // status of the response, instead of the real one; 0: none
	RetryAfter int    // seconds; negative: no such header
	Drop       When   // when the connection breaks; empty: it does not
	Slow       time.Duration
	Hold       func() // called first; may block
}

// Faults are the pending faults of a service. The zero value has none; it is safe for concurrent use.
type Faults struct {
	mu  sync.Mutex
	all []*Fault
}

// Add adds a fault, which applies f.Times times.
func (s *Faults) Add(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Times = max(f.Times, 1)
	s.all = append(s.all, &f)
}

// Serve answers a request with h, or applies the first matching fault. Fail writes an error as the service does.
func (s *Faults) Serve(h http.Handler, w http.ResponseWriter, r *http.Request, asked string,
	fail func(w http.ResponseWriter, status int, format string, args ...any),
) {
	f := s.Take(asked, func(text string) bool { return bodyHas(r, text) })
	if f == nil {
		h.ServeHTTP(w, r)
		return
	}
	if f.Hold != nil {
		f.Hold()
	}
	if f.Slow > 0 {
		select {
		case <-time.After(f.Slow):
		case <-r.Context().Done():
		}
	}
	switch {
	case f.Status != 0:
		if f.RetryAfter >= 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		fail(w, f.Status, "the fault of a test")
	case f.Drop == Before:
		Drop(w)
	case f.Drop == After:
		h.ServeHTTP(httptest.NewRecorder(), r)
		Drop(w)
	case f.Drop == Half:
		whole := httptest.NewRecorder()
		h.ServeHTTP(whole, r)
		w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()))
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2]) // the client may be gone
		_ = http.NewResponseController(w).Flush()
		Drop(w)
	default:
		h.ServeHTTP(w, r)
	}
}

// Take returns the first fault that matches and uses it up once; nil if there is none. Has reports whether the request contains a text. It
// is for requests that do not arrive by [Faults.Serve], such as WebSocket messages.
func (s *Faults) Take(asked string, has func(text string) bool) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		begin, open := strings.CutSuffix(f.Route, "*")
		if f.Times == 0 || asked != f.Route && (!open || !strings.HasPrefix(asked, begin)) || f.Has != "" && !has(f.Has) {
			continue
		}
		if f.Pass > 0 {
			f.Pass--
			return nil
		}
		f.Times--
		taken := *f
		return &taken
	}
	return nil
}

// bodyHas reports whether the request's body contains text. The body can be read again afterwards.
func bodyHas(r *http.Request, text string) bool {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && bytes.Contains(body, []byte(text))
}

// Drop breaks the connection of a request.
func Drop(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// Answer writes a JSON response.
func Answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Errorf("servicetest: an answer that is none: %w", err)) // the body is our own
	}
	_, _ = w.Write(text) // the client may be gone
}
