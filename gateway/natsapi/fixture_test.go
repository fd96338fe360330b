package natsapi_test

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	alice schemas.AccountID = "acct_alice"
	bob   schemas.AccountID = "acct_bob"
)

// book is the records of a test: two accounts whose calls go to the provider "fake".
type book struct{}

func (book) Resolve(_ context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	if a != alice && a != bob {
		return schemas.Call{}, &schemas.Error{Code: schemas.NotFound, Field: "account", Message: "there is no account " + string(a)}
	}
	if r.Sandbox != "" {
		return schemas.Call{}, &schemas.Error{Code: schemas.NotFound, Field: "sandbox", Message: "there is no sandbox " + r.Sandbox}
	}
	now := time.Now().UTC()
	if !r.Deadline.IsZero() && !r.Deadline.After(now) {
		return schemas.Call{}, schemas.Invalidf("deadline", "has passed")
	}
	c := schemas.Call{
		ID: r.ID, Account: a, Conversation: r.Conversation, Tool: r.Tool, Input: r.Input, Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour),
		Origin: r.Origin, Group: r.Group, TraceParent: r.TraceParent, Digest: r.Digest(), Misuse: r.Misuse(),
	}
	if c.ID == "" {
		c.ID = schemas.NewCallID()
	}
	if c.Conversation == "" {
		c.Conversation = schemas.NewConversationID()
	}
	return c, nil
}
