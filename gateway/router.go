package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
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

	// RejectedConversation is where call.rejected goes when the request names no conversation that
	// could be read.
	RejectedConversation = streams.RejectedConversation

	// PublicationKept is how long a publication is tried before it is given up with call.rejected.
	PublicationKept = 7 * 24 * time.Hour

	// What a part that is away costs a publication is time, not a try: its age ends it.
	routerAttempts = 1_000_000
	// defectAttempts is how often a publication is tried that ends in an error of our own.
	defectAttempts = 20
	// routerPending is how many publications may wait for their next try: all that ten accounts may have.
	routerPending = streams.ManyPending
	// callsForgotten is when the log may no longer know the id of a call that an earlier try has admitted.
	callsForgotten = 20 * time.Hour
)

// Answer is what a NATS client is told about its request: ID and Conversation, or Error.
type Answer struct {
	ID           schemas.CallID         `json:"id,omitzero"`
	Conversation schemas.ConversationID `json:"conversation,omitzero"`
	// Status is awaiting_approval when the call waits for a person, and Approval the question; empty
	// when it is with the workers.
	Status   string             `json:"status,omitzero"`
	Approval schemas.ApprovalID `json:"approval,omitzero"`
	Error    *schemas.Error     `json:"error,omitzero"`
}

func answerOf(got admission.Accepted) Answer {
	a := Answer{ID: got.Call.ID, Conversation: got.Call.Conversation}
	if got.Awaiting {
		a.Status, a.Approval = stateAwaiting, got.Call.Approval
	}
	return a
}

// Router carries what NATS clients publish on sandjet.calls.auto.<account> over to the calls.
//
// A publication that cannot be admitted becomes a call.rejected event on its conversation and ends
// among the dead letters with the reason. One that the router could not handle because a part was
// away is tried again, for a week. If the router dies between admitting a call and acknowledging the
// publication, it sees it again; a request that names an id is then the same call. One without an
// id gets an id made from its place on the log, so that it too is the same call.
type Router struct {
	Bus     *streams.Bus
	Records Records
	Log     *slog.Logger // nil: silent
	// Slots is how many publications are handled at a time. Default 64.
	Slots int
	// Grace is how long those in hand may take once Run's context has ended. Default 10 s.
	Grace time.Duration
	// Patience is how long a publication is tried before it is given up with call.rejected. Default
	// [PublicationKept].
	Patience time.Duration

	held    *holdups
	defects *defects
}

// Run carries calls over until ctx ends, then finishes what it has in hand and returns nil. Several
// routers share the work.
func (r Router) Run(ctx context.Context) error {
	const defaultSlots = 64
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	if r.Slots <= 0 {
		r.Slots = defaultSlots
	}
	r.Patience = orDefault(r.Patience, PublicationKept)
	r.held = &holdups{until: map[schemas.AccountID]time.Time{}}
	r.defects = &defects{met: map[publicationKey]int{}}
	o := streams.ConsumeOptions{
		Name: "intake", Turns: true, Slots: r.Slots, Grace: orDefault(r.Grace, defaultGrace), MaxAttempts: routerAttempts, MaxPending: routerPending,
	}
	former := o // what was published before the log was upgraded
	former.Name, former.Slots = "router", 1
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- streams.FormerIntake.Consume(ctx, r.Bus, former, r.route)
	}()
	err := streams.Intake.Consume(ctx, r.Bus, o, r.route)
	stop()
	return errors.Join(err, <-ended)
}

// route handles one publication; its error is the verdict.
func (r Router) route(ctx context.Context, d streams.Delivery[streams.Raw]) error {
	p := streams.Publication{Account: d.Account, Subject: d.Subject, Published: d.Published, Data: d.Value.Data, MsgID: streams.PublicationID(d.Headers)}
	age := r.Bus.Now().Sub(d.Published)
	if wait, try := r.held.ask(d.Account, time.Now()); !try && age < r.Patience {
		return streams.RetryAfter(wait, schemas.Errorf(schemas.Unavailable, "router", "calls of this account cannot be admitted now: that is tried again"))
	}
	inbox, inboxErr := replyInbox(d.Headers, d.Account)
	got, err := r.admit(ctx, d, p, inboxErr)
	if schemas.CodeOf(err).Retryable() {
		r.held.stop(d.Account, time.Now())
	} else {
		r.held.resume(d.Account)
	}
	switch verdictOf(err, r.Patience-age, r.defects.note(p, err)) {
	case routed:
		r.answer(ctx, d.Account, inbox, answerOf(got))
		return nil
	case routedBefore:
		return nil
	case rejectedBefore:
		return streams.GiveUp(err)
	case routeAgain: // the publisher is told when it is known how it ends
		return streams.RetryAfter(routeDelay(d.Attempt), err)
	case routeGivenUp:
		e := schemas.Public(err)
		err = schemas.Errorf(e.Code, "", "it could not be admitted for %s: %s", age.Round(time.Minute), e.Message)
	case routeRejected:
	}
	public := schemas.Public(err)
	if rerr := streams.Reject(ctx, r.Bus, p, public, streams.Certainty{Since: d.Arrived, Generation: d.Generation}); rerr != nil {
		return streams.RetryAfter(routeDelay(d.Attempt), rerr)
	}
	r.answer(ctx, d.Account, inbox, Answer{Error: public})
	return streams.GiveUp(err)
}

// admit admits the call of a publication. A defect of ours on the way is an error as any other.
func (r Router) admit(ctx context.Context, d streams.Delivery[streams.Raw], p streams.Publication, inboxErr error) (got admission.Accepted, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.Log.Error("a publication broke the router's code", "panic", v, "stack", string(debug.Stack()))
			err = schemas.Errorf(schemas.Internal, "", "it could not be handled")
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
		Bus: r.Bus, Records: handledBefore{r.Records, r.Bus, p, d.Attempt}, Kind: admission.NATS, Log: r.Log,
		Conversation: p.Conversation(), Since: p.Published,
	}
	return admitter.Admit(ctx, d.Account, req)
}

var (
	errRejectedBefore = schemas.Errorf(schemas.Conflict, "", "it was rejected before: its call.rejected says why")
	errAdmittedBefore = schemas.Errorf(schemas.Conflict, "", "it was admitted before")
)

// handledBefore are records that resolve a publication's request unless an earlier try got further than its
// acknowledgement: one that was rejected stays so, and one whose call the log no longer knows by its id
// must not become a second one. Only what is about to be admitted is looked up.
type handledBefore struct {
	Records

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
	if h.bus.Now().Sub(h.p.Published) > callsForgotten {
		then := call
		then.Accepted = h.p.Published
		switch state, err := streams.ReadCallState(ctx, h.bus, then); {
		case err != nil:
			return call, err
		case state.Accepted, len(state.Started) > 0, state.Result != nil:
			return call, errAdmittedBefore
		}
	}
	return call, nil
}

// routeVerdict is what becomes of a publication.
type routeVerdict string

const (
	routed         routeVerdict = "admitted"
	routedBefore   routeVerdict = "admitted before"
	rejectedBefore routeVerdict = "rejected before"
	routeAgain     routeVerdict = "again"    // a part is away
	routeRejected  routeVerdict = "rejected" // it can never be admitted
	routeGivenUp   routeVerdict = "given up" // nor could it for as long as it is tried
)

// publicationKey tells publications apart while they wait.
type publicationKey struct {
	subject   string
	published int64
}

// defects counts how often each publication has met an error of our own in this process. Put-backs for other reasons
// are none of it, however many. There are as many as publications that wait after such an error; when there are more
// than one router can have, as when others have ended theirs, all counts begin anew.
type defects struct {
	mu  sync.Mutex
	met map[publicationKey]int
}

// note counts one try and returns how many have met such an error.
func (d *defects) note(p streams.Publication, err error) int {
	key := publicationKey{p.Subject, p.Published.UnixNano()}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil || !passes(err):
		delete(d.met, key)
		return 0
	case schemas.CodeOf(err) == schemas.Internal:
		if len(d.met) >= routerPending {
			clear(d.met)
		}
		if d.met[key]++; d.met[key] >= defectAttempts { // it ends here
			defer delete(d.met, key)
		}
	}
	return d.met[key]
}

// verdictOf is the whole rule of the router. What is away is waited for by age; an error of our own, which
// waiting rarely mends, by tries.
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
		return routeGivenUp
	}
	return routeAgain
}

// routeDelay is how long a publication stays away that could not be admitted: longer each time, and not all
// at once.
func routeDelay(attempt int) time.Duration {
	return wait.Backoff{First: time.Second, Most: 30 * time.Second}.After(attempt)
}

// holdups remembers the accounts whose calls cannot be admitted now, so that one of them is tried each
// second and the rest, thousands perhaps, costs nobody a place.
type holdups struct {
	mu    sync.Mutex
	until map[schemas.AccountID]time.Time // when one is tried next
}

// holdupProbe is the time between two tries for an account that is held up.
const holdupProbe = time.Second

// ask reports whether a publication of an account is to be tried now, and if not when.
func (h *holdups) ask(a schemas.AccountID, now time.Time) (away time.Duration, try bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, held := h.until[a]
	if !held {
		return 0, true
	}
	if now.Before(until) {
		return until.Sub(now) + wait.Upto(4*holdupProbe), false
	}
	h.until[a] = now.Add(holdupProbe) // this one shows whether the rest can go on
	return 0, true
}

func (h *holdups) stop(a schemas.AccountID, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until[a] = now.Add(holdupProbe)
}

func (h *holdups) resume(a schemas.AccountID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, a)
}

// answer tells the publisher, if it named an inbox. It is a courtesy: the result is on the
// conversation, and an answer that is lost changes nothing.
func (r Router) answer(ctx context.Context, account schemas.AccountID, inbox string, a Answer) {
	if inbox == "" {
		return
	}
	b, err := json.Marshal(a)
	if err == nil {
		err = r.Bus.Reply(ctx, account, inbox, b)
	}
	if err != nil {
		r.Log.Info("a publisher could not be answered", "error", err)
	}
}

// passes reports whether the same publication may be admitted later as it is.
func passes(err error) bool {
	switch c := schemas.CodeOf(err); c {
	case schemas.Timeout, schemas.Interrupted, schemas.Internal:
		return true
	default:
		return c.Retryable()
	}
}

// replyInbox reads the inbox that the publisher wants its answer in. Only its own may be named:
// the router may publish anywhere, and must not be made to do so for somebody else.
func replyInbox(h streams.Headers, a schemas.AccountID) (string, error) {
	return checkInbox(h.Get(HeaderReply), a)
}

func checkInbox(inbox string, a schemas.AccountID) (string, error) {
	const most = 256
	if inbox == "" {
		return "", nil
	}
	rest, ok := strings.CutPrefix(inbox, "_INBOX.")
	for _, own := range []string{streams.ReplyPrefix(a) + ".", "_INBOX_" + string(a) + "."} {
		if tail, is := strings.CutPrefix(inbox, own); is {
			rest, ok = tail, true
		}
	}
	bad := strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r > '~' })
	if !ok || rest == "" || bad || len(inbox) > most || slices.Contains(strings.Split(rest, "."), "") {
		return "", schemas.Invalidf(HeaderReply, "must be an inbox of your own: _INBOX.… or %s.… without wildcards", streams.ReplyPrefix(a))
	}
	return inbox, nil
}
