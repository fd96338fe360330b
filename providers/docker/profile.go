package docker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	mebi  = 1 << 20 // bytes
	level = "L3"    // namespaces, no capabilities, seccomp: see package local
)

// Declared returns the most that the provider can offer with any engine.
func Declared() providers.Profile {
	return providers.Profile{
		Name:        "docker",
		Networks:    []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout:  schemas.Duration(schemas.MaxTimeout),
		MaxMemory:   schemas.MaxMemoryLimit * mebi,
		MaxOutput:   schemas.MaxOutputLimit,
		Persistent:  true,
		Pause:       schemas.PauseKeepsProcesses,
		Jobs:        true,
		OnHost:      true,
		MemoryLimit: true,
		PidsLimit:   true,
		CPULimit:    true,
		Shell:       "bash",
		Storage:     schemas.StorageCopy,
		Credentials: true,
	}
}

// facts is what an engine supports.
type facts struct {
	memory, pids, cpus, seccomp, userns bool
	processors                          int
	runtime                             string
}

// factsOf returns what the engine's information says. Runtime is the runtime of containers; empty: the engine's default.
func factsOf(i system.Info, runtime string) facts {
	f := facts{memory: i.MemoryLimit, pids: i.PidsLimit, cpus: i.CPUCfsQuota, processors: i.NCPU, runtime: cmp.Or(runtime, i.DefaultRuntime)}
	for _, option := range i.SecurityOptions {
		f.seccomp = f.seccomp || strings.HasPrefix(option, "name=seccomp") && !strings.Contains(option, "unconfined")
		f.userns = f.userns || option == "name=userns" || option == "name=rootless"
	}
	return f
}

// profile returns what the provider offers with its engine and an image that has that shell.
func (t *terms) profile(shell string) providers.Profile {
	f := Declared()
	f.Networks = slices.DeleteFunc(slices.Clone(t.opt.Networks), func(mode schemas.NetworkMode) bool {
		return mode == schemas.Restricted && t.noRelay != ""
	})
	f.Credentials = t.opt.Keys != nil && slices.Contains(f.Networks, schemas.Restricted)
	f.Isolation = t.isolation(schemas.DenyAll)
	f.MemoryLimit, f.PidsLimit, f.CPULimit = t.facts.memory, t.facts.pids, t.facts.cpus
	f.Shell = shell
	if t.opt.Workspaces == "" { // the engine has the files: this process could not bring others in
		f.Storage = schemas.StorageNo
	}
	if t.opt.MaxMemory > 0 {
		f.MaxMemory = min(f.MaxMemory, t.opt.MaxMemory)
	}
	return f
}
