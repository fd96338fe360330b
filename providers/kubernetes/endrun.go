package kubernetes

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

//go:embed endnamed.sh
var endNamedProgram string

// runName is a random name for a run, and for its box where it has one of its own. It begins as [runPrefix] says.
func runName(id string) string { return runPrefix(id) + random() }

// runPrefix is what the names of runs with an id begin with: others find them by it.
func runPrefix(id string) string {
	if id == "" {
		return ""
	}
	return hashOf("run", id) + "-"
}

// processes ends the processes of runs in pods.
type processes struct {
	api  *api
	pods *pods
}

// end ends a run from outside, within endTimeout. A pod that is gone has no run any more.
func (ps *processes) end(ctx context.Context, t target, token string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return again(ctx, func(error) bool { return true }, func() error {
		in := newInput(endInput(token))
		in.finish()
		err := ps.api.exec(ctx, t.pod.name, in, io.Discard, io.Discard)
		if err == nil {
			return nil
		}
		if s, ok, lookErr := ps.pods.of(ctx, t.name, t.box); lookErr == nil && (!ok || s.uid != t.pod.uid || s.over) {
			return nil
		}
		return err
	})
}

// endRun kills the processes of a run in the pods of a kept box.
func (ps *processes) endRun(ctx context.Context, box, id string) error {
	all, err := ps.api.list(ctx, podResource, labelBox+"="+box)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all.Items {
		if s := look(o); !s.over && s.container != "" { // else no process was ever in it, or none is any more
			errs = append(errs, ps.endInPod(ctx, o, id))
		}
	}
	return errors.Join(errs...)
}

// endInPod sweeps in a pod, repeatedly where that fails. The pod itself stays in any case: it holds more than this run, and what the
// cluster does not answer proves nothing about its processes.
func (ps *processes) endInPod(ctx context.Context, pod unstructured.Unstructured, id string) error {
	return again(ctx, func(error) bool { return true }, func() error {
		in := newInput([]byte(sweepMark + endNamedProgram + "\x00" + runsPath + "/" + runPrefix(id) + "\n"))
		in.finish()
		err := ps.api.exec(ctx, pod.GetName(), in, io.Discard, io.Discard)
		if err == nil {
			return nil
		}
		now, lookErr := ps.api.get(ctx, podResource, pod.GetName())
		if lookErr == nil && (now == nil || now.GetUID() != pod.GetUID() || look(*now).over) {
			return nil // it has ended meanwhile
		}
		return err
	})
}

// unanswered reports whether an error says no more than that the cluster did not answer.
func unanswered(err error) bool { return schemas.CodeOf(err) == schemas.Unavailable }

// again does something until it succeeds, until its error is none that another try may help, or ctx ends.
func again(ctx context.Context, may func(error) bool, do func() error) error {
	pause := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for n := 1; ; n++ {
		err := do()
		if err == nil || !may(err) || !pause.Sleep(ctx, n) {
			return err
		}
	}
}
