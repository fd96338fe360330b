package gateway_test

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// The clock of the gateway's host is a day ahead of the log's: nobody's time to answer is shorter for it.
func TestAGatewayWhoseClockIsAheadEndsNoApprovalBeforeItsTime(t *testing.T) {
	natstest.Hours(t)
	for range 2 { // what the NATS client's pool of timers keeps survives one collection
		runtime.GC()
	}
	const ahead = 24 * time.Hour
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&gateway.ApprovalSweeper{Bus: b}).Run(ctx) }()
		admitter := admission.Admitter{Bus: b, Records: behind{ahead: ahead}, Kind: admission.API}
		got, err := admitter.Admit(t.Context(), alice, schemas.Request{ID: "one", Conversation: "c", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := lifecycle.FindApproval(t.Context(), b, alice, got.Call.Approval)
		if err != nil || p.Value.Expires.After(b.Now().Add(schemas.DefaultApproval)) {
			t.Fatalf("%+v, %v", p.Value, err)
		}
		time.Sleep(schemas.DefaultApproval - time.Minute)
		if p, err = lifecycle.FindApproval(t.Context(), b, alice, got.Call.Approval); err != nil || p.Value.State != schemas.ApprovalPending {
			t.Errorf("before its time it is %s, %v", p.Value.State, err)
		}
		time.Sleep(2 * time.Minute)
		if p, err = lifecycle.FindApproval(t.Context(), b, alice, got.Call.Approval); err != nil || p.Value.State != schemas.ApprovalExpired {
			t.Errorf("after its time it is %s, %v", p.Value.State, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}, func(_ *streams.ServerOptions, o *streams.Options) {
		o.LogClock = func() time.Time { return time.Now().Add(-ahead) }
	})
}

// behind resolves as strict does, by a clock that is right where the host's is ahead.
type behind struct {
	strict
	ahead time.Duration
}

func (r behind) Resolve(ctx context.Context, a schemas.AccountID, req schemas.Request) (schemas.Call, error) {
	c, err := r.strict.Resolve(ctx, a, req)
	c.Accepted, c.Deadline = c.Accepted.Add(-r.ahead), c.Deadline.Add(-r.ahead)
	return c, err
}
