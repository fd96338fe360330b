package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/sandjet/sandjet/schemas"
)

// refusal gives what the service has said a code. Messages name what was asked and hold nothing that the service has made up.
func (b *Bucket) refusal(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Cause(ctx)
	}
	if own, ok := errors.AsType[*schemas.Error](err); ok { // of the dialer
		return own
	}
	code, says := classify(answerOf(err))
	return schemas.Wrap(code, "s3", fmt.Sprintf("%s in the bucket %s: %s", what, schemas.Quotable(b.bucket), says), err)
}

// answerOf is the status and the word of what the service has said.
func answerOf(err error) (status int, word string) {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = answer.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		word = api.ErrorCode()
	}
	return status, word
}

// errKey is a name that can be no key.
var errKey = errors.New("no key")

// OneObject reports whether an error of a method with a name is that of the object alone, so that others can still be read and written: it
// is archived, a policy or its encryption keeps it, or its name can be no key. Errors of a list are never that.
func OneObject(err error) bool {
	return errors.Is(err, errKey) || ofObject(answerOf(err))
}

// ofObject says which answers are about one object. Those that name the credentials, the clock or the bucket are about all. An answer to
// HEAD has no word of the service: the library makes it of the status. It is pure.
func ofObject(status int, word string) bool {
	switch word {
	case "InvalidObjectState", "AccessDenied", "InvalidRequest", "InvalidArgument", "MethodNotAllowed", "EntityTooLarge", "KeyTooLongError",
		"Forbidden", "BadRequest":
		return true
	case "":
		return status == http.StatusForbidden || status == http.StatusBadRequest
	}
	return strings.HasPrefix(word, "KMS.")
}

// classify says what an answer means, by its status and by the service's word for it. It is pure.
func classify(status int, word string) (schemas.Code, string) {
	switch word {
	case "NoSuchBucket":
		return schemas.Invalid, "there is no such bucket: make it, or name another"
	case "NoSuchKey", "NotFound", "NoSuchUpload":
		return schemas.NotFound, "there is no such file"
	case "PreconditionFailed":
		return schemas.Conflict, "somebody else has changed the file"
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccessDenied", "AllAccessDisabled":
		return schemas.Denied, "the credentials are not accepted, or do not allow it (" + word + ")"
	case "RequestTimeTooSkewed":
		return schemas.Denied, "the clock of this host is wrong (" + word + ")"
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException":
		return schemas.Invalid, "the bucket is in another region: name it (" + word + ")"
	case "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "ThrottlingException", "ConditionalRequestConflict",
		"OperationAborted":
		return schemas.Unavailable, "the service is busy (" + word + "): try later"
	}
	switch {
	case status == http.StatusNotFound:
		return schemas.NotFound, "there is no such file"
	case status == http.StatusPreconditionFailed:
		return schemas.Conflict, "somebody else has changed the file"
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return schemas.Denied, "the credentials are not accepted, or do not allow it"
	case status/100 == 3:
		return schemas.Invalid, "the bucket is in another region, or at another endpoint: name it"
	case status/100 == 4 && status != http.StatusTooManyRequests && status != http.StatusConflict && status != http.StatusRequestTimeout:
		return schemas.Invalid, "the service refuses the request"
	}
	return schemas.Unavailable, "the service does not answer, or is busy: try later"
}

// raced reports whether another request for the same key was faster: the same may be asked again.
func raced(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (api.ErrorCode() == "ConditionalRequestConflict" || api.ErrorCode() == "OperationAborted")
}
