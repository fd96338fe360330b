package kubernetes

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	sweepEvery = 10 * time.Minute
	// orphanAge is how long a policy may be there before its box: making a box takes a request or two.
	orphanAge = 15 * time.Minute
)

// sweep removes what crashes have left behind. See [Provider.Sweep].
func (bs *boxes) sweep(ctx context.Context, now time.Time, dry bool) (removed []string, err error) {
	boxes, err := bs.list(ctx, labelBox)
	if err != nil {
		return nil, err
	}
	policies, err := bs.api.list(ctx, policyResource, labelBox)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for i := range boxes {
		b := &boxes[i]
		there[b.GetName()] = true
		if b.GetLabels()[labelKind] != kindRun && bs.served.sandbox == "" { // its policy says how long
			continue
		}
		if !over(b, now) {
			continue
		}
		removed = append(removed, b.GetName())
		if dry {
			continue
		}
		r := bs.served.boxResource()
		if b.GetKind() == kindOfClaims {
			r = bs.served.poolClaimResource()
		}
		if err := bs.api.remove(ctx, r, b.GetName(), string(b.GetUID())); err != nil {
			return removed, err
		}
	}
	for i := range policies.Items {
		o := &policies.Items[i]
		name := o.GetName()
		lost := !there[name] && now.Sub(o.GetCreationTimestamp().Time) > orphanAge
		kept := o.GetLabels()[labelKind] == kindKept
		if bs.served.sandbox == "" && kept { // it may be paused: then its policy alone stands for it
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
		if bs.served.sandbox == "" && kept {
			err = bs.remove(ctx, name, string(o.GetUID()))
		} else {
			err = bs.api.removeVersion(ctx, policyResource, o)
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// over reports whether a box has expired. A box without a time has not.
func over(o *unstructured.Unstructured, now time.Time) bool {
	until, _, _ := unstructured.NestedString(o.Object, "spec", "shutdownTime")
	if until == "" {
		until = o.GetAnnotations()[noteUntil]
	}
	t, err := time.Parse(time.RFC3339, until)
	return err == nil && now.After(t)
}
