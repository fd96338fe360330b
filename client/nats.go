package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// NATS sends calls and decides approvals over plain NATS. It is safe for concurrent use.
//
// Any NATS client can do the same without this package: the subjects and the bodies are the whole contract, see docs/guides/first-call.md.
type NATS struct {
	conn    *nats.Conn
	account schemas.AccountID
}

// NewNATS returns a client on a connection that uses the account's credential: the user is the account's id, the password its key. The
// caller closes the connection.
func NewNATS(conn *nats.Conn, account schemas.AccountID) *NATS {
	return &NATS{conn: conn, account: account}
}

// Publish publishes a call and returns when the log has stored it: from then on it has exactly one result, on its conversation. It is
// admitted later; a request that cannot be admitted becomes a call.rejected event. Publish generates the id if there is none and returns
// it also with an error, so that the same call can be published again: it stays one call. Codes: invalid (too large for a message),
// exhausted (too many wait), unavailable.
func (n *NATS) Publish(ctx context.Context, r schemas.Request) (schemas.CallID, error) {
	if r.ID == "" {
		r.ID = schemas.NewCallID()
	}
	var ack struct {
		Stream string `json:"stream"`
		Error  *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := n.ask(ctx, "sandjet.calls.auto."+string(n.account), r, &ack); err != nil {
		return r.ID, err
	}
	switch {
	case ack.Error != nil:
		return r.ID, schemas.OpErrorf(schemas.Exhausted, "publish", "the log refuses the call (%s): publish it again later",
			schemas.Quotable(ack.Error.Description))
	case ack.Stream == "":
		return r.ID, schemas.OpErrorf(schemas.Unavailable, "publish", "what answered is not the log: is this the subject of your account?")
	}
	return r.ID, nil
}

// Submit sends a call and returns its id, conversation and whether it awaits an approval, or the error of its admission: the codes of the
// request's validation, conflict (the id belongs to another call), unavailable. It generates the id if there is none and returns it also
// with an error.
func (n *NATS) Submit(ctx context.Context, r schemas.Request) (State, error) {
	if r.ID == "" {
		r.ID = schemas.NewCallID()
	}
	var answer struct {
		ID           schemas.CallID         `json:"id"`
		Conversation schemas.ConversationID `json:"conversation"`
		Status       string                 `json:"status"`
		Approval     schemas.ApprovalID     `json:"approval"`
		Error        *schemas.Error         `json:"error"`
	}
	if err := n.ask(ctx, "sandjet.rpc.call."+string(n.account), r, &answer); err != nil {
		return State{ID: r.ID}, err
	}
	if answer.Error != nil {
		return State{ID: r.ID}, answer.Error
	}
	return State{ID: answer.ID, Conversation: answer.Conversation, Status: answer.Status, Approval: answer.Approval}, nil
}

func (n *NATS) ask(ctx context.Context, subject string, question, answer any) error {
	const op = "ask over NATS"
	body, err := json.Marshal(question)
	if err != nil {
		return schemas.Wrap(schemas.Invalid, op, "the request is no JSON", err)
	}
	m, err := n.conn.RequestWithContext(ctx, subject, body)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, ctx.Err())
	case errors.Is(err, nats.ErrMaxPayload):
		return schemas.Wrap(schemas.Invalid, op, "the request is larger than the server takes in one message: send it over HTTP", err)
	default:
		return schemas.Wrap(schemas.Unavailable, op, "nobody answers: is Sandjet running, and is this the connection of your account?", err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return schemas.Wrap(schemas.Unavailable, op, "the answer is not understood", err)
	}
	return nil
}
