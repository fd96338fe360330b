package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/e2b"
	"github.com/sandjet/sandjet/gateway/files"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// newE2B returns the handlers for clients of E2B.
func newE2B(g *Gateway) *e2b.Facade {
	config := g.Sandboxes.Spec.Config
	return e2b.New(e2b.Options{
		Sessions: g.sandbox, Calls: e2bCalls{sandboxCalls{g}}, Files: files.New(files.Options{
			Bus: g.Bus, Workspace: g.Workspace, Stream: g.e2bTransfer, Transfers: g.files.Transfers(),
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

// EndSandboxes ends the sandboxes of E2B clients whose time is over, and finishes interrupted destructions of sessions of /v1/sandbox,
// until ctx is done.
func (g *Gateway) EndSandboxes(ctx context.Context) error { return g.sandbox.EndExpired(ctx) }

// e2bTransfer is fileTransfer for requests that are authenticated by the token of a sandbox.
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

// e2bCalls executes the commands of sandboxes.
type e2bCalls struct{ sandboxCalls }

var _ e2b.Calls = e2bCalls{}

// Ended implements [e2b.Calls].
func (c e2bCalls) Ended(ctx context.Context, call schemas.Call) (bool, error) {
	state, err := c.g.calls.Await(ctx, call, 0)
	over := false
	if err == nil {
		over, err = lifecycle.Forgotten(ctx, c.g.Bus, &state)
	}
	return over || state.Result != nil, err
}

// Follow implements [e2b.Calls]. A large event counts as an unread response until the next large one, or until each has returned an error.
// If there is no memory for an event, it stays on the log and is read again later.
func (c e2bCalls) Follow(ctx context.Context, call schemas.Call, each func(e schemas.Event, gap bool) error) error {
	f := e2bFollower{c.g, call, each, nil, schemas.Cursor{}, false}
	defer func() { f.room.Release() }()
	between := wait.Backoff{First: 250 * time.Millisecond, Most: time.Second}
	for try := 1; ; try++ {
		from := f.after
		full, err := f.read(ctx)
		if err != nil || !full {
			return err
		}
		if f.after != from {
			try = 1
		}
		if !between.Sleep(ctx, try) {
			return nil
		}
	}
}

// e2bFollower is a reader of a conversation and its position.
type e2bFollower struct {
	g     *Gateway
	call  schemas.Call
	each  func(e schemas.Event, gap bool) error
	room  *quota.Place
	after schemas.Cursor
	gap   bool // before the event that is read next
}

// read reads until ctx is done or each returns an error; full is true if it ended because there was no memory for an event.
func (f *e2bFollower) read(ctx context.Context) (full bool, err error) {
	for item, err := range streams.Follow(ctx, f.g.Bus, f.call.Account, f.call.Conversation, f.after) {
		if err != nil {
			return false, err
		}
		f.gap = f.gap || item.Gap != nil && (item.Kind != streams.ItemAttached || f.after != schemas.Cursor{})
		if item.Kind != streams.ItemEvent {
			continue
		}
		if !f.makeRoom(int64(len(item.Entry.Value.Data))) {
			return true, nil
		}
		if err := f.each(item.Entry.Value, f.gap); err != nil {
			return false, err
		}
		f.after, f.gap = item.Entry.Cursor, false
	}
	return false, nil
}

// makeRoom reserves memory for an event, and releases that of the event before, which has been written or soon will be. It returns false
// if there is none.
func (f *e2bFollower) makeRoom(n int64) bool {
	if n <= web.SmallAnswer {
		return true
	}
	f.room.Release()
	var why quota.Full
	answers := f.g.edge.Holds.Answers
	f.room, why = answers.TakeMany(f.call.Account, answers.Fit(n))
	return why == quota.Free
}

// Inside implements [e2b.Calls].
func (c e2bCalls) Inside(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) ([]schemas.CallID, []schemas.JobID, error) {
	return c.g.instances.Inside(ctx, schemas.Instance{Account: a, Provider: s.Provider, Sandbox: s.Sandbox, Workspace: s.Workspace})
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
