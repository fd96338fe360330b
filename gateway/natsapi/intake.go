package natsapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// HeaderReply is the header in which a publisher of sandjet.calls.auto.<account> names an inbox
	// for the answer: {id, conversation} or {error}. It must begin with _INBOX., with
	// sandjet.reply.<account>. or with _INBOX_<account>. and have no wildcard.
	HeaderReply = "Sandjet-Reply"

	// RejectedConversation is the conversation of call.rejected if the request's conversation could not be read.
	RejectedConversation = streams.RejectedConversation

	// PublicationKept is how long a publication is tried before it is rejected with call.rejected.
	PublicationKept = 7 * 24 * time.Hour

	// routerAttempts is so high that a publication that waits for an unavailable part ends by its age only.
	routerAttempts = 1_000_000
	// defectAttempts is how often a publication is tried whose admission ends in an internal error.
	defectAttempts = 20
	// routerPending is how many publications may wait for their next try: as many as ten accounts may have.
	routerPending = streams.ManyPending
	// callsForgotten is the age of a publication from which the log may no longer know the id of a call that an earlier try admitted.
	callsForgotten = 20 * time.Hour

	defaultGrace = 10 * time.Second
)

// IntakeConsumer admits the calls that NATS clients publish on sandjet.calls.auto.<account>.
//
// A publication that cannot be admitted becomes a call.rejected event on its conversation and a dead letter with the reason. One that
// fails because a part is unavailable is tried again, for a week. If the consumer dies between admitting a call and acknowledging its
// publication, the publication is redelivered; if its request names an id, that is the same call. A request without an id gets one made
// from its position on the log, so it is the same call too. A dead letter that is sent again has the id that it had at first.
type IntakeConsumer struct {
	Bus     *streams.Bus
	Records admission.Records
	Log     *slog.Logger // nil: silent
	// Slots is how many publications are handled at a time. Default 64.
	Slots int
	// Grace is how long publications in flight may take once Run's context has ended. Default 10 s.
	Grace time.Duration
	// Patience is how long a publication is tried before it is rejected with call.rejected. Default [PublicationKept].
	Patience time.Duration

	held    *holdups
	defects *defects
}

// Run admits calls until ctx is done, then finishes the publications in flight and returns nil. Several consumers share the work.
func (c IntakeConsumer) Run(ctx context.Context) error {
	const defaultSlots = 64
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Slots <= 0 {
		c.Slots = defaultSlots
	}
	c.Patience = cmp.Or(max(c.Patience, 0), PublicationKept)
	c.held = &holdups{until: map[schemas.AccountID]time.Time{}}
	c.defects = &defects{met: map[publicationKey]int{}}
	o := streams.ConsumeOptions{
		Name: "intake", Turns: true, Slots: c.Slots, Grace: cmp.Or(max(c.Grace, 0), defaultGrace),
		MaxAttempts: routerAttempts, MaxPending: routerPending,
	}
	former := o // what was published before the log was upgraded
	former.Name, former.Slots = "router", 1
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- streams.FormerIntake.Consume(ctx, c.Bus, former, c.route)
	}()
	err := streams.Intake.Consume(ctx, c.Bus, o, c.route)
	stop()
	return errors.Join(err, <-ended)
}

// route handles one publication. Its error decides whether the publication is acknowledged, retried or dead-lettered.
func (c IntakeConsumer) route(ctx context.Context, d streams.Delivery[streams.Raw]) error {
	p := streams.PublicationOf(d)
	age := c.Bus.Now().Sub(d.Published)
	if wait, try := c.held.ask(d.Account, time.Now()); !try && age < c.Patience {
		return streams.RetryAfter(wait, schemas.OpErrorf(schemas.Unavailable, "router",
			"calls of this account cannot be admitted now: that is tried again"))
	}
	inbox, inboxErr := replyInbox(d.Headers, d.Account)
	got, err := c.admit(ctx, d, p, inboxErr)
	if schemas.CodeOf(err).Retryable() {
		c.held.stop(d.Account, time.Now())
	} else {
		c.held.resume(d.Account)
	}
	switch verdictOf(err, c.Patience-age, c.defects.note(p, err)) {
	case routed:
		c.answer(ctx, d.Account, inbox, answerOf(got))
		return nil
	case routedBefore:
		return nil
	case rejectedBefore:
		return streams.Terminate(err)
	case routeAgain: // the publisher is answered when it is known how it ends
		return streams.RetryAfter(routeDelay(d.Attempt), err)
	case routeTimedOut:
		e := schemas.Public(err)
		err = schemas.Errorf(e.Code, "it could not be admitted for %s: %s", age.Round(time.Minute), e.Message)
	case routeRejected:
	}
	public := schemas.Public(err)
	if rerr := streams.Reject(ctx, c.Bus, p, public, streams.Certainty{Since: d.Arrived, Generation: d.Generation}); rerr != nil {
		return streams.RetryAfter(routeDelay(d.Attempt), rerr)
	}
	c.answer(ctx, d.Account, inbox, Answer{Error: public})
	return streams.Terminate(err)
}

// admit admits the call of a publication. A panic is returned as an error of the code internal.
func (c IntakeConsumer) admit(ctx context.Context, d streams.Delivery[streams.Raw], p streams.Publication,
	inboxErr error) (got admission.Accepted, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.Log.Error("publication handler panicked", "panic", v, "stack", string(debug.Stack()))
			err = schemas.Errorf(schemas.Internal, "it could not be handled")
		}
	}()
	req, err := schemas.DecodeRequest(p.Data)
	if err == nil {
		err = inboxErr
	}
	if err != nil {
		return got, err
	}
	if req.ID == "" {
		req.ID = p.CallID()
	}
	const longest = 128
	if trace := d.Headers.Get("traceparent"); req.TraceParent == "" && len(trace) <= longest {
		req.TraceParent = trace
	}
	admitter := admission.Admitter{
		Bus: c.Bus, Records: handledBefore{c.Records, c.Bus, p, d.Attempt}, Kind: admission.NATS, Log: c.Log,
		Conversation: p.Conversation(), Since: p.Published,
	}
	return admitter.Admit(ctx, d.Account, req)
}

var (
	errRejectedBefore = schemas.Errorf(schemas.Conflict, "it was rejected before: its call.rejected says why")
	errMaybeAdmitted  = schemas.Errorf(schemas.Conflict, "it may have been admitted before, which is no longer known: "+
		"send it again under a new id if it was not")
	errAdmittedBefore = schemas.Errorf(schemas.Conflict, "it was admitted before")
)

// handledBefore wraps the Records of an admission. It resolves a publication's request only if no earlier try was interrupted before its
// acknowledgement: a rejected publication stays rejected, and one whose call may have been admitted before must not become a second call.
// It looks these up only for requests that are about to be admitted.
type handledBefore struct {
	admission.Records

	bus     *streams.Bus
	p       streams.Publication
	attempt int
}

// Resolve implements [admission.Records].
func (h handledBefore) Resolve(ctx context.Context, a schemas.AccountID, req schemas.Request) (schemas.Call, error) {
	call, err := h.Records.Resolve(ctx, a, req)
	if err != nil {
		return call, err
	}
	if h.attempt > 1 {
		e := h.p.Rejected(nil)
		switch found, err := streams.HasEvent(ctx, h.bus, a, e.Conversation, e.ID, h.p.Published); {
		case err != nil:
			return call, err
		case found:
			return call, errRejectedBefore
		}
	}
	old := h.bus.Now().Sub(h.p.Published) > callsForgotten
	if old || h.p.Redriven { // it may have been sent again before, at any time
		then := call
		then.Accepted = h.p.First
		switch state, err := h.bus.States().Read(ctx, then); {
		case err != nil:
			return call, err
		case state.Accepted, len(state.Started) > 0, state.Result != nil:
			return call, errAdmittedBefore
		case old && state.Forgotten && h.attempt > 1: // its publisher gets an error: the call might run twice
			return call, errMaybeAdmitted
		}
	}
	return call, nil
}

// routeVerdict is the decision about a publication.
type routeVerdict string

const (
	routed         routeVerdict = "admitted"
	routedBefore   routeVerdict = "admitted before"
	rejectedBefore routeVerdict = "rejected before"
	routeAgain     routeVerdict = "again"     // a part is unavailable
	routeRejected  routeVerdict = "rejected"  // it can never be admitted
	routeTimedOut  routeVerdict = "timed out" // it could not be admitted in time
)

// verdictOf decides about a publication whose admission ended with err. If a part is unavailable, it is tried again until its time (left)
// is over. An internal error, which waiting rarely cures, is retried a limited number of times.
func verdictOf(err error, left time.Duration, defects int) routeVerdict {
	code := schemas.CodeOf(err)
	switch {
	case err == nil:
		return routed
	case errors.Is(err, errAdmittedBefore):
		return routedBefore
	case errors.Is(err, errRejectedBefore):
		return rejectedBefore
	case !passes(err):
		return routeRejected
	case left <= 0, code == schemas.Internal && defects >= defectAttempts:
		return routeTimedOut
	}
	return routeAgain
}

// routeDelay returns how long to wait before the next try of a publication: longer each time, with jitter.
func routeDelay(attempt int) time.Duration {
	return wait.Backoff{First: time.Second, Most: 30 * time.Second}.After(attempt)
}

// answer replies to the publisher, if it named an inbox. The reply is best effort: the outcome is also on the conversation.
func (c IntakeConsumer) answer(ctx context.Context, account schemas.AccountID, inbox string, a Answer) {
	if inbox == "" {
		return
	}
	b, err := schemas.EncodeJSON(a)
	if err == nil {
		err = c.Bus.Reply(ctx, account, inbox, b)
	}
	if err != nil {
		c.Log.Info("answer to publisher not sent", "error", err)
	}
}

// passes reports whether the same publication may be admitted later.
func passes(err error) bool {
	switch code := schemas.CodeOf(err); code {
	case schemas.Timeout, schemas.Interrupted, schemas.Internal:
		return true
	default:
		return code.Retryable()
	}
}
