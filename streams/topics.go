package streams

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/runs"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

// Topic is a typed row of the topology: what is published on it and how it is found. Topics are
// values without state; they are safe for concurrent use.
type Topic[T schemas.Eventer] struct {
	stream  string // empty: spread over the shards of events
	subject func(b *Bus, v T) (string, error)
	filter  func(s string) string // of a consumer, from what ConsumeOptions call Filter
	encode  func(v T) ([]byte, error)
	decode  func(subject string, headers Headers, data []byte) (T, error)
	expect  func(v T) string                                          // subjects that must be empty for v to be stored; empty: no condition
	live    string                                                    // where it is published live, all of it; empty: nowhere
	once    bool                                                      // publish under the event id as message id
	timer   func(subject string) string                               // where a message waits until it is handed out; nil: it cannot
	of      func(filter, account string) string                       // the part of a consumer's messages that is one account's; nil: each subject is one
	due     func(h nats.Header, d []byte, stored time.Time) time.Time // from when on a message is only to be ended; nil: never
	summary func(v T) string                                          // what stays readable when a large payload is gone; nil: nothing
	outline func(v T) string                                          // what retention reads in place of a large payload; nil: nothing
	work    usage.Work                                                // what it is for
}

// Raw is a message as an outside publisher sent it.
type Raw struct {
	Account schemas.AccountID
	Data    []byte
	Header  Headers
}

// EventID is empty: the publisher's message has no id of ours.
func (Raw) EventID() string { return "" }

// The topics.
var (
	// Calls are the admitted calls. Filter: a provider. Publishing one whose id is there already, for
	// any provider, is a conflict; so it stays for 24 hours.
	Calls = Topic[schemas.Call]{ //nolint:gochecknoglobals // a row of the table
		stream: streamCalls, subject: callPlace, encode: encodeJSON[schemas.Call], decode: decodeCall, filter: callstore.Filter,
		summary: callstore.Summary, work: usage.Requested,
		expect: func(c schemas.Call) string { return subjects.Call("*", c.Account, c.ID) }, due: callstore.DueOf,
		timer: func(subject string) string { return subjects.CallTimers + strings.TrimPrefix(subject, subjects.Calls) },
		of:    func(s, account string) string { return subjects.Calls + orAny(s) + "." + account + ".*" },
	}
	// Parked are the calls that wait for a person. They are in the stream of the calls, so their ids
	// are taken and [callstore.Store.Find] finds them, but under a subject that no worker reads.
	Parked = Topic[schemas.Call]{ //nolint:gochecknoglobals // a row of the table
		stream: streamCalls, encode: encodeJSON[schemas.Call], decode: decodeCall, expect: Calls.expect, summary: callstore.Summary, work: usage.Requested,
		subject: func(b *Bus, c schemas.Call) (string, error) {
			if _, err := callPlace(b, c); err != nil { // it must be able to continue
				return "", err
			}
			return subjects.Call(subjects.Parked, c.Account, c.ID), nil
		},
	}
	// Events are what happens on conversations. They are not consumed: read them with [Follow],
	// [Page] or Replay with "<account>/<conversation>" as filter. A second publish of the same event
	// id within ten minutes is recognised and stored once.
	Events = Topic[schemas.Event]{ //nolint:gochecknoglobals // a row of the table
		subject: eventPlace, encode: encodeEvent, decode: decodeEvent, once: true, summary: callstate.Summary, outline: runs.Outline,
	}
	// Cancels are the requests for the end of calls. Filter: an account.
	Cancels = Topic[schemas.Cancel]{ //nolint:gochecknoglobals // a row of the table
		stream: streamCancels, subject: cancelPlace, encode: encodeJSON[schemas.Cancel], decode: decodeJSON[schemas.Cancel], once: true,
		live:   subjects.Cancelled + "*.*",
		filter: func(s string) string { return subjects.Cancels + orAny(s) + ".*" },
	}
	// Intake is what outside publishers sent. Filter: an account.
	Intake = Topic[Raw]{ //nolint:gochecknoglobals // a row of the table
		stream: streamIntake, subject: intakePlace, encode: func(r Raw) ([]byte, error) { return r.Data, nil }, decode: decodeRaw,
		filter: func(s string) string { return subjects.Waiting + orAny(s) },
	}
	// FormerIntake is what they sent before topology 4, of which some may wait still. Filter: an account.
	FormerIntake = Topic[Raw]{ //nolint:gochecknoglobals // a row of the table
		stream: streamIntake, subject: intakePlace, encode: func(r Raw) ([]byte, error) { return r.Data, nil }, decode: decodeRaw,
		filter: func(s string) string { return subjects.Intake + orAny(s) },
	}
	// Completions are the ends of background jobs. Publishing one for a job that has one is a conflict:
	// see lifecycle.Complete. Filter: an account.
	Completions = Topic[schemas.Completion]{ //nolint:gochecknoglobals // a row of the table
		stream: streamJobs, subject: completionPlace, encode: encodeJSON[schemas.Completion], decode: decodeCompletion,
		filter: func(s string) string { return subjects.Jobs + orAny(s) + ".*" },
		expect: func(c schemas.Completion) string { return completionSubject(c.Account, c.Job) },
		of:     func(_, account string) string { return subjects.Jobs + account + ".*" },
	}
	// Turns are the follow-ups for agents. Publishing one that is there is a conflict, for seven days.
	// Filter: an account.
	Turns = Topic[schemas.FollowUp]{ //nolint:gochecknoglobals // a row of the table
		stream: streamTurns, subject: turnPlace, encode: encodeJSON[schemas.FollowUp], decode: decodeJSON[schemas.FollowUp],
		filter: func(s string) string { return subjects.Turns + orAny(s) + ".*.*" }, expect: turnSubject,
	}
	// Deliveries are events on their way to receivers. Publishing one that is there is a conflict, for
	// seven days; a later try is written by Schedule. Filter: a channel.
	Deliveries = Topic[schemas.Delivery]{ //nolint:gochecknoglobals // a row of the table
		stream: streamDeliver, subject: deliveryPlace, encode: encodeJSON[schemas.Delivery], decode: decodeJSON[schemas.Delivery],
		filter: func(s string) string { return subjects.Deliveries + orAny(s) + ".*.*" }, expect: deliverySubject,
		timer: func(subject string) string {
			return subjects.DeliveryTimers + strings.TrimPrefix(subject, subjects.Deliveries)
		},
		of: func(s, account string) string { return subjects.Deliveries + orAny(s) + "." + account + ".*" },
	}
	// Dead are the dead letters. Filter: the stream that they come from.
	Dead = Topic[schemas.DeadLetter]{ //nolint:gochecknoglobals // a row of the table
		stream: streamDead, subject: deadPlace, encode: encodeJSON[schemas.DeadLetter], decode: decodeJSON[schemas.DeadLetter], once: true,
		filter: func(s string) string { return subjects.Dead + orAny(s) + ".*.*" },
		of:     func(s, account string) string { return subjects.Dead + orAny(s) + "." + account + ".*" }, summary: letterSummary,
	}
)

func orAny(s string) string {
	if s == "" {
		return "*"
	}
	return s
}

func callPlace(_ *Bus, c schemas.Call) (string, error) {
	if c.InputLeftOut() {
		return "", schemas.OpErrorf(schemas.Internal, "publish", "the call %s is without its input", c.ID)
	}
	if !subjects.IsToken(c.Provider) || c.Provider == "auto" || c.Provider == subjects.Parked {
		return "", schemas.Invalidf("provider", "%q cannot be the name of a provider on the log", schemas.Quotable(c.Provider))
	}
	if err := c.Account.Validate(); err != nil {
		return "", err
	}
	if err := c.ID.Validate(); err != nil {
		return "", err
	}
	return subjects.Call(c.Provider, c.Account, c.ID), nil
}

func eventPlace(b *Bus, e schemas.Event) (string, error) {
	if err := e.Account.Validate(); err != nil {
		return "", err
	}
	if err := e.Conversation.Validate(); err != nil {
		return "", err
	}
	return subjects.Event(subjects.ShardOf(e.Conversation, b.Shards()), e.Account, e.Conversation), nil
}

func cancelPlace(_ *Bus, c schemas.Cancel) (string, error) {
	if err := c.Account.Validate(); err != nil {
		return "", err
	}
	if err := c.Call.Validate(); err != nil {
		return "", err
	}
	return subjects.Cancel(c.Account, c.Call), nil
}

func intakePlace(_ *Bus, r Raw) (string, error) {
	if err := r.Account.Validate(); err != nil {
		return "", err
	}
	return subjects.WaitingSubject(r.Account), nil
}

func completionPlace(_ *Bus, c schemas.Completion) (string, error) {
	if err := c.Validate(); err != nil {
		return "", err
	}
	return completionSubject(c.Account, c.Job), nil
}

func completionSubject(a schemas.AccountID, j schemas.JobID) string {
	return subjects.Jobs + string(a) + "." + string(j)
}

func turnPlace(_ *Bus, f schemas.FollowUp) (string, error) {
	if err := errors.Join(f.Account.Validate(), f.Conversation.Validate()); err != nil {
		return "", err
	}
	if !subjects.IsToken(string(f.ID)) {
		return "", schemas.Invalidf("id", "%q is not the id of a follow-up", schemas.Quotable(string(f.ID)))
	}
	return turnSubject(f), nil
}

func turnSubject(f schemas.FollowUp) string {
	return subjects.Turns + string(f.Account) + "." + subjects.Token(string(f.Conversation)) + "." + string(f.ID)
}

func deliveryPlace(_ *Bus, d schemas.Delivery) (string, error) {
	if err := d.Account.Validate(); err != nil {
		return "", err
	}
	if !subjects.IsToken(string(d.ID)) || !subjects.IsToken(d.Channel) {
		return "", schemas.Invalidf("id", "%q on channel %q cannot be a delivery", schemas.Quotable(string(d.ID)), schemas.Quotable(d.Channel))
	}
	return deliverySubject(d), nil
}

func deliverySubject(d schemas.Delivery) string {
	return subjects.Deliveries + d.Channel + "." + string(d.Account) + "." + string(d.ID)
}

func decodeCompletion(_ string, _ Headers, data []byte) (schemas.Completion, error) {
	return schemas.DecodeCompletion(data)
}

func deadPlace(_ *Bus, d schemas.DeadLetter) (string, error) {
	stream, seq, ok := strings.Cut(d.ID, ".")
	if !ok || !subjects.IsToken(stream) || !subjects.IsToken(seq) || d.Account != "" && !subjects.IsToken(string(d.Account)) {
		return "", schemas.Invalidf("id", "%q is not the id of a dead letter: want <stream>.<sequence>", schemas.Quotable(d.ID))
	}
	return subjects.Dead + stream + "." + subjects.OrNone(d.Account) + "." + seq, nil
}

func encodeJSON[T any](v T) ([]byte, error) {
	b, err := schemas.EncodeJSON(v)
	if err != nil {
		return nil, errNotJSON(err)
	}
	return b, nil
}

func encodeEvent(e schemas.Event) ([]byte, error) {
	b, err := e.Encode()
	if err != nil {
		return nil, errNotJSON(err)
	}
	return b, nil
}

func errNotJSON(err error) error {
	return schemas.Wrap(schemas.Invalid, "publish", "it cannot be written as JSON", err)
}

func decodeJSON[T any](_ string, _ Headers, data []byte) (T, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return v, schemas.Wrap(schemas.Invalid, "read from the log", "the message is not what belongs there", err)
	}
	return v, nil
}

func decodeCall(_ string, _ Headers, data []byte) (schemas.Call, error) {
	return schemas.DecodeCall(data)
}

func decodeEvent(subject string, _ Headers, data []byte) (schemas.Event, error) {
	e, err := schemas.DecodeEvent(data)
	if err != nil {
		return e, err
	}
	if a := subjects.AccountOf(subject); a != "" {
		e.Account = a // the subject is proven, what stands in the message is not
	}
	return e, nil
}

func decodeRaw(subject string, h Headers, data []byte) (Raw, error) {
	return Raw{Account: subjects.AccountOf(subject), Data: data, Header: h}, nil
}
