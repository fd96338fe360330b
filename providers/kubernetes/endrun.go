package kubernetes

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

var _ providers.RunEnder = (*Provider)(nil)

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

// EndRun kills what is there of a run: its own box is removed, and in the kept one its processes are killed, which have the
// folder of their run in their environment. What the cluster does not answer is tried again for as long as there is: until the run is ended
// its call waits.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	if id == "" {
		return schemas.Invalidf("id", "must not be empty")
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := errors.Join(
		again(ctx, unanswered, func() error { return p.endOwn(ctx, id) }),
		again(ctx, unanswered, func() error { return p.endInKept(ctx, boxName(account, key), id) }),
	)
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "end run", "what is left of the run cannot be ended", err)
	}
	return nil
}

// endOwn removes the boxes of a run alone, and waits until their pods are gone.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	all, err := p.made(ctx, labelKind+"="+kindRun)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all {
		if strings.HasPrefix(o.GetName(), "run-"+runPrefix(id)) {
			errs = append(errs, p.discard(ctx, target{name: o.GetName(), fresh: true, claimed: o.GetKind() == kindOfClaims}, true))
		}
	}
	return errors.Join(errs...)
}

// endInKept kills the processes of a run in the pods of a kept box.
func (p *Provider) endInKept(ctx context.Context, box, id string) error {
	all, err := p.list(ctx, podResource, labelBox+"="+box)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all.Items {
		if s := look(o); !s.over && s.container != "" { // else no process was ever in it, or none is any more
			errs = append(errs, p.endInPod(ctx, o, id))
		}
	}
	return errors.Join(errs...)
}

// endInPod sweeps in a pod, repeatedly where that fails. The pod itself stays in any case: it holds more than this run, and what the
// cluster does not answer proves nothing about its processes.
func (p *Provider) endInPod(ctx context.Context, pod unstructured.Unstructured, id string) error {
	return again(ctx, func(error) bool { return true }, func() error {
		in := newInput([]byte(sweepMark + endNamedProgram + "\x00" + runsPath + "/" + runPrefix(id) + "\n"))
		in.finish()
		err := p.exec(ctx, pod.GetName(), in, io.Discard, io.Discard)
		if err == nil {
			return nil
		}
		now, lookErr := p.get(ctx, podResource, pod.GetName())
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
