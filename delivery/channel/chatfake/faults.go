package chatfake

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fault is an injected failure of a request.
type Fault string

// The faults. Those whose names begin with Commit carry out the request before they fail.
const (
	None                  Fault = ""
	Drop                  Fault = "drop"                     // the connection ends after the request was read
	CommitThenDrop        Fault = "commit_then_drop"         // the same, but the request was carried out
	TooMany               Fault = "too_many"                 // 429, with a Retry-After of FaultWait
	TooManyBare           Fault = "too_many_bare"            // 429 without a time
	ServerError           Fault = "server_error"             // 500
	CommitThenServerError Fault = "commit_then_server_error" // 502, as from a proxy
	Hang                  Fault = "hang"                     // no response
	CommitThenHang        Fault = "commit_then_hang"
	CommitThenTruncate    Fault = "commit_then_truncate" // half of the response
	ErrorBody             Fault = "error_body"           // status 200 with an error in the body
	CommitThenMalformed   Fault = "commit_then_malformed"
	CommitThenLong        Fault = "commit_then_long" // a response of 2 MiB
	Unauthorized          Fault = "unauthorized"
	Redirect              Fault = "redirect"
)

// FaultWait is the time that [TooMany] asks clients to wait.
const FaultWait = 7 * time.Second

// Faults returns all faults except None.
func Faults() []Fault {
	return []Fault{Drop, CommitThenDrop, TooMany, TooManyBare, ServerError, CommitThenServerError, Hang, CommitThenHang, CommitThenTruncate,
		ErrorBody, CommitThenMalformed, CommitThenLong, Unauthorized, Redirect}
}

// Commits reports whether a request takes effect in spite of the fault.
func (f Fault) Commits() bool { return strings.HasPrefix(string(f), "commit") }

// Reply is an HTTP response.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Words builds the service's error responses. Echo is the content of the request, including secrets: even if a service repeats it, an
// adapter's errors must not contain them.
type Words struct {
	TooMany      func(after time.Duration, echo string) Reply // after 0: it does not contain a time
	Unauthorized func(echo string) Reply
	ErrorBody    func(echo string) Reply // nil: the service has no such responses
}

// elsewhere is the path to which [Redirect] leads. Requests to it fail.
const elsewhere = "/elsewhere"

// maxRequest is the maximal size of a request's body, in bytes.
const maxRequest = 64 << 20

// ServeHTTP answers a request, or applies a fault.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the request did not arrive whole", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if strings.HasPrefix(r.URL.Path, elsewhere) {
		http.NotFound(w, r)
		return
	}
	fault := s.next(r)
	var done Reply
	_, file := s.file(r)
	if fault == None || fault.Commits() {
		if done, file = s.file(r); !file {
			kept := &recorder{header: http.Header{}}
			s.Service.ServeHTTP(kept, r)
			done = kept.reply()
		}
	}
	echo := r.Method + " " + r.URL.String() + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " +
		string(body[:min(len(body), 4096)])
	switch fault {
	case None:
		write(w, done)
	case Drop, CommitThenDrop:
		panic(http.ErrAbortHandler)
	case Hang, CommitThenHang:
		s.hang(r)
		panic(http.ErrAbortHandler)
	case TooMany:
		write(w, s.Words.TooMany(FaultWait, echo))
	case TooManyBare:
		write(w, s.Words.TooMany(0, echo))
	case Unauthorized:
		if file { // file servers do not use the format of the service's errors
			write(w, Reply{Status: http.StatusForbidden, Body: []byte(echo)})
			return
		}
		write(w, s.Words.Unauthorized(echo))
	case ErrorBody:
		if s.Words.ErrorBody == nil {
			write(w, Reply{Status: http.StatusOK, Body: []byte(`{"error":` + strconv.Quote(echo) + `}`)})
			return
		}
		write(w, s.Words.ErrorBody(echo))
	case ServerError:
		write(w, Reply{Status: http.StatusInternalServerError, Body: []byte("<html>" + echo + "</html>")})
	case CommitThenServerError:
		write(w, Reply{Status: http.StatusBadGateway, Body: []byte("<html>" + echo + "</html>")})
	case CommitThenTruncate:
		truncate(w, done)
	case CommitThenMalformed:
		write(w, Reply{Status: http.StatusOK, Body: []byte(`{"ok": tru` + echo)})
	case CommitThenLong:
		write(w, Reply{Status: http.StatusOK, Body: append([]byte(`{"x":"`), bytes.Repeat([]byte("a"), 2<<20)...)})
	case Redirect:
		w.Header().Set("Location", elsewhere+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// hang waits until the client has disconnected or the double is closed.
func (s *Server) hang(r *http.Request) {
	s.mu.Lock()
	closed := s.closing()
	s.mu.Unlock()
	select {
	case <-r.Context().Done():
	case <-closed:
	}
}

func write(w http.ResponseWriter, r Reply) {
	maps.Copy(w.Header(), r.Header)
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(r.Status)
	w.Write(r.Body) //nolint:errcheck // the client may have left
}

// truncate announces the length of a response and sends half of it.
func truncate(w http.ResponseWriter, r Reply) {
	r.Header = maps.Clone(r.Header)
	if len(r.Body) < 2 {
		r.Body = []byte("{}")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(r.Body)))
	half := r.Body[:len(r.Body)/2]
	write(w, Reply{Status: r.Status, Header: r.Header, Body: half})
	http.NewResponseController(w).Flush() //nolint:errcheck // it is cut off anyway
	panic(http.ErrAbortHandler)
}

// recorder stores a response instead of sending it.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recorder) reply() Reply {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return Reply{Status: r.status, Header: r.header, Body: r.body.Bytes()}
}

// JSON returns a response with a JSON body.
func JSON(status int, body any) Reply {
	text, err := json.Marshal(body)
	if err != nil {
		return Reply{Status: http.StatusInternalServerError, Body: []byte(`{"error":"the double cannot encode its answer"}`)}
	}
	return Reply{Status: status, Body: text}
}

// Write sends the response.
func (r Reply) Write(w http.ResponseWriter) { write(w, r) }
