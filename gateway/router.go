package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/admission"
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
	RejectedConversation schemas.ConversationID = "c_rejected"
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
// away is tried again. If the router dies between admitting a call and acknowledging the
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
	o := streams.ConsumeOptions{Name: "router", Slots: r.Slots, Grace: orDefault(r.Grace, defaultGrace)}
	return streams.Intake.Consume(ctx, r.Bus, o, r.route) //nolint:wrapcheck // it is coded already
}

// route handles one publication; its error is the verdict.
func (r Router) route(ctx context.Context, d streams.Delivery[streams.Raw]) error {
	const again = time.Second
	inbox, inboxErr := replyInbox(d.Headers, d.Account)
	req, err := schemas.DecodeRequest(d.Value.Data)
	if err == nil {
		err = inboxErr
	}
	var got admission.Accepted
	if err == nil {
		if req.ID == "" {
			req.ID = placeID(d)
		}
		const longest = 128
		if trace := d.Headers.Get("traceparent"); req.TraceParent == "" && len(trace) <= longest {
			req.TraceParent = trace
		}
		door := admission.Door{Bus: r.Bus, Records: r.Records, Kind: admission.NATS, Log: r.Log}
		got, err = door.Admit(ctx, d.Account, req)
	}
	switch {
	case err == nil:
		r.answer(ctx, d.Account, inbox, answerOf(got))
		return nil
	case passes(err):
		return streams.RetryAfter(again, err) // the publisher is told when it is known how it ends
	}
	public := schemas.Public(err)
	if rerr := r.reject(ctx, d, public); rerr != nil {
		return rerr
	}
	r.answer(ctx, d.Account, inbox, Answer{Error: public})
	return err
}

// reject tells the conversation, if one can be read from the request, that it was refused.
func (r Router) reject(ctx context.Context, d streams.Delivery[streams.Raw], why *schemas.Error) error {
	var seen struct {
		ID           schemas.CallID         `json:"id"`
		Conversation schemas.ConversationID `json:"conversation"`
	}
	if json.Unmarshal(d.Value.Data, &seen) != nil || seen.Conversation.Validate() != nil {
		seen.Conversation = RejectedConversation
	}
	if seen.ID.Validate() != nil {
		seen.ID = ""
	}
	c := schemas.Call{ID: seen.ID, Account: d.Account, Conversation: seen.Conversation}
	e := schemas.NewEvent(c, schemas.CallRejected, string(d.Account)+"."+string(placeID(d))+".rejected", d.Published,
		schemas.RejectedData{Call: seen.ID, Error: why})
	return streams.Events.Publish(ctx, r.Bus, e) //nolint:wrapcheck // it is coded already
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

// placeID names the call of a publication that names none itself. It is made from what does not
// change when the publication is handed out again.
func placeID(d streams.Delivery[streams.Raw]) schemas.CallID {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%d\x00", d.Subject, d.Published.UnixNano())
	h.Write(d.Value.Data)
	return schemas.CallID(schemas.CallPrefix + hex.EncodeToString(h.Sum(nil)[:13]))
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
	for _, own := range []string{streams.AccessOf(a).InboxPrefix + ".", "_INBOX_" + string(a) + "."} {
		if tail, is := strings.CutPrefix(inbox, own); is {
			rest, ok = tail, true
		}
	}
	bad := strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r > '~' })
	if !ok || rest == "" || bad || len(inbox) > most || slices.Contains(strings.Split(rest, "."), "") {
		return "", schemas.Invalidf(HeaderReply, "must be an inbox of your own: _INBOX.… or %s.… without wildcards", streams.AccessOf(a).InboxPrefix)
	}
	return inbox, nil
}
