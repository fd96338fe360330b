package gateway

import (
	"cmp"
	"context"
	"net/http"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/e2b"
	"github.com/sandjet/sandjet/gateway/files"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// newE2B makes the handlers for the client of E2B.
func newE2B(g *Gateway) *e2b.Facade {
	config := g.Sandboxes.Spec.Config
	return e2b.New(e2b.Options{
		Sessions: g.sandbox, Calls: e2bCalls{sandboxCalls{g}}, Files: files.New(files.Options{
			Bus: g.Bus, Workspace: g.Workspace, Stream: g.e2bTransfer,
		}),
		Credentials: g.credentials, Log: g.Log, Now: g.Bus.Now, Network: config.Network.Mode, Memory: config.MemoryLimit,
		Stall: g.Stall, Draining: g.draining,
		TakeWait: func(w http.ResponseWriter, a schemas.AccountID) (func(), error) {
			place, err := g.takeWait(w, a)
			if err != nil {
				return nil, err
			}
			return place.Release, nil
		},
	})
}

// EndSandboxes ends sandboxes of the client of E2B whose time is over, and finishes destroying sessions of /v1/sandbox, until ctx ends.
func (g *Gateway) EndSandboxes(ctx context.Context) error { return g.sandbox.EndExpired(ctx) }

// e2bTransfer is fileTransfer for who has the token of a sandbox in the place of a key.
func (g *Gateway) e2bTransfer(w http.ResponseWriter, r *http.Request, a schemas.AccountID) (
	ctx context.Context, release func(), err error,
) {
	place, err := g.takeWait(w, a)
	if err != nil {
		return nil, nil, err
	}
	web.HoldOf(r.Context()).Release()
	ctx, end := g.credentials.WhileGood(r.Context(), credentials.Principal{Account: a, Key: e2b.KeyOf(r.Context())})
	return ctx, func() { end(); place.Release() }, nil
}

// e2bCalls carries out the commands of sandboxes.
type e2bCalls struct{ sandboxCalls }

var _ e2b.Calls = e2bCalls{}

// Ended implements [e2b.Calls].
func (c e2bCalls) Ended(ctx context.Context, call schemas.Call) (bool, error) {
	state, err := c.g.awaitCall(ctx, call, 0)
	over := false
	if err == nil {
		over, err = lifecycle.Forgotten(ctx, c.g.Bus, &state)
	}
	return over || state.Result != nil, err
}

// Follow implements [e2b.Calls]. An event that is large counts as an answer that is not read until the next one is large, or each says
// that it was the last. One that there is no room for is left on the log, and read again.
func (c e2bCalls) Follow(ctx context.Context, call schemas.Call, each func(e schemas.Event, gap bool) error) error {
	var (
		room  *quota.Place
		after schemas.Cursor
		gap   bool // before the event that is read again
	)
	defer func() { room.Release() }()
	for try := 1; ; try++ {
		full := false
		for item, err := range streams.Follow(ctx, c.g.Bus, call.Account, call.Conversation, after) {
			if err != nil {
				return err
			}
			gap = gap || item.Gap != nil && (item.Kind != streams.ItemAttached || after != schemas.Cursor{})
			if item.Kind != streams.ItemEvent {
				continue
			}
			if n := len(item.Entry.Value.Data); n > web.SmallAnswer {
				room.Release() // what was taken before is written by now, or soon
				var why quota.Full
				if room, why = c.g.edge.Holds.Answers.TakeMany(call.Account, c.g.edge.Holds.Answers.Fit(int64(n))); why != quota.Free {
					full = true
					break
				}
			}
			if err := each(item.Entry.Value, gap); err != nil {
				return err
			}
			after, gap, try = item.Entry.Cursor, false, 0
		}
		if !full || !betweenLooks.Sleep(ctx, try) {
			return nil
		}
	}
}

// Inside implements [e2b.Calls].
func (c e2bCalls) Inside(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) ([]schemas.CallID, []schemas.JobID, error) {
	return c.g.inside(ctx, schemas.Instance{Account: a, Provider: s.Provider, Sandbox: s.Sandbox, Workspace: s.Workspace})
}

// Job implements [e2b.Calls].
func (c e2bCalls) Job(ctx context.Context, a schemas.AccountID, id schemas.JobID) (schemas.Job, error) {
	p, err := lifecycle.FindJob(ctx, c.g.Bus, a, id)
	return p.Value, err
}

// e2bLogPage is the most bytes of a job's log that are read at a time.
const e2bLogPage = 64 << 10

// Control implements [e2b.Calls].
func (c e2bCalls) Control(ctx context.Context, cmd schemas.JobCommand) (schemas.JobReply, error) {
	if cmd.Action == schemas.JobActionLogs { // no more than one event shows, and is counted with
		cmd.Limit = min(cmp.Or(cmd.Limit, schemas.MaxJobLogPage), e2bLogPage)
	}
	return lifecycle.ControlJob(ctx, c.g.Bus, cmd)
}
