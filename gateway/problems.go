package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/gateway/durable"
	"github.com/sandjet/sandjet/schemas"
)

// status maps a code to the HTTP status that carries it. It is total over [schemas.Codes]; a code
// that is newer than this table is told as an internal error.
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

// httpError gives an error a status that is finer than its code: 401, 405, 413, 415.
type httpError struct {
	status int
	err    error
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

func withStatus(code int, err error) error { return &httpError{status: code, err: err} }

// problem is the body of every answer that is not a success.
type problem struct {
	Error *schemas.Error `json:"error"`
}

// writeProblem answers with err: what is public of it in the body, the rest nowhere. It does
// nothing but try: the client may have gone.
func writeProblem(w http.ResponseWriter, err error) int {
	public := schemas.Public(err)
	code := status(public.Code)
	if he, ok := errors.AsType[*httpError](err); ok {
		code = he.status
	}
	if refusal, ok := errors.AsType[*durable.RefusalError](err); ok {
		code = refusal.HTTPStatus()
	}
	h := w.Header()
	if code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="sandjet"`)
	}
	if public.Code.Retryable() && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	if public.Code == schemas.Internal {
		public.Message = "internal error: the gateway's log has the details under request id " + h.Get(headerRequestID)
	}
	writeJSON(w, code, problem{Error: public})
	return code
}

// writeJSON answers with v. An error of the connection shows at the client, not here.
func writeJSON(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)              // it is read by people too, and shown in no page: the headers below say so
	if err := enc.Encode(v); err != nil { // a type of ours that JSON cannot hold: a defect, not the client's doing
		b.Reset()
		code = http.StatusInternalServerError
		b.WriteString(`{"error":{"code":"internal","message":"the answer could not be encoded"}}` + "\n")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // nobody is left to tell
}
