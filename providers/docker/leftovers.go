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

// Leftover is a container for which no worker can be waiting any more.
type Leftover struct {
	ID      string
	Name    string
	Account schemas.AccountID
	Why     string // for people

	kept bool // it may be started at any time
}

// Leftovers lists the containers of calls whose worker has died: those that have ended a minute ago, that were
// never started, and that run longer than any call may. Of kept containers only those are among them that were never
// started: the others belong to records, not to workers.
func (p *Provider) Leftovers(ctx context.Context) ([]Leftover, error) {
	info, err := p.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, engineError("leftovers", err)
	}
	now, err := time.Parse(time.RFC3339Nano, info.Info.SystemTime) // the engine's clock made the times below
	if err != nil {
		now = time.Now()
	}
	all, err := p.labelled(ctx, labelInstallation+"="+p.opt.Installation)
	if err != nil {
		return nil, engineError("leftovers", err)
	}
	var left []Leftover
	for _, c := range all {
		why, err := p.leftBehind(ctx, c, now)
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

// leftBehind says why no worker waits for a call's container, empty if one may.
func (p *Provider) leftBehind(ctx context.Context, c container.Summary, now time.Time) (string, error) {
	if c.Labels[labelKind] == kindKept {
		return neverStarted(c, now), nil
	}
	end, _ := strconv.ParseInt(c.Labels[labelUntil], 10, 64) // 0 if there is no such label
	if time.Now().Unix() > end {
		return "its call is over", nil
	}
	switch c.State {
	case container.StateExited, container.StateDead:
		found, err := p.engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
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

// neverStarted says of a container that was made and not started that its maker has died since; empty for every other one.
func neverStarted(c container.Summary, now time.Time) string {
	if c.State == container.StateCreated && now.Sub(time.Unix(c.Created, 0)) > endedFor {
		return "it was never started"
	}
	return ""
}

// RemoveLeftovers removes what [Provider.Leftovers] lists, and returns what it has removed.
func (p *Provider) RemoveLeftovers(ctx context.Context) ([]Leftover, error) {
	all, err := p.Leftovers(ctx)
	if err != nil {
		return nil, err
	}
	var removed []Leftover
	var errs []error
	for _, l := range all {
		_, err := p.engine.ContainerRemove(ctx, l.ID, client.ContainerRemoveOptions{Force: !l.kept, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			errs = append(errs, engineError("leftovers", err))
			continue
		}
		removed = append(removed, l)
	}
	return removed, errors.Join(errs...)
}

// sweep removes what dead workers have left, again and again until the provider is closed.
func (p *Provider) sweep() {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		stop := make(chan struct{})
		p.ending.Go(func() {
			select {
			case <-p.done:
				cancel()
			case <-stop:
			}
		})
		p.serveAll(ctx)
		removed, err := p.RemoveLeftovers(ctx)
		close(stop)
		cancel()
		if len(removed) > 0 {
			p.log.Info("containers of dead workers removed", "count", len(removed))
		}
		select {
		case <-p.done:
			return
		default:
		}
		if err != nil {
			p.log.Warn("containers of dead workers not removed, retrying", "error", err)
		}
		select {
		case <-p.done:
			return
		case <-every.C:
		}
	}
}
