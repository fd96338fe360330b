package lambda

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a run. Its execution environment is a virtual machine; what keeps it from the files of
// other workspaces in there is Landlock and seccomp.
const level = "L2"

// memory is that of the functions of deploy/lambda.
const memory = 512 << 20

// Declared returns the most that the provider can offer. Between runs only the files of workspaces persist.
func Declared() providers.Profile {
	return providers.Profile{
		Name:       "lambda",
		Networks:   []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout: schemas.Duration(invocation.MaxTimeout),
		MaxMemory:  memory,
		MaxOutput:  invocation.MaxOutput,
		Storage:    schemas.StorageYes,
		Unattended: true,
		Shell:      "bash",

		ReadsMounted: true, // S3 Files writes to the bucket about a minute later
	}
}

// Profile returns what the provider offers with this worker's settings.
func (p *Provider) Profile() providers.Profile {
	f := Declared()
	f.Networks = nil
	for _, n := range p.opt.Networks {
		net := n == schemas.AllowAll
		if p.opt.Functions.Of(true, net) != "" || p.opt.Functions.Of(false, net) != "" {
			f.Networks = append(f.Networks, n)
		}
	}
	if p.opt.Functions.MountNet == "" && p.opt.Functions.MountNoNet == "" {
		f.Storage = schemas.StorageNo
	}
	f.ReadsMounted = p.opt.Functions.MountNoNet != "" && slices.Contains(f.Networks, schemas.DenyAll)
	f.Isolation = isolation([]string{"landlock", "seccomp"})
	return f
}

// isolation returns the isolation of a command, including the protections that its function reported.
func isolation(confined []string) schemas.Isolation {
	i := schemas.Isolation{Level: level, Enforced: []string{"virtual machine", "network"}, Missing: []string{"memory", "cpu", "pids"}}
	for _, what := range []string{"landlock", "seccomp"} {
		if slices.Contains(confined, what) {
			i.Enforced = append(i.Enforced, what)
		} else {
			i.Missing, i.Level = append(i.Missing, what), "L0"
		}
	}
	return i
}

// refuse returns an error for the first requirement that a run cannot meet; nil if there is none. Codes: unsupported, invalid.
func (p *Provider) refuse(cmd providers.Command) error {
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	spec, n := cmd.Spec, cmd.Network
	switch {
	case !cmd.Sandbox.IsZero() || spec.EphemeralHome:
		return cannot("Lambda keeps no sandbox between calls: leave persistent out, or use another provider")
	case n.Mode != "" && !slices.Contains(p.opt.Networks, n.Mode):
		return cannot("the operator of this worker does not allow the network mode %q: it has --lambda-networks %v",
			schemas.Quotable(string(n.Mode)), p.opt.Networks)
	case len(n.Credentials) > 0:
		return cannot("network.credentials: " +
			"a function cannot be kept from the value of a variable: leave them out, or use another provider")
	case !slices.Contains([]string{"", "L0", level}, spec.MinIsolation):
		return cannot("isolation %s was asked for, and Lambda has %s", schemas.Quotable(spec.MinIsolation), level)
	case spec.MemoryLimit > 0 || spec.CPUs > 0 || spec.Pids > 0 || spec.Disk > 0:
		return cannot("a command has the memory, processors and disk of its function: leave the limit out, and change the function")
	case len(cmd.Mounts) > 1:
		return cannot("a function has one workspace")
	case cmd.Timeout > invocation.MaxTimeout:
		return cannot("a command on Lambda may take %s at most, not %s", invocation.MaxTimeout, cmd.Timeout)
	}
	for _, m := range cmd.Mounts {
		if !invocation.IsNamespace(m.Namespace) {
			return schemas.Invalidf("mounts", "a namespace is one path component, not %q", schemas.Quotable(m.Namespace))
		}
	}
	if name, slot := p.function(cmd); name == "" {
		return cannot("this worker has no function for that: its operator has not set SANDBOX_FN_%s", slot)
	}
	return nil
}

// environment returns a command's declared variables.
func environment(cmd providers.Command) (map[string]string, error) {
	env := map[string]string{}
	for _, declared := range []map[string]string{cmd.Spec.Env, cmd.Env} {
		for name, value := range declared {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
				return nil, schemas.Invalidf("env", "%q cannot be a variable: a name has no =, and nothing has NUL", schemas.Quotable(name))
			}
		}
		maps.Copy(env, declared)
	}
	return env, nil
}

// dirOf returns the working directory of a command; empty for the function's default.
func dirOf(cmd providers.Command) string {
	if cmd.Dir == "" || cmd.Dir[0] == '/' {
		return cmd.Dir
	}
	return "/tmp/" + cmd.Dir
}
