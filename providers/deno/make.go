package deno

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// The labels of a sandbox: the service takes five, and none changes.
const (
	labelInstallation = "sandjet"
	labelBirth        = "sandjet-birth" // a random number of the create: the epoch
	labelBox          = "sandjet-box"   // kindKept and a digest of account and key, or kindRun and one of the id of the run that it is for
	labelFacts        = "sandjet-facts" // see facts
	labelKey          = "sandjet-key"   // of a kept one; a dot stands for its account at the beginning

	kindKept = "kept-"
	kindRun  = "run-"
)

const opCreate = "create"

// facts is the content of a sandbox's label: digests of its rules, its deployment and its workspace, when it was made, and its account.
type facts struct {
	rules, deployment, workspace string
	made                         time.Time
	account                      schemas.AccountID
}

// short returns a digest short enough for several in one label; empty for an empty text.
func short(text string) string {
	if text == "" {
		return ""
	}
	return cloud.Digest(text)[:16]
}

func (f facts) String() string {
	return strings.Join([]string{f.rules, f.deployment, f.workspace, strconv.FormatInt(f.made.Unix(), 36), string(f.account)}, ".")
}

// facts parses the label of a sandbox. Fields that cannot be parsed are empty.
func (s sandbox) facts() (f facts) {
	const parts = 5
	words := strings.SplitN(s.Labels[labelFacts], ".", parts)
	if len(words) != parts {
		return f
	}
	f.rules, f.deployment, f.workspace, f.account = words[0], words[1], words[2], schemas.AccountID(words[4])
	if made, err := strconv.ParseInt(words[3], 36, 64); err == nil {
		f.made = time.Unix(made, 0)
	}
	return f
}

// rulesOf returns a digest of the rules that a persistent sandbox is made with. It includes the values of variables that are bound to
// hosts, because they are set when the sandbox is made.
func (p *sandboxes) rulesOf(spec providers.Spec) string {
	bound := map[string]string{}
	for name := range spec.Network.Credentials {
		bound[name] = cloud.Digest(spec.Env[name])
	}
	spec.Env, spec.Deployment, spec.Sandbox = nil, "", "" // they are each run's own, and no rule
	text, err := json.Marshal(struct {
		Spec         providers.Spec
		Root, Region string
		Memory       int
		Bound        map[string]string
	}{spec, p.opt.Root, p.opt.Region, p.opt.Memory, bound})
	if err != nil {
		panic(err) // plain data
	}
	return short(string(text))
}

// order describes a sandbox that is to be made.
type order struct {
	box  string // of labelBox
	key  string // of a kept one
	spec providers.Spec
	life time.Duration
}

func (o order) kept() bool { return strings.HasPrefix(o.box, kindKept) }

// workspace returns a digest of the sandbox's workspace; empty if it has none.
func (o order) workspace() string {
	if len(o.spec.Mounts) == 0 {
		return ""
	}
	return short(o.spec.Mounts[0].Namespace)
}

// made is the result of a create: the sandbox, and the connection that made it (nil if that was lost).
type made struct {
	box   sandbox
	first *link
	err   error
}

// make makes a sandbox. The create request is not cancelled with ctx, because no worker would know what was made: if the sandbox is made
// after ctx has ended it is killed. Codes: exhausted, unavailable, denied, unsupported, conflict (a persistent one exists meanwhile).
func (p *sandboxes) make(ctx context.Context, o order) (sandbox, *link, error) {
	done := make(chan made) // there may be no receiver
	p.work.Go(func() {
		apart, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opt.Start)
		defer cancel()
		m := p.create(apart, ctx.Done(), o)
		select {
		case done <- m:
		case <-ctx.Done():
			if m.first != nil {
				m.first.Close()
			}
			if m.err == nil {
				p.discard(m.box.ID)
			}
		}
	})
	select {
	case m := <-done:
		return m.box, m.first, m.err
	case <-ctx.Done():
		return sandbox{}, nil, ctx.Err()
	}
}

// create makes a sandbox. It waits briefly if its workspace is in use by another sandbox.
func (p *sandboxes) create(ctx context.Context, unwanted <-chan struct{}, o order) made {
	waits := p.opt.Start / 6 // for what has just ended; for what has not the call waits
	begun := time.Now()
	pause := wait.Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		m := p.tryCreate(ctx, o)
		if !errors.Is(m.err, errHeld) {
			return m
		}
		held := schemas.Wrap(schemas.Exhausted, opCreate,
			"the workspace is in another sandbox, and on Deno it is in one at a time: it is free when that one has ended", m.err)
		select {
		case <-unwanted:
			return made{err: held}
		default:
		}
		if time.Since(begun) > waits || !pause.Sleep(ctx, n) {
			return made{err: held}
		}
	}
}

// errHeld says that the workspace of a sandbox is in another one.
var errHeld = errors.New("the volume of the workspace is in another sandbox")

// tryCreate sends one create request. If the answer is lost it searches for the sandbox by its birth.
func (p *sandboxes) tryCreate(ctx context.Context, o order) made {
	slot, err := p.admit(ctx, o)
	if err != nil {
		return made{err: err}
	}
	defer slot.Leave()
	m := p.askFor(ctx, o)
	if m.err != nil {
		return m
	}
	slot.Started(m.box.ID)
	if o.kept() { // it may be another worker's already
		return m
	}
	if m.err = p.room.Recount(ctx, m.box.ID); m.err != nil {
		if m.first != nil {
			m.first.Close()
		}
		p.discard(m.box.ID)
	}
	return m
}

// askFor sends the create request of a sandbox for which there is room.
func (p *sandboxes) askFor(ctx context.Context, o order) made {
	c, err := p.configOf(ctx, o)
	if err != nil {
		return made{err: err}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return made{err: err}
	}
	header := base64.StdEncoding.EncodeToString(ascii(text))
	if len(header) > mostConfig {
		return made{err: schemas.OpErrorf(schemas.Unsupported, opCreate,
			"what the sandbox is made of is longer than Deno takes: bind fewer or shorter variables to hosts, or allow fewer hosts")}
	}
	begun := time.Now()
	conn, a, err := p.at(p.opt.Region).Socket(ctx, cloud.Call{
		Path: routeCreate, Auth: http.Header{"X-Deno-Sandbox-Config": {header}}, Wait: p.opt.Start,
	})
	p.observe(a.Header, begun)
	var failed *cloud.Error
	switch {
	case err == nil:
		return p.madeBy(conn, a.Header.Get("X-Deno-Sandbox-Id"), c)
	case cloud.StatusOf(err) == http.StatusConflict && o.workspace() != "":
		return made{err: errors.Join(errHeld, err)}
	case !errors.As(err, &failed) || failed.Status != 0 && failed.Status < 500 || !failed.Sent:
		return made{err: explain(opCreate, err)}
	}
	return p.lost(ctx, c.Labels, err)
}

// madeBy returns the result of a create that was answered.
func (p *sandboxes) madeBy(conn *websocket.Conn, id string, c config) made {
	if regionOf(id) == "" {
		_ = conn.Close() // nothing is known of it: it ends at the end of its time
		return made{err: schemas.OpErrorf(schemas.Unavailable, opCreate, "Deno does not say which sandbox it has made")}
	}
	return made{box: sandbox{ID: id, Status: statusRunning, Labels: c.Labels}, first: newLink(conn)}
}

// configOf returns the configuration of a new sandbox. It makes the volume of the workspace if there is none.
func (p *sandboxes) configOf(ctx context.Context, o order) (config, error) {
	c := config{
		StopAt: p.stopAt(o.life), Memory: p.opt.Memory, Secrets: secretsOf(o.spec),
		Labels: map[string]string{labelInstallation: p.opt.Installation, labelBirth: cloud.Random(), labelBox: o.box, labelFacts: facts{
			p.rulesOf(o.spec), short(o.spec.Deployment), o.workspace(), time.Now(), o.spec.Account,
		}.String()},
	}
	if o.key != "" {
		c.Labels[labelKey] = keyLabel(o.spec.Account, o.key)
	}
	if p.opt.Root != "" {
		c.Root = &root{p.opt.Root}
	}
	c.Allowed = allowedOf(o.spec.Network)
	for _, m := range o.spec.Mounts {
		slug, err := p.workspaces.volume(ctx, m.Namespace)
		if err != nil {
			return c, err
		}
		c.Volumes = append(c.Volumes, volumeMount{slug, m.Path()})
	}
	return c, nil
}

// keyLabel returns a key in the form that is stored in a label.
func keyLabel(account schemas.AccountID, key string) string {
	if rest, ok := strings.CutPrefix(key, string(account)+"."); ok {
		return "." + rest
	}
	return key
}

// key returns the key with which a sandbox was reserved.
func (s sandbox) key() string {
	text := s.Labels[labelKey]
	if strings.HasPrefix(text, ".") {
		return string(s.facts().account) + text
	}
	return text
}

// ascii escapes all non-ASCII characters in JSON, for use in a header.
func ascii(text []byte) []byte {
	var b strings.Builder
	for _, r := range string(text) {
		if r < 0x80 {
			b.WriteByte(byte(r))
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return []byte(b.String())
}

// lost searches for the sandbox of a create whose answer was lost. If it is made only later it ends by itself, or is found by its key. It
// uses the same list request as the election, so that no list shows it earlier than others of its key.
func (p *sandboxes) lost(ctx context.Context, labels map[string]string, cause error) made {
	const looks = 3
	pause := wait.Backoff{First: 200 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelBox: labels[labelBox]})
		if i := slices.IndexFunc(found, func(s sandbox) bool { return s.Labels[labelBirth] == labels[labelBirth] }); i >= 0 {
			return made{box: found[i]}
		}
		if n == looks || !pause.Sleep(ctx, n) {
			return made{err: schemas.Wrap(schemas.Unavailable, opCreate, "Deno has not said whether it made a sandbox", errors.Join(cause, err))}
		}
	}
}

// admit reserves a slot for a create if fewer sandboxes run than allowed, none of them uses the workspace, and the persistent sandbox does
// not exist already. The caller releases the slot.
func (p *sandboxes) admit(ctx context.Context, o order) (*cloud.Slot, error) {
	slot := p.room.Take("")
	all, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation})
	switch {
	case err != nil:
		err = explain(opCreate, err)
	case o.kept() && slices.ContainsFunc(all, func(s sandbox) bool { return s.Labels[labelBox] == o.box }):
		err = schemas.OpErrorf(schemas.Conflict, opCreate, "another worker has made it meanwhile")
	case o.workspace() != "" && slices.ContainsFunc(all, func(s sandbox) bool { return s.facts().workspace == o.workspace() }):
		err = errHeld
	default:
		err = slot.Fits(runningOf(all))
	}
	if err != nil {
		slot.Leave()
	}
	return slot, err
}

func runningOf(all []sandbox) []cloud.Running {
	var running []cloud.Running
	for _, s := range all {
		running = append(running, cloud.Running{ID: s.ID, Since: s.facts().made})
	}
	return running
}

// running lists the running sandboxes of this installation. Codes: those of [explain].
func (p *sandboxes) running(ctx context.Context) ([]cloud.Running, error) {
	all, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation})
	return runningOf(all), explain("list", err)
}

// discard kills, in the background, a sandbox that no caller knows of. If that fails it ends at its time limit.
func (p *sandboxes) discard(id string) {
	p.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		if err := p.kill(ctx, id); err != nil {
			p.log.Warn("sandbox not ended, it ends at its time limit", "sandbox", id, "error", err)
		}
	})
}

// end kills a sandbox and waits until it is gone. A sandbox that is gone is no error.
func (p *sandboxes) end(ctx context.Context, s sandbox) error {
	const enough = 10 // looks at lists, which may lag behind
	pause := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	if err := p.kill(ctx, s.ID); err != nil {
		return err
	}
	for n := 1; ; n++ {
		found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelBirth: s.Labels[labelBirth]})
		switch {
		case err == nil && len(found) == 0:
			return nil
		case n >= enough: // a second time there is nothing to kill
			return p.kill(ctx, s.ID)
		case !pause.Sleep(ctx, n):
			return errors.Join(err, ctx.Err())
		}
	}
}

// endNow is end for callers without a context.
func (p *sandboxes) endNow(s sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return p.end(ctx, s)
}

// gone returns the error for a persistent sandbox that does not exist or does not run. Code: not_found.
func gone(cause error) error {
	const text = "the sandbox is gone: reserve it again"
	if cause == nil {
		return schemas.OpErrorf(schemas.NotFound, "run", text)
	}
	return schemas.Wrap(schemas.NotFound, "run", text, fmt.Errorf("deno: %w", cause))
}
