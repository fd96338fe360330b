package docker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/schemas"
)

// endedFor is how long after its end no worker can be reading the end of a call's container any more.
const endedFor = time.Minute

// Leftover is a container that no worker can be waiting for any more.
type Leftover struct {
	ID      string
	Name    string
	Account schemas.AccountID
	Why     string // for people

	kept bool // it may be started at any time
}

// leftovers lists the containers that no worker can be waiting for any more.
func (cs *containers) leftovers(ctx context.Context) ([]Leftover, error) {
	now, err := cs.clock(ctx)
	if err != nil {
		return nil, engineError("leftovers", err)
	}
	all, err := cs.list(ctx)
	if err != nil {
		return nil, engineError("leftovers", err)
	}
	var left []Leftover
	for _, c := range all {
		why, err := cs.leftBehind(ctx, c, now)
		if err != nil {
			return nil, err
		}
		if why != "" {
			l := Leftover{ID: c.ID, Account: schemas.AccountID(c.Labels[labelAccount]), Why: why, kept: c.Labels[labelKind] == kindKept}
			if len(c.Names) > 0 {
				l.Name = c.Names[0]
			}
			left = append(left, l)
		}
	}
	return left, nil
}

// leftBehind returns why no worker waits for a container; empty if one may.
func (cs *containers) leftBehind(ctx context.Context, c container.Summary, now time.Time) (string, error) {
	if c.Labels[labelKind] == kindKept {
		return neverStarted(c, now), nil
	}
	end, _ := strconv.ParseInt(c.Labels[labelUntil], 10, 64) // 0 if there is no such label
	if time.Now().Unix() > end {
		return "its call is over", nil
	}
	switch c.State {
	case container.StateExited, container.StateDead:
		found, err := cs.engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			return "", nil
		}
		if err != nil || found.Container.State == nil {
			return "", engineError("leftovers", err)
		}
		ended, err := time.Parse(time.RFC3339Nano, found.Container.State.FinishedAt)
		if err == nil && now.Sub(ended) > endedFor {
			return "it has ended and nobody has removed it", nil
		}
	case container.StateCreated:
		return neverStarted(c, now), nil
	default:
	}
	return "", nil
}

// neverStarted returns a reason if a container was created but never started, and its maker must have died since; otherwise it is empty.
func neverStarted(c container.Summary, now time.Time) string {
	if c.State == container.StateCreated && now.Sub(time.Unix(c.Created, 0)) > endedFor {
		return "it was never started"
	}
	return ""
}

// removeLeftovers removes the containers that leftovers lists, and returns those removed.
func (cs *containers) removeLeftovers(ctx context.Context) ([]Leftover, error) {
	all, err := cs.leftovers(ctx)
	if err != nil {
		return nil, err
	}
	var removed []Leftover
	var errs []error
	for _, l := range all {
		_, err := cs.engine.ContainerRemove(ctx, l.ID, client.ContainerRemoveOptions{Force: !l.kept, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			errs = append(errs, engineError("leftovers", err))
			continue
		}
		removed = append(removed, l)
	}
	return removed, errors.Join(errs...)
}
