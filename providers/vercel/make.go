package vercel

import (
	"cmp"
	"context"
	"encoding/base64"
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

// The tags of a sandbox, of which there are five at most, and lists are filtered by one.
const (
	tagInstallation = "sandjet"            // the installation
	tagMade         = "sandjet-made"       // a random number of the create, a dot, and a digest of what it was made of
	tagDeployment   = "sandjet-deployment" // of a kept one: a digest of the deployment's name
	tagKey          = "sandjet-key"        // of a kept one
	tagAccount      = "sandjet-account"
)

// The kinds of sandboxes, which their names say.
const (
	kindKept = "k"
	kindRun  = "r"
)

// nameOf returns the name of a sandbox, which is unique in a project and contains the sandbox's purpose.
func (p *sandboxes) nameOf(kind, digest string) string {
	return p.opt.Installation + "-" + kind + "-" + digest
}

// mostTag is how long the value of a tag may be here.
const mostTag = 200

// tagOf returns a text as the value of a tag: unchanged, or in base64 after an equals sign.
func tagOf(text string) string {
	if !idPattern.MatchString(text) {
		return "=" + base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	return text
}

func fromTag(value string) string {
	if coded, ok := strings.CutPrefix(value, "="); ok {
		if text, err := base64.RawURLEncoding.DecodeString(coded); err == nil {
			return string(text)
		}
	}
	return value
}

// birthOf returns the random number of a sandbox's create, and the digest of its rules.
func birthOf(s sandbox) (birth, rules string) {
	birth, rules, _ = strings.Cut(s.Tags[tagMade], ".")
	return birth, rules
}

// rulesOf returns a digest of the rules that a persistent sandbox is made with.
func (p *sandboxes) rulesOf(spec providers.Spec) string {
	spec.Env, spec.Deployment, spec.Sandbox = nil, "", "" // they are each run's own, and no rule
	text, err := json.Marshal(struct {
		Spec                providers.Spec
		Image, User, Region string
		VCPUs               int
	}{spec, p.opt.Image, p.opt.User, p.opt.Region, p.opt.VCPUs})
	if err != nil {
		panic(err) // plain data
	}
	return cloud.Digest(string(text))
}

// order describes a sandbox that is to be made.
type order struct {
	name string
	kept bool
	spec providers.Spec
	life time.Duration     // of its first session
	tags map[string]string // beside those of all
}

// make makes a sandbox and waits until it runs. The create request is not cancelled with ctx, because no worker would know what was made:
// if the sandbox is made after ctx has ended it is deleted. Codes: exhausted, unavailable, denied, unsupported, conflict (the name is
// taken).
func (p *sandboxes) make(ctx context.Context, o order) (box, error) {
	type made struct {
		box box
		err error
	}
	done := make(chan made, 1)
	p.work.Go(func() {
		apart, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opt.Start)
		defer cancel()
		b, err := p.create(apart, o)
		mine := b.Session.ID != ""
		if err == nil {
			err = checkNetwork(b, o.spec.Network)
		}
		if err == nil {
			b, err = p.awake(apart, b)
		}
		if err == nil && !o.kept {
			err = p.workspaces.furnish(apart, b.Session.ID, o.spec.Mounts)
		}
		if mine && (err != nil || ctx.Err() != nil) {
			p.discard(o.name, b.Session.ID)
		}
		done <- made{b, err}
	})
	select {
	case m := <-done:
		if ctx.Err() != nil {
			return box{}, ctx.Err()
		}
		return m.box, m.err
	case <-ctx.Done():
		return box{}, ctx.Err()
	}
}

// create sends create requests for a sandbox, and waits while another sandbox writes to its drive. If the answer is lost it searches for
// the sandbox by its name.
func (p *sandboxes) create(ctx context.Context, o order) (box, error) {
	slot, err := p.room.Enter(ctx, "")
	if err != nil {
		return box{}, err
	}
	defer slot.Leave()
	birth := cloud.Random()
	n := newSandbox{
		Project: p.opt.Project, Name: o.name, Ports: []int{}, Timeout: o.life.Milliseconds(), Image: p.opt.Image, Region: p.opt.Region,
		Policy: networkOf(o.spec.Network), Persistent: o.kept, Mounts: map[string]mount{},
		Tags: map[string]string{
			tagInstallation: p.opt.Installation, tagMade: birth + "." + p.rulesOf(o.spec), tagAccount: tagOf(string(o.spec.Account)),
		},
	}
	maps.Copy(n.Tags, o.tags)
	for _, value := range n.Tags {
		if len(value) > mostTag {
			return box{}, schemas.Invalidf("key", "is longer than a tag of Vercel: %d characters", mostTag)
		}
	}
	if p.opt.VCPUs > 0 {
		n.Resources = &resources{p.opt.VCPUs}
	}
	if o.kept {
		n.Expiration, n.Keep = keptFor.Milliseconds(), &keepLast{1}
	}
	for _, m := range o.spec.Mounts {
		drive, err := p.workspaces.drive(ctx, m.Namespace)
		if err != nil {
			return box{}, err
		}
		n.Mounts[m.Path()] = mount{drive, modeOf(m)}
	}
	again := wait.Backoff{First: 200 * time.Millisecond, Most: 3 * time.Second}
	for try := 1; ; try++ {
		b, err := p.createOnce(ctx, n, birth)
		switch {
		case err == nil:
			slot.Started(n.Name)
			if !o.kept { // a kept one may be another worker's already
				err = p.room.Recount(ctx, n.Name)
			}
			return b, err
		case refusedMount(err) && writable(n.Mounts):
			continue // there is nothing to be seen yet of a drive that was never written to
		case !inUse(err):
			return box{}, explain("create", err)
		case !again.Sleep(ctx, try):
			return box{}, schemas.Wrap(schemas.Exhausted, "create", "another sandbox of Vercel has the workspace: try later", err)
		}
	}
}

// createOnce sends one create request.
func (p *sandboxes) createOnce(ctx context.Context, n newSandbox, birth string) (b box, err error) {
	_, err = p.client.Do(ctx, cloud.Call{
		Method: http.MethodPost, Path: "/v3/sandboxes", Query: p.query(), Body: n, Into: &b, Wait: p.opt.Start,
	})
	if err == nil && (b.Sandbox.Name != n.Name || b.Session.ID == "") {
		err = schemas.OpErrorf(schemas.Unavailable, "create", "Vercel does not say which sandbox it has made")
	}
	var e *cloud.Error
	if err == nil || !errors.As(err, &e) || e.Status != 0 && e.Status < 500 || !e.Sent {
		return b, err
	}
	return p.lost(ctx, n.Name, birth, err)
}

// lost searches for the sandbox of a create whose answer was lost. If it is made only later it ends by itself, or is found by its name.
func (p *sandboxes) lost(ctx context.Context, name, birth string, cause error) (box, error) {
	const looks = 3
	again := wait.Backoff{First: 200 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		b, err := p.get(ctx, name, false)
		if is, _ := birthOf(b.Sandbox); err == nil && is == birth {
			return b, nil
		}
		if n == looks || !again.Sleep(ctx, n) {
			return box{}, schemas.Wrap(schemas.Unavailable, "create", "Vercel has not said whether it made a sandbox", errors.Join(cause, err))
		}
	}
}

// running lists the sandboxes of this installation that run or are starting. Codes: those of [explain].
func (p *sandboxes) running(ctx context.Context) ([]cloud.Running, error) {
	run, _, err := p.count(ctx, true)
	return run, explain("list", err)
}

// mostLeft is how many sandboxes of dead workers' runs are deleted at a time.
const mostLeft = 10

// count returns the sandboxes of this installation that run or are starting, and how many are stopped. If running is set it stops at
// sandboxes whose state has not changed for longer than any session lives, and it deletes those of dead workers' runs.
func (p *sandboxes) count(ctx context.Context, running bool) (run []cloud.Running, rest int, err error) {
	var left []string
	err = p.list(ctx, tagInstallation, p.opt.Installation, func(s sandbox, now time.Time) bool {
		changed := time.UnixMilli(max(s.Changed, s.Created))
		switch {
		case alive(s.Status):
			run = append(run, cloud.Running{ID: s.Name, Since: time.UnixMilli(s.Created)})
		case running && strings.HasPrefix(s.Name, p.nameOf(kindRun, "")) && now.Sub(changed) > spareTime && len(left) < mostLeft:
			left = append(left, s.Name)
		default:
			rest++
		}
		return !running || now.Sub(changed) < longestDay+time.Hour
	})
	for _, name := range left {
		p.discard(name, "")
	}
	return run, rest, err
}

// awake resumes a sandbox whose session has ended, and waits until it runs. Codes: not_found (it is gone, or was deleted because it cannot
// be resumed with its files), unavailable.
func (p *sandboxes) awake(ctx context.Context, b box) (box, error) {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	resume := !alive(b.Session.Status)
	for n := 1; b.Session.Status != statusRunning || resume; n++ {
		next, err := p.get(ctx, b.Sandbox.Name, resume)
		switch code := cloud.StatusOf(err); {
		case err == nil:
			b, resume = next, !alive(next.Session.Status)
			if b.Session.Status == statusRunning {
				return b, nil
			}
		case code == http.StatusGone && cloud.KindOf(err) == kindNoSnapshot:
			p.log.Warn("persistent sandbox has lost its files, creating another", "sandbox", b.Sandbox.Name, "error", err)
			return b, cmp.Or(explain("start", p.end(ctx, b.Sandbox.Name, "")), gone(err))
		case code == http.StatusNotFound:
			return b, gone(err)
		case !stopped(err) && code != http.StatusConflict: // on its way to another state
			return b, explain("start", err)
		}
		if !again.Sleep(ctx, n) {
			return b, schemas.OpErrorf(schemas.Unavailable, "start", "a sandbox of Vercel does not start in time: it is %q",
				schemas.Quotable(b.Session.Status))
		}
	}
	return b, nil
}

// discard deletes, in the background, a sandbox that no caller knows of. If that fails it ends at its time limit.
func (p *sandboxes) discard(name, session string) {
	p.work.Go(func() {
		if err := p.endNow(name, session); err != nil {
			p.log.Warn("sandbox not deleted, it ends at its time limit", "sandbox", name, "error", err)
		}
	})
}

func (p *sandboxes) endNow(name, session string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return p.end(ctx, name, session)
}

// end deletes a sandbox with its snapshots, and waits until its session id has ended (empty: it has none). A sandbox that is gone is no
// error.
func (p *sandboxes) end(ctx context.Context, name, id string) error {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		_, err := p.ask(ctx, http.MethodDelete, name, nil, "deleteOrphanSnapshots", "true")
		switch {
		case err == nil || cloud.StatusOf(err) == http.StatusNotFound:
			p.room.Ended(name)
			return p.ended(ctx, id)
		case !stopped(err) && cloud.StatusOf(err) != http.StatusConflict || !again.Sleep(ctx, n): // on its way to another state
			return err
		}
	}
}

// ended waits until a session has no processes left.
func (p *api) ended(ctx context.Context, id string) error {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	for n := 1; id != ""; n++ {
		r, err := session{p, id}.ask(ctx, http.MethodGet, "", nil)
		switch code := cloud.StatusOf(err); {
		case code == http.StatusNotFound || code == http.StatusGone || err == nil && !alive(r.Status):
			return nil
		case err != nil:
			return err
		case !again.Sleep(ctx, n):
			return schemas.OpErrorf(schemas.Unavailable, "end", "a sandbox of Vercel does not end: it is %q", schemas.Quotable(r.Status))
		}
	}
	return nil
}

// leave deletes the sandbox of a command that has ended. It waits until the service has accepted the request, but not until the sandbox is
// gone.
func (p *sandboxes) leave(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if _, err := p.ask(ctx, http.MethodDelete, name, nil, "deleteOrphanSnapshots", "true"); err != nil &&
		cloud.StatusOf(err) != http.StatusNotFound {
		p.discard(name, "")
		return
	}
	p.room.Ended(name)
}

// explain maps an error of the service to one with a code, for an operation that has not begun.
func explain(op string, err error) error {
	e, ours := errors.AsType[*cloud.Error](err)
	if !ours {
		return err
	}
	said := strings.ToLower(e.Kind + " " + e.Message)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(said, w) {
				return true
			}
		}
		return false
	}
	client := e.Status >= 400 && e.Status < 500
	switch {
	case op == "create" && client && has("already exists", "already_exists"):
		return schemas.Wrap(schemas.Conflict, op, "a sandbox of Vercel has this name", err)
	case client && e.Status != http.StatusUnauthorized && has("quota", "exceed", "concurren", "limit reached", "too many"):
		return schemas.Wrap(schemas.Exhausted, op, "the team's share of Vercel is used up: "+e.Message, err)
	case op == "create" && e.Status == http.StatusNotFound:
		return schemas.Wrap(schemas.Unsupported, op, "Vercel has no such project or image: \"sandjet doctor\" explains", err)
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return schemas.Wrap(schemas.Denied, op, "Vercel refuses VERCEL_TOKEN for this team and project: \"sandjet doctor\" explains", err)
	}
	return cloud.Explain(op, service, err)
}

// gone returns the error for a persistent sandbox that does not exist or does not run. Code: not_found.
func gone(cause error) error {
	const text = "the sandbox is gone, or stopped: reserve it again"
	if cause == nil {
		return schemas.OpErrorf(schemas.NotFound, "run", text)
	}
	return schemas.Wrap(schemas.NotFound, "run", text, fmt.Errorf("vercel: %w", cause))
}
