package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// removals is how many boxes of ended runs are removed at a time beside further runs.
const removals = 64

// runBoxes makes boxes for single runs, from the warm pool or new ones, and discards them.
type runBoxes struct {
	boxes *boxes
	pool  *warmPool
	log   *slog.Logger
	slots chan struct{} // one for each removal that continues behind a run
	work  inflight.Work
}

// make makes a box for one run. With an error, the target is what has to be discarded.
func (rb *runBoxes) make(ctx context.Context, cmd providers.Command) (target, error) {
	spec := cmd.Spec
	spec.Network = cmd.Network
	if len(cmd.Mounts) > 0 {
		spec.Mounts = cmd.Mounts
	}
	life := rb.boxes.pods.patience + cmd.Timeout + cmd.Grace + spareTime
	b := box{name: "run-" + runName(cmd.ID), kind: kindRun, spec: spec, limit: life, until: time.Now().Add(life)}
	t := target{name: b.name, fresh: true}
	anchor, claimed, err := rb.pool.claim(ctx, b)
	t.claimed = claimed || err != nil && rb.boxes.served.claims != ""
	if err == nil && !claimed {
		anchor, err = rb.boxes.make(ctx, b)
	}
	if err != nil {
		return t, notStarted(err)
	}
	t.box = string(anchor.GetUID())
	t.pod, err = rb.boxes.pods.ready(ctx, b.name, t.box)
	if err == nil && rb.boxes.served.sandbox != "" {
		err = rb.boxes.policies.own(ctx, b.name, podReference(t.pod))
	}
	return t, notStarted(err)
}

// notStarted replaces the codes not_found and conflict, which would make a caller reserve a kept box again, by unavailable.
func notStarted(err error) error {
	if code := schemas.CodeOf(err); code == schemas.NotFound || code == schemas.Conflict {
		return schemas.Wrap(schemas.Unavailable, "run", "the box ended before the command was started", err)
	}
	return err
}

// discard removes the box of a run, even if ctx has ended. With wait it waits until the box's processes are gone; otherwise the runner has
// ended them already.
func (rb *runBoxes) discard(ctx context.Context, t target, wait bool) error {
	ctx = context.WithoutCancel(ctx)
	r := rb.boxes.served.boxResource()
	if t.claimed {
		r = rb.boxes.served.poolClaimResource()
	}
	err := rb.boxes.api.remove(ctx, r, t.name, "")
	if wait && err == nil {
		err = rb.boxes.pods.gone(ctx, t.name, anyPod)
	}
	if err != nil {
		rb.log.Warn("sandbox of a run not removed, it ends at its time limit", "box", t.name, "error", err)
		return err
	}
	if rb.boxes.served.sandbox != "" && t.pod.uid != "" {
		return nil // the policy belongs to the pod, and goes behind it
	}
	rb.slots <- struct{}{}
	rb.work.Go(func() {
		defer func() { <-rb.slots }()
		err := rb.boxes.pods.gone(ctx, t.name, anyPod)
		if err == nil {
			err = rb.boxes.api.remove(ctx, policyResource, t.name, "")
		}
		if err != nil {
			rb.log.Warn("policy of a run not removed, the next sweep removes it", "box", t.name, "error", err)
		}
	})
	return nil
}

// endRun removes the boxes that were made for one run, and waits until their pods are gone.
func (rb *runBoxes) endRun(ctx context.Context, id string) error {
	all, err := rb.boxes.list(ctx, labelKind+"="+kindRun)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all {
		if strings.HasPrefix(o.GetName(), "run-"+runPrefix(id)) {
			errs = append(errs, rb.discard(ctx, target{name: o.GetName(), fresh: true, claimed: o.GetKind() == kindOfClaims}, true))
		}
	}
	return errors.Join(errs...)
}
