package streams

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
)

// Error codes of the server that the client library has no name for.
const (
	codeWrongLastSequence     jetstream.ErrorCode = 10071
	codeWrongLastSequenceAny  jetstream.ErrorCode = 10164 // another message under the same condition is in process
	codeDuplicateInProcess    jetstream.ErrorCode = 10158
	codeStoreFailed           jetstream.ErrorCode = 10077 // of whatever the store says: a limit was met, or it cannot write
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeStorageExceeded       jetstream.ErrorCode = 10047
	codeAccountExceeded       jetstream.ErrorCode = 10002 // the limits of the NATS account
	codeMemoryExceeded        jetstream.ErrorCode = 10028
	codeNoMessageTTL          jetstream.ErrorCode = 10166 // messages of the stream cannot end by themselves
	codeDuplicateInBatch      jetstream.ErrorCode = 10201
	codeStreamNameInUse       jetstream.ErrorCode = 10058
	codeStreamNotFound        jetstream.ErrorCode = 10059
	codeConsumerNotFound      jetstream.ErrorCode = 10014
	codeMessageExceedsMaximum jetstream.ErrorCode = 10054
	codeNotEnabledForAccount  jetstream.ErrorCode = 10039
	codeNotEnabled            jetstream.ErrorCode = 10076
	codeRequiredAPILevel      jetstream.ErrorCode = 10185
	codeSubjectOverlap        jetstream.ErrorCode = 10065
	codeMessageNotFound       jetstream.ErrorCode = 10037
	codeStreamNotMade         jetstream.ErrorCode = 10049 // whatever the reason was
	codeNoSuitablePeers       jetstream.ErrorCode = 10005 // a server that is to have a copy is offline, or none may have it
)

// coded gives an error of the client or the server a code and a message that may be shown.
func coded(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*schemas.Error](err); ok {
		return err
	}
	if api := apiError(err); api != nil {
		return codedAPI(op, api, err)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining), errors.Is(err, jetstream.ErrTooManyStalledMsgs),
		errors.Is(err, jetstream.ErrAsyncPublishTimeout), errors.Is(err, nats.ErrConnectionReconnecting):
		return schemas.Wrap(schemas.Unavailable, op, "the log does not answer: try again", err)
	case errors.Is(err, nats.ErrMaxPayload):
		return schemas.Wrap(schemas.Invalid, op, "the message is larger than the log accepts", err)
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrAuthorization):
		return schemas.Wrap(schemas.Denied, op, "the log refuses this user: give the role its own credential", err)
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted),
		errors.Is(err, jetstream.ErrObjectNotFound):
		return schemas.Wrap(schemas.NotFound, op, "there is no such thing", err)
	case errors.Is(err, jetstream.ErrKeyExists):
		return schemas.Wrap(schemas.Conflict, op, "it exists already", err)
	}
	return schemas.Wrap(schemas.Internal, op, "the log failed: see the log of the process", err)
}

func codedAPI(op string, api *jetstream.APIError, err error) error {
	switch api.ErrorCode {
	case codeWrongLastSequence:
		return schemas.Wrap(schemas.Conflict, op, "it exists already or has moved on", err)
	case codeWrongLastSequenceAny, codeDuplicateInProcess: // nothing is known of the earlier write
		return schemas.Wrap(schemas.Unavailable, op, "the log is still deciding about an earlier write: try again", err)
	case codeStoreFailed:
		switch {
		case strings.HasPrefix(api.Description, "maximum "):
			return schemas.Wrap(schemas.Exhausted, op, "too many messages wait: try again later", err)
		case strings.HasPrefix(api.Description, "message "):
			return schemas.Wrap(schemas.Invalid, op, "the message is larger than the log accepts", err)
		}
		return schemas.Wrap(schemas.Unavailable, op, "the log cannot write: "+embedded.WhyNoWrite(api.Description), err)
	case codeInsufficientResources, codeStorageExceeded, codeMemoryExceeded, codeAccountExceeded:
		return schemas.Wrap(schemas.Unavailable, op, "the log has no room left: give it more space (--max-store), or delete something", err)
	case codeStreamNotMade:
		return schemas.Wrap(schemas.Unavailable, op, "the log could not make it: its servers say why in their logs", err)
	case codeNoSuitablePeers:
		return schemas.Wrap(schemas.Unavailable, op, "the log's servers cannot store it now: "+api.Description+": try again when all of them run", err)
	case codeMessageExceedsMaximum:
		return schemas.Wrap(schemas.Invalid, op, "the message is larger than the log accepts", err)
	case codeMessageNotFound, codeStreamNotFound, codeConsumerNotFound:
		return schemas.Wrap(schemas.NotFound, op, "there is no such thing", err)
	default:
	}
	if api.Code == http.StatusServiceUnavailable {
		return schemas.Wrap(schemas.Unavailable, op, "the log is not ready: try again", err)
	}
	return schemas.Wrap(schemas.Internal, op, "the log refused: "+api.Description, err)
}

func apiError(err error) *jetstream.APIError {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e
	}
	if e, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return e.APIError()
	}
	return nil
}

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	api := apiError(err)
	if api == nil {
		return false
	}
	return slices.Contains(codes, api.ErrorCode)
}
