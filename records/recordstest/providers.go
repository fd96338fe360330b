// Package recordstest has what tests of records and of those who use them need.
package recordstest

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Providers are profiles that differ in what they can do, local first: examples, which say nothing of any
// provider that is built.
func Providers() schemas.Catalog {
	var (
		every  = []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}
		coarse = []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll}
		mount  = schemas.ProfileOption{Name: schemas.OptionMount}
	)
	const few, mebi, mostDisk = 1024, 1 << 20, 10
	kept := func(name string, networks []schemas.NetworkMode, storage schemas.StorageAccess,
		options ...schemas.ProfileOption) schemas.Profile {
		return schemas.Profile{
			Name: name, Networks: networks, MaxTimeout: schemas.Duration(schemas.MaxTimeout), MaxMemory: schemas.MaxMemoryLimit * mebi,
			MaxOutput: schemas.MaxOutputLimit, Persistent: true, Jobs: true, Storage: storage, Options: options,
		}
	}
	here := kept("local", coarse, schemas.StorageNo)
	here.OnHost = true
	return schemas.Catalog{
		here,
		kept("daytona", every, schemas.StorageOption, mount),
		kept("deno", every, schemas.StorageNo),
		kept("docker", coarse, schemas.StorageNo),
		kept("e2b", []schemas.NetworkMode{schemas.AllowAll}, schemas.StorageNo),
		kept("kubernetes", every, schemas.StorageOption, schemas.ProfileOption{Name: "diskGb", Most: mostDisk, Kept: true},
			schemas.ProfileOption{Name: "ephemeralHome", Kept: true}, mount),
		{
			Name: "lambda", Networks: every, MaxTimeout: schemas.Duration(5 * time.Minute), MaxMemory: few * mebi,
			MaxOutput: schemas.MaxOutputLimit, Storage: schemas.StorageYes,
		},
		kept("modal", every, schemas.StorageNo),
		kept("vercel", every, schemas.StorageNo),
	}
}
