// Package instances serves the instances of sandboxes: what is in them, and requests to pause, resume and remove them.
package instances

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Limits of what a search for instances gives.
const (
	DefaultPage = 50  // instances of one answer
	MaxPage     = 500 // the most of one answer
)

// List is the response with an account's instances, by sandbox and workspace.
type List struct {
	Instances []schemas.InstanceDocument `json:"instances"`
	// More reports that there are others, or that the search ended early.
	More bool `json:"more"`
}

// Calls are the operations on calls that instances need.
type Calls interface {
	// Running returns the running calls of one page of those that mayRun accepts, the newest first, before a call. Next is empty if there
	// are no older ones.
	Running(ctx context.Context, a schemas.AccountID, before schemas.CallID, mayRun func(schemas.Call) bool) (
		list []schemas.CallID, next schemas.CallID, err error)
	// Cancel asks for the end of a call. Codes: not_found, conflict (it has ended).
	Cancel(ctx context.Context, c schemas.Call, reason string) error
}

// Options are the settings of [Instances].
type Options struct {
	Bus   *streams.Bus
	Calls Calls
	// CanPause reports whether instances of a provider can be paused. Nil: all can, as far as the gateway knows.
	CanPause func(provider string) bool
	// Waits lets requests wait for what they ask for.
	Waits web.Waits
	// Waiting counts the requests that wait.
	Waiting prometheus.Gauge
	// Draining ends when the gateway begins to stop.
	Draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
}

// Instances has the HTTP handlers of instances. It is safe for concurrent use.
type Instances struct{ o Options }

// New returns the handlers.
func New(o Options) *Instances { return &Instances{o} }

// List lists the account's instances.
func (h *Instances) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "sandbox", "workspace", "provider", "state", "limit")
	if err != nil {
		return err
	}
	keys, want, err := filter(q, a)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return err
	}
	found, more, err := streams.Newest(r.Context(), lifecycle.OpenInstances(h.o.Bus), a, keys, want, int(limit))
	if err != nil {
		return err
	}
	list := List{Instances: make([]schemas.InstanceDocument, len(found)), More: more}
	for i, v := range found {
		list.Instances[i] = v.Document()
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// filter parses the query of a list: it returns the pattern of the records' keys, and a filter of the records. Code: invalid.
func filter(q web.Query, a schemas.AccountID) (keys string, want func(schemas.Instance) bool, err error) {
	provider, sandbox, workspace := "*", schemas.SandboxID("*"), schemas.WorkspaceID("*")
	if s := q.Text("provider"); s != "" {
		if !subjects.IsToken(s) {
			return "", nil, schemas.Invalidf("provider", "%q is not the name of a provider", schemas.Quotable(s))
		}
		provider = s
	}
	if s := schemas.SandboxID(q.Text("sandbox")); s != "" {
		if err := s.Validate(); err != nil {
			return "", nil, err
		}
		sandbox = s
	}
	if w := schemas.WorkspaceID(q.Text("workspace")); w != "" {
		if err := w.Validate(); err != nil {
			return "", nil, err
		}
		workspace = w
	}
	state := schemas.InstanceState(q.Text("state"))
	if state != "" {
		if err := state.Validate(); err != nil {
			return "", nil, err
		}
	}
	return schemas.InstanceKey(provider, a, sandbox, workspace), func(i schemas.Instance) bool {
		return i.Account == a && (state == "" || i.State == state)
	}, nil
}

// Get returns an instance, with its running calls and jobs.
func (h *Instances) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	p, err := h.find(r, a)
	if err != nil {
		return err
	}
	doc := p.Value.Document()
	if doc.Calls, doc.Jobs, err = h.Inside(r.Context(), p.Value); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, doc)
	return nil
}

func (h *Instances) find(r *http.Request, a schemas.AccountID) (streams.BucketEntry[schemas.Instance], error) {
	return lifecycle.FindInstance(r.Context(), h.o.Bus, a, schemas.InstanceID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")))
}

// Inside returns the running calls of an instance, from one page of the newest ones that may run, and its background jobs.
func (h *Instances) Inside(ctx context.Context, i schemas.Instance) (calls []schemas.CallID, jobs []schemas.JobID, err error) {
	if calls, err = h.callsInside(ctx, i, 1); err != nil {
		return nil, nil, err
	}
	jobs, err = lifecycle.JobsIn(ctx, h.o.Bus, i)
	return calls, jobs, err
}

const (
	// pagesCancelled is how many pages of calls are cancelled when an instance is removed by force. Other calls in it end with the
	// instance, with the result of a call whose sandbox is gone.
	pagesCancelled = 10
	// endedAfter is how long after its deadline a call certainly does not run any more.
	endedAfter = 10 * time.Minute
)

// callsInside returns the running calls of an instance, the newest first, from at most this number of pages.
func (h *Instances) callsInside(ctx context.Context, i schemas.Instance, pages int) (calls []schemas.CallID, err error) {
	ended := h.o.Bus.Now().Add(-endedAfter)
	var oldest time.Time
	mayRun := func(c schemas.Call) bool {
		oldest = c.Accepted
		return c.Provider == i.Provider && c.Sandbox == i.Sandbox && c.Workspace == i.Workspace && c.Deadline.After(ended)
	}
	var before schemas.CallID
	for range pages {
		running, next, err := h.o.Calls.Running(ctx, i.Account, before, mayRun)
		if err != nil {
			return nil, err
		}
		calls = append(calls, running...)
		if before = next; next == "" || oldest.Add(schemas.MaxDeadline).Before(ended) { // the rest have ended
			return calls, nil
		}
	}
	return calls, nil
}

// Pause requests that an instance is paused.
func (h *Instances) Pause(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return h.want(w, r, a, schemas.WantPaused)
}

// Resume requests that an instance is resumed.
func (h *Instances) Resume(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return h.want(w, r, a, schemas.WantRunning)
}

// Delete requests that an instance is removed.
func (h *Instances) Delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return h.want(w, r, a, schemas.WantRemoved)
}

// want requests a state of an instance, which its worker carries out, and, with ?wait=, waits until the instance has it.
func (h *Instances) want(w http.ResponseWriter, r *http.Request, a schemas.AccountID, want schemas.InstanceTarget) error {
	known := []string{"wait"}
	if want == schemas.WantRemoved {
		known = append(known, "force")
	}
	q, err := web.ParseQuery(r.URL.RawQuery, known...)
	if err != nil {
		return err
	}
	force, err := q.Flag("force")
	if err != nil {
		return err
	}
	within, release, err := h.o.Waits.Begin(w, q, a)
	if err != nil {
		return err
	}
	defer release()
	p, err := h.find(r, a)
	if err != nil {
		return err
	}
	if !force {
		if err := h.MayWant(r.Context(), p.Value, want); err != nil {
			return err
		}
	}
	asked, err := lifecycle.WantInstance(r.Context(), h.o.Bus, p.Value.Key(), want)
	if err == nil && force { // only now: no call enters any more
		err = h.CancelInside(r.Context(), asked)
		if err == nil {
			err = lifecycle.RemoveInstanceNow(r.Context(), h.o.Bus, asked)
		}
	}
	if errors.Is(err, schemas.ErrNotFound) && want == schemas.WantRemoved { // it has ended meanwhile
		asked, err = p.Value, nil
		asked.State = schemas.InstanceRemoved
	}
	if err != nil {
		return err
	}
	if within > 0 {
		web.HoldOf(r.Context()).Release()
		if asked, err = h.Await(r.Context(), asked, want, within); err != nil {
			return err
		}
	}
	status := http.StatusAccepted
	if Reached(asked.State, want) {
		status = http.StatusOK
	}
	web.WriteJSON(w, status, asked.Document())
	return nil
}

// MayWant checks that an instance may be brought into a state: that its provider supports it, and that no call or job would be
// interrupted. The worker checks the latter again. Codes: unsupported, conflict.
func (h *Instances) MayWant(ctx context.Context, i schemas.Instance, want schemas.InstanceTarget) error {
	if want == schemas.WantRunning || i.Wanted.State == want || Reached(i.State, want) {
		return nil
	}
	if want == schemas.WantPaused && h.o.CanPause != nil && !h.o.CanPause(i.Provider) {
		return schemas.Errorf(schemas.Unsupported, "the provider %s cannot pause: remove the instance, which keeps the workspace's "+
			"files, or leave it: it ends when it is idle", i.Provider)
	}
	calls, jobs, err := h.Inside(ctx, i)
	if err != nil || len(calls)+len(jobs) == 0 {
		return err
	}
	remedy := "wait for its end or end it first"
	if want == schemas.WantRemoved {
		remedy += ", or remove the instance with force, which ends it"
	}
	if len(calls) > 0 {
		return schemas.Errorf(schemas.Conflict, "the call %s runs in the instance: %s", calls[0], remedy)
	}
	return schemas.Errorf(schemas.Conflict, "the background job %s runs in the instance: %s", jobs[0], remedy)
}

// CancelInside cancels the calls in an instance, also if an earlier request to remove it did not, or died before it had cancelled them
// all. The jobs of the instance end with it.
func (h *Instances) CancelInside(ctx context.Context, i schemas.Instance) error {
	calls, err := h.callsInside(ctx, i, pagesCancelled)
	if err != nil {
		return err
	}
	for _, id := range calls {
		call, err := h.o.Bus.Calls().Find(ctx, i.Account, id)
		if err == nil {
			err = h.o.Calls.Cancel(ctx, call, "its instance is removed")
		}
		if err != nil && !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrConflict) { // it has ended
			return err
		}
	}
	return nil
}

// Reached reports whether an instance has the requested state.
func Reached(s schemas.InstanceState, want schemas.InstanceTarget) bool {
	switch want {
	case schemas.WantPaused:
		return s == schemas.InstancePaused
	case schemas.WantRunning:
		return s == schemas.InstanceReady
	case schemas.WantRemoved:
		return s == schemas.InstanceRemoved
	}
	return false
}

// Await polls the instance until it has the requested state, within has passed, or the gateway drains, and returns it as it is then.
// Codes: not_found (the instance has ended), conflict (another request has requested another state).
func (h *Instances) Await(ctx context.Context, asked schemas.Instance, want schemas.InstanceTarget, within time.Duration) (
	schemas.Instance, error,
) {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer context.AfterFunc(h.o.Draining, cancel)()
	h.o.Waiting.Inc()
	defer h.o.Waiting.Dec()
	now := asked
	between := wait.Backoff{First: 250 * time.Millisecond, Most: time.Second}
	for n := 1; !Reached(now.State, want); n++ {
		if !between.Sleep(waiting, n) {
			return now, ctx.Err()
		}
		p, err := lifecycle.OpenInstances(h.o.Bus).Get(ctx, asked.Key())
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return now, err
		}
		if now, err = wanted(asked, p.Value, err == nil && !p.Deleted, want); err != nil {
			return now, err
		}
	}
	return now, nil
}

// wanted compares an instance with the requested state. The error is a conflict or not_found if it can no longer get there by this
// request.
func wanted(asked, now schemas.Instance, there bool, want schemas.InstanceTarget) (schemas.Instance, error) {
	another := there && !asked.Ref.IsZero() && now.Ref != asked.Ref && !now.Made.Equal(asked.Made)
	switch {
	case (!there || another) && want == schemas.WantRemoved:
		asked.State, asked.Wanted = schemas.InstanceRemoved, schemas.InstanceWish{}
		return asked, nil
	case !there:
		return asked, schemas.Errorf(schemas.NotFound, "the instance has ended meanwhile: the next call makes a new one")
	case Reached(now.State, want), now.Wanted.State == want:
		return now, nil
	case want == schemas.WantRemoved && now.State == schemas.InstanceEnding,
		want == schemas.WantPaused && now.State == schemas.InstancePausing:
		return now, nil
	}
	return now, schemas.Errorf(schemas.Conflict, "the instance is %s, and no other state is requested any more: "+
		"another request came after this one, or it could not be done; ask again", now.State)
}

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{"InstanceList": reflect.TypeFor[List]()}
}
