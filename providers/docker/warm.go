package docker

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

// warmFor is how long a ready container waits for a call.
const warmFor = 10 * time.Minute

// warmPool are containers that are ready for single calls: each is started, and its program waits for a command. One is for the
// rules that it was made by, account and mounts among them; it serves one call and nothing has run in it before. When its worker
// dies the input of its program ends, and it does too. At most most are there or being made.
type warmPool struct {
	most int

	mu     sync.Mutex
	closed bool
	making int
	ready  []*warm // the oldest first
}

// warm is a container that is ready.
type warm struct {
	rules   string // digest
	id      string
	stream  *stream
	folders []os.FileInfo // of its workspaces, as they were mounted
	until   time.Time
}

// mayBeWarm reports whether a container can be ready before its call: what is in the way of removing a volume, and what has a
// way out, is made for its call.
func (p *Provider) mayBeWarm(r rules) bool {
	return p.warm.most > 0 && r.Network == schemas.DenyAll && (p.opt.Workspaces != "" || len(r.Mounts) == 0)
}

// take returns a container that is ready for a call with these rules; nil: there is none. Those that must not be used any more
// are returned as well.
func (w *warmPool) take(digest string, fits func(*warm) bool) (found *warm, stale []*warm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = slices.DeleteFunc(w.ready, func(one *warm) bool {
		switch {
		case found != nil || one.rules != digest:
			return false
		case fits(one):
			found = one
		default:
			stale = append(stale, one)
		}
		return true
	})
	return found, stale
}

// place asks for a place of one that is to be made; where all are taken the oldest of other rules makes room.
func (w *warmPool) place(digest string) (ok bool, old *warm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false, nil
	}
	if len(w.ready)+w.making >= w.most {
		i := slices.IndexFunc(w.ready, func(one *warm) bool { return one.rules != digest })
		if i < 0 {
			return false, nil
		}
		old = w.ready[i]
		w.ready = slices.Delete(w.ready, i, i+1)
	}
	w.making++
	return true, old
}

// put ends the making of one; nil: it failed. Not kept: the pool is closed.
func (w *warmPool) put(one *warm) (kept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.making--
	if w.closed || one == nil {
		return false
	}
	w.ready = append(w.ready, one)
	return true
}

// old takes out those whose time is over, or all where the pool is being closed.
func (w *warmPool) old(now time.Time, all bool) (out []*warm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = w.closed || all
	w.ready = slices.DeleteFunc(w.ready, func(one *warm) bool {
		gone := all || now.After(one.until)
		if gone {
			out = append(out, one)
		}
		return gone
	})
	return out
}

// keepWarm ends containers that have waited long enough, and all when the provider is closed.
func (p *Provider) keepWarm() {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		select {
		case <-p.done:
			p.discard(p.warm.old(time.Time{}, true)...)
			return
		case now := <-every.C:
			p.discard(p.warm.old(now, false)...)
		}
	}
}

func (p *Provider) discard(all ...*warm) {
	for _, one := range all {
		if one != nil {
			_ = one.stream.Close() // it has no error
			p.remove(one.id)
		}
	}
}

// warmUp makes a container for the next call with these rules, where there is a place for it.
func (p *Provider) warmUp(r rules) {
	digest := r.digest()
	ok, old := p.warm.place(digest)
	if !ok {
		return
	}
	p.discard(old)
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	one, err := p.makeWarm(ctx, r)
	if err != nil {
		p.log.Debug("no container created in advance", "account", r.Account, "error", err)
	}
	if !p.warm.put(one) {
		p.discard(one)
	}
}

func (p *Provider) makeWarm(ctx context.Context, r rules) (*warm, error) {
	folders, err := p.foldersOf(ctx, r)
	if err != nil {
		return nil, err
	}
	one := &warm{rules: r.digest(), folders: folders, until: time.Now().Add(warmFor)}
	program := boxrun.Command{Shell: p.shell, Limit: warmFor + schemas.MaxTimeout + 2*aloneFor}
	if one.id, err = p.makeForCall(ctx, r, program, nil); err != nil {
		return nil, err
	}
	if one.stream, err = p.attachAndStart(ctx, one.id); err != nil {
		p.remove(one.id)
		return nil, err
	}
	return one, nil
}

// foldersOf are the folders of workspaces on this host, by which one that was removed and recreated is recognised.
func (p *Provider) foldersOf(ctx context.Context, r rules) ([]os.FileInfo, error) {
	var out []os.FileInfo
	for _, m := range r.Mounts {
		if err := p.makeWorkspace(ctx, r.Account, m.Namespace); err != nil {
			return nil, err
		}
		info, err := os.Lstat(p.workspace(m.Namespace))
		if err != nil {
			return nil, schemas.Wrap(schemas.Unavailable, "run", "the workspace's folder cannot be read", err)
		}
		out = append(out, info)
	}
	return out, nil
}

// inWarm runs the command in a container that is ready. Not done: there is none, or it was of no use, and nothing was started.
func (r *running) inWarm(ctx context.Context, rules rules, res providers.Result) (_ providers.Result, done bool, _ error) {
	p := r.p
	folders, err := p.foldersOf(ctx, rules)
	if err != nil {
		return res, false, nil // making a container says why
	}
	now := time.Now()
	one, stale := p.warm.take(rules.digest(), func(w *warm) bool {
		return now.Before(w.until) && slices.EqualFunc(w.folders, folders, os.SameFile)
	})
	p.ending.Go(func() { p.discard(stale...) })
	if one == nil {
		return res, false, nil
	}
	defer p.ending.Go(func() { p.discard(one) })
	if r.program.ID != "" { // its labels are given: by its name it is found when the run has to be ended
		_, err := p.engine.ContainerRename(ctx, one.id, client.ContainerRenameOptions{NewName: p.runName(r.program.ID)})
		if err != nil {
			return res, false, nil // as above
		}
	}
	r.id = one.id
	got, err := r.carryOut(ctx, one.stream, res)
	code := schemas.CodeOf(err)
	if err != nil && !got.Started && ctx.Err() == nil && (code == schemas.Unavailable || code == schemas.NotFound) {
		p.log.Debug("container created in advance not used, creating another", "container", one.id, "error", err)
		return res, false, nil
	}
	return got, true, err
}

// runName is the name of a container that was ready before its run was known.
func (p *Provider) runName(id string) string {
	return p.opt.Installation + "-run-" + runLabel(id) + "-" + strings.ToLower(schemas.NewID(""))
}
