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

// runName returns a random name for a run, and for its box if it has one of its own. It begins with [runPrefix].
func runName(id string) string { return runPrefix(id) + random() }

// runPrefix returns the beginning of the names of runs with that id, by which other workers find them.
func runPrefix(id string) string {
	if id == "" {
		return ""
	}
	return hashOf("run", id) + "-"
}

// processes kills the processes of runs in pods.
type processes struct {
	api  *api
	pods *pods
}

// end kills the processes of a run by another exec, within endTimeout. A pod that is gone is no error.
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

// endInPod kills the run's processes in a pod, and retries until ctx ends. The pod itself stays in any case: it contains more than this
// run, and a missing answer proves nothing about its processes.
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

// unanswered reports whether an error only says that the cluster did not answer.
func unanswered(err error) bool { return schemas.CodeOf(err) == schemas.Unavailable }

// again repeats do until it succeeds, may returns false for its error, or ctx ends. It returns the last error.
func again(ctx context.Context, may func(error) bool, do func() error) error {
	pause := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for n := 1; ; n++ {
		err := do()
		if err == nil || !may(err) || !pause.Sleep(ctx, n) {
			return err
		}
	}
}
