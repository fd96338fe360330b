package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// The names of a sandbox's metadata. What lists are filtered by has values that need no escaping.
const (
	metaInstallation = "sandjet"            // the installation
	metaKind         = "sandjet-kind"       // kindKept or kindRun
	metaBirth        = "sandjet-birth"      // a random number of the create: the epoch
	metaBox          = "sandjet-box"        // a digest of a kept one's account and key
	metaRun          = "sandjet-run"        // a digest of the id of the run that it is for
	metaRules        = "sandjet-rules"      // a digest of what it was made of
	metaDeployment   = "sandjet-deployment" // a digest of the deployment's name
	metaKey          = "sandjet-key"
	metaAccount      = "sandjet-account"

	kindKept = "kept"
	kindRun  = "run"
)

// rulesOf returns a digest of the rules that a persistent sandbox is made with.
func (p *sandboxes) rulesOf(spec providers.Spec) string {
	spec.Env, spec.Deployment = nil, "" // they are each run's own, and no rule
	text, err := json.Marshal(struct {
		Spec     providers.Spec
		Template string
	}{spec, p.opt.Template})
	if err != nil {
		panic(err) // plain data
	}
	return cloud.Digest(string(text))
}

// order describes a sandbox that is to be made.
type order struct {
	kind     string
	spec     providers.Spec
	metadata map[string]string // beside that of all
	life     time.Duration
}

// make makes a sandbox and prepares its workspace. The create request is not cancelled with ctx, because no worker would know what was
// made: if the sandbox is made after ctx has ended it is killed. Codes: exhausted, unavailable, denied, unsupported.
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
			err = p.workspaces.furnishOnce(apart, box, o.spec.Mounts)
		}
		if box.ID != "" && (err != nil || ctx.Err() != nil) {
			p.discard(box.ID)
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

// create sends one create request. If the answer is lost it searches for the sandbox by its birth. A sandbox returned with an error is to
// be killed.
func (p *sandboxes) create(ctx context.Context, o order) (box sandbox, err error) {
	slot, err := p.room.Enter(ctx, "")
	if err != nil {
		return sandbox{}, err
	}
	defer slot.Leave()
	n := newSandbox{Template: p.opt.Template, Timeout: seconds(o.life), Pause: o.kind == kindKept, Secure: true, Metadata: o.metadata}
	birth := cloud.Random()
	n.Metadata[metaInstallation], n.Metadata[metaKind], n.Metadata[metaBirth] = p.opt.Installation, o.kind, birth
	n.Metadata[metaAccount] = string(o.spec.Account)
	n.Internet, n.Network = networkOf(o.spec.Network)
	for _, m := range o.spec.Mounts {
		name, err := p.workspaces.volume(ctx, m.Namespace)
		if err != nil {
			return sandbox{}, err
		}
		n.Mounts = append(n.Mounts, volumeMount{Name: name, Path: m.Path()})
	}
	_, err = p.control.Do(ctx, cloud.Call{Method: http.MethodPost, Path: "/sandboxes", Body: n, Into: &box, Wait: p.opt.Start})
	var e *cloud.Error
	switch {
	case err == nil:
		box.Metadata = n.Metadata
	case !errors.As(err, &e) || e.Status != 0 && e.Status < 500 || !e.Sent:
		return sandbox{}, explain("create", err)
	default:
		if box, err = p.lost(ctx, n.Metadata, err); err != nil {
			return sandbox{}, err
		}
	}
	slot.Started(box.ID)
	if o.kind == kindRun { // a kept one may be another worker's already
		err = p.room.Recount(ctx, box.ID)
	}
	return box, err
}

// lost searches for the sandbox of a create whose answer was lost. If it is made only later it ends by itself, or is found by its key. For
// a persistent sandbox it uses the same list request as the election, so that no list shows it earlier than others of its key.
func (p *sandboxes) lost(ctx context.Context, metadata map[string]string, cause error) (sandbox, error) {
	want := map[string]string{metaInstallation: p.opt.Installation, metaBirth: metadata[metaBirth]}
	if box := metadata[metaBox]; box != "" {
		want = map[string]string{metaInstallation: p.opt.Installation, metaBox: box}
	}
	const looks = 3
	again := wait.Backoff{First: 200 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		found, err := p.list(ctx, want)
		if i := slices.IndexFunc(found, func(s sandbox) bool { return s.Metadata[metaBirth] == metadata[metaBirth] }); i >= 0 {
			box, err := p.get(ctx, found[i].ID)
			if err != nil {
				p.discard(found[i].ID)
			}
			return box, explain("create", err)
		}
		if n == looks || !again.Sleep(ctx, n) {
			return sandbox{}, schemas.Wrap(schemas.Unavailable, "create", "E2B has not said whether it made a sandbox", errors.Join(cause, err))
		}
	}
}

// running lists the running sandboxes of this installation. Codes: those of [explain].
func (p *sandboxes) running(ctx context.Context) ([]cloud.Running, error) {
	all, err := p.list(ctx, map[string]string{metaInstallation: p.opt.Installation})
	var running []cloud.Running
	for _, s := range all {
		if s.State == stateRunning {
			running = append(running, cloud.Running{ID: s.ID, Since: s.Started})
		}
	}
	return running, explain("list", err)
}

// volume returns the name of the volume with a workspace's files, making it if there is none.
func (p *workspaces) volume(ctx context.Context, namespace string) (string, error) {
	name := p.opt.Installation + "-ws-" + cloud.Digest(namespace)
	name = strings.ReplaceAll(name, ".", "_") // which names of volumes cannot have
	if p.volumes.Has(name) {
		return name, nil
	}
	there, err := p.hasVolume(ctx, name)
	if err == nil && !there {
		_, err = p.control.Do(ctx, cloud.Call{Method: http.MethodPost, Path: "/volumes", Body: map[string]string{"name": name}})
		if err != nil && cloud.StatusOf(err) != http.StatusForbidden {
			if there, again := p.hasVolume(ctx, name); again == nil && there { // another was faster, or the answer was lost
				err = nil
			}
		}
	}
	switch code := cloud.StatusOf(err); {
	case code == http.StatusForbidden || code == http.StatusNotFound:
		return "", schemas.Wrap(schemas.Unsupported, "create",
			"the E2B team of this worker has no volumes, which workspaces need: leave the workspace out, or use another provider", err)
	case err != nil:
		return "", explain("create", err)
	}
	p.volumes.Add(name)
	return name, nil
}

func (p *workspaces) hasVolume(ctx context.Context, name string) (bool, error) {
	var all []volume
	if _, err := p.control.Do(ctx, cloud.Call{Method: http.MethodGet, Path: "/volumes", Into: &all}); err != nil {
		return false, err
	}
	for _, v := range all {
		if v.Name == name {
			return true, nil
		}
	}
	return false, nil
}

// furniture makes a workspace the user's, shows it under its short name, and where it is to be read only, says so to the kernel.
const furniture = `set -e
[ "$(stat -c %U "$1")" = "$3" ] || chown "$3" "$1"
ln -sfn "$1" ` + providers.WorkspacePath + `
[ "$2" != ro ] || mount -o remount,bind,ro "$1"`

// furnish prepares the workspace of a new sandbox.
func (p *workspaces) furnish(ctx context.Context, box sandbox, mounts []providers.Mount) error {
	for _, m := range mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		if err := p.daemonOf(box).run(ctx, userRoot, "/bin/bash", "-c", furniture, "furnish", m.Path(), mode, userPlain); err != nil {
			return schemas.Wrap(schemas.Unavailable, "create", "the workspace of the sandbox cannot be prepared", err)
		}
	}
	return nil
}

// furnishOnce prepares the workspace of a persistent sandbox, unless this worker has done so already. Another worker may have made the
// sandbox and died before preparing it.
func (p *workspaces) furnishOnce(ctx context.Context, box sandbox, mounts []providers.Mount) error {
	birth := box.Metadata[metaBirth]
	if p.furnished.Has(birth) {
		return nil
	}
	if err := p.furnish(ctx, box, mounts); err != nil {
		return err
	}
	p.furnished.Add(birth)
	return nil
}

// discard kills, in the background, a sandbox that no caller knows of. If that fails it ends at its time limit.
func (p *sandboxes) discard(id string) {
	p.work.Go(func() {
		if err := p.endNow(id); err != nil {
			p.log.Warn("sandbox not ended, it ends at its time limit", "sandbox", id, "error", err)
		}
	})
}

func (p *sandboxes) endNow(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return p.end(ctx, id)
}

// explain maps an error of the service to one with a code, for an operation that has not begun.
func explain(op string, err error) error {
	if code := cloud.StatusOf(err); code == http.StatusNotFound && op == "create" {
		return schemas.Wrap(schemas.Unsupported, op, "E2B has no such template: \"sandjet doctor\" explains", err)
	}
	return cloud.Explain(op, service, err)
}

// gone returns the error for a persistent sandbox that does not exist or does not run. Code: not_found.
func gone(cause error) error {
	const text = "the sandbox is gone, or paused: reserve it again"
	if cause == nil {
		return schemas.OpErrorf(schemas.NotFound, "run", text)
	}
	return schemas.Wrap(schemas.NotFound, "run", text, fmt.Errorf("e2b: %w", cause))
}
