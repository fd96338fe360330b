package kubernetes

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	sweepEvery = 10 * time.Minute
	// orphanAge is how long a policy may be there before its box: making a box takes a request or two.
	orphanAge = 15 * time.Minute
)

// Pause takes the pod of a kept box away; its home stays, unless it is ephemeral. The next Reserve gives it a pod
// again, under another epoch. What is paused or gone already is no error.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error {
	name, id, ok := p.parseRef(ref)
	if !ok {
		return nil
	}
	there, ok, err := p.podOf(ctx, name, id.box)
	if err != nil || ok && there.uid != id.pod { // it was woken since
		return err
	}
	if p.sandbox != "" {
		err = p.suspend(ctx, name, id.box)
	} else {
		err = p.remove(ctx, podResource, name, id.pod)
	}
	if code := schemas.CodeOf(err); code == schemas.NotFound || code == schemas.Conflict {
		return nil
	}
	if err != nil {
		return err
	}
	return p.podsGone(ctx, name, id.pod)
}

// Clean sweeps every ten minutes until ctx ends. Several processes may do so at the same time.
func (p *Provider) Clean(ctx context.Context) error {
	for wait.Sleep(ctx, wait.Jitter(sweepEvery)) {
		switch removed, err := p.Sweep(ctx, time.Now(), false); {
		case err != nil && ctx.Err() == nil:
			p.opt.Log.Warn("sweep failed, trying again later", "error", err)
		case len(removed) > 0:
			p.opt.Log.Info("orphans removed", "objects", removed)
		}
	}
	return nil
}

// Sweep removes what crashes have left behind: boxes of runs whose time is over, boxes that were unused for their lifetime, and policies
// without a box. It returns their names, and with dry only that. Now is a time of this host's clock, which has to be about the cluster's.
func (p *Provider) Sweep(ctx context.Context, now time.Time, dry bool) (removed []string, err error) {
	boxes, err := p.made(ctx, labelBox)
	if err != nil {
		return nil, err
	}
	policies, err := p.list(ctx, policyResource, labelBox)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for i := range boxes {
		b := &boxes[i]
		there[b.GetName()] = true
		if b.GetLabels()[labelKind] != kindRun && p.sandbox == "" { // its policy says how long
			continue
		}
		if !over(b, now) {
			continue
		}
		removed = append(removed, b.GetName())
		if dry {
			continue
		}
		r := p.boxResource()
		if b.GetKind() == kindOfClaims {
			r = p.claimedResource()
		}
		if err := p.remove(ctx, r, b.GetName(), string(b.GetUID())); err != nil {
			return removed, err
		}
	}
	for i := range policies.Items {
		o := &policies.Items[i]
		name := o.GetName()
		lost := !there[name] && now.Sub(o.GetCreationTimestamp().Time) > orphanAge
		kept := o.GetLabels()[labelKind] == kindKept
		if p.sandbox == "" && kept { // it may be paused: then its policy alone stands for it
			lost = over(o, now) || o.GetAnnotations()[noteLeaving] != "" && lost
		}
		if !lost || o.GetDeletionTimestamp() != nil {
			continue
		}
		if !slices.Contains(removed, name) {
			removed = append(removed, name)
		}
		if dry {
			continue
		}
		if p.sandbox == "" && kept {
			err = p.release(ctx, name, string(o.GetUID()))
		} else {
			err = p.removeVersion(ctx, policyResource, o)
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// over reports whether a box's time is over. One that does not say is not.
func over(o *unstructured.Unstructured, now time.Time) bool {
	until, _, _ := unstructured.NestedString(o.Object, "spec", "shutdownTime")
	if until == "" {
		until = o.GetAnnotations()[noteUntil]
	}
	t, err := time.Parse(time.RFC3339, until)
	return err == nil && now.After(t)
}
