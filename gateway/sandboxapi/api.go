package sandboxapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Calls submits calls and reads their results. It must be safe for concurrent use.
type Calls interface {
	// Submit admits a call whose deadline is waiting plus its timeout. If the request's id exists already, it returns that call.
	Submit(ctx context.Context, a schemas.AccountID, r schemas.Request, waiting time.Duration) (schemas.Call, error)
	// Find finds a call. Code: not_found.
	Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error)
	// Await returns the result of a call, nil when it has none within a time, or when the gateway is asked to stop.
	Await(ctx context.Context, c schemas.Call, within time.Duration) (*schemas.Result, error)
	Cancel(ctx context.Context, c schemas.Call, reason string) error
}

// Store stores the sessions and their records. It must be safe for concurrent use.
type Store interface {
	Get(ctx context.Context, a schemas.AccountID) (schemas.SandboxSessions, error)
	// All must answer without a round trip.
	All() []schemas.SandboxSessions
	// Change may call change several times. Code: not_found (there is no such account).
	Change(ctx context.Context, a schemas.AccountID, change func(*schemas.SandboxSessions) error) (
		schemas.SandboxSessions, error)
	// Ensure makes the records of a session if they do not exist. It must answer without a round trip if they do.
	Ensure(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession, spec schemas.SandboxSpec) error
	// Reopen makes calls possible again in a session that is being destroyed. If its workspace was removed already, it does nothing and
	// returns false.
	Reopen(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession, spec schemas.SandboxSpec) (there bool, err error)
	Remove(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) error
	// Idle is when unused instances of a sandbox end. It must answer without a round trip.
	Idle(a schemas.AccountID, id schemas.SandboxID) time.Duration
	// SandboxOf is the id of the sandbox of an account's sessions at a provider.
	SandboxOf(a schemas.AccountID, provider string) schemas.SandboxID
}

// Boxes reads and ends the sandbox instances of sessions.
type Boxes interface {
	// Look reports whether a session has an instance, and whether a call or job runs in it.
	Look(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) (there, busy bool, err error)
	// State returns the state of the instance, empty if there is none, and when it expires.
	State(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) (state schemas.InstanceState, expires time.Time, err error)
	// Remove ends the instance and waits for that; with force also the calls and jobs in it. It succeeds if there is none. Codes: conflict
	// (something runs in it), timeout.
	Remove(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession, force bool) error
}

// Metrics are callbacks. All are required.
type Metrics struct {
	// Executed is called for each request that ran something, with its outcome: ok, failed, timed_out, a status or a code.
	Executed func(backend, tool, outcome string, took time.Duration)
	// Started is called for the first request of a session that had no instance, with the time until it ran.
	Started func(took time.Duration)
	Evicted func(reason string)
	// Artifacts is called with how many artifacts a request has shown.
	Artifacts func(n int)
}

// Options are the settings of an [API].
type Options struct {
	Calls Calls
	Store Store // nil: everything is answered unsupported
	Boxes Boxes
	Log   *slog.Logger
	Now   func() time.Time // the log's
	// Spec is the spec of the sandboxes of new sessions; its provider is the backend.
	Spec schemas.SandboxSpec
	// MaxSessions is how many sessions of an account may be active.
	MaxSessions int
	// PlaceWait is how long a request waits if too many sessions are active.
	PlaceWait time.Duration
	// Draining ends when the gateway is asked to stop.
	Draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	// TakeWait takes a slot for a request that waits; done frees it. Codes: exhausted, unavailable.
	TakeWait func(w http.ResponseWriter, a schemas.AccountID) (done func(), err error)
	Metrics  Metrics
}

// API has the handlers. It is safe for concurrent use.
type API struct{ *sessions }

// New returns the handlers.
func New(o Options) *API { return &API{&sessions{Options: o}} }

// sessions is the part that all handlers share: it makes, enters, ends and destroys sessions.
type sessions struct {
	Options

	looking sync.Map // accounts for which a request is making room
}

// Caller is the sender of a request: an account, or the administrator, who may act for any account.
type Caller struct {
	Account schemas.AccountID
	Admin   bool
}

func (a *sessions) ready() error {
	if a.Store == nil || a.Spec.Config.Provider == "" {
		return schemas.Errorf(schemas.Unsupported, "this gateway serves no sandbox sessions")
	}
	return nil
}

// stopping reports whether the gateway is shutting down.
func (a *sessions) stopping() bool { return a.Draining.Err() != nil }

// ActiveSessions returns how many sessions of all accounts count towards their limits. It needs no round trip.
func (a *sessions) ActiveSessions() int {
	n := 0
	if a.Store != nil {
		for _, l := range a.Store.All() {
			n += active(l.Sessions)
		}
	}
	return n
}

// tenantOf returns the account of the session that a body names: the key's own account, or the one that the administrator names. Codes:
// invalid, denied.
func tenantOf(c Caller, named schemas.AccountID) (schemas.AccountID, error) {
	switch {
	case c.Admin && named == "":
		return "", schemas.Invalidf("tenant_id", "is missing: name the account whose session is meant")
	case c.Admin:
		return named, named.Validate()
	case named != "" && named != c.Account:
		return "", &schemas.Error{Code: schemas.Denied, Field: "tenant_id", Message: "is not the account of the key: leave it out"}
	}
	return c.Account, nil
}

// body decodes a request's body into q.
func body(w http.ResponseWriter, r *http.Request, q any) error { return web.DecodeBody(w, r, false, q) }

// begin validates the common fields of a request, takes a slot for it, and enters the session. The caller must call done.
func (a *API) begin(w http.ResponseWriter, r *http.Request, caller Caller, tool string, c common) (x *execution, done func(), err error) {
	if err := a.ready(); err != nil {
		return nil, nil, err
	}
	tenant, err := tenantOf(caller, c.tenant)
	if err == nil {
		err = checkCommon(c)
	}
	if err != nil {
		return nil, nil, err
	}
	return a.open(w, r, tenant, c.session, tool, c.timeout)
}

func (a *API) open(w http.ResponseWriter, r *http.Request, tenant schemas.AccountID, session, tool string, timeoutMS *int) (
	x *execution, done func(), err error,
) {
	key, err := checkKey(r.Header)
	if err != nil {
		return nil, nil, err
	}
	done, err = a.TakeWait(w, tenant)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	x = &execution{api: a.sessions, tenant: tenant, key: key, tool: tool, began: began}
	if timeoutMS != nil {
		x.timeout = time.Duration(*timeoutMS) * time.Millisecond
	}
	x.session.ID = session
	if err := x.enter(r.Context()); err != nil {
		done()
		return nil, nil, full(w, err)
	}
	w.Header().Set("Location", "/v1/calls/"+string(x.id(1)))
	return x, done, nil
}

// full writes the answer 429 if err is a [fullError], and then returns errAnswered; any other error is returned as it is.
func full(w http.ResponseWriter, err error) error {
	var f *fullError
	if !errors.As(err, &f) {
		return err
	}
	web.Later(w.Header())
	web.WriteJSON(w, http.StatusTooManyRequests, TooManySessions{TooManySessionsError{
		Code: "max_sessions", Limit: f.limit, Active: f.active,
		Message: "the account has " + strconv.Itoa(f.active) + " active sessions, the most it may: destroy one, or wait until one is idle",
	}})
	return errAnswered
}

// errAnswered is returned if the response is written already.
var errAnswered = errors.New("answered")

// answered returns nil if the handler has written its answer itself.
func answered(err error) error {
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}
