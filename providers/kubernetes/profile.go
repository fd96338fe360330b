package kubernetes

import (
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a pod: namespaces of its own.
const level = "L3"

// Declared returns the most that the provider can offer in any cluster.
func Declared() providers.Profile {
	return providers.Profile{
		Name:        "kubernetes",
		Networks:    []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout:  schemas.Duration(schemas.MaxTimeout),
		MaxMemory:   schemas.MaxMemoryLimit * mebi,
		MaxOutput:   schemas.MaxOutputLimit,
		Persistent:  true,
		Pause:       schemas.PauseKeepsFiles,
		Jobs:        true,
		Storage:     schemas.StorageOption,
		MemoryLimit: true,
		CPULimit:    true,
		Shell:       "bash",
		Options: []schemas.ProfileOption{
			{Name: optionDisk, Most: maxDiskGb, Kept: true},
			{Name: optionEphemeral, Kept: true},
			{Name: schemas.OptionMount},
		},
	}
}

// The options of a sandbox's record.
const (
	optionDisk      = "diskGb"
	optionEphemeral = "ephemeralHome"
)
