package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Limits of what a search for instances gives.
const (
	DefaultInstancesPage = 50  // instances of one answer
	MaxInstancesPage     = 500 // the most of one answer
)

// InstanceList is the answer about an account's instances, by sandbox and workspace.
type InstanceList struct {
	Instances []schemas.InstanceDocument `json:"instances"`
	// More says that there are others, or that the search ended before it had looked at all.
	More bool `json:"more"`
}

// getInstances lists the account's instances.
func (g *Gateway) getInstances(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "sandbox", "workspace", "provider", "state", "limit")
	if err != nil {
		return err
	}
	keys, want, err := instanceFilter(q, a)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", DefaultInstancesPage, 1, MaxInstancesPage)
	if err != nil {
		return err
	}
	found, more, err := streams.Newest(r.Context(), lifecycle.OpenInstances(g.Bus), a, keys, want, int(limit))
	if err != nil {
		return err
	}
	list := InstanceList{Instances: make([]schemas.InstanceDocument, len(found)), More: more}
	for i, v := range found {
		list.Instances[i] = v.Document()
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// instanceFilter reads which instances are meant: the keys of their records, and what these say.
func instanceFilter(q web.Query, a schemas.AccountID) (keys string, want func(schemas.Instance) bool, err error) {
	provider, sandbox, workspace := "*", schemas.SandboxID("*"), schemas.WorkspaceID("*")
	if s := q.Text("provider"); s != "" {
		if !streams.IsToken(s) {
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

// getInstance shows an instance, with what is in it.
func (g *Gateway) getInstance(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	p, err := g.findInstance(r, a)
	if err != nil {
		return err
	}
	doc := p.Value.Document()
	if doc.Calls, doc.Jobs, err = g.inside(r.Context(), p.Value); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, doc)
	return nil
}

func (g *Gateway) findInstance(r *http.Request, a schemas.AccountID) (streams.BucketEntry[schemas.Instance], error) {
	return lifecycle.FindInstance(r.Context(), g.Bus, a, schemas.InstanceID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")))
}

// inside lists the calls that run in an instance, of the newest hundred there that have not timed out, and its background jobs.
func (g *Gateway) inside(ctx context.Context, i schemas.Instance) (calls []schemas.CallID, jobs []schemas.JobID, err error) {
	if calls, err = g.callsInside(ctx, i, 1); err != nil {
		return nil, nil, err
	}
	jobs, err = lifecycle.JobsIn(ctx, g.Bus, i)
	return calls, jobs, err
}

const (
	// pagesCancelled is how many pages of calls are read when an instance is removed with those in it. What runs in it beside the calls of
	// these ends with it, and has the result of a call whose sandbox is gone.
	pagesCancelled = 10
	// endedAfter is how long after its deadline a call certainly does not run any more.
	endedAfter = 10 * time.Minute
)

// callsInside lists the calls that run in an instance, from a number of pages, the newest first.
func (g *Gateway) callsInside(ctx context.Context, i schemas.Instance, pages int) (calls []schemas.CallID, err error) {
	ended := g.Bus.Now().Add(-endedAfter)
	var oldest time.Time
	mayRun := func(c schemas.Call) bool {
		oldest = c.Accepted
		return c.Provider == i.Provider && c.Sandbox == i.Sandbox && c.Workspace == i.Workspace && c.Deadline.After(ended)
	}
	var before schemas.CallID
	for range pages {
		recent, next, err := g.recentCalls(ctx, i.Account, before, MaxRecentPage, mayRun)
		if err != nil {
			return nil, err
		}
		for _, c := range recent {
			if c.Status == stateRunning {
				calls = append(calls, c.ID)
			}
		}
		if before = next; next == "" || oldest.Add(schemas.MaxDeadline).Before(ended) { // the rest have ended
			return calls, nil
		}
	}
	return calls, nil
}

// postInstancePause asks for an instance to be paused.
func (g *Gateway) postInstancePause(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return g.wantInstance(w, r, a, schemas.WantPaused)
}

// postInstanceResume asks for an instance to be awake.
func (g *Gateway) postInstanceResume(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return g.wantInstance(w, r, a, schemas.WantRunning)
}

// deleteInstance asks for an instance to be removed.
func (g *Gateway) deleteInstance(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return g.wantInstance(w, r, a, schemas.WantRemoved)
}

// wantInstance asks for a state of an instance and, with ?wait=, waits until it is there. Its worker carries it out.
func (g *Gateway) wantInstance(w http.ResponseWriter, r *http.Request, a schemas.AccountID, want schemas.InstanceTarget) error {
	known := []string{"wait"}
	if want == schemas.WantRemoved {
		known = append(known, "force")
	}
	q, err := web.ParseQuery(r.URL.RawQuery, known...)
	if err != nil {
		return err
	}
	within, err := q.Wait(g.MaxWait)
	if err != nil {
		return err
	}
	force, err := q.Flag("force")
	if err != nil {
		return err
	}
	if within > 0 {
		place, err := g.takeWait(w, a)
		if err != nil {
			return err
		}
		defer place.Release()
	}
	p, err := g.findInstance(r, a)
	if err != nil {
		return err
	}
	if !force {
		if err := g.mayWant(r.Context(), p.Value, want); err != nil {
			return err
		}
	}
	asked, err := lifecycle.WantInstance(r.Context(), g.Bus, p.Value.Key(), want)
	if err == nil && force { // only now: no call enters any more
		err = g.cancelInside(r.Context(), asked)
		if err == nil {
			err = lifecycle.RemoveInstanceNow(r.Context(), g.Bus, asked)
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
		if asked, err = g.awaitInstance(r.Context(), asked, want, within); err != nil {
			return err
		}
	}
	status := http.StatusAccepted
	if reached(asked.State, want) {
		status = http.StatusOK
	}
	web.WriteJSON(w, status, asked.Document())
	return nil
}

// mayWant refuses what cannot be done, and what would take something from a call or a job: what is in the instance is looked at
// now, and by its worker again.
func (g *Gateway) mayWant(ctx context.Context, i schemas.Instance, want schemas.InstanceTarget) error {
	if want == schemas.WantRunning || i.Wanted.State == want || reached(i.State, want) {
		return nil
	}
	if want == schemas.WantPaused && g.CanPause != nil && !g.CanPause(i.Provider) {
		return schemas.Errorf(schemas.Unsupported, "", "the provider %s cannot pause: remove the instance, which keeps the workspace's "+
			"files, or leave it: it ends when it is idle", i.Provider)
	}
	calls, jobs, err := g.inside(ctx, i)
	if err != nil || len(calls)+len(jobs) == 0 {
		return err
	}
	remedy := "wait for its end or end it first"
	if want == schemas.WantRemoved {
		remedy += ", or remove the instance with force, which ends it"
	}
	if len(calls) > 0 {
		return schemas.Errorf(schemas.Conflict, "", "the call %s runs in the instance: %s", calls[0], remedy)
	}
	return schemas.Errorf(schemas.Conflict, "", "the background job %s runs in the instance: %s", jobs[0], remedy)
}

// cancelInside cancels the calls in an instance, also where an earlier request wanted it removed and left them alone, or died before
// it had cancelled them all. Its jobs end with it.
func (g *Gateway) cancelInside(ctx context.Context, i schemas.Instance) error {
	calls, err := g.callsInside(ctx, i, pagesCancelled)
	if err != nil {
		return err
	}
	for _, id := range calls {
		call, err := streams.FindCall(ctx, g.Bus, i.Account, id)
		if err == nil {
			err = g.cancel(ctx, call, admission.API, "its instance is removed")
		}
		if err != nil && !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrConflict) { // it has ended
			return err
		}
	}
	return nil
}

// reached reports whether an instance is what was asked for.
func reached(s schemas.InstanceState, want schemas.InstanceTarget) bool {
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

// awaitInstance reads the instance until it is what was asked for, and returns it as it is then, or when the wait is over, which ends early
// when the gateway drains. Codes: not_found (it has ended instead), conflict (another request has asked for something else).
func (g *Gateway) awaitInstance(ctx context.Context, asked schemas.Instance, want schemas.InstanceTarget, within time.Duration) (
	schemas.Instance, error,
) {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	defer context.AfterFunc(g.draining, cancel)()
	g.metrics.waiting.Inc()
	defer g.metrics.waiting.Dec()
	now := asked
	for n := 1; !reached(now.State, want); n++ {
		if !betweenLooks.Sleep(waiting, n) {
			return now, ctx.Err()
		}
		p, err := lifecycle.OpenInstances(g.Bus).Get(ctx, asked.Key())
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return now, err
		}
		if now, err = wanted(asked, p.Value, err == nil && !p.Deleted, want); err != nil {
			return now, err
		}
	}
	return now, nil
}

// wanted compares an instance with what a request asked it to become.
func wanted(asked, now schemas.Instance, there bool, want schemas.InstanceTarget) (schemas.Instance, error) {
	another := there && !asked.Ref.IsZero() && now.Ref != asked.Ref && !now.Made.Equal(asked.Made)
	switch {
	case (!there || another) && want == schemas.WantRemoved:
		asked.State, asked.Wanted = schemas.InstanceRemoved, schemas.InstanceWish{}
		return asked, nil
	case !there:
		return asked, schemas.Errorf(schemas.NotFound, "", "the instance has ended meanwhile: the next call makes a new one")
	case reached(now.State, want), now.Wanted.State == want:
		return now, nil
	case want == schemas.WantRemoved && now.State == schemas.InstanceEnding,
		want == schemas.WantPaused && now.State == schemas.InstancePausing:
		return now, nil
	}
	return now, schemas.Errorf(schemas.Conflict, "", "the instance is %s, and no other state is requested any more: "+
		"another request came after this one, or it could not be done; ask again", now.State)
}

// betweenLooks is the pause between two looks at something that has not changed.
var betweenLooks = wait.Backoff{First: 250 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // settings, never changed
