package daytona

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// The labels of a sandbox.
const (
	labelInstallation = "sandjet"            // the installation
	labelKind         = "sandjet-kind"       // kindKept or kindRun
	labelBirth        = "sandjet-birth"      // a random number of the create
	labelEpoch        = "sandjet-epoch"      // what was found in it when it was last started
	labelBox          = "sandjet-box"        // a digest of a kept one's account and key
	labelRun          = "sandjet-run"        // a digest of the id of the run that it is for
	labelRules        = "sandjet-rules"      // a digest of what it was made of
	labelDeployment   = "sandjet-deployment" // a digest of the deployment's name
	labelKey          = "sandjet-key"
	labelAccount      = "sandjet-account"

	kindKept = "kept"
	kindRun  = "run"
)

// rulesOf returns a digest of the rules that a persistent sandbox is made with.
func (p *sandboxes) rulesOf(spec providers.Spec) string {
	spec.Env, spec.Deployment, spec.Sandbox = nil, "", "" // they are each run's own, and no rule
	text, err := json.Marshal(struct {
		Spec                          providers.Spec
		Snapshot, Image, User, Target string
	}{spec, p.opt.Snapshot, p.opt.Image, p.opt.User, p.opt.Target})
	if err != nil {
		panic(err) // plain data
	}
	return cloud.Digest(string(text))
}

// order describes a sandbox that is to be made.
type order struct {
	name   string // empty: the service gives it one
	kind   string
	spec   providers.Spec
	labels map[string]string // beside those of all
}

// make makes a sandbox and waits until it runs. The create request is not cancelled with ctx, because no worker would know what was made:
// if the sandbox is made after ctx has ended it is deleted. Codes: exhausted, unavailable, denied, unsupported, conflict (the name is
// taken).
func (p *sandboxes) make(ctx context.Context, o order) (sandbox, error) {
	type made struct {
		box sandbox
		err error
	}
	done := make(chan made, 1)
	p.work.Go(func() {
		apart, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opt.Start)
		defer cancel()
		box, err := p.create(apart, o)
		if err == nil {
			err = checkNetwork(box, o.spec.Network)
		}
		id := box.ID
		if err == nil {
			box, err = p.awake(apart, box)
		}
		if err == nil && o.kind == kindRun {
			err = p.workspaces.furnish(apart, box, o.spec.Mounts)
		}
		if id != "" && (err != nil || ctx.Err() != nil) {
			p.discard(id)
		}
		done <- made{box, err}
	})
	select {
	case m := <-done:
		if ctx.Err() != nil {
			return sandbox{}, ctx.Err()
		}
		return m.box, m.err
	case <-ctx.Done():
		return sandbox{}, ctx.Err()
	}
}

// checkNetwork returns an error if the service gave a sandbox another network than requested. Code: unsupported.
func checkNetwork(s sandbox, n schemas.Network) error {
	if all, allowed := networkOf(n); s.BlockAll != all || s.AllowList != allowed {
		return schemas.OpErrorf(schemas.Unsupported, "create",
			"Daytona does not keep this network for the organization of this worker: \"sandjet doctor\" explains")
	}
	return nil
}

// create sends one create request. If the answer is lost it searches for the sandbox by its birth. A sandbox returned with an error is to
// be deleted.
func (p *sandboxes) create(ctx context.Context, o order) (box sandbox, err error) {
	slot, err := p.room.Enter(ctx, "")
	if err != nil {
		return sandbox{}, err
	}
	defer slot.Leave()
	birth := cloud.Random()
	n := newSandbox{
		Name: o.name, Snapshot: p.opt.Snapshot, User: p.opt.User, Target: p.opt.Target, AutoStop: minutes(aloneRun),
		Labels: map[string]string{
			labelInstallation: p.opt.Installation, labelKind: o.kind, labelBirth: birth, labelAccount: string(o.spec.Account),
		},
	}
	maps.Copy(n.Labels, o.labels)
	if p.opt.Image != "" {
		n.Build = &build{Dockerfile: "FROM " + p.opt.Image + "\n"}
	}
	if o.kind == kindKept {
		n.AutoStop, n.AutoDelete = minutes(p.opt.Idle), minutes(keptFor)
	}
	n.BlockAll, n.AllowList = networkOf(o.spec.Network)
	for _, m := range o.spec.Mounts {
		id, err := p.workspaces.volume(ctx)
		if err != nil {
			return sandbox{}, err
		}
		n.Volumes = append(n.Volumes, volumeMount{Volume: id, Path: m.Path(), Below: cloud.Digest(m.Namespace)})
	}
	_, err = p.control.Do(ctx, cloud.Call{Method: http.MethodPost, Path: "/sandbox", Body: n, Into: &box, Wait: p.opt.Start})
	if err == nil && box.ID == "" {
		return sandbox{}, schemas.OpErrorf(schemas.Unavailable, "create", "Daytona does not say which sandbox it has made")
	}
	var e *cloud.Error
	switch {
	case err == nil:
	case !errors.As(err, &e) || e.Status != 0 && e.Status < 500 || !e.Sent:
		return sandbox{}, explain("create", err)
	default:
		if box, err = p.lost(ctx, birth, err); err != nil {
			return sandbox{}, err
		}
	}
	slot.Started(box.ID)
	if o.kind == kindRun { // a kept one may be another worker's already
		err = p.room.Recount(ctx, box.ID)
	}
	return box, err
}

// lost searches for the sandbox of a create whose answer was lost. If it is made only later it ends by itself, or is found by its name.
func (p *sandboxes) lost(ctx context.Context, birth string, cause error) (sandbox, error) {
	const looks = 3
	again := wait.Backoff{First: 200 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		found, err := p.list(ctx, map[string]string{labelBirth: birth})
		if err == nil && len(found) > 0 {
			box, err := p.get(ctx, found[0].ID)
			if err != nil {
				p.discard(found[0].ID)
			}
			return box, explain("create", err)
		}
		if n == looks || !again.Sleep(ctx, n) {
			return sandbox{}, schemas.Wrap(schemas.Unavailable, "create", "Daytona has not said whether it made a sandbox", errors.Join(cause, err))
		}
	}
}

// running lists the sandboxes of this installation that run or are starting. Codes: those of [explain].
func (p *sandboxes) running(ctx context.Context) ([]cloud.Running, error) {
	all, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation})
	var running []cloud.Running
	for _, s := range all {
		if n, _ := count([]sandbox{s}); n > 0 {
			running = append(running, cloud.Running{ID: s.ID, Since: s.Created})
		}
	}
	return running, explain("list", err)
}

// count returns how many sandboxes run or are starting, and how many are paused.
func count(all []sandbox) (running, resting int) {
	for _, s := range all {
		switch s.State {
		case stateStopped, statePaused, stateArchived:
			resting++
		case stateDestroying, stateDestroyed, stateError, stateBuild:
		default:
			running++
		}
	}
	return running, resting
}

// awake starts a stopped sandbox, recovers a failed one if possible, and waits until it runs. Codes: not_found (it is gone, or being
// deleted), unavailable.
func (p *sandboxes) awake(ctx context.Context, s sandbox) (sandbox, error) {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		verb := ""
		switch s.State {
		case stateStarted:
			return s, nil
		case stateStopped, statePaused, stateArchived:
			verb = "/start"
		case stateError, stateBuild:
			if !s.Recoverable {
				return s, schemas.OpErrorf(schemas.Unavailable, "start", "a sandbox of Daytona does not start: %s", p.control.Clean(s.Reason))
			}
			verb = "/recover"
		case stateDestroying, stateDestroyed:
			return s, gone(nil)
		}
		if verb != "" {
			err := p.ask(ctx, http.MethodPost, s.ID, verb, nil, nil)
			if code := cloud.StatusOf(err); err != nil && code != http.StatusBadRequest && code != http.StatusConflict { // others change it
				return s, explain("start", err)
			}
		}
		if !again.Sleep(ctx, n) {
			return s, schemas.OpErrorf(schemas.Unavailable, "start", "a sandbox of Daytona does not start in time: it is %q",
				schemas.Quotable(s.State))
		}
		next, err := p.get(ctx, s.ID)
		if cloud.StatusOf(err) == http.StatusNotFound {
			return s, gone(err)
		}
		if err != nil {
			return s, explain("start", err)
		}
		s = next
	}
}

// discard deletes, in the background, a sandbox that no caller knows of. If that fails the sandbox ends when its worker sends it no more
// requests.
func (p *sandboxes) discard(id string) {
	p.work.Go(func() {
		if err := p.endNow(id); err != nil {
			p.log.Warn("sandbox not deleted, the service ends it", "sandbox", id, "error", err)
		}
	})
}

func (p *sandboxes) endNow(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return p.end(ctx, id)
}

// end deletes a sandbox and waits until its processes have ended. A sandbox that is gone is no error.
func (p *sandboxes) end(ctx context.Context, id string) error {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	s := sandbox{ID: id}
	for n := 1; ; n++ {
		var err error
		if s.State != stateDestroying {
			err = p.ask(ctx, http.MethodDelete, id, "", nil, nil)
		}
		switch code := cloud.StatusOf(err); {
		case code == http.StatusNotFound:
			return nil
		case err != nil && code != http.StatusBadRequest && code != http.StatusConflict: // on its way to another state
			return err
		}
		if err == nil {
			p.room.Ended(id)
		}
		next, look := p.get(ctx, id)
		if cloud.StatusOf(look) == http.StatusNotFound || look == nil && next.State == stateDestroyed {
			return nil
		}
		if !again.Sleep(ctx, n) {
			return errors.Join(err, look, ctx.Err())
		}
		s = next
	}
}

// leave deletes the sandbox of a command that has ended. It waits until the service has accepted the request, but not until the sandbox is
// gone.
func (p *sandboxes) leave(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := p.ask(ctx, http.MethodDelete, id, "", nil, nil); err != nil && cloud.StatusOf(err) != http.StatusNotFound {
		p.discard(id)
		return
	}
	p.room.Ended(id)
}

// explain maps an error of the service to one with a code, for an operation that has not begun.
func explain(op string, err error) error {
	var e *cloud.Error
	if !errors.As(err, &e) {
		return err
	}
	said := strings.ToLower(e.Message)
	switch {
	case (e.Status == http.StatusForbidden || e.Status == http.StatusBadRequest) &&
		(strings.Contains(said, "exceed") || strings.Contains(said, "quota")):
		return schemas.Wrap(schemas.Exhausted, op, "the organization's share of Daytona is used up: "+e.Message, err)
	case op == "create" && (e.Status == http.StatusNotFound || e.Status == http.StatusBadRequest && strings.Contains(said, "not found")):
		return schemas.Wrap(schemas.Unsupported, op, "Daytona has no such snapshot: \"sandjet doctor\" explains", err)
	}
	return cloud.Explain(op, service, err)
}

// gone returns the error for a persistent sandbox that does not exist or does not run. Code: not_found.
func gone(cause error) error {
	const text = "the sandbox is gone, or stopped: reserve it again"
	if cause == nil {
		return schemas.OpErrorf(schemas.NotFound, "run", text)
	}
	return schemas.Wrap(schemas.NotFound, "run", text, fmt.Errorf("daytona: %w", cause))
}
