package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/instances"
	"github.com/sandjet/sandjet/gateway/sandboxapi"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// Defaults of [Sandboxes].
const (
	DefaultSandboxSessions = 50
	defaultSandboxWait     = 10 * time.Second
)

// Sandboxes are the settings of /v1/sandbox.
type Sandboxes struct {
	// Store stores the sessions. Nil: the routes answer unsupported.
	Store sandboxapi.Store
	// Spec is the spec of the sandboxes of new sessions; its provider is their backend.
	Spec schemas.SandboxSpec
	// MaxSessions is how many sessions of an account may be active. Default [DefaultSandboxSessions].
	MaxSessions int
	// Wait is how long a request waits if too many sessions are active. Default 10 s.
	Wait time.Duration
}

// newSandboxes returns the handlers of /v1/sandbox.
func newSandboxes(g *Gateway) *sandboxapi.API {
	o := g.Sandboxes
	if o.MaxSessions <= 0 {
		o.MaxSessions = DefaultSandboxSessions
	}
	return sandboxapi.New(sandboxapi.Options{
		Calls: sandboxCalls{g}, Store: o.Store, Boxes: sandboxBoxes{g}, Log: g.Log, Now: g.Bus.Now, Spec: o.Spec,
		MaxSessions: o.MaxSessions, PlaceWait: orDefault(o.Wait, defaultSandboxWait), Draining: g.draining, Metrics: g.metrics.sandboxes(),
		TakeWait: func(w http.ResponseWriter, a schemas.AccountID) (func(), error) {
			place, err := g.takeWait(w, a)
			if err != nil {
				return nil, err
			}
			return place.Release, nil
		},
	})
}

// sandboxHandler is a handler that is called after authentication, with an account or the administrator.
type sandboxHandler func(w http.ResponseWriter, r *http.Request, c sandboxapi.Caller) error

// tenant wraps a handler with the authentication by an account's key or the administrator's.
func (g *Gateway) tenant(h sandboxHandler) web.Handler {
	own := g.authenticated(func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
		return h(w, r, sandboxapi.Caller{Account: a})
	})
	return func(w http.ResponseWriter, r *http.Request) error {
		if !g.accounts.Administers(r) {
			return own(w, r)
		}
		web.HoldOf(r.Context()).Administers()
		return h(w, r, sandboxapi.Caller{Admin: true})
	}
}

// sandboxRoutes returns the routes of package sandboxapi.
func (g *Gateway) sandboxRoutes() []route {
	s := g.sandbox
	keyed := func(h sandboxHandler) http.HandlerFunc { return g.edge.Handle(g.tenant(h)) }
	return []route{
		{http.MethodPost, "/v1/sandbox/execute", keyed(s.Execute)},
		{http.MethodPost, "/v1/sandbox/bash", keyed(s.Bash)},
		{http.MethodPost, "/v1/sandbox/read", keyed(s.Read)},
		{http.MethodPost, "/v1/sandbox/read_binary", keyed(s.ReadBinary)},
		{http.MethodPost, "/v1/sandbox/write", keyed(s.Write)},
		{http.MethodPost, "/v1/sandbox/grep", keyed(s.Grep)},
		{http.MethodPost, "/v1/sandbox/glob", keyed(s.Glob)},
		{http.MethodPost, "/v1/sandbox/ls", keyed(s.LS)},
		{http.MethodGet, "/v1/sandbox/sessions", keyed(s.Sessions)},
		{http.MethodDelete, "/v1/sandbox/sessions/{tenant}/{session}", keyed(s.Destroy)},
		{http.MethodPost, "/v1/sandbox/sessions/{tenant}/{session}/copy", keyed(s.Copy)},
	}
}

// sandboxCalls executes the calls of sessions.
type sandboxCalls struct{ g *Gateway }

// Submit implements [sandboxapi.Calls].
func (c sandboxCalls) Submit(ctx context.Context, a schemas.AccountID, r schemas.Request, waiting time.Duration) (schemas.Call, error) {
	body, err := schemas.EncodeJSON(r)
	if err != nil {
		return schemas.Call{}, schemas.Invalidf("", "cannot be encoded")
	}
	if r, err = schemas.DecodeRequest(body); err == nil { // as strictly as what comes in by itself
		err = r.Validate() // no model has written it: who did reads the error of the request
	}
	if err != nil {
		return schemas.Call{}, err
	}
	with := c.g.calls.Admitter(admission.API)
	with.Records = hurried{with.Records, waiting}
	got, err := c.g.calls.Admit(ctx, with, a, r)
	if errors.Is(err, schemas.ErrConflict) && schemas.Public(err).Field == "id" {
		err = &schemas.Error{
			Code: schemas.Conflict, Field: "Idempotency-Key",
			Message: "was sent with another request in this session: use a new one for a new request",
		}
	}
	return got.Call, err
}

// hurried wraps Records: the calls that it resolves may wait only for some time. The deadline is not part of the client's request, so that
// a repeated request is the same call.
type hurried struct {
	admission.Records

	waiting time.Duration
}

// Resolve implements [admission.Records].
func (h hurried) Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c, err := h.Records.Resolve(ctx, a, r)
	if err == nil {
		c.Deadline = c.Accepted.Add(h.waiting + time.Duration(c.Timeout))
	}
	return c, err
}

// Find implements [sandboxapi.Calls].
func (c sandboxCalls) Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	return c.g.calls.Find(ctx, a, id)
}

// Await implements [sandboxapi.Calls].
func (c sandboxCalls) Await(ctx context.Context, call schemas.Call, within time.Duration) (*schemas.Result, error) {
	state, err := c.g.calls.Await(ctx, call, within)
	if err == nil {
		err = c.g.calls.Kept(ctx, &state)
	}
	return state.Result, err
}

// Cancel implements [sandboxapi.Calls].
func (c sandboxCalls) Cancel(ctx context.Context, call schemas.Call, reason string) error {
	return c.g.calls.Cancel(ctx, call, admission.API, reason)
}

// sandboxBoxes reads and removes the instances of sessions.
type sandboxBoxes struct{ g *Gateway }

func (b sandboxBoxes) find(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) (i schemas.Instance, there bool, err error) {
	p, err := lifecycle.OpenInstances(b.g.Bus).Get(ctx, schemas.InstanceKey(s.Provider, a, s.Sandbox, s.Workspace))
	if errors.Is(err, schemas.ErrNotFound) {
		return i, false, nil
	}
	return p.Value, err == nil && !p.Deleted, err
}

// Look implements [sandboxapi.Boxes].
func (b sandboxBoxes) Look(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) (there, busy bool, err error) {
	i, there, err := b.find(ctx, a, s)
	if err != nil {
		return false, false, err
	}
	if !there { // a call may be about to make it
		i = schemas.Instance{Account: a, Provider: s.Provider, Sandbox: s.Sandbox, Workspace: s.Workspace}
	}
	calls, jobs, err := b.g.instances.Inside(ctx, i)
	return there, len(calls)+len(jobs) > 0, err
}

// State implements [sandboxapi.Boxes].
func (b sandboxBoxes) State(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) (
	state schemas.InstanceState, expires time.Time, err error,
) {
	i, there, err := b.find(ctx, a, s)
	if err != nil || !there {
		return "", expires, err
	}
	idle := b.g.Sandboxes.Store.Idle(a, s.Sandbox)
	used := i.Used
	if s.Used.After(used) {
		used = s.Used
	}
	if expires = used.Add(idle); !i.Deadline.IsZero() && i.Deadline.Before(expires) {
		expires = i.Deadline
	}
	return i.State, expires, nil
}

// Remove implements [sandboxapi.Boxes].
func (b sandboxBoxes) Remove(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession, force bool) error {
	const within = 20 * time.Second
	i, there, err := b.find(ctx, a, s)
	if err != nil {
		return err
	}
	if !there {
		if !force {
			return nil
		}
		return b.g.instances.CancelInside(ctx, schemas.Instance{Account: a, Provider: s.Provider, Sandbox: s.Sandbox, Workspace: s.Workspace})
	}
	if !force {
		if err := b.g.instances.MayWant(ctx, i, schemas.WantRemoved); err != nil {
			return err
		}
	}
	asked, err := lifecycle.WantInstance(ctx, b.g.Bus, i.Key(), schemas.WantRemoved)
	if errors.Is(err, schemas.ErrNotFound) { // it has ended meanwhile
		return nil
	}
	if err == nil && force {
		err = b.g.instances.CancelInside(ctx, asked)
		if err == nil {
			err = lifecycle.RemoveInstanceNow(ctx, b.g.Bus, asked)
		}
	}
	if err != nil {
		return err
	}
	if asked, err = b.g.instances.Await(ctx, asked, schemas.WantRemoved, within); err != nil {
		return err
	}
	if !instances.Reached(asked.State, schemas.WantRemoved) {
		return schemas.Errorf(schemas.Timeout, "the session's instance has not ended yet: its worker may be away; ask again")
	}
	return nil
}
