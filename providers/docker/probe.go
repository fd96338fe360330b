package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// inspectEngine finds out what the engine supports. Codes: unavailable, unsupported (it has no such runtime).
func inspectEngine(ctx context.Context, engine *client.Client, runtime string) (facts, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return facts{}, unreachable(engine, err)
	}
	if _, ok := info.Info.Runtimes[runtime]; runtime != "" && !ok {
		return facts{}, schemas.OpErrorf(schemas.Unsupported, "docker",
			"the engine has no runtime %q: install it and name it in the engine's daemon.json", runtime)
	}
	return factsOf(info.Info, runtime), nil
}

// unreachable returns the error for an engine that does not answer, with a remedy.
func unreachable(engine *client.Client, err error) error {
	address := engine.DaemonHost()
	remedy := "start it, or say where it is with --docker-host or DOCKER_HOST"
	if strings.Contains(err.Error(), "permission denied") {
		remedy = "this user may not open its socket: add it to the group docker, which makes it as good as root on that host"
	}
	return schemas.Wrap(schemas.Unavailable, "docker", fmt.Sprintf("the Docker engine at %s does not answer: %s", address, remedy), err)
}

// probing finds out what there is in a container: the shell, and whether /proc shows limits, by which processes are found.
const probing = `command -v bash >/dev/null && echo bash || echo sh
for tool in env head tail mkdir rm sleep; do command -v "$tool" >/dev/null || echo "missing $tool"; done
grep -q '^Max file locks' /proc/self/limits || echo unmarked
echo "user $(id -u)"`

// probe runs a command in a container as calls do, and finds out which shell the image has.
func (p *Provider) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p.image.shell = "sh"
	res, err := p.Run(ctx, providers.Command{Script: probing, Timeout: probeTimeout})
	if err != nil {
		return schemas.Wrap(schemas.Unsupported, "docker", fmt.Sprintf("no command runs in a container of %s", p.image.name), err)
	}
	for line := range strings.Lines(string(res.Stdout)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "bash":
			p.image.shell = line
		case strings.HasPrefix(line, "missing "):
			return schemas.OpErrorf(schemas.Unsupported, "docker",
				"the image %s has no %s: use another, such as the one in deploy/sandbox", p.image.name, line[len("missing "):])
		case line == "unmarked":
			p.containers.log.Warn("processes of a call cannot be identified in containers: "+
				"a cancelled call of a persistent sandbox ends the whole container", "runtime", p.terms.opt.Runtime)
		case strings.HasPrefix(line, "user ") && line != fmt.Sprintf("user %d", p.processes.owner.uid):
			return schemas.OpErrorf(schemas.Unsupported, "docker",
				"commands in containers of %s run as %s and not as %d", p.image.name, line, p.processes.owner.uid)
		}
	}
	if res.ExitCode != 0 {
		return schemas.OpErrorf(schemas.Unsupported, "docker",
			"commands in containers of %s fail with exit code %d: %.200s", p.image.name, res.ExitCode, res.Stderr)
	}
	return nil
}
