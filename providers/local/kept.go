//go:build linux

package local

import (
	"context"
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// kept is a box that persists between runs.
type kept struct {
	ready   chan struct{} // closed when it is made, or was not
	err     error
	sb      *sandbox
	shape   shape
	mounts  []providers.Mount
	network schemas.Network
	ref     schemas.Ref

	account schemas.AccountID
	// Under the provider's lock:
	inside int           // runs in it
	used   time.Time     // when one last began or ended, or it was reserved
	owes   time.Duration // processor time that what was left in it has used beyond what is free
}

// end ends the box, after waiting until it is made if necessary. Its jobs end with the reason why.
func (k *kept) end(why string) {
	<-k.ready
	if k.sb != nil {
		k.sb.because(why)
		k.sb.end()
	}
}

// alive reports whether the box is made and has not ended.
func (k *kept) alive() bool {
	select {
	case <-k.ready:
	default:
		return false
	}
	if k.err != nil {
		return false
	}
	select {
	case <-k.sb.Ended():
		return false
	default:
		return true
	}
}

// Reserve returns the box kept under key, and makes it if there is none. If the existing box was made with other rules (network, mounts,
// limits) it is ended and a new one is made, so that changed rules apply from then on.
func (p *keptBoxes) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	if err := ctx.Err(); err != nil {
		return schemas.Ref{}, err
	}
	if key == "" {
		return schemas.Ref{}, schemas.Invalidf("key", "must not be empty")
	}
	if err := p.check(spec, spec.Network, spec.Mounts); err != nil {
		return schemas.Ref{}, err
	}
	shape := p.shape(spec)
	for {
		k, mine, err := p.entry(key, shape, spec)
		if err != nil {
			return schemas.Ref{}, err
		}
		if mine {
			return p.fillEntry(ctx, key, k, spec)
		}
		select {
		case <-k.ready:
		case <-ctx.Done():
			return schemas.Ref{}, ctx.Err()
		}
		if k.err == nil && k.alive() {
			return k.ref, nil
		}
		if k.err != nil && ctx.Err() == nil && schemas.CodeOf(k.err) != schemas.Interrupted {
			return schemas.Ref{}, k.err
		}
	}
}

// entry returns the kept box of a key, or a new entry (mine is true) for which the caller must make the box.
func (p *keptBoxes) entry(key string, s shape, spec providers.Spec) (k *kept, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, errClosed("reserve")
	}
	if k := p.kept[key]; k != nil {
		select {
		case <-k.ready:
			if k.alive() && k.shape == s && slices.Equal(k.mounts, spec.Mounts) && sameNetwork(k.network, spec.Network) {
				k.used = time.Now()
				return k, false, nil
			}
			if k.sb != nil {
				k.sb.replaced.Store(true)
				go k.end("its sandbox was made anew under other rules")
			}
			delete(p.kept, key)
		default:
			return k, false, nil
		}
	}
	victim, err := p.makeRoom(spec.Account)
	if err != nil {
		return nil, false, err
	}
	if victim != nil {
		p.log.Info("idle sandbox instance ended to make room for another", "box", victim.ref.ID, "account", victim.account)
		go victim.end("its sandbox was idle and made room for another")
	}
	k = &kept{
		ready: make(chan struct{}), shape: s, mounts: slices.Clone(spec.Mounts), network: spec.Network, account: spec.Account, used: time.Now(),
	}
	p.kept[key] = k
	return k, true, nil
}

func (p *keptBoxes) fillEntry(ctx context.Context, key string, k *kept, spec providers.Spec) (schemas.Ref, error) {
	defer close(k.ready)
	k.sb, k.err = p.fresh(ctx, spec)
	if k.err != nil {
		p.mu.Lock()
		if p.kept[key] == k {
			delete(p.kept, key)
		}
		p.mu.Unlock()
		return schemas.Ref{}, k.err
	}
	p.warm(k.sb.shape)
	k.ref = schemas.Ref{ID: key, Epoch: k.sb.Facts().BootID}
	return k.ref, nil
}

// Release ends a kept box with all its processes and waits until it has ended and the ends of its jobs are recorded.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	p.mu.Lock()
	k := p.kept[ref.ID]
	if k == nil || !k.made() || k.ref != ref {
		p.mu.Unlock()
		return nil
	}
	delete(p.kept, ref.ID)
	p.mu.Unlock()
	k.end("its sandbox was released")
	if k.sb != nil {
		p.settle(ctx, k.sb)
	}
	return nil
}

// made reports whether making the box has finished, successfully or not.
func (k *kept) made() bool {
	select {
	case <-k.ready:
		return true
	default:
		return false
	}
}

// find returns the kept box of ref and counts the caller as a user of it until leave is called. Code: not_found, the box is gone or was
// made with other rules.
func (p *keptBoxes) find(cmd providers.Command) (sb *sandbox, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kept[cmd.Sandbox.ID]
	if k == nil || !k.made() || k.ref != cmd.Sandbox || !k.alive() {
		return nil, nil, schemas.OpErrorf(schemas.NotFound, "run", "the sandbox is gone: reserve it again")
	}
	if !slices.Equal(k.mounts, cmd.Mounts) || !sameNetwork(k.network, cmd.Network) {
		return nil, nil, schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	k.inside++
	k.used = time.Now()
	return k.sb, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		k.inside--
		k.used = time.Now()
	}, nil
}
