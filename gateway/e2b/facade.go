package e2b

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Sessions stores the sandboxes. It must be safe for concurrent use.
type Sessions interface {
	// Make makes a sandbox; one that was made alike is that one. Codes: conflict, exhausted, unavailable, unsupported.
	Make(ctx context.Context, a schemas.AccountID, id string, lease schemas.SandboxLease) (schemas.SandboxSession, error)
	// Enter lets a request run something in a sandbox. Codes: not_found, exhausted, unavailable.
	Enter(ctx context.Context, a schemas.AccountID, id string) (schemas.SandboxSession, error)
	// Leased are an account's sandboxes that have not ended, by id.
	Leased(ctx context.Context, a schemas.AccountID) ([]schemas.SandboxSession, error)
	// Change changes the lease of a sandbox. change may be called more than once, and must not modify the maps and slices of the lease in
	// place. Codes: not_found, exhausted, unavailable, and the error of change.
	Change(ctx context.Context, a schemas.AccountID, id string, change func(l *schemas.SandboxLease) error) (schemas.SandboxSession, error)
	// Remove ends a sandbox with its commands, jobs and files, and waits for it. Code: not_found.
	Remove(ctx context.Context, a schemas.AccountID, id string) error
	// Touch marks a sandbox as used while a command runs in it.
	Touch(ctx context.Context, a schemas.AccountID, id string)
}

// Calls executes commands. It must be safe for concurrent use.
type Calls interface {
	// Submit admits a call that may wait for a worker for as long as waiting. If the request's id exists already, it returns that call.
	Submit(ctx context.Context, a schemas.AccountID, r schemas.Request, waiting time.Duration) (schemas.Call, error)
	// Find finds a call. Code: not_found.
	Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error)
	// Ended reports whether a call has its result.
	Ended(ctx context.Context, c schemas.Call) (bool, error)
	Cancel(ctx context.Context, c schemas.Call, reason string) error
	// Follow calls each with the events of a call's conversation, from the first on, until ctx is done or each returns an error, which it
	// then returns. gap reports that events before this one are missing.
	Follow(ctx context.Context, c schemas.Call, each func(e schemas.Event, gap bool) error) error
	// Inside lists the calls and jobs that run in a sandbox, a hundred of the calls at most.
	Inside(ctx context.Context, a schemas.AccountID, s schemas.SandboxSession) ([]schemas.CallID, []schemas.JobID, error)
	// Job finds a job. Code: not_found.
	Job(ctx context.Context, a schemas.AccountID, id schemas.JobID) (schemas.Job, error)
	// Control asks the worker of a job. Codes: conflict (it does not run), unavailable.
	Control(ctx context.Context, c schemas.JobCommand) (schemas.JobReply, error)
}

// Files reads and writes the files of workspaces.
type Files interface {
	// Get and Put answer a request for one file, whose path values "id" and "path" name it.
	Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error
	Put(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error
	// Do asks about files. Codes: those of the answer.
	Do(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID, q schemas.FileRequest) (schemas.FileReply, error)
}

// Options are the settings of a [Facade]. All are required.
type Options struct {
	Sessions    Sessions
	Calls       Calls
	Files       Files
	Credentials credentials.Verifier // with Keys
	Log         *slog.Logger
	Now         func() time.Time // the log's
	// Network is that of all sandboxes, and Memory their limit in MiB.
	Network schemas.NetworkMode
	Memory  int64
	// Stall is how long one write to a client may block.
	Stall time.Duration
	// Draining ends when the gateway is asked to stop.
	Draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	// TakeWait takes a slot for a request that waits or streams; done frees it. Codes: exhausted, unavailable.
	TakeWait func(w http.ResponseWriter, a schemas.AccountID) (done func(), err error)
}

// Facade has the handlers. It is safe for concurrent use.
type Facade struct {
	*base

	sandboxes controlPlane
	processes processes
	code      codeInterpreter
	files     filesystem
}

// New returns the handlers.
func New(o Options) *Facade {
	b := &base{o}
	return &Facade{b, controlPlane{b}, processes{b}, codeInterpreter{b}, filesystem{b}}
}

// base is what all handlers share.
type base struct{ Options }

// Route is one route. An empty Method means all methods.
type Route struct {
	Method, Path string
	Serve        web.Handler
}

// Routes returns all routes, including those that answer that something is not supported.
func (f *Facade) Routes() []Route {
	control, plain := f.control, func(h boxHandler) web.Handler { return f.inBox(h, writeError) }
	unary := func(h boxHandler) web.Handler { return f.inBox(h, writeRPCError) }
	stream := func(h boxHandler) web.Handler { return f.inBox(h, writeStreamError) }
	list := []Route{
		{http.MethodGet, "/v2/sandboxes", control(f.sandboxes.list)},
		{http.MethodGet, "/sandboxes", control(f.sandboxes.list)},
		{http.MethodGet, "/sandboxes/{id}", control(f.sandboxes.detail)},
		{http.MethodDelete, "/sandboxes/{id}", control(f.sandboxes.kill)},
		{http.MethodPost, "/sandboxes/{id}/timeout", control(f.sandboxes.timeout)},
		{http.MethodGet, "/health", plain(f.health)},
		{http.MethodGet, "/files", plain(f.files.read)},
		{http.MethodPost, "/files", plain(f.files.write)},
		{http.MethodPost, "/execute", plain(f.code.execute)},
		{http.MethodGet, "/contexts", plain(f.code.contexts)},
		{http.MethodPost, "/contexts", plain(f.code.createContext)},
		{http.MethodDelete, "/contexts/{context}", plain(f.code.removeContext)},
		{http.MethodPost, "/contexts/{context}/restart", plain(f.code.restartContext)},
		{http.MethodPost, "/process.Process/Start", stream(f.processes.start)},
		{http.MethodPost, "/process.Process/Connect", stream(f.processes.attach)},
		{http.MethodPost, "/process.Process/List", unary(f.processes.list)},
		{http.MethodPost, "/process.Process/SendInput", unary(f.processes.input)},
		{http.MethodPost, "/process.Process/CloseStdin", unary(f.processes.closeInput)},
		{http.MethodPost, "/process.Process/SendSignal", unary(f.processes.signal)},
		{http.MethodPost, "/filesystem.Filesystem/Stat", unary(f.files.stat)},
		{http.MethodPost, "/filesystem.Filesystem/ListDir", unary(f.files.listDir)},
		{http.MethodPost, "/filesystem.Filesystem/MakeDir", unary(f.files.makeDir)},
		{http.MethodPost, "/filesystem.Filesystem/Move", unary(f.files.move)},
		{http.MethodPost, "/filesystem.Filesystem/Remove", unary(f.files.remove)},
	}
	for _, prefix := range []string{"", "/v2"} { // clients before 2.30 have the former
		list = append(list, Route{http.MethodPost, prefix + "/sandboxes", control(f.sandboxes.create)},
			Route{http.MethodPost, prefix + "/sandboxes/{id}/connect", control(f.sandboxes.connect)})
	}
	for _, path := range []string{
		"/sandboxes/", "/v2/", "/v3/", "/snapshots", "/snapshots/", "/templates", "/templates/", "/volumes", "/volumes/", "/volumecontent/",
		"/secrets", "/secrets/", "/teams", "/teams/", "/contexts/",
	} {
		list = append(list, Route{"", path, unserved(writeError)})
	}
	return append(list, Route{"", "/process.Process/", unserved(writeRPCError)},
		Route{"", "/filesystem.Filesystem/", unserved(writeRPCError)})
}

// unserved returns a handler that answers that a route is not supported.
func unserved(say func(http.ResponseWriter, error)) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		say(w, unsupported(schemas.Quotable(r.Method+" "+r.URL.Path)+" is not served"))
		return nil
	}
}

// unsupported returns an error of the code unsupported, with a reference to the documentation.
func unsupported(what string) error {
	return schemas.Errorf(schemas.Unsupported, "%s: docs/guides/e2b.md of Sandjet lists what is served", what)
}

// keyPrefix precedes an API key, or its bytes in hex, for programs that accept only keys in E2B's format.
const keyPrefix = "e2b_"

func keyOf(header string) string {
	text, ok := strings.CutPrefix(header, keyPrefix)
	if b, err := hex.DecodeString(text); ok && err == nil {
		return string(b)
	}
	return text
}

// control wraps a handler of the control plane: it authenticates the request by its API key.
func (f *Facade) control(h func(w http.ResponseWriter, r *http.Request, a schemas.AccountID, key string) error) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key := keyOf(r.Header.Get("X-Api-Key"))
		a, err := f.Credentials.Authenticate(r.Context(), key)
		if key == "" {
			err = web.WithStatus(http.StatusUnauthorized, schemas.Errorf(schemas.Denied,
				"API key required: give the client Sandjet's API key as E2B_API_KEY"))
		}
		if err == nil {
			err = web.HoldOf(r.Context()).Enter(w, a)
		}
		if err == nil {
			err = h(w, r, a, key)
		}
		f.answer(w, r, err, writeError)
		return nil
	}
}

// box is the sandbox that a request addresses.
type box struct {
	account schemas.AccountID
	id      string
	key     attachtoken.Fingerprint // of the API key by which it was reached
	session schemas.SandboxSession
}

type boxHandler func(w http.ResponseWriter, r *http.Request, b *box) error

// inBox wraps a handler of requests to a sandbox: it authenticates the request by the sandbox's token, and finds the sandbox.
func (f *Facade) inBox(h boxHandler, say func(http.ResponseWriter, error)) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		b, err := f.open(r)
		if err == nil {
			err = web.HoldOf(r.Context()).Enter(w, b.account)
		}
		if err == nil {
			b.session, err = f.find(r.Context(), b)
		}
		if err == nil {
			err = h(w, r, b)
		}
		f.answer(w, r, err, say)
		return nil
	}
}

// answer writes the response for an error, if there is one. Internal errors are logged.
func (f *Facade) answer(w http.ResponseWriter, r *http.Request, err error, say func(http.ResponseWriter, error)) {
	if err == nil || r.Context().Err() != nil && !errors.Is(err, schemas.ErrDenied) {
		return // done, or no client listens any more
	}
	if public := schemas.Public(err); public.Code == schemas.Internal {
		f.Log.Warn("request failed", "request", w.Header().Get(web.HeaderRequestID), "route", r.Pattern, "error", err)
	}
	say(w, err)
}

// errGone is the error for a sandbox that does not exist (any more). Clients expect the status 502.
var errGone = web.WithStatus(http.StatusBadGateway,
	schemas.Errorf(schemas.NotFound, "the sandbox was not found: it was killed, or its time is over"))

// find returns the sandbox of a request, or errGone.
func (f *base) find(ctx context.Context, b *box) (schemas.SandboxSession, error) {
	list, err := f.Sessions.Leased(ctx, b.account)
	if err != nil {
		return schemas.SandboxSession{}, err
	}
	for _, s := range list {
		if s.ID == b.id {
			return s, nil
		}
	}
	return schemas.SandboxSession{}, errGone
}

// health answers 204 if the sandbox exists.
func (f *Facade) health(w http.ResponseWriter, _ *http.Request, _ *box) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}
