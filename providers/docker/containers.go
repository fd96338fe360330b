package docker

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// Labels of the containers and volumes of an installation, by which all of them are found again.
const (
	labelInstallation = "sandjet.installation"
	labelKind         = "sandjet.kind" // kindCall, kindKept
	labelKey          = "sandjet.key"  // of a kept container
	labelAccount      = "sandjet.account"
	labelRules        = "sandjet.rules"       // of a kept container: what it was made with
	labelDeployment   = "sandjet.deployment"  // of a kept container: the log whose records speak of it
	labelNetwork      = "sandjet.network"     // of a kept container with a relay: its rules
	labelSandbox      = "sandjet.sandbox"     // of a kept container: the record that it is of
	labelCredentials  = "sandjet.credentials" //nolint:gosec // a label: what any worker continues with where secrets are bound to hosts
	labelUntil        = "sandjet.until"       // of a call's: Unix time after which no worker waits for it
	labelRun          = "sandjet.run"         // of a call's: which run it is for, as a hash
	labelWorkspace    = "sandjet.workspace"   // of a volume
)

const (
	kindCall = "call"
	kindKept = "kept"
)

const (
	home = "/home/sandbox"
	temp = "/tmp"
	// ownProcesses are those of a container that are not its commands': process 1, the one that keeps it, and the programs
	// that watch over commands.
	ownProcesses = 16
	stopTimeout  = 2 // seconds
)

// containers finds, starts and ends the containers of one installation on an engine.
type containers struct {
	engine       *client.Client
	log          *slog.Logger
	installation string
	work         *inflight.Work
}

// list lists the installation's containers that have all of the labels, in any state.
func (cs *containers) list(ctx context.Context, labels ...string) ([]container.Summary, error) {
	labels = append([]string{labelInstallation + "=" + cs.installation}, labels...)
	found, err := cs.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	return found.Items, err
}

// clock returns the time of the engine's clock, by which containers' times are set.
func (cs *containers) clock(ctx context.Context) (time.Time, error) {
	info, err := cs.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return time.Time{}, err
	}
	now, err := time.Parse(time.RFC3339Nano, info.Info.SystemTime)
	if err != nil {
		return time.Now(), nil //nolint:nilerr // an engine that does not say it
	}
	return now, nil
}

// kept returns the kept container of a ref. Codes: not_found, unavailable.
func (cs *containers) kept(ctx context.Context, ref schemas.Ref) (container.InspectResponse, error) {
	gone := schemas.OpErrorf(schemas.NotFound, "run", "the sandbox is gone: reserve it again")
	if !isID(ref.ID) {
		return container.InspectResponse{}, gone
	}
	found, err := cs.engine.ContainerInspect(ctx, ref.ID, client.ContainerInspectOptions{})
	c := found.Container
	switch {
	case errdefs.IsNotFound(err):
		return c, gone
	case err != nil:
		return c, engineError("run", err)
	case c.State == nil || c.Config == nil || c.Config.Labels[labelKind] != kindKept ||
		c.Config.Labels[labelInstallation] != cs.installation || refOf(c) != ref:
		return c, gone
	}
	return c, nil
}

// isID reports whether s is a full container id. Names and id prefixes may refer to other containers at other times.
func isID(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// refOf returns the ref of a running container. Its Epoch is the start time, because each start has new processes.
func refOf(c container.InspectResponse) schemas.Ref {
	return schemas.Ref{ID: c.ID, Epoch: c.State.StartedAt}
}

// start starts the container of a call and returns a stream to its main process.
func (cs *containers) start(ctx context.Context, id string) (*stream, error) {
	attached, err := cs.engine.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, err
	}
	s := &stream{HijackedResponse: attached.HijackedResponse}
	if _, err := cs.engine.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		_ = s.Close() // it has no error
		return nil, err
	}
	return s, nil
}

// kill kills all processes of a container and waits until they have ended. A container that has ended already or is gone is no error.
func (cs *containers) kill(ctx context.Context, id string) error {
	_, err := cs.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // not running is what is wanted
		return err
	}
	ended := cs.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-ended.Result:
	case err := <-ended.Error:
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// wake unpauses a container, because nothing can run in a paused one. Ended is true if the container has no processes.
func (cs *containers) wake(ctx context.Context, id string) (ended bool, err error) {
	found, err := cs.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case found.Container.State == nil || !found.Container.State.Running:
		return true, nil
	case !found.Container.State.Paused:
		return false, nil
	}
	_, err = cs.engine.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	if errdefs.IsConflict(err) { // another process has unpaused it
		return false, nil
	}
	return false, err
}

// remove removes a container and kills its processes. Errors are only logged.
func (cs *containers) remove(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_, err := cs.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // a conflict: it is being removed
		cs.log.Warn("container not removed, it is left for the sweep", "container", id, "error", err)
	}
}

// untilEnded blocks until the given start of a container has ended, or the provider is closed.
func (cs *containers) untilEnded(id, started string) {
	ctx := cs.work.Context()
	for {
		ended := cs.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-ended.Result:
		case err := <-ended.Error:
			cs.log.Debug("end of a container not seen, checking again", "container", id, "error", err)
		}
		found, err := cs.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		switch {
		case ctx.Err() != nil, errdefs.IsNotFound(err):
			return
		case err == nil && (found.Container.State == nil || !found.Container.State.Running || found.Container.State.StartedAt != started):
			return
		}
		select { // the engine was unreachable
		case <-time.After(relayPause):
		case <-ctx.Done():
			return
		}
	}
}

// until returns the label value for the time after which no worker waits for a container.
func until(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
