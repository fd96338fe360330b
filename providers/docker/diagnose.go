package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Diagnose checks what the provider needs of the engine: whether it answers, the image, the limits that it can enforce, and containers
// that dead workers have left. It changes nothing and blocks for a few seconds at most.
func Diagnose(ctx context.Context, o Options) []providers.Diagnosis {
	o.Workspaces, o.Log = "", nil
	o, engine, err := prepare(o)
	if err != nil {
		return []providers.Diagnosis{{About: "docker", Says: err.Error()}}
	}
	defer engine.Close() //nolint:errcheck // nothing was begun
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		said := "no engine answers at " + engine.DaemonHost()
		remedy := "for --provider docker only: start it, or say where it is with --docker-host or DOCKER_HOST"
		if strings.Contains(err.Error(), "permission denied") {
			said, remedy = "this user may not open "+engine.DaemonHost(), "for --provider docker only: add it to the group docker"
		}
		return []providers.Diagnosis{{About: "docker", Says: said, Remedy: remedy}}
	}
	t := &terms{opt: o, facts: factsOf(info.Info, o.Runtime)}
	out := []providers.Diagnosis{{About: "docker", Good: true,
		Says: fmt.Sprintf("engine %s at %s, cgroups v%s", info.Info.ServerVersion, engine.DaemonHost(), info.Info.CgroupVersion)}}
	image := providers.Diagnosis{About: "docker image", Good: true, Says: o.Image + " is there"}
	if _, err := engine.ImageInspect(ctx, o.Image); errdefs.IsNotFound(err) {
		image = providers.Diagnosis{About: "docker image", Says: o.Image + " is not there",
			Remedy: "build it with \"docker build -t " + o.Image + " deploy/sandbox\", or name another with --docker-image"}
	} else if err != nil {
		image = providers.Diagnosis{About: "docker image", Says: err.Error()}
	}
	out = append(out, image)
	if missing := t.isolation(schemas.DenyAll).Missing; len(missing) > 0 {
		out = append(out, providers.Diagnosis{About: "docker lacks", Says: strings.Join(missing, ", "),
			Remedy: "cgroup words: enable these controllers for the engine; " +
				"userns: \"userns-remap\" in its daemon.json; seccomp: an engine that has it"})
	}
	network := providers.Diagnosis{About: "docker network", Good: true,
		Says: "deny-all, and by a relay in the worker restricted and allow-all (--networks)"}
	if why := obstacle(engine.DaemonHost(), t.facts.runtime); why != "" {
		network = providers.Diagnosis{About: "docker network", Says: "no restricted, and allow-all is a bridge of the engine: " + why,
			Remedy: "run the worker as root on the engine's host, beside its containers' processes, with runc or crun as their runtime"}
	}
	out = append(out, network)
	left, err := (&containers{engine: engine, installation: o.Installation}).leftovers(ctx)
	switch {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		out = append(out, providers.Diagnosis{About: "docker", Says: err.Error()})
	case len(left) > 0:
		names := make([]string, 0, len(left))
		for _, l := range left {
			names = append(names, strings.TrimPrefix(l.Name, "/")+" ("+l.Why+")")
		}
		out = append(out, providers.Diagnosis{About: "leftovers", Says: strings.Join(names, ", "), Remedy: "the next worker for docker removes them"})
	}
	return out
}
