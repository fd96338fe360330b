package e2b

import (
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// httpStatus is the status with which an error is answered.
func httpStatus(err error) int {
	var own interface{ HTTPStatus() int }
	if errors.As(err, &own) {
		return own.HTTPStatus()
	}
	return map[schemas.Code]int{
		schemas.Invalid: http.StatusBadRequest, schemas.NotFound: http.StatusNotFound, schemas.Conflict: http.StatusConflict,
		schemas.Denied: http.StatusForbidden, schemas.Exhausted: http.StatusTooManyRequests,
		schemas.Unavailable: http.StatusServiceUnavailable, schemas.Timeout: http.StatusGatewayTimeout,
		schemas.Unsupported: http.StatusNotImplemented, schemas.Interrupted: http.StatusInternalServerError,
		schemas.Internal: http.StatusInternalServerError,
	}[schemas.Public(err).Code]
}

// sentence is what is public of an error, with the field that it is about.
func sentence(w http.ResponseWriter, err error) string {
	public := schemas.Public(err)
	switch {
	case public.Code == schemas.Internal:
		return "internal error: the gateway's log has the details under request id " + w.Header().Get(web.HeaderRequestID)
	case public.Field != "":
		return public.Field + ": " + public.Message
	}
	return public.Message
}

// failure is the body of an answer that is no success.
type failure struct {
	Code    any    `json:"code"` // the status, or Connect's word for it
	Message string `json:"message"`
}

func later(w http.ResponseWriter, err error) {
	if schemas.Public(err).Code.Retryable() && httpStatus(err) != http.StatusInsufficientStorage { // no repetition makes room
		w.Header().Set("Retry-After", "1")
	}
}

// writeError answers as E2B's own API does.
func writeError(w http.ResponseWriter, err error) {
	later(w, err)
	status := httpStatus(err)
	web.WriteJSON(w, status, failure{status, sentence(w, err)})
}

// rpcCode is Connect's word for what an error is.
func rpcCode(err error) string {
	switch httpStatus(err) {
	case http.StatusUnauthorized:
		return "unauthenticated"
	case http.StatusBadGateway:
		return "unavailable"
	}
	return map[schemas.Code]string{
		schemas.Invalid: "invalid_argument", schemas.NotFound: "not_found", schemas.Conflict: "failed_precondition",
		schemas.Denied: "permission_denied", schemas.Exhausted: "resource_exhausted", schemas.Unavailable: "unavailable",
		schemas.Timeout: "deadline_exceeded", schemas.Unsupported: "unimplemented", schemas.Interrupted: "aborted",
		schemas.Internal: "internal",
	}[schemas.Public(err).Code]
}

// writeRPCError answers a request of Connect that is no stream.
func writeRPCError(w http.ResponseWriter, err error) {
	later(w, err)
	web.WriteJSON(w, httpStatus(err), failure{rpcCode(err), sentence(w, err)})
}

// writeStreamError answers a request for a stream that has not begun.
func writeStreamError(w http.ResponseWriter, err error) {
	if httpStatus(err) == http.StatusBadGateway { // the client asks then whether the sandbox is there
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", streamType)
	_, _ = w.Write(lastFrame(&failure{rpcCode(err), sentence(w, err)})) // the client may have gone
}

// alreadyExists answers that what is to be made is there. The client has a word of its own for that.
func alreadyExists(w http.ResponseWriter, message string) {
	web.WriteJSON(w, http.StatusConflict, failure{"already_exists", message})
}
