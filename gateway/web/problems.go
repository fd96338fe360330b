package web

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
)

// status returns the HTTP status of a code. It knows all of [schemas.Codes]; a newer code is an internal error.
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

// httpError is an error with an HTTP status of its own.
type httpError struct {
	status int
	err    error
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

// HTTPStatus returns the status for [WriteProblem].
func (e *httpError) HTTPStatus() int { return e.status }

// WithStatus gives an error an HTTP status that is more specific than that of its code, such as 401, 405, 413, 415 or 507.
func WithStatus(code int, err error) error { return &httpError{status: code, err: err} }

// Problem is the body of every error response.
type Problem struct {
	Error *schemas.Error `json:"error"`
	// Errors are the things that are wrong, where the message of the error lists several.
	Errors []*schemas.Error `json:"errors,omitzero"`
}

// WriteProblem responds with the public part of err and returns the status. If err has a method HTTPStatus, that is the status. Write
// errors are ignored: the client may have disconnected.
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
	if public.Code.Retryable() && code != http.StatusInsufficientStorage && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	if public.Code == schemas.Internal {
		public.Message = "internal error: the gateway's log has the details under request id " + h.Get(HeaderRequestID)
	}
	b, code := encode(code, Problem{Error: public, Errors: public.Errors})
	write(w, code, b)
	return code
}

// WriteJSON responds with v, or with a problem if there is no memory for it: see [TryJSON]. Write errors are ignored.
func WriteJSON(w http.ResponseWriter, code int, v any) {
	if err := TryJSON(w, code, v); err != nil {
		Later(w.Header())
		WriteProblem(w, err)
	}
}

// TryJSON is [WriteJSON] for handlers that have a smaller response to fall back to. It fails before anything is sent, and only if unread
// responses leave no memory for this one. Codes: exhausted (the account's), unavailable (those of all accounts).
func TryJSON(w http.ResponseWriter, code int, v any) error {
	b, code := encode(code, v)
	if err := holdOf(w).roomToAnswer(len(b)); err != nil {
		return err
	}
	write(w, code, b)
	return nil
}

// holdOf returns the hold of the request that w responds to; nil if there is none.
func holdOf(w http.ResponseWriter) *Hold {
	for {
		switch inner := w.(type) {
		case *recorder:
			return inner.held
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return nil
		}
	}
}

// encode returns v as JSON, and the status; both are of an internal error if v cannot be encoded.
func encode(code int, v any) ([]byte, int) {
	b, err := schemas.EncodeJSON(v)
	if err != nil { // a type of ours that JSON cannot hold: a defect, not the client's doing
		code = http.StatusInternalServerError
		b = []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`)
	}
	return b, code
}

// write sends the body of a response, followed by a line end. For a large body the line end is written apart, to avoid a copy.
func write(w http.ResponseWriter, code int, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(code)
	if len(b) <= SmallAnswer {
		_, _ = w.Write(append(b, '\n')) // the client may have gone
		return
	}
	_, _ = w.Write(b) // as above
	_, _ = w.Write([]byte{'\n'})
}
