package web

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/schemas"
)

// HeaderRequestID names the request in the answer and in the gateway's log.
const HeaderRequestID = "X-Request-Id"

// Edge is the layer that every request and response of a gateway passes.
type Edge struct {
	Log   *slog.Logger
	Holds *Holds
	// Origins are the browser origins that may use the API. AcceptedHeaders and ExposedHeaders are headers that they may send and read
	// beside the usual ones, separated by commas.
	Origins                         []string
	AcceptedHeaders, ExposedHeaders string
	// Stall is how long one write to a client may block before the client is dropped.
	Stall time.Duration
	// Answered is called once for each request.
	Answered func(route string, status int, took time.Duration)

	logs sometimes.Counted // about requests that failed
}

// Handler is an HTTP handler that returns an error. After it has begun to respond it must return nil, and report failures in the body.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Middleware wraps a handler with what every request needs: an id, recovery from panics, a log line, metrics and CORS.
func (e *Edge) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun, method := time.Now(), r.Method
		id := schemas.NewID("req_")
		rc := http.NewResponseController(rw)
		held := &Hold{holds: e.Holds, reads: r.Method == http.MethodGet || r.Method == http.MethodHead}
		r, body := guardBody(rc, r.WithContext(context.WithValue(r.Context(), holdKey{}, held)))
		defer held.end()
		if r.ProtoMajor == 1 {
			_ = rc.SetWriteDeadline(time.Time{}) // that of the answer before, which may have passed
		}
		w := &recorder{ResponseWriter: rw, rc: rc, body: body, held: held, stall: e.Stall, ctx: r.Context()}
		w.answered = func(route string, status int) { // it may be kept for long, and keeps nothing large
			e.Answered(route, status, time.Since(begun))
			e.Log.Debug("request", "request", id, "method", method, "route", route, "status", status, "took", time.Since(begun))
		}
		w.Header().Set(HeaderRequestID, id)
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p) // net/http's own word for: drop the connection
				}
				e.Log.Error("request handler panicked", "request", id, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				if w.status == 0 {
					WriteProblem(w, schemas.Errorf(schemas.Internal, "panic"))
				}
			}
			if w.status == 0 && r.Context().Err() == nil { // net/http will answer for the handler
				w.body.answering(w.Header())
			}
			if !w.outlived {
				w.answered(r.Pattern, w.status) // set by the mux; the path would make endless label values
			}
		}()
		if e.crossOrigin(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Handle turns h into an [http.HandlerFunc]: errors become problem responses. Server errors are logged with the request's id.
func (e *Edge) Handle(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		switch {
		case tooLate(r): // net/http ends the context with the deadline, though the client listens
			err = WithStatus(http.StatusBadRequest, schemas.Invalidf("", "the body did not arrive whole in time"))
		case r.Context().Err() != nil:
			return // the client has left, and the error is most likely that
		}
		code := WriteProblem(w, err)
		if code >= http.StatusInternalServerError {
			e.failed(w, r, code, err)
		}
	}
}

// failed logs a failed request: for each route and status one a minute as a warning, with the number of those left out, and the others at
// debug level.
func (e *Edge) failed(w http.ResponseWriter, r *http.Request, code int, err error) {
	level := slog.LevelWarn
	leftOut, due := e.logs.Due(r.Pattern + " " + strconv.Itoa(code))
	if !due {
		level = slog.LevelDebug
	}
	attrs := []any{"request", w.Header().Get(HeaderRequestID), "route", r.Pattern, "status", code, "error", err}
	if leftOut > 0 {
		attrs = append(attrs, "left_out", leftOut)
	}
	e.Log.Log(context.WithoutCancel(r.Context()), level, "request failed", attrs...)
}

// Bearer returns the key or token in the Authorization header; empty if there is none.
func Bearer(h http.Header) string {
	scheme, key, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// crossOrigin handles CORS for the allowed origins, and reports whether r was a preflight, which is then answered. Without allowed origins
// it does nothing, so browsers block pages of other origins.
func (e *Edge) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || len(e.Origins) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	if !slices.Contains(e.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", HeaderRequestID+", Retry-After, Location, ETag, "+e.ExposedHeaders)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Last-Event-ID, "+e.AcceptedHeaders)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// recorder is the response writer of a request. It records the status and enforces the deadlines and the memory limits of responses.
type recorder struct {
	http.ResponseWriter

	rc       *http.ResponseController
	body     *arrival // nil: there is none
	held     *Hold
	stall    time.Duration
	ctx      context.Context //nolint:containedctx // that of the request: a Write has none
	status   int
	answered func(route string, status int) // for the log and the metrics
	outlived bool                           // another goroutine calls answered
}

func (w *recorder) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	done, err := w.held.write(w.ctx, len(b), w.stall)
	if err != nil {
		_ = w.rc.SetWriteDeadline(time.Unix(1, 0)) // the connection goes, so that no client takes what it has for all of the answer
		return 0, err
	}
	defer done()
	return writeInPieces(w.ResponseWriter, w.rc, b, w.stall)
}

// begin records the status with which the response begins.
func (w *recorder) begin(code int) {
	if w.status != 0 {
		return
	}
	w.status = code
	w.body.answering(w.Header())
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.stall)) // for an answer that is all headers; a writer without deadlines is fine
}

// Unwrap lets http.ResponseController reach the writer below.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements [http.Hijacker], which the WebSocket library needs.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Outlive hijacks the connection, for a response that continues after its handler has returned. The caller must call ended at its end;
// only then is the request logged and counted.
func (w *recorder) Outlive(r *http.Request, status int) (conn net.Conn, ended func(), err error) {
	if conn, _, err = w.Hijack(); err != nil {
		return nil, nil, err
	}
	w.status, w.outlived = status, true
	answered, route := w.answered, r.Pattern
	return conn, func() { answered(route, status) }, nil
}

// AllowedOrigin reports whether a request's origin is allowed: it has none, as from clients that are not browsers, or is the gateway's own
// host or one of origins. Otherwise any page could use a key that a browser has stored.
func AllowedOrigin(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
