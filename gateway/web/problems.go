package web

import (
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/schemas"
)

// status maps a code to the HTTP status that carries it. It is total over [schemas.Codes]; a code
// that is newer than this table is answered as an internal error.
func status(c schemas.Code) int {
	switch c {
	case schemas.Invalid:
		return http.StatusBadRequest
	case schemas.NotFound:
		return http.StatusNotFound
	case schemas.Conflict:
		return http.StatusConflict
	case schemas.Denied:
		return http.StatusForbidden
	case schemas.Exhausted:
		return http.StatusTooManyRequests
	case schemas.Unavailable:
		return http.StatusServiceUnavailable
	case schemas.Timeout:
		return http.StatusGatewayTimeout
	case schemas.Unsupported:
		return http.StatusNotImplemented
	case schemas.Interrupted, schemas.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// httpError is an error with a status of its own.
type httpError struct {
	status int
	err    error
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

// HTTPStatus is what [WriteProblem] answers with.
func (e *httpError) HTTPStatus() int { return e.status }

// WithStatus gives an error a status that is finer than its code: 401, 405, 413, 415.
func WithStatus(code int, err error) error { return &httpError{status: code, err: err} }

// Problem is the body of every answer that is not a success.
type Problem struct {
	Error *schemas.Error `json:"error"`
	// Errors are the things that are wrong, where the message of the error lists several.
	Errors []*schemas.Error `json:"errors,omitzero"`
}

// WriteProblem answers with err and returns the status: what is public of it in the body, the rest nowhere. An error with a method
// HTTPStatus says its status itself. It does nothing but try: the client may have gone.
func WriteProblem(w http.ResponseWriter, err error) int {
	public := schemas.Public(err)
	code := status(public.Code)
	var own interface{ HTTPStatus() int }
	if errors.As(err, &own) {
		code = own.HTTPStatus()
	}
	h := w.Header()
	if code == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "" {
		h.Set("WWW-Authenticate", `Bearer realm="sandjet"`)
	}
	if public.Code.Retryable() && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	if public.Code == schemas.Internal {
		public.Message = "internal error: the gateway's log has the details under request id " + h.Get(HeaderRequestID)
	}
	WriteJSON(w, code, Problem{Error: public, Errors: public.Errors})
	return code
}

// WriteJSON answers with v. An error of the connection shows at the client, not here.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	b, err := schemas.EncodeJSON(v)
	if err != nil { // a type of ours that JSON cannot hold: a defect, not the client's doing
		code = http.StatusInternalServerError
		b = []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // the client may have gone
}
