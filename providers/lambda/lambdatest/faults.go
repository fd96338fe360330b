//go:build linux

package lambdatest

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// When is the moment at which a connection is dropped.
type When string

// The moments.
const (
	Before When = "before" // the request is read, and nothing is done
	After  When = "after"  // it was carried out, and the answer is lost
	Half   When = "half"   // as After, within the answer
)

// Fault is a failure of an invocation that a test injects.
type Fault struct {
	Function   string        // empty: any
	Times      int           // how often; 0: once
	Pass       int           // how many invocations pass before it
	Status     int           // the answer, in place of what was asked for; 0: none
	Kind       string        // the service's name for it
	Reason     string        // why it takes no more, with a Kind of too many; empty: it does not say
	RetryAfter int           // seconds; 0: the answer does not say
	Late       bool          // the answer of Status comes after the invocation was carried out
	Drop       When          // the connection breaks
	Slow       time.Duration // before anything is done
	SlowBody   time.Duration // between the halves of the answer
	Failed     string        // the kind of a function's error, in place of its answer, after it was carried out
	Answer     string        // the payload in place of the function's, after it was carried out
}

// Fail adds a fault, which applies f.Times times.
func (s *Service) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Times = max(f.Times, 1)
	s.faults = append(s.faults, &f)
}

// fault returns the first fault that matches a request; nil if there is none.
func (s *Service) fault(r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if r.Method != http.MethodPost || f.Times == 0 || f.Function != "" && !strings.Contains(r.URL.Path, "/"+f.Function+"/") {
			continue
		}
		if f.Pass > 0 {
			f.Pass--
			return nil
		}
		f.Times--
		return f
	}
	return nil
}

// do applies the fault to a request.
func (f *Fault) do(s *Service, w http.ResponseWriter, r *http.Request, body []byte) {
	if f.Slow > 0 {
		select {
		case <-time.After(f.Slow):
		case <-r.Context().Done():
		}
	}
	if f.Drop == Before {
		drop(w, "")
		return
	}
	answer := httptest.NewRecorder()
	if f.Status == 0 || f.Late {
		s.answer(answer, r, body)
	}
	switch {
	case f.Status != 0:
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		refuse(w, f.Status, f.Kind, "the fault of a test", types.ThrottleReason(f.Reason))
	case f.Drop == After:
		drop(w, "")
	case f.Drop == Half:
		text := answer.Body.String()
		drop(w, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text[:len(text)/2]))
	case f.Failed != "":
		failure(f.Failed, "the fault of a test").write(w)
	case f.Answer != "":
		outcome{payload: []byte(f.Answer)}.write(w)
	default:
		f.pass(w, r, answer)
	}
}

// pass sends the answer, with a pause in its middle.
func (f *Fault) pass(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	b := answer.Body.Bytes()
	_, _ = w.Write(b[:len(b)/2]) // who asks may be gone
	_ = http.NewResponseController(w).Flush()
	select {
	case <-time.After(f.SlowBody):
	case <-r.Context().Done():
	}
	_, _ = w.Write(b[len(b)/2:])
}

// drop breaks the connection of an answer, after some of it.
func drop(w http.ResponseWriter, text string) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_, _ = conn.Write([]byte(text))
		_ = conn.Close()
	}
}
