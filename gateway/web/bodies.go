package web

import (
	"cmp"
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

const typeJSON = "application/json"

// ReadJSON reads a body of at most [schemas.MaxRequest] bytes. Its content type must be JSON, absent, or a form's, which curl -d sends by
// default. A form of another origin's page is harmless, since the page does not have the bearer key.
func ReadJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return ReadJSONUpTo(w, r, schemas.MaxRequest, "write large content in pieces, with mode append")
}

// ReadJSONUpTo is ReadJSON with another limit; remedy is the advice in the error if the body is larger.
func ReadJSONUpTo(w http.ResponseWriter, r *http.Request, limit int64, remedy string) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), typeJSON))
	known := kind == typeJSON || kind == "application/x-www-form-urlencoded"
	if charset := params["charset"]; err != nil || !known || charset != "" && charset != "utf-8" && charset != "UTF-8" {
		return nil, WithStatus(http.StatusUnsupportedMediaType, schemas.Invalidf("",
			"the body must be sent as Content-Type: application/json, in UTF-8"))
	}
	return ReadBody(w, r, limit, remedy)
}

// ReadBody reads a body of at most limit bytes. The middleware limits the time.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, remedy string) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, WithStatus(http.StatusUnsupportedMediaType, schemas.Invalidf("", "the body must not be compressed"))
	}
	tooLarge := WithStatus(http.StatusRequestEntityTooLarge, schemas.Invalidf("", "the body is larger than %d bytes: %s", limit, remedy))
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	body, err := ReadHeld(r.Context(), http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if _, ok := errors.AsType[*schemas.Error](err); ok { // there is no room for it
		Later(w.Header())
		return nil, err
	}
	if err != nil {
		return nil, WithStatus(http.StatusBadRequest, schemas.Wrap(schemas.Invalid, "", "the body ended before it was complete", err))
	}
	return body, nil
}

// Rename returns the error with another field.
func Rename(err error, field string) error {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		other := *e
		other.Field = field
		return &other
	}
	return err
}

// DecodeBody decodes a JSON body strictly into v. If optional is true, an absent body is an empty object.
func DecodeBody(w http.ResponseWriter, r *http.Request, optional bool, v any) error {
	if _, err := ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if optional && r.ContentLength == 0 {
		return nil
	}
	body, err := ReadJSON(w, r)
	if err != nil || optional && len(body) == 0 {
		return err
	}
	return schemas.DecodeStrict(body, schemas.MaxRequest, v)
}

// Accepts reports whether the Accept header names a content type; wildcards do not count.
func Accepts(h http.Header, want string) bool {
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), want) {
				return true
			}
		}
	}
	return false
}

// CheckReason checks that a reason is short enough to be stored with a call. Code: invalid.
func CheckReason(s string) error {
	const most = 1024
	if len(s) > most {
		return schemas.Invalidf("reason", "is %d bytes long: the limit is %d", len(s), most)
	}
	return nil
}

// CancelRequest is the body of a cancellation.
type CancelRequest struct {
	Reason string `json:"reason,omitzero"`
}

// ReadReason reads the optional body of a cancellation.
func ReadReason(w http.ResponseWriter, r *http.Request) (string, error) {
	if r.ContentLength == 0 {
		return "", nil
	}
	body, err := ReadJSON(w, r)
	if err != nil || len(body) == 0 {
		return "", err
	}
	var in CancelRequest
	if err := schemas.DecodeStrict(body, schemas.MaxRequest, &in); err != nil {
		return "", err
	}
	return in.Reason, CheckReason(in.Reason)
}
