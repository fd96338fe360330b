//go:build linux

package local

import (
	"path/filepath"
	"slices"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

const mebi = 1 << 20 // bytes

// Declared returns the most that the provider can offer on any host.
func Declared() providers.Profile {
	return providers.Profile{
		Name:        "local",
		Networks:    []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout:  schemas.Duration(schemas.MaxTimeout),
		MaxMemory:   schemas.MaxMemoryLimit * mebi,
		MaxOutput:   schemas.MaxOutputLimit,
		Persistent:  true,
		Jobs:        true,
		Credentials: true,
		OnHost:      true,
		MemoryLimit: true,
		PidsLimit:   true,
		CPULimit:    true,
		Shell:       "bash",
		Storage:     schemas.StorageCopy,

		JobsEndWithWorker: true,
	}
}

// Profile returns what the provider offers on this host.
func (p *host) Profile() providers.Profile {
	f, words := Declared(), p.cgroups.Words()
	f.Networks = p.networks()
	f.Credentials = slices.Contains(f.Networks, schemas.Restricted)
	f.Isolation = p.isolation
	f.PidsLimit = p.mode == box.Isolated || contains(words, "cgroup.pids")
	f.CPULimit = contains(words, "cgroup.cpu")
	f.Shell = filepath.Base(p.shell)
	if p.opt.MaxMemory > 0 {
		f.MaxMemory = min(f.MaxMemory, p.opt.MaxMemory)
	}
	return f
}
