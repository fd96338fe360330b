package docker

import (
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

// Declared is the most that the provider can keep on any engine.
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

// Profile is what the provider can do on its engine.
func (p *Provider) Profile() providers.Profile {
	f := Declared()
	f.Networks = slices.DeleteFunc(slices.Clone(p.opt.Networks), func(mode schemas.NetworkMode) bool {
		return mode == schemas.Restricted && p.noRelay != ""
	})
	f.Credentials = p.opt.Keys != nil && slices.Contains(f.Networks, schemas.Restricted)
	f.Isolation = p.isolationOf(schemas.DenyAll)
	f.MemoryLimit, f.PidsLimit, f.CPULimit = p.facts.memory, p.facts.pids, p.facts.cpus
	f.Shell = p.shell
	if p.opt.Workspaces == "" { // the engine has the files: this process could not bring others in
		f.Storage = schemas.StorageNo
	}
	if p.opt.MaxMemory > 0 {
		f.MaxMemory = min(f.MaxMemory, p.opt.MaxMemory)
	}
	return f
}

// facts are what an engine can do.
type facts struct {
	memory, pids, cpus, seccomp, userns bool
	processors                          int
	runtime                             string
}

func factsOf(i system.Info) facts {
	f := facts{memory: i.MemoryLimit, pids: i.PidsLimit, cpus: i.CPUCfsQuota, processors: i.NCPU}
	for _, option := range i.SecurityOptions {
		f.seccomp = f.seccomp || strings.HasPrefix(option, "name=seccomp") && !strings.Contains(option, "unconfined")
		f.userns = f.userns || option == "name=userns" || option == "name=rootless"
	}
	return f
}

// isolationOf is what a container with a network mode is kept in.
func (p *Provider) isolationOf(mode schemas.NetworkMode) schemas.Isolation {
	i := schemas.Isolation{Level: level}
	add := func(there bool, words ...string) {
		if there {
			i.Enforced = append(i.Enforced, words...)
		} else {
			i.Missing = append(i.Missing, words...)
		}
	}
	add(true, "mountns", "pidns", "netns", "ipcns", "caps", "nnp")
	add(p.facts.userns, "userns")
	add(p.facts.seccomp, "seccomp")
	add(p.facts.memory, "cgroup.memory")
	add(p.facts.pids, "cgroup.pids")
	add(p.facts.cpus, "cgroup.cpu")
	if mode == schemas.AllowAll && !p.relayed(mode) {
		i.Missing = append(i.Missing, "network.deny")
	}
	if p.opt.Runtime != "" {
		i.Enforced = append(i.Enforced, "runtime."+p.opt.Runtime)
	}
	return i
}
