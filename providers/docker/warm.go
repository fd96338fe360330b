package docker

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// warmFor is how long a ready container waits for a call.
const warmFor = 10 * time.Minute

// warmPool holds containers for single calls that were started in advance, each with a program that waits for a command. A container
// matches the rules that it was made with, including account and mounts; it serves one call, and nothing has run in it before. When its
// worker dies the program's input ends, and with it the container. There are at most most of them, including those being made.
type warmPool struct {
	most int

	mu     sync.Mutex
	closed bool
	making int
	ready  []*warm // the oldest first
}

// warm is a container of the pool.
type warm struct {
	rules   string // digest
	id      string
	stream  *stream
	folders []os.FileInfo // of its workspaces, as they were mounted
	until   time.Time
}

// warmer fills and empties a warmPool.
type warmer struct {
	pool       warmPool
	containers *containers
	builder    *builder
	image      *image
	work       *inflight.Work
}

// suits reports whether a container for these rules may be made in advance. It may not if it would keep a volume from being removed, or
// has a network.
func (w *warmer) suits(r rules) bool {
	return w.pool.most > 0 && r.Network == schemas.DenyAll && (w.builder.workspaces.volumes == nil || len(r.Mounts) == 0)
}

// take removes and returns a container for these rules; nil if there is none. It also returns those that must no longer be used.
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

// place reserves a slot for a container that is to be made. If all slots are taken it removes the oldest container with other rules, which
// is returned.
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

// put ends a reservation of place and adds the container; nil: making it failed. It returns false if the container was not added.
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

// old removes and returns the expired containers; with all it closes the pool and returns all of them.
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

// keep periodically ends expired containers, and all when the provider is closed.
func (w *warmer) keep() {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		select {
		case <-w.work.Context().Done():
			w.discard(w.pool.old(time.Time{}, true)...)
			return
		case now := <-every.C:
			w.discard(w.pool.old(now, false)...)
		}
	}
}

// discard ends and removes containers of the pool.
func (w *warmer) discard(all ...*warm) {
	for _, one := range all {
		if one != nil {
			_ = one.stream.Close() // it has no error
			w.containers.remove(one.id)
		}
	}
}

// fill makes a container for the next call with these rules, if the pool has a slot.
func (w *warmer) fill(r rules) {
	digest := r.digest()
	ok, old := w.pool.place(digest)
	if !ok {
		return
	}
	w.discard(old)
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	one, err := w.create(ctx, r)
	if err != nil {
		w.containers.log.Debug("no container created in advance", "account", r.Account, "error", err)
	}
	if !w.pool.put(one) {
		w.discard(one)
	}
}

// create makes and starts a container for the pool.
func (w *warmer) create(ctx context.Context, r rules) (*warm, error) {
	folders, err := w.builder.workspaces.folders(ctx, r)
	if err != nil {
		return nil, err
	}
	one := &warm{rules: r.digest(), folders: folders, until: time.Now().Add(warmFor)}
	program := boxrun.Command{Shell: w.image.shell, Limit: warmFor + schemas.MaxTimeout + 2*aloneFor}
	if one.id, err = w.builder.createForCall(ctx, r, program, nil); err != nil {
		return nil, err
	}
	if one.stream, err = w.containers.start(ctx, one.id); err != nil {
		w.containers.remove(one.id)
		return nil, err
	}
	return one, nil
}

// take returns a container for a call with these rules, whose workspace folders have not been replaced since; nil if there is none. The
// caller discards it.
func (w *warmer) take(ctx context.Context, r rules) *warm {
	folders, err := w.builder.workspaces.folders(ctx, r)
	if err != nil {
		return nil // making a container says why
	}
	now := time.Now()
	one, stale := w.pool.take(r.digest(), func(one *warm) bool {
		return now.Before(one.until) && slices.EqualFunc(one.folders, folders, os.SameFile)
	})
	w.work.Go(func() { w.discard(stale...) })
	return one
}

// rename gives a container of the pool a name by which EndRun finds it: its labels cannot be changed any more.
func (w *warmer) rename(ctx context.Context, one *warm, run string) error {
	name := w.containers.installation + "-run-" + runLabel(run) + "-" + strings.ToLower(schemas.NewID(""))
	_, err := w.containers.engine.ContainerRename(ctx, one.id, client.ContainerRenameOptions{NewName: name})
	return err
}
