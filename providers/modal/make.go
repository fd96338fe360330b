package modal

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// The tags of a sandbox. Values are letters, digits, dashes and underscores.
const (
	tagKind       = "sandjet-kind"       // kindKept or kindRun
	tagBirth      = "sandjet-birth"      // a random number of the create
	tagBox        = "sandjet-box"        // a digest of a kept one's account and key
	tagRun        = "sandjet-run"        // a digest of the id of the run that it is for
	tagRules      = "sandjet-rules"      // a digest of what it was made of
	tagDeployment = "sandjet-deployment" // a digest of the deployment's name
	tagKey        = "sandjet-key"        // in base64, in parts: sandjet-key-0, sandjet-key-1 …
	tagAccount    = "sandjet-account"
	tagMade       = "sandjet-made" // seconds since 1970, by the clock of the worker

	kindKept = "kept"
	kindRun  = "run"

	longestTag = 60 // characters of a value
)

// setText stores a text of any length, with any characters, in tags.
func setText(tags map[string]string, name, text string) {
	coded := base64.RawURLEncoding.EncodeToString([]byte(text))
	for i := 0; coded != ""; i++ {
		n := min(len(coded), longestTag)
		tags[name+"-"+strconv.Itoa(i)], coded = coded[:n], coded[n:]
	}
}

// textOf returns the text that setText has stored; empty if it is incomplete.
func textOf(tags map[string]string, name string) string {
	var coded strings.Builder
	for i := 0; ; i++ {
		part, ok := tags[name+"-"+strconv.Itoa(i)]
		if !ok {
			break
		}
		coded.WriteString(part)
	}
	text, err := base64.RawURLEncoding.DecodeString(coded.String())
	if err != nil {
		return ""
	}
	return string(text)
}

// madeAt returns when a sandbox was made.
func madeAt(tags map[string]string) time.Time {
	seconds, err := strconv.ParseInt(tags[tagMade], 10, 64)
	if err != nil {
		return time.Now()
	}
	return time.Unix(seconds, 0)
}

// ageOf returns the minimal age of a sandbox by this host's clock: the lesser of the times since its creation by the service's clock and
// by its maker's clock. The service does not report its current time; with the lesser age, one slow clock does not make a new sandbox look
// old enough to be an orphan.
func ageOf(s sandbox, now time.Time) time.Duration {
	age := now.Sub(madeAt(s.Tags))
	if s.Created > 0 {
		age = min(age, now.Sub(time.UnixMicro(int64(s.Created*1e6))))
	}
	return max(age, 0)
}

// rulesOf returns a digest of the rules that a persistent sandbox is made with.
func (p *Provider) rulesOf(spec providers.Spec) string {
	spec.Env, spec.Deployment, spec.Sandbox = nil, "", "" // they are each run's own, and no rule
	text, err := json.Marshal(struct {
		Spec           providers.Spec
		Image, Runtime string
		Regions        []string
		CPUs           float64
		Memory         int
	}{spec, p.opt.Image, p.opt.Runtime, p.opt.Regions, p.opt.CPUs, p.opt.Memory})
	if err != nil {
		panic(err) // plain data
	}
	return cloud.Digest(string(text))
}

// order describes a sandbox that is to be made.
type order struct {
	name string // empty: one of its own
	kind string
	spec providers.Spec
	life time.Duration
	tags map[string]string // beside those of all
}

// box is a sandbox that was made.
type box struct{ id, birth string }

// make makes a sandbox and waits until it runs. The create request is not cancelled with ctx, because no worker would know what was made:
// if the sandbox is made after ctx has ended it is ended. Codes: exhausted, unavailable, denied, unsupported, conflict (the name is
// taken).
func (p *Provider) make(ctx context.Context, o order) (box, error) {
	type made struct {
		box box
		err error
	}
	done := make(chan made, 1)
	p.work.Go(func() {
		apart, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opt.Build+p.opt.Start)
		defer cancel()
		b, err := p.create(apart, o)
		if b.id != "" && (err != nil || ctx.Err() != nil) {
			p.discard(b.id)
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

// create sends one create request. If the answer is lost it searches for the sandbox by its name. A sandbox returned with an error is to
// be ended.
func (p *Provider) create(ctx context.Context, o order) (box, error) {
	slot, err := p.room.Enter(ctx, "")
	if err != nil {
		return box{}, err
	}
	defer slot.Leave()
	b := box{birth: cloud.Random()}
	n := newSandbox{Name: o.name, Runtime: p.opt.Runtime, Life: o.life.Round(time.Second), Tags: map[string]string{
		tagKind: o.kind, tagBirth: b.birth, tagAccount: string(o.spec.Account), tagMade: strconv.FormatInt(time.Now().Unix(), 10),
	}}
	maps.Copy(n.Tags, o.tags)
	maps.DeleteFunc(n.Tags, func(_, value string) bool { return value == "" })
	if o.name == "" {
		n.Name = "run-" + b.birth
	}
	if o.kind == kindKept {
		n.Idle = p.opt.Idle.Round(time.Second)
		if n.Runtime == "" {
			n.Runtime = RuntimeVM // its processes are distinguished by marks that the kernel of a container does not keep
		}
	}
	n.setNetwork(o.spec.Network)
	for _, m := range o.spec.Mounts {
		id, err := p.modal.volume(ctx, p.volumeOf(m.Namespace))
		if code := cloud.StatusOf(err); code == http.StatusForbidden || code == http.StatusNotFound {
			return box{}, schemas.Wrap(schemas.Unsupported, "create",
				"the credentials of this worker may not make volumes, which workspaces on Modal need: \"sandjet doctor\" explains", err)
		}
		if err != nil {
			return box{}, explain("create", err)
		}
		n.Volumes = append(n.Volumes, volumeMount{ID: id, Path: m.Path(), ReadOnly: m.ReadOnly})
	}
	b.id, err = p.modal.create(ctx, n)
	var e *cloud.Error
	switch {
	case err == nil && b.id == "":
		return box{}, schemas.OpErrorf(schemas.Unavailable, "create", "Modal does not say which sandbox it has made")
	case err == nil:
	case !errors.As(err, &e) || e.Route != "SandboxCreateV2" || e.Status != 0 && e.Status < 500 && e.Status != http.StatusConflict || !e.Sent:
		return box{}, explain("create", err)
	default:
		if b, err = p.lost(ctx, n.Name, b.birth, err); err != nil {
			return box{}, err
		}
	}
	slot.Started(b.id)
	if o.kind == kindRun { // a kept one may be another worker's already
		err = p.room.Recount(ctx, b.id)
	}
	return b, err
}

// volumeOf returns the name of the volume with a workspace's files.
func (p *Provider) volumeOf(namespace string) string {
	return p.opt.App + "-" + cloud.Digest(namespace)
}

// lost searches for the sandbox of a create whose answer was lost, or whose retry reported that the name exists. Code: conflict, another
// worker's sandbox has the name.
func (p *Provider) lost(ctx context.Context, name, birth string, cause error) (box, error) {
	const looks = 3
	again := wait.Backoff{First: 200 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		id, err := p.modal.byName(ctx, name)
		if err == nil {
			var tags map[string]string
			if tags, err = p.modal.tags(ctx, id); err == nil {
				if tags[tagBirth] != birth {
					return box{}, schemas.Wrap(schemas.Conflict, "create", "another has made the sandbox meanwhile", cause)
				}
				return box{id, birth}, nil
			}
		}
		if n == looks || !again.Sleep(ctx, n) {
			if cloud.StatusOf(cause) == http.StatusConflict {
				return box{}, schemas.Wrap(schemas.Conflict, "create", "another's sandbox had the name", cause)
			}
			return box{}, schemas.Wrap(schemas.Unavailable, "create", "Modal has not said whether it made a sandbox", errors.Join(cause, err))
		}
	}
}

// running lists the running sandboxes of this installation. Codes: those of [explain].
func (p *Provider) running(ctx context.Context) ([]cloud.Running, error) {
	all, err := p.modal.list(ctx, nil)
	var running []cloud.Running
	for _, s := range all {
		running = append(running, cloud.Running{ID: s.ID, Since: time.UnixMicro(int64(s.Created * 1e6))})
	}
	return running, explain("list", err)
}

// discard ends, in the background, a sandbox that no caller knows of. If that fails it ends at its time limit.
func (p *Provider) discard(id string) {
	p.work.Go(func() {
		if err := p.endNow(id); err != nil {
			p.log.Warn("sandbox not ended, it ends at its time limit", "sandbox", id, "error", err)
		}
	})
}

func (p *Provider) endNow(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return p.end(ctx, id)
}

// end ends a sandbox and waits until its processes have ended. A sandbox that is gone is no error.
func (p *Provider) end(ctx context.Context, id string) error {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	if err := p.modal.end(ctx, id); cloud.StatusOf(err) == http.StatusNotFound {
		p.room.Ended(id)
		return nil
	} else if err != nil {
		return err
	}
	p.room.Ended(id)
	for n := 1; ; n++ {
		running, err := p.modal.running(ctx, id)
		if err == nil && !running || cloud.StatusOf(err) == http.StatusNotFound {
			return nil
		}
		if !again.Sleep(ctx, n) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// leave ends the sandbox of a command that has ended. It waits until the service has accepted the request, but not until the sandbox is
// gone.
func (p *Provider) leave(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := p.modal.end(ctx, id); err != nil && cloud.StatusOf(err) != http.StatusNotFound {
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
	switch {
	case e.Status == http.StatusConflict:
		return schemas.Wrap(schemas.Conflict, op, "Modal does not do it: "+e.Message, err)
	case op == "create" && e.Status == http.StatusNotFound:
		return schemas.Wrap(schemas.Unsupported, op, "Modal has no such image, or environment: \"sandjet doctor\" explains", err)
	case e.Status == http.StatusPreconditionFailed:
		return schemas.Wrap(schemas.Unavailable, op, "Modal does not do it now: "+e.Message, err)
	}
	return cloud.Explain(op, service, err)
}

// gone returns the error for a persistent sandbox that does not exist or does not run. Code: not_found.
func gone(cause error) error {
	const text = "the sandbox is gone: reserve it again"
	if cause == nil {
		return schemas.OpErrorf(schemas.NotFound, "run", text)
	}
	return schemas.Wrap(schemas.NotFound, "run", text, fmt.Errorf("modal: %w", cause))
}
