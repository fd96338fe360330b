package kubernetes

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// attempts is how often a box is looked for or made while others change it, before its caller is asked to try later.
const attempts = 8

// reserve makes or wakes the box kept under key. See [Provider.Reserve].
func (bs *boxes) reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	b := box{name: boxName(spec.Account, key), kind: kindKept, key: key, spec: spec, until: time.Now().Add(bs.lifetime)}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for n := 1; ; n++ {
		id, err := bs.attempt(ctx, b)
		switch code := schemas.CodeOf(err); {
		case err == nil:
			return refOf(bs.api.namespace, b.name, id), nil
		case code != schemas.NotFound && code != schemas.Conflict:
			return schemas.Ref{}, err
		case n == attempts:
			return schemas.Ref{}, schemas.Wrap(schemas.Unavailable, "reserve", "the box is being changed by others", err)
		case !again.Sleep(ctx, n):
			return schemas.Ref{}, ctx.Err()
		}
	}
}

// attempt makes or wakes a box once. Codes not_found and conflict: the box was changed meanwhile, try again.
func (bs *boxes) attempt(ctx context.Context, b box) (identity, error) {
	anchor, err := bs.make(ctx, b)
	if err != nil {
		return identity{}, err
	}
	s, err := bs.pods.ready(ctx, b.name, string(anchor.GetUID()))
	if schemas.CodeOf(err) == schemas.NotFound && s.over { // evicted, out of memory, its node gone: a new pod takes over
		return identity{}, errors.Join(err, bs.restart(ctx, b.name, string(anchor.GetUID()), s))
	}
	if err != nil {
		return identity{}, err
	}
	if now, err := bs.anchor(ctx, b.name); err != nil {
		return identity{}, err
	} else if now == nil || now.GetUID() != anchor.GetUID() || now.GetAnnotations()[noteLeaving] != "" {
		return identity{}, schemas.OpErrorf(schemas.Conflict, "reserve", "the sandbox was released while it started")
	}
	return identity{box: string(anchor.GetUID()), pod: s.uid, container: s.container}, nil
}

// pause removes the pod of a kept box. See [Provider.Pause].
func (bs *boxes) pause(ctx context.Context, ref schemas.Ref) error {
	name, id, ok := parseRef(bs.api.namespace, ref)
	if !ok {
		return nil
	}
	there, ok, err := bs.pods.of(ctx, name, id.box)
	if err != nil || ok && there.uid != id.pod { // it was woken since
		return err
	}
	if bs.served.sandbox != "" {
		err = bs.suspend(ctx, name, id.box)
	} else {
		err = bs.api.remove(ctx, podResource, name, id.pod)
	}
	if code := schemas.CodeOf(err); code == schemas.NotFound || code == schemas.Conflict {
		return nil
	}
	if err != nil {
		return err
	}
	return bs.pods.podGone(ctx, name, id.pod)
}

// release deletes the box of a ref and waits until its processes are gone. See [Provider.Release].
func (bs *boxes) release(ctx context.Context, ref schemas.Ref) error {
	name, id, ok := parseRef(bs.api.namespace, ref)
	if !ok {
		return nil
	}
	anchor, err := bs.anchor(ctx, name)
	if err != nil || anchor == nil || string(anchor.GetUID()) != id.box {
		return err
	}
	return bs.remove(ctx, name, id.box)
}
