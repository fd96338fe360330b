package kubernetes

import (
	"slices"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a pod: namespaces of its own.
const level = "L3"

// Declared is the most that the provider can do in any cluster.
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

// Profile is what it can do in this cluster.
func (p *Provider) Profile() providers.Profile {
	f := Declared()
	f.Networks = slices.Clone(p.opt.Networks)
	f.Isolation = p.isolation()
	if p.opt.S3.Bucket == "" {
		f.Storage = schemas.StorageNo
	}
	if p.opt.MaxMemory > 0 {
		f.MaxMemory = min(f.MaxMemory, p.opt.MaxMemory)
	}
	return f
}

// isolation is what every pod of ours asks for. That the cluster's network enforces policies cannot be seen from here.
func (p *Provider) isolation() schemas.Isolation {
	i := schemas.Isolation{
		Level:    level,
		Enforced: []string{"namespaces", "seccomp", "capabilities", "no_new_privs", "non_root", "memory", "cpu", "network policy"},
		Missing:  []string{"pids", "proof that the cluster's network enforces policies"},
	}
	if p.opt.RuntimeClass != "" {
		i.Enforced = append(i.Enforced, "runtime class "+p.opt.RuntimeClass)
	}
	if p.opt.UserNamespaces {
		i.Enforced = append(i.Enforced, "user namespace")
	} else {
		i.Missing = append(i.Missing, "user namespace")
	}
	return i
}

// refuse reports the first thing that is asked of a box and cannot be kept.
func (p *Provider) refuse(spec providers.Spec, network schemas.Network) error {
	cannot := func(format string, args ...any) error {
		return schemas.Errorf(schemas.Unsupported, "run", format, args...)
	}
	if network.Mode != "" && !slices.Contains(p.opt.Networks, network.Mode) {
		return cannot("network mode %q is not kept here: use one of %v", schemas.Quotable(string(network.Mode)), p.opt.Networks)
	}
	if err := p.refuseNetwork(network); err != nil {
		return err
	}
	switch m := spec.MinIsolation; {
	case m != "" && m != "L0" && m != "L2" && m != level:
		return cannot("isolation %s was asked for, a pod has %s", schemas.Quotable(m), level)
	case spec.Pids > 0:
		return cannot("a pod cannot be limited in processes: the kubelet's podPidsLimit does that for all pods of a node")
	case spec.MemoryLimit > p.Profile().MaxMemory:
		return cannot("%d MiB of memory were asked for, at most %d MiB are given", spec.MemoryLimit/mebi, p.Profile().MaxMemory/mebi)
	}
	for _, m := range spec.Mounts {
		if err := checkMount(m); err != nil {
			return err
		}
		if err := p.refuseStorage(m); err != nil {
			return err
		}
	}
	return nil
}
