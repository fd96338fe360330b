package e2b

import (
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// httpStatus returns the HTTP status for an error.
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

// sentence returns the public message of an error, with the field that it is about.
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

// failure is the body of an error response.
type failure struct {
	Code    any    `json:"code"` // the status, or Connect's word for it
	Message string `json:"message"`
}

func later(w http.ResponseWriter, err error) {
	if schemas.Public(err).Code.Retryable() && httpStatus(err) != http.StatusInsufficientStorage { // no repetition makes room
		w.Header().Set("Retry-After", "1")
	}
}

// writeError writes an error in the format of E2B's own API.
func writeError(w http.ResponseWriter, err error) {
	later(w, err)
	status := httpStatus(err)
	web.WriteJSON(w, status, failure{status, sentence(w, err)})
}

// rpcCode returns the Connect code for an error.
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

// writeRPCError writes the error response to a Connect request that is not a stream.
func writeRPCError(w http.ResponseWriter, err error) {
	later(w, err)
	web.WriteJSON(w, httpStatus(err), failure{rpcCode(err), sentence(w, err)})
}

// writeStreamError writes the error response to a stream request, if the stream has not begun.
func writeStreamError(w http.ResponseWriter, err error) {
	if httpStatus(err) == http.StatusBadGateway { // the client asks then whether the sandbox is there
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", streamType)
	_, _ = w.Write(lastFrame(&failure{rpcCode(err), sentence(w, err)})) // the client may have gone
}

// alreadyExists writes the error already_exists, a Connect code that no error of ours maps to.
func alreadyExists(w http.ResponseWriter, message string) {
	web.WriteJSON(w, http.StatusConflict, failure{"already_exists", message})
}
