// Package natserr gives errors of the NATS client and its server the codes of package schemas.
package natserr

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
	WrongLastSequence     jetstream.ErrorCode = 10071
	WrongLastSequenceAny  jetstream.ErrorCode = 10164 // another message under the same condition is in process
	DuplicateInProcess    jetstream.ErrorCode = 10158
	StoreFailed           jetstream.ErrorCode = 10077 // of whatever the store says: a limit was met, or it cannot write
	InsufficientResources jetstream.ErrorCode = 10023
	StorageExceeded       jetstream.ErrorCode = 10047
	AccountExceeded       jetstream.ErrorCode = 10002 // the limits of the NATS account
	MemoryExceeded        jetstream.ErrorCode = 10028
	NoMessageTTL          jetstream.ErrorCode = 10166 // messages of the stream cannot end by themselves
	DuplicateInBatch      jetstream.ErrorCode = 10201
	StreamNameInUse       jetstream.ErrorCode = 10058
	StreamNotFound        jetstream.ErrorCode = 10059
	ConsumerNotFound      jetstream.ErrorCode = 10014
	MessageExceedsMaximum jetstream.ErrorCode = 10054
	NotEnabledForAccount  jetstream.ErrorCode = 10039
	NotEnabled            jetstream.ErrorCode = 10076
	RequiredAPILevel      jetstream.ErrorCode = 10185
	SubjectOverlap        jetstream.ErrorCode = 10065
	MessageNotFound       jetstream.ErrorCode = 10037
	StreamNotMade         jetstream.ErrorCode = 10049 // whatever the reason was
	NoSuitablePeers       jetstream.ErrorCode = 10005 // a server that is to have a copy is offline, or none may have it
)

// Coded gives an error of the client library or the server a code and a message that users may see.
func Coded(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*schemas.Error](err); ok {
		return err
	}
	if api := API(err); api != nil {
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
	case WrongLastSequence:
		return schemas.Wrap(schemas.Conflict, op, "it exists already or has moved on", err)
	case WrongLastSequenceAny, DuplicateInProcess: // nothing is known of the earlier write
		return schemas.Wrap(schemas.Unavailable, op, "the log is still deciding about an earlier write: try again", err)
	case StoreFailed:
		switch {
		case strings.HasPrefix(api.Description, "maximum "):
			return schemas.Wrap(schemas.Exhausted, op, "too many messages wait: try again later", err)
		case strings.HasPrefix(api.Description, "message "):
			return schemas.Wrap(schemas.Invalid, op, "the message is larger than the log accepts", err)
		}
		return schemas.Wrap(schemas.Unavailable, op, "the log cannot write: "+embedded.WhyNoWrite(api.Description), err)
	case InsufficientResources, StorageExceeded, MemoryExceeded, AccountExceeded:
		return schemas.Wrap(schemas.Unavailable, op, "the log has no room left: give it more space (--max-store), or delete something", err)
	case StreamNotMade:
		return schemas.Wrap(schemas.Unavailable, op, "the log could not make it: its servers say why in their logs", err)
	case NoSuitablePeers:
		return schemas.Wrap(schemas.Unavailable, op, "the log's servers cannot store it now: "+api.Description+": try again when all of them run", err)
	case MessageExceedsMaximum:
		return schemas.Wrap(schemas.Invalid, op, "the message is larger than the log accepts", err)
	case MessageNotFound, StreamNotFound, ConsumerNotFound:
		return schemas.Wrap(schemas.NotFound, op, "there is no such thing", err)
	default:
	}
	if api.Code == http.StatusServiceUnavailable {
		return schemas.Wrap(schemas.Unavailable, op, "the log is not ready: try again", err)
	}
	return schemas.Wrap(schemas.Internal, op, "the log refused: "+api.Description, err)
}

// API returns the server's answer within an error, nil if there is none.
func API(err error) *jetstream.APIError {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e
	}
	if e, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return e.APIError()
	}
	return nil
}

// Is reports whether an error is an answer of the server with one of the codes.
func Is(err error, codes ...jetstream.ErrorCode) bool {
	api := API(err)
	if api == nil {
		return false
	}
	return slices.Contains(codes, api.ErrorCode)
}
