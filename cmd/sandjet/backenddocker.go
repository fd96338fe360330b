package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/schemas"
)

// dockerFlags are the flags of the provider docker, whose sandboxes are containers of an engine.
type dockerFlags struct {
	DockerHost         string   `placeholder:"URL" group:"Worker" help:"Docker engine that runs sandboxes, such as unix:///run/docker.sock. Default: that of DOCKER_HOST, else the engine's usual socket. Anyone who can use it is root on its host."`
	DockerImage        string   `placeholder:"IMAGE" default:"sandjet-sandbox" group:"Worker" help:"Image of sandboxes. Default: the one that is built from deploy/sandbox, which is never pulled. At its default: SANDBOX_WORKER_IMAGE, where that is set."`
	DockerPull         string   `placeholder:"WHEN" default:"missing" enum:"missing,always,never" group:"Worker" help:"When the image is pulled, at the start: missing, always or never."`
	DockerInstallation string   `placeholder:"NAME" default:"sandjet" group:"Worker" help:"Name of the installation: the same for all workers that share containers, another one for other installations on the same engine."`
	DockerVolumes      bool     `group:"Worker" help:"Keep workspaces in volumes of the engine instead of a folder of the data folder, for an engine on another host. File tools then work in the sandbox."`
	DockerUser         string   `placeholder:"UID[:GID]" group:"Security" help:"User of commands in sandboxes. Default: this process's, or 1000 where that is root."`
	DockerRuntime      string   `placeholder:"NAME" group:"Security" help:"The engine's runtime for sandboxes, such as runsc. Default: the engine's own."`
	DockerWritableRoot bool     `group:"Security" help:"Allow calls of sandboxes that are not persistent to write to the root of their containers, in a layer that is removed with them."`
	DockerGPUs         int      `name:"docker-gpus" placeholder:"N" default:"0" group:"Worker" help:"Number of GPUs of a sandbox; -1: all of the engine's host, as SANDBOX_GPU_ENABLED=true does."`
	DockerGPUNetwork   bool     `name:"docker-gpu-network" group:"Security" help:"Allow sandboxes with GPUs to have a network too."`
	DockerMemory       byteSize `placeholder:"SIZE" default:"512MiB" group:"Limits" help:"Memory of a sandbox whose record does not say, without swap."`
	DockerCPUs         float64  `name:"docker-cpus" placeholder:"N" default:"0" group:"Limits" help:"Processors that one sandbox may use at a time, such as 1.5; 0 means half of the engine's, at least one."`
	DockerPids         int      `placeholder:"N" default:"512" group:"Limits" help:"Maximum number of processes in a sandbox."`
	DockerBoxes        int      `placeholder:"N" default:"50" group:"Limits" help:"Maximum number of persistent containers of the installation; beyond that calls wait."`
	DockerWarm         int      `placeholder:"N" default:"0" group:"Worker" help:"Containers that are started in advance for sandboxes that are not persistent: one for the next call of a sandbox like the last, N in all, for ten minutes. Each takes memory meanwhile."`
}

var _ diagnosing = (*dockerFlags)(nil)

// maxDockerWarm is the maximum of --docker-warm.
const maxDockerWarm = 100

// check returns an error for the first flag that is out of range.
func (f *dockerFlags) check() error {
	const least = 16 << 20
	_, _, err := f.user()
	switch {
	case err != nil:
		return err
	case f.DockerMemory < least:
		return schemas.Invalidf("docker-memory", "%s is out of range: at least %s", f.DockerMemory, byteSize(least))
	case f.DockerCPUs < 0:
		return schemas.Invalidf("docker-cpus", "%g is out of range: 0 for half of the engine's, or more", f.DockerCPUs)
	case f.DockerPids < 1:
		return schemas.Invalidf("docker-pids", "%d is out of range: at least 1", f.DockerPids)
	case f.DockerBoxes < 1:
		return schemas.Invalidf("docker-boxes", "%d is out of range: at least 1", f.DockerBoxes)
	case f.DockerWarm < 0 || f.DockerWarm > maxDockerWarm:
		return schemas.Invalidf("docker-warm", "%d is out of range: 0 for none, at most %d", f.DockerWarm, maxDockerWarm)
	case f.DockerGPUs < -1:
		return schemas.Invalidf("docker-gpus", "%d is out of range: -1 for all, 0 for none, or more", f.DockerGPUs)
	case f.DockerInstallation == "":
		return schemas.Invalidf("docker-installation", "is empty: give a name")
	}
	return nil
}

// user parses DockerUser. An id that is not given is 0.
func (f *dockerFlags) user() (uid, gid int, err error) {
	if f.DockerUser == "" {
		return 0, 0, nil
	}
	user, group, both := strings.Cut(f.DockerUser, ":")
	uid, err = strconv.Atoi(user)
	if both && err == nil {
		gid, err = strconv.Atoi(group)
	}
	if err != nil || uid < 1 || both && gid < 1 {
		return 0, 0, schemas.Invalidf("docker-user",
			"%q is not a user for sandboxes: give numbers above 0, such as 1000:1000", schemas.Quotable(f.DockerUser))
	}
	return uid, gid, nil
}

// open connects to the engine, and pulls the image if --docker-pull says so.
func (f *dockerFlags) open(n *node, operator operatorFlags) (providers.Provider, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	if !f.DockerVolumes {
		o.Workspaces = filepath.Join(string(n.dir), "docker", "workspaces")
	}
	o.MaxMemory, o.PrivateNetworks, o.Log = int64(operator.MaxMemory), operator.PrivateNetworks, n.log.With("part", "docker")
	if n.ring != nil {
		o.Keys = n.ring
	}
	o.Values = func(ctx context.Context, a schemas.AccountID, id schemas.SandboxID) (map[string]string, error) {
		s, err := n.records.Sandbox(ctx, a, id)
		return s.EnvVars, err
	}
	for _, mode := range operator.modes() {
		if slices.Contains(docker.Declared().Networks, mode) {
			o.Networks = append(o.Networks, mode)
		}
	}
	p, err := docker.Open(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("provider docker: %w", err)
	}
	n.onClose(func() {
		if err := p.Close(); err != nil {
			n.log.Warn("Docker provider not closed cleanly", "error", err)
		}
	})
	return p, nil
}

func (f *dockerFlags) options() (docker.Options, error) {
	uid, gid, err := f.user()
	image := f.DockerImage
	if own := os.Getenv("SANDBOX_WORKER_IMAGE"); image == docker.DefaultImage && own != "" {
		image = own
	}
	if image == docker.DefaultImage {
		image = "" // the default image, which is built from deploy/sandbox and never pulled
	}
	gpus, network := f.DockerGPUs, f.DockerGPUNetwork
	for name, on := range map[string]func(){
		"SANDBOX_GPU_ENABLED": func() { gpus = cmp.Or(gpus, -1) }, "SANDBOX_GPU_NETWORK_ENABLED": func() { network = true },
	} {
		switch is, bad := truth(os.Getenv(name)); {
		case bad != nil:
			return docker.Options{}, schemas.Invalidf(name, "%q is neither true nor false", schemas.Quotable(os.Getenv(name)))
		case is:
			on()
		}
	}
	return docker.Options{
		Host: f.DockerHost, Image: image, Pull: docker.PullPolicy(f.DockerPull), Installation: f.DockerInstallation, UID: uid, GID: gid,
		Memory: int64(f.DockerMemory), MaxCPUs: f.DockerCPUs, Pids: f.DockerPids, Boxes: f.DockerBoxes, Runtime: f.DockerRuntime,
		Warm: f.DockerWarm, GPUs: gpus, GPUNetwork: network, WritableRoot: f.DockerWritableRoot,
	}, err
}

// diagnose checks the engine that the flags name, or else that of the environment. Problems of the engine are only notes and do not keep
// "up" from working: docker is one of several providers.
func (f *dockerFlags) diagnose(ctx context.Context, _ string) []finding {
	o, err := f.options()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return []finding{{"docker", failing, err.Error(), ""}}
	}
	return findings(docker.Diagnose(ctx, o))
}
