// Package admission is the one way in for calls: every API admits through it, so the same request means the same call wherever it comes in.
//
// Admitting is two writes. The first puts the call on the log under its id, on the condition that no call of that id is there: from then on
// the call is accepted, and will have exactly one result. The second publishes call.accepted on the conversation. A worker may have the
// call before that, and this process may die in between; so a process that starts or ends the call publishes the same event first, which
// the log stores once: it precedes every other event of the call.
//
// A background call gets the id of its job here, and a third write makes the job's record.
//
// A call that a person must allow is parked instead: the first write puts it where no worker finds it,
// the second makes the record of the approval, the third publishes approval.requested on the conversation.
// The answer takes it on from there, see [Approvals].
package admission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// The APIs by which calls come in, as [schemas.Origin] kinds.
const (
	API       = "api"
	NATS      = "nats"
	WebSocket = "websocket"
	Channel   = schemas.OriginChannel
)

// StatusAwaiting is the status of a call that waits for a person; see [Accepted].
const StatusAwaiting = "awaiting_approval"

// Records resolves requests to calls. It must make an id and a conversation if the request has none.
type Records interface {
	// Resolve turns a valid request into a call of the account, all but its digest; the call has an Approval
	// if a person must allow it. Codes: not_found, denied, invalid.
	Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error)
}

// Serving reports which providers are served.
type Serving interface {
	// Serves reports whether a provider has a worker, or had one lately.
	Serves(ctx context.Context, provider string) (bool, error)
}

// Accepted is an admitted call.
type Accepted struct {
	Call schemas.Call
	// Existing says that the request was a repetition: Call is the call that was admitted first.
	Existing bool
	// Awaiting says that the call waits for the approval Call.Approval.
	Awaiting bool
}

// Admitter admits calls. It is safe for concurrent use.
type Admitter struct {
	Bus     *streams.Bus
	Records Records
	Kind    string       // becomes the origin of calls that name none
	Log     *slog.Logger // nil: silent
	// Conversation is where the events of a request go that names none. Empty: a new one is made.
	Conversation schemas.ConversationID
	// Serving reports which providers have a worker; calls for others are refused unless the request says that it waits. Nil: all are
	// accepted.
	Serving Serving
	// Allow is called with the resolved call, also that of a repeated request; its error refuses the call. Nil: all are allowed.
	Allow func(schemas.Call) error
	// Since is when the request was made, for those that may come long after: a call of its id that was
	// admitted later is its own. Zero: now.
	Since time.Time
	// Wake has the end of a call wake the turn of its conversation.
	Wake bool
}

// Admit admits a request with the kind [API]; see [Admitter.Admit].
func Admit(ctx context.Context, bus *streams.Bus, rec Records, a schemas.AccountID, r schemas.Request) (Accepted, error) {
	return Admitter{Bus: bus, Records: rec, Kind: API}.Admit(ctx, a, r)
}

// Admit stores r on the log as a call of account a; if its sandbox demands an approval, the call waits for that. r must have been decoded
// by [schemas.DecodeRequest] or validated in the same way. When Admit returns without an error, the log has confirmed the call.
//
// A request that names an id is idempotent for 24 hours: a repetition with the same content returns the existing call; with other content
// it is a conflict. The content is compared as the client sent it, so changing defaults, such as the deadline, do not matter; a repetition
// is recognised even after the call's deadline.
//
// Codes: invalid, not_found (an agent, workspace or sandbox), denied, conflict, unavailable. After unavailable or timeout it is unknown
// whether the call is stored: repeat it with the same id.
func (d Admitter) Admit(ctx context.Context, a schemas.AccountID, r schemas.Request) (Accepted, error) {
	if r.Account != "" && r.Account != a {
		return Accepted{}, &schemas.Error{
			Code: schemas.Denied, Field: "account", Message: "is not the account of the credential: leave it out",
		}
	}
	r, err := r.Parsed() // what follows derives from this one reading of the input
	if err != nil {
		return Accepted{}, err
	}
	named := r
	if named.Conversation == "" {
		named.Conversation = d.Conversation
	}
	call, err := d.Records.Resolve(ctx, a, named)
	if err != nil {
		return d.known(ctx, a, r, err)
	}
	if err := d.allow(call); err != nil {
		return Accepted{}, err
	}
	if err := d.served(ctx, r, call.Provider); err != nil {
		return d.known(ctx, a, r, err)
	}
	call.Digest = r.Digest() // of what the client sent
	call.Wake = d.Wake
	if call.Origin == nil {
		call.Origin = &schemas.Origin{Kind: d.Kind}
	}
	if lifecycle.AsksForJob(call) {
		call.Job = schemas.NewJobID()
		if err := d.Bus.AdmitJob(ctx, a); err != nil {
			return d.known(ctx, a, r, err)
		}
	}
	if call.Approval != "" {
		if call = d.recall(ctx, call); call.Approval != "" {
			return d.park(ctx, a, r, call)
		}
	}
	absent := d.Bus.Absent()
	err = lifecycle.Accept(ctx, d.Bus, call, d.Since)
	if errors.Is(err, schemas.ErrConflict) {
		return d.existing(ctx, a, r)
	}
	if err != nil {
		return Accepted{}, err
	}
	d.publish(ctx, schemas.AcceptedEvent(call), absent)
	d.record(ctx, call)
	return Accepted{Call: call}, nil
}

// allow checks that the caller may make a call, by d.Allow.
func (d Admitter) allow(c schemas.Call) error {
	if d.Allow == nil {
		return nil
	}
	return d.Allow(c)
}

// served checks that a worker serves the provider, unless the request says that it waits for one. Code: unavailable.
func (d Admitter) served(ctx context.Context, r schemas.Request, provider string) error {
	if d.Serving == nil || r.WaitForWorker {
		return nil
	}
	if is, err := d.Serving.Serves(ctx, provider); is || err != nil {
		return err
	}
	return &schemas.Error{
		Code: schemas.Unavailable, Field: "sandbox", Message: "no worker serves its provider " + schemas.Quotable(provider) +
			": start one, name a sandbox of another provider, or send wait_for_worker (--wait-for-worker) to have the call wait until its deadline",
	}
}

// known handles a request that cannot be resolved now: if it repeats an earlier one, it returns that call, otherwise cause.
func (d Admitter) known(ctx context.Context, a schemas.AccountID, r schemas.Request, cause error) (Accepted, error) {
	if r.ID == "" {
		return Accepted{}, cause
	}
	got, err := d.existing(ctx, a, r)
	if errors.Is(err, schemas.ErrNotFound) {
		return Accepted{}, cause
	}
	return got, err
}

// existing returns the call of a repeated request, after writing what a crash may have left out. Codes: not_found (there is none),
// conflict (it has other content).
func (d Admitter) existing(ctx context.Context, a schemas.AccountID, r schemas.Request) (Accepted, error) {
	call, err := d.Bus.Calls().Find(ctx, a, r.ID)
	if err != nil {
		return Accepted{}, err
	}
	if err := d.allow(call); err != nil { // what it stood for then may be other than what it stands for now
		return Accepted{}, err
	}
	if call.Digest != r.Digest() {
		return Accepted{}, &schemas.Error{
			Code: schemas.Conflict, Field: "id", Message: schemas.Quotable(string(r.ID)) +
				" is a call with other content already: use a new id for a new call",
		}
	}
	if call.Approval != "" {
		return d.parked(ctx, call)
	}
	absent := d.Bus.Absent()
	state, err := d.Bus.States().Read(ctx, call)
	if err != nil {
		return Accepted{}, err
	}
	over, err := lifecycle.Forgotten(ctx, d.Bus, &state)
	if err != nil {
		return Accepted{}, err
	}
	if over { // nothing of it is left out
		return Accepted{Call: call, Existing: true}, nil
	}
	if !state.Accepted && len(state.Started) == 0 && state.Result == nil {
		d.publish(ctx, schemas.AcceptedEvent(call), absent)
	}
	d.record(ctx, call)
	return Accepted{Call: call, Existing: true}, nil
}

// patience is the time limit of the writes that follow an accepted call.
const patience = 5 * time.Second

// publish writes an event about a call that is stored already, so a failure is logged and not returned: an error would make the client
// send the call again. It does not stop when the client disconnects.
func (d Admitter) publish(ctx context.Context, e schemas.Event, absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, err := streams.StoreOnce(ctx, d.Bus, e, absent.Cautiously()); err != nil && d.Log != nil {
		d.Log.Warn("first event of an accepted call not published yet", "call", e.Subject, "event", e.Type, "error", err)
	}
}

// record makes the record of a background call's job, so that clients can ask about it at once. As with publish, a failure is only logged:
// the worker makes the record too.
func (d Admitter) record(ctx context.Context, c schemas.Call) {
	if c.Job == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, err := lifecycle.EnsureJob(ctx, d.Bus, c); err != nil && d.Log != nil {
		d.Log.Warn("background call accepted, job not recorded yet", "call", c.ID, "job", c.Job, "error", err)
	}
}
