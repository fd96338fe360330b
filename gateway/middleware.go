package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/durable"
	"github.com/sandjet/sandjet/schemas"
)

const headerRequestID = "X-Request-Id"

// handler is an HTTP handler that returns its failure. Once it has begun to answer it must return
// nil and tell the failure in band.
type handler func(w http.ResponseWriter, r *http.Request) error

// middleware wraps the routes with what every request gets: an id, a net below panics, a line in
// the log and the metrics, and the answer to browsers of other origins.
func (g *Gateway) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun, method := time.Now(), r.Method
		id := schemas.NewID("req_")
		rc := http.NewResponseController(rw)
		held := &hold{counters: g.counters}
		r, body := guardBody(rc, r.WithContext(context.WithValue(r.Context(), holdKey{}, held)))
		defer held.release()
		if r.ProtoMajor == 1 {
			_ = rc.SetWriteDeadline(time.Time{}) // that of the answer before, which may have passed
		}
		w := &recorder{ResponseWriter: rw, rc: rc, body: body, stall: g.Stall}
		w.answered = func(route string, status int) { // it may be kept for long, and keeps nothing large
			g.metrics.request(route, status, time.Since(begun))
			g.Log.Debug("request", "request", id, "method", method, "route", route, "status", status, "took", time.Since(begun))
		}
		w.Header().Set(headerRequestID, id)
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p) // net/http's own word for: drop the connection
				}
				g.Log.Error("a handler panicked", "request", id, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				if w.status == 0 {
					writeProblem(w, schemas.Errorf(schemas.Internal, "", "panic"))
				}
			}
			if w.status == 0 && r.Context().Err() == nil { // net/http will answer for the handler
				w.body.answering(w.Header())
			}
			if !w.outlived {
				w.answered(r.Pattern, w.status) // set by the mux; the path would make endless label values
			}
		}()
		if g.crossOrigin(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// handle turns h into a plain handler: errors become problem answers. What only the operator may
// see goes to the log under the request's id.
func (g *Gateway) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		switch {
		case tooLate(r): // net/http ends the context with the deadline, though the client listens
			err = withStatus(http.StatusBadRequest, schemas.Invalidf("", "the body did not arrive whole in time"))
		case r.Context().Err() != nil:
			return // nobody listens any more, and the error is most likely that
		}
		code := writeProblem(w, err)
		if code >= http.StatusInternalServerError {
			g.Log.Warn("a request failed", "request", w.Header().Get(headerRequestID), "route", r.Pattern, "status", code, "error", err)
		}
	}
}

// accountHandler is a handler for a client whose key has been checked.
type accountHandler func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error

// authenticated asks for a key first.
func (g *Gateway) authenticated(h accountHandler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		a, err := g.authenticate(r.Context(), bearer(r.Header))
		if err != nil {
			return err
		}
		if err := holdOf(r.Context()).enter(w, a); err != nil {
			return err
		}
		return h(w, r, a)
	}
}

// authenticate finds the account of key, or says 401 in the same words whatever is wrong with it.
func (g *Gateway) authenticate(ctx context.Context, key string) (schemas.AccountID, error) {
	if key == "" {
		return "", withStatus(http.StatusUnauthorized, schemas.Errorf(schemas.Denied, "",
			"API key required: send the header Authorization: Bearer <key>"))
	}
	if attachtoken.Is(key) {
		return "", schemas.Errorf(schemas.Denied, "",
			"this route does not accept attach tokens: use the account's API key")
	}
	a, err := g.Records.Authenticate(ctx, key)
	if errors.Is(err, schemas.ErrDenied) || errors.Is(err, schemas.ErrNotFound) {
		return "", withStatus(http.StatusUnauthorized, schemas.Errorf(schemas.Denied, "", "invalid API key: check the key that you send, it may have been rotated"))
	}
	if err != nil {
		return "", fmt.Errorf("authenticate: %w", err)
	}
	return a, nil
}

func bearer(h http.Header) string {
	scheme, key, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// crossOrigin handles CORS for the allowed origins and reports whether r was a preflight, which is
// then answered. Without allowed origins it does nothing, and browsers keep other pages out.
func (g *Gateway) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || len(g.Origins) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	if !slices.Contains(g.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", headerRequestID+", Retry-After, Location, ETag, "+headerOffset+", "+durable.ExposedHeaders)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Last-Event-ID, "+durable.AcceptedHeaders)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter

	rc       *http.ResponseController
	body     *arrival // nil: there is none
	stall    time.Duration
	status   int
	answered func(route string, status int) // tells the log and the metrics
	outlived bool                           // somebody else calls answered
}

func (w *recorder) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return writeInPieces(w.ResponseWriter, w.rc, b, w.stall)
}

// begin notes the status with which the answer begins.
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

// Hijack gives the connection away, which the WebSocket library asks for by this method's name.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// outlive gives the connection away for an answer that goes on after its handler. Ended is to be called with it: only
// then the request counts as answered.
func (w *recorder) outlive(r *http.Request, status int) (conn net.Conn, ended func(), err error) {
	if conn, _, err = w.Hijack(); err != nil {
		return nil, nil, err
	}
	w.status, w.outlived = status, true
	answered, route := w.answered, r.Pattern
	return conn, func() { answered(route, status) }, nil
}
