package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

const fieldIfMatch = "If-Match"

// SetRevision sets the ETag of an answer to a record's revision.
func SetRevision(h http.Header, revision uint64) { h.Set("ETag", etag(revision)) }

func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// Revision returns the revision that a request names in If-Match; 0 for any. Code: invalid.
func Revision(h http.Header) (uint64, error) {
	v := strings.TrimSpace(h.Get(fieldIfMatch))
	if v == "" || v == "*" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.Trim(v, `"`), 10, 64)
	if err != nil || n == 0 || etag(n) != v || len(h.Values(fieldIfMatch)) > 1 {
		return 0, schemas.Invalidf(fieldIfMatch, `must be the ETag of one answer, such as "17"`)
	}
	return n, nil
}

// Precondition gives a conflict about a revision the status 412, and returns any other error unchanged.
func Precondition(err error) error {
	if public := schemas.Public(err); public.Code == schemas.Conflict && public.Field == fieldIfMatch {
		return WithStatus(http.StatusPreconditionFailed, err)
	}
	return err
}
