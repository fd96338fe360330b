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

// refusal maps an error of the service to one with a code. Its message names the operation and contains no text from the service.
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

// answerOf returns the HTTP status and the error code of the service's answer.
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

// OneObject reports whether an error of a method with a name concerns that object alone, so that others can still be read and written: it
// is archived, a policy or its encryption protects it, or its name cannot be a key. Errors of a list never do.
func OneObject(err error) bool {
	return errors.Is(err, errKey) || ofObject(answerOf(err))
}

// ofObject reports whether an answer concerns one object. Answers about the credentials, the clock or the bucket concern all. An answer to
// HEAD has no error code of the service: the library derives one from the status. It has no side effects.
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

// classify returns the code and the message for an answer, by its status and the service's error code. It has no side effects.
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

// raced reports whether a concurrent request for the same key caused the error: the request can be repeated.
func raced(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (api.ErrorCode() == "ConditionalRequestConflict" || api.ErrorCode() == "OperationAborted")
}
