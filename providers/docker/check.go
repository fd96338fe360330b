package docker

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

// check refuses what containers of this engine cannot keep.
func (p *Provider) check(spec providers.Spec, network schemas.Network, mounts []providers.Mount) error {
	no := func(format string, args ...any) error {
		return schemas.Errorf(schemas.Unsupported, "run", format, args...)
	}
	if network.Mode == schemas.Restricted && p.noRelay != "" {
		return no("this worker cannot keep the network mode %q for containers: %s; use %q, or another provider (\"sandjet doctor\" explains)",
			network.Mode, p.noRelay, schemas.DenyAll)
	}
	if _, err := egress.Compile(network, p.opt.PrivateNetworks); err != nil {
		return err
	}
	switch {
	case len(network.Credentials) > 0 && p.opt.Keys == nil:
		return no("this worker has no keys by which containers work with secrets that they do not have: " +
			"leave network.credentials out, or use another provider")
	case network.Mode != "" && !slices.Contains(p.opt.Networks, network.Mode):
		return no("the operator of this worker does not allow the network mode %q: it has --networks %v", network.Mode, p.opt.Networks)
	case network.Mode != "" && network.Mode != schemas.DenyAll && p.opt.GPUs != 0 && !p.opt.GPUNetwork:
		return no("containers with GPUs have no network here: the operator allows both by --docker-gpu-network")
	case p.opt.MaxMemory > 0 && spec.MemoryLimit > p.opt.MaxMemory:
		return no("the operator of this worker allows a box %d MiB of memory (--max-memory), not %d", p.opt.MaxMemory/mebi, spec.MemoryLimit/mebi)
	case p.opt.MaxCPUs > 0 && spec.CPUs > p.opt.MaxCPUs:
		return no("the operator of this worker allows a box %g processors (--docker-cpus), not %g", p.opt.MaxCPUs, spec.CPUs)
	case !slices.Contains([]string{"", "L0", "L2", level}, spec.MinIsolation):
		return no("isolation %q was asked for and containers have %s", spec.MinIsolation, level)
	case spec.MemoryLimit > 0 && !p.facts.memory:
		return no("the engine cannot limit the memory of a container")
	case spec.Pids > 0 && !p.facts.pids:
		return no("the engine cannot limit the processes of a container")
	case spec.CPUs > 0 && !p.facts.cpus:
		return no("the engine cannot limit the processors of a container")
	}
	return checkMounts(mounts)
}

func checkMounts(mounts []providers.Mount) error {
	for i, m := range mounts {
		if n := m.Namespace; n == "" || n[0] == '.' || strings.ContainsAny(n, "/\x00:,") || len(n) > 128 {
			return schemas.Invalidf("mounts", "a namespace is one path component, not %q", schemas.Quotable(n))
		}
		if slices.ContainsFunc(mounts[:i], func(o providers.Mount) bool { return o.Namespace == m.Namespace }) {
			return schemas.Invalidf("mounts", "%q is mounted twice", schemas.Quotable(m.Namespace))
		}
	}
	return nil
}

// environment builds a command's variables from nothing but what is declared. Reserved names win.
func (p *Provider) environment(cmd providers.Command) (map[string]string, error) {
	env := map[string]string{}
	for _, declared := range []map[string]string{cmd.Spec.Env, cmd.Env} {
		if err := boxrun.CheckEnv(declared); err != nil {
			return nil, err
		}
		maps.Copy(env, declared)
	}
	env["PATH"], env["HOME"], env["TMPDIR"], env["LANG"] = p.path, home, temp, "C.UTF-8"
	env["USER"], env["LOGNAME"] = "sandbox", "sandbox"
	if strings.Contains(cmd.Script, "\x00") || strings.Contains(cmd.Dir, "\x00") {
		return nil, schemas.Invalidf("script", "NUL is not allowed")
	}
	return env, nil
}

// dirOf is where a command starts.
func dirOf(cmd providers.Command) string {
	switch {
	case cmd.Dir == "" && len(cmd.Mounts) > 0:
		return cmd.Mounts[0].Path()
	case cmd.Dir == "":
		return temp
	case cmd.Dir[0] != '/':
		return temp + "/" + cmd.Dir
	default:
		return cmd.Dir
	}
}
