package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

// runLabel returns the label value that identifies the run of a container.
func runLabel(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// endRun removes the containers that were made for one run.
func (cs *containers) endRun(ctx context.Context, id string) error {
	labelled := func() client.Filters {
		return make(client.Filters).Add("label", labelInstallation+"="+cs.installation, labelKind+"="+kindCall)
	}
	found, err := cs.engine.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: labelled().Add("label", labelRun+"="+runLabel(id)),
	})
	if err != nil {
		return err
	}
	ready, err := cs.engine.ContainerList(ctx, client.ContainerListOptions{ // that were ready before, and have it in their names
		All: true, Filters: labelled().Add("name", "-run-"+runLabel(id)+"-"),
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range slices.Concat(found.Items, ready.Items) {
		_, err := cs.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsConflict(err) { // it is being removed: its processes end before it goes
			err = cs.kill(ctx, c.ID)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// processes kills processes of commands in kept containers, by their mark.
type processes struct {
	containers *containers
	image      *image
	owner      user
}

// endRun kills the processes of a run in a kept container.
func (ps *processes) endRun(ctx context.Context, name, id string) error {
	found, err := ps.containers.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return carry.Swept(ps.sweep(ctx, found.Container.ID, boxrun.MarkOf(id))) // by its id: the name may be another one's soon
}

// sweep kills the processes with a mark in a kept container. It retries, because the container contains more than these and should not be
// ended. Ctx must have a deadline. A container that is gone or stopped has nothing left.
func (ps *processes) sweep(ctx context.Context, id, mark string) error {
	return carry.Sweeping{
		Sandbox: id, Log: ps.containers.log,
		Sweep: func(ctx context.Context) error {
			if ended, err := ps.containers.wake(ctx, id); ended || err != nil {
				return err
			}
			return ps.sweepOnce(ctx, id, mark)
		},
		Gone: func(ctx context.Context, _ error) (bool, error) { return ps.containers.wake(ctx, id) },
		End:  func(ctx context.Context) error { return ps.containers.kill(ctx, id) },
	}.Run(ctx)
}

// sweepOnce kills the processes with a mark, once. Its error is that of [boxrun.SweepResult], or the engine's.
func (ps *processes) sweepOnce(ctx context.Context, id, mark string) error {
	made, err := ps.containers.engine.ExecCreate(ctx, id, client.ExecCreateOptions{
		AttachStdout: true, User: ps.owner.String(), WorkingDir: "/", Cmd: boxrun.TrySweepArguments(ps.image.shell, ps.image.path, mark),
	})
	if err != nil {
		return err
	}
	attached, err := ps.containers.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	_, _ = attached.Reader.WriteTo(io.Discard) // its end is the program's
	state, err := ps.containers.engine.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	switch {
	case err != nil:
		return err
	case state.Running:
		return schemas.OpErrorf(schemas.Unavailable, "sweep", "the connection to the sweep broke")
	}
	return boxrun.SweepResult(state.ExitCode, "")
}
