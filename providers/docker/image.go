package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// PullPolicy says when an image is pulled, at the start of a worker.
type PullPolicy string

// The policies.
const (
	PullMissing PullPolicy = "missing" // when the engine does not have it
	PullAlways  PullPolicy = "always"  // at each start, so that a tag that was moved is followed
	PullNever   PullPolicy = "never"
)

// PullPolicies lists them.
func PullPolicies() []PullPolicy { return []PullPolicy{PullMissing, PullAlways, PullNever} }

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// learn finds out what the engine and the image can do.
func (p *Provider) learn(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := p.engine.Info(asking, client.InfoOptions{})
	if err != nil {
		return p.unreachable(err)
	}
	p.facts = factsOf(info.Info)
	if p.opt.MaxCPUs == 0 {
		p.opt.MaxCPUs = max(1, float64(p.facts.processors)/2)
	}
	p.facts.runtime = cmp.Or(p.opt.Runtime, info.Info.DefaultRuntime)
	if p.opt.Runtime != "" {
		if _, ok := info.Info.Runtimes[p.opt.Runtime]; !ok {
			return schemas.Errorf(schemas.Unsupported, "docker",
				"the engine has no runtime %q: install it and name it in the engine's daemon.json", p.opt.Runtime)
		}
	}
	if err := p.getImage(ctx); err != nil {
		return err
	}
	if err := p.probe(ctx); err != nil {
		return err
	}
	p.findRelay(ctx)
	p.log.Info("containers are ready", "image", p.opt.Image, "shell", p.shell, "missing", p.isolation.Missing, "runtime", p.opt.Runtime)
	return nil
}

// unreachable says why there is no engine, and what to do.
func (p *Provider) unreachable(err error) error {
	address := p.engine.DaemonHost()
	remedy := "start it, or say where it is with --docker-host or DOCKER_HOST"
	if strings.Contains(err.Error(), "permission denied") {
		remedy = "this user may not open its socket: add it to the group docker, which makes it as good as root on that host"
	}
	return schemas.Wrap(schemas.Unavailable, "docker", fmt.Sprintf("the Docker engine at %s does not answer: %s", address, remedy), err)
}

// getImage makes sure that the engine has the image.
func (p *Provider) getImage(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, openTimeout)
	found, err := p.engine.ImageInspect(asking, p.opt.Image)
	cancel()
	missing := errdefs.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return p.unreachable(err)
	case missing && p.opt.Pull == PullNever:
		return schemas.Errorf(schemas.NotFound, "docker",
			"the engine has no image %s: build it with \"docker build -t %[1]s deploy/sandbox\", or name another with --docker-image", p.opt.Image)
	case missing || p.opt.Pull == PullAlways:
		if err := p.pull(ctx); err != nil {
			if missing || ctx.Err() != nil {
				return err
			}
			p.log.Warn("image not pulled, using the local one", "image", p.opt.Image, "error", err)
		}
		asking, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if found, err = p.engine.ImageInspect(asking, p.opt.Image); err != nil {
			return p.unreachable(err)
		}
	}
	p.path = defaultPath
	if found.Config != nil {
		for _, variable := range found.Config.Env {
			if path, ok := strings.CutPrefix(variable, "PATH="); ok && path != "" {
				p.path = path
			}
		}
	}
	return nil
}

// progressEvery is how often a pull is logged.
const progressEvery = 5 * time.Second

// pull gets the image from its registry. Registries that want a password are for "docker pull": the engine then has it.
func (p *Provider) pull(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	p.log.Info("pulling the image", "image", p.opt.Image)
	answer, err := p.engine.ImagePull(ctx, p.opt.Image, client.ImagePullOptions{})
	if err != nil {
		return p.notPulled(err)
	}
	defer answer.Close() //nolint:errcheck // it was read to its end
	layers, told := map[string][2]int64{}, time.Now()
	for m, err := range answer.JSONMessages(ctx) {
		switch {
		case err != nil:
			return p.notPulled(err)
		case m.Error != nil:
			return p.notPulled(errors.New(m.Error.Message))
		case m.Progress != nil && m.ID != "" && m.Status == "Downloading":
			layers[m.ID] = [2]int64{m.Progress.Current, m.Progress.Total}
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			var have, all int64
			for _, l := range layers {
				have, all = have+l[0], all+l[1]
			}
			p.log.Info("pulling the image", "image", p.opt.Image, "layers", len(layers), "mib", have/mebi, "of_mib", all/mebi)
		}
	}
	p.log.Info("image pulled", "image", p.opt.Image)
	return nil
}

func (p *Provider) notPulled(err error) error {
	return schemas.Wrap(schemas.NotFound, "docker",
		fmt.Sprintf("the image %s is not on the engine and cannot be pulled: "+
			"try \"docker pull %[1]s\", with \"docker login\" first where the registry wants a password", p.opt.Image), err)
}

// probing finds out what there is in a container: the shell, and whether /proc shows limits, by which processes are found.
const probing = `command -v bash >/dev/null && echo bash || echo sh
for tool in env head tail mkdir rm sleep; do command -v "$tool" >/dev/null || echo "missing $tool"; done
grep -q '^Max file locks' /proc/self/limits || echo unmarked
echo "user $(id -u)"`

// probe runs a command in a container as calls will, and takes from it what shell the image has.
func (p *Provider) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p.shell, p.isolation = "sh", p.isolationOf(schemas.DenyAll)
	res, err := p.Run(ctx, providers.Command{Script: probing, Timeout: probeTimeout})
	if err != nil {
		return schemas.Wrap(schemas.Unsupported, "docker", fmt.Sprintf("no command runs in a container of %s", p.opt.Image), err)
	}
	for line := range strings.Lines(string(res.Stdout)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "bash":
			p.shell = line
		case strings.HasPrefix(line, "missing "):
			return schemas.Errorf(schemas.Unsupported, "docker",
				"the image %s has no %s: use another, such as the one in deploy/sandbox", p.opt.Image, line[len("missing "):])
		case line == "unmarked":
			p.log.Warn("processes of a call cannot be identified in containers: "+
				"a cancelled call of a persistent sandbox ends the whole container", "runtime", p.opt.Runtime)
		case strings.HasPrefix(line, "user ") && line != fmt.Sprintf("user %d", p.opt.UID):
			return schemas.Errorf(schemas.Unsupported, "docker",
				"commands in containers of %s run as %s and not as %d", p.opt.Image, line, p.opt.UID)
		}
	}
	if res.ExitCode != 0 {
		return schemas.Errorf(schemas.Unsupported, "docker",
			"commands in containers of %s fail with exit code %d: %.200s", p.opt.Image, res.ExitCode, res.Stderr)
	}
	return nil
}
