package kubernetes

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// pods waits for the pods of boxes: to be ready, to have ended and to be gone.
type pods struct {
	api        *api
	patience   time.Duration // for a pod to be ready
	controlled bool          // the controller of agent-sandbox makes them
}

// podsOf returns the pods that the box owns. Others with the same label may belong to an earlier box of that name.
func podsOf(all []unstructured.Unstructured, box string) []podState {
	var out []podState
	for _, o := range all {
		if ownedBy(o, box) {
			out = append(out, look(o))
		}
	}
	return out
}

// ready waits until the box's pod is ready, at most StartTimeout. Codes: unavailable (it is not ready in time, or cannot be: the message
// contains the cluster's reason), not_found (the pod of a box without a controller has ended).
func (ps *pods) ready(ctx context.Context, name, box string) (podState, error) {
	waiting, cancel := context.WithTimeout(ctx, ps.patience)
	defer cancel()
	var found podState
	problem := "no pod has been made for it"
	if ps.controlled {
		problem += ": see whether the controller of agent-sandbox runs"
	}
	err := ps.api.await(waiting, podResource, labelBox+"="+name, func(all []unstructured.Unstructured) (bool, error) {
		candidates := podsOf(all, box)
		for _, s := range candidates {
			switch {
			case s.leaving:
				problem = "its former pod is still being ended"
			case s.over:
				found, problem = s, "its pod has ended: "+s.problem
				return true, schemas.OpErrorf(schemas.NotFound, "reserve", "the sandbox has ended: %s", s.problem)
			case s.hopeless:
				return true, schemas.OpErrorf(schemas.Unavailable, "start box", "%s", s.problem)
			case s.ready:
				found = s
				return true, nil
			default:
				problem = s.problem
			}
		}
		return false, nil
	})
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return podState{}, schemas.OpErrorf(schemas.Unavailable, "start box", "the sandbox was not ready within %s: %s",
			ps.patience, problem)
	}
	return found, err
}

// of returns the current state of the box's pod; ok is false if there is none.
func (ps *pods) of(ctx context.Context, name, box string) (s podState, ok bool, err error) {
	all, err := ps.api.list(ctx, podResource, labelBox+"="+name)
	if err != nil {
		return s, false, err
	}
	for _, s := range podsOf(all.Items, box) {
		if !s.leaving {
			return s, true, nil
		}
	}
	return s, false, nil
}

// gone waits until those accepts none of the box's pods, at most endTimeout. Code: unavailable.
func (ps *pods) gone(ctx context.Context, name string, those func(unstructured.Unstructured) bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := ps.api.await(ctx, podResource, labelBox+"="+name, func(all []unstructured.Unstructured) (bool, error) {
		return !slices.ContainsFunc(all, those), nil
	})
	if err != nil && ctx.Err() != nil {
		return schemas.OpErrorf(schemas.Unavailable, "end box", "its pod is still there after %s", endTimeout)
	}
	return err
}

// boxGone waits until all pods that the box owns are gone.
func (ps *pods) boxGone(ctx context.Context, name, box string) error {
	return ps.gone(ctx, name, func(o unstructured.Unstructured) bool { return ownedBy(o, box) })
}

// podGone waits until the pod with the UID is gone, and with it all its processes.
func (ps *pods) podGone(ctx context.Context, name, uid string) error {
	return ps.gone(ctx, name, func(o unstructured.Unstructured) bool { return string(o.GetUID()) == uid })
}

// hasEnded waits up to reasonWithin for the pod to have ended: its state is updated after the streams into it end.
func (ps *pods) hasEnded(ctx context.Context, t target) (s podState, ended bool) {
	ctx, cancel := context.WithTimeout(ctx, reasonWithin)
	defer cancel()
	for n := 1; ; n++ {
		o, err := ps.api.get(ctx, podResource, t.pod.name)
		switch {
		case err != nil:
		case o == nil || string(o.GetUID()) != t.pod.uid:
			return podState{}, true
		default:
			if s := look(*o); s.over {
				return s, true
			} else if s.leaving {
				return podState{problem: "it is being removed"}, true
			}
		}
		if !(wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}).Sleep(ctx, n) {
			return podState{}, false
		}
	}
}
