package client_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

const account = schemas.AccountID("acct_nats")

// book resolves every request to the same sandbox.
type book struct{}

func (book) Authenticate(context.Context, string) (schemas.AccountID, error) { return account, nil }

func (book) Resolve(_ context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	now := time.Now().UTC()
	if r.Conversation == "" {
		r.Conversation = "c_new"
	}
	return schemas.Call{
		ID: r.ID, Account: a, Conversation: r.Conversation, Tool: r.Tool, Input: r.Input, Provider: "fake", Workspace: "ws_1",
		Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour), Digest: r.Digest(),
	}, nil
}

// doors starts a log with both front doors of NATS, and connects to it as the account.
func doors(t *testing.T) (*client.NATS, *streams.Bus) {
	t.Helper()
	log := natstest.Start(t, natstest.Listen(natsauth.User{Name: "me", Password: "mine", Account: account}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2)
	quiet := slog.New(slog.DiscardHandler)
	go func() { ended <- natsapi.IntakeConsumer{Bus: log.Bus, Records: book{}, Log: quiet}.Run(ctx) }()
	go func() { ended <- natsapi.Service{Bus: log.Bus, Records: book{}, Log: quiet}.Run(ctx) }()
	conn, err := nats.Connect(log.Server.URL(), nats.UserInfo("me", "mine"), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("a front door: %v", err)
			}
		}
	})
	return client.NewNATS(conn, account), log.Bus
}

// eventually tries until it succeeds: the doors open in their own time.
func eventually[T any](t *testing.T, f func() (T, error)) T {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		v, err := f()
		if err == nil {
			return v
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestNATSPublishes(t *testing.T) {
	c, bus := doors(t)
	id, err := c.Publish(t.Context(), bash("true"))
	if err != nil || id == "" {
		t.Fatalf("%q, %v", id, err)
	}
	call := eventually(t, func() (schemas.Call, error) { return bus.Calls().Find(t.Context(), account, id) })
	if call.Tool != schemas.ToolBash || call.Account != account {
		t.Errorf("on the log is %+v", call)
	}
}

func TestNATSSubmits(t *testing.T) {
	c, _ := doors(t)
	r := bash("true")
	r.ID, r.Conversation = "mine-1", "chat"
	s := eventually(t, func() (client.State, error) { return c.Submit(t.Context(), r) })
	if s.ID != "mine-1" || s.Conversation != "chat" {
		t.Errorf("%+v", s)
	}
	if again, err := c.Submit(t.Context(), r); err != nil || again.ID != s.ID {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	r.Input = []byte(`{"command":"false"}`)
	if _, err := c.Submit(t.Context(), r); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("the id with other content: %v, want a conflict", err)
	}
	if _, err := c.Submit(t.Context(), schemas.Request{Tool: "zsh"}); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("an unknown tool: %v, want invalid", err)
	}
}

func TestNATSOfAnotherAccountIsNotAnswered(t *testing.T) {
	log := natstest.Start(t, natstest.Listen(natsauth.User{Name: "me", Password: "mine", Account: account}))
	conn, err := nats.Connect(log.Server.URL(), nats.UserInfo("me", "mine"), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	c := client.NewNATS(conn, "acct_other")
	if id, err := c.Publish(ctx, bash("true")); err == nil || id == "" {
		t.Errorf("%q, %v: want the id and an error", id, err)
	}
}

func TestNATSAnswersApprovals(t *testing.T) {
	t.Parallel()
	log := natstest.Start(t, natstest.Listen(natsauth.User{Name: "me", Password: "mine", Account: account}))
	conn, err := nats.Connect(log.Server.URL(), nats.UserInfo("me", "mine"), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- natsapi.Service{Bus: log.Bus, Records: asking{}}.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the front door: %v", err)
		}
	}()
	c := client.NewNATS(conn, account)
	ask := func(id schemas.CallID) schemas.ApprovalID {
		t.Helper()
		r := bash("true")
		r.ID, r.Conversation = id, "chat"
		s := eventually(t, func() (client.State, error) { return c.Submit(t.Context(), r) })
		if s.Approval == "" || s.Status != "awaiting_approval" {
			t.Fatalf("%+v", s)
		}
		return s.Approval
	}
	one, two, three := ask("one"), ask("two"), ask("three")
	list, err := c.Approvals().List(t.Context(), client.ApprovalsQuery{State: schemas.ApprovalPending, Conversation: "chat"})
	if err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if a, err := c.Approvals().Get(t.Context(), one); err != nil || a.Call.ID != "one" || string(a.Call.Input) != string(bash("true").Input) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Approvals().Approve(t.Context(), one, "fine"); err != nil || a.State != schemas.ApprovalApproved || a.Reason != "fine" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.Approvals().Deny(t.Context(), one, ""); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("a second answer: %v", err)
	}
	if a, err := c.Approvals().Deny(t.Context(), two, "no"); err != nil || a.State != schemas.ApprovalDenied {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Approvals().ApproveAll(t.Context(), three, ""); err != nil || a.Remember != schemas.RememberConversation {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.Approvals().Get(t.Context(), "appr_none"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}

// asking is book with a person who must allow each call.
type asking struct{ book }

func (asking) Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c, err := book{}.Resolve(ctx, a, r)
	c.Approval = schemas.NewApprovalID()
	return c, err
}
