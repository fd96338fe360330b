package kubernetes

import (
	"slices"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// terms is what the operator allows sandboxes and what pods can enforce.
type terms struct{ opt Options }

// profile returns what the provider offers in this cluster.
func (t *terms) profile() providers.Profile {
	f := Declared()
	f.Networks = slices.Clone(t.opt.Networks)
	f.Isolation = t.isolation()
	if t.opt.S3.Bucket == "" {
		f.Storage = schemas.StorageNo
	}
	if t.opt.MaxMemory > 0 {
		f.MaxMemory = min(f.MaxMemory, t.opt.MaxMemory)
	}
	return f
}

// isolation returns the isolation that every pod requests. Whether the cluster's network enforces policies cannot be found out.
func (t *terms) isolation() schemas.Isolation {
	i := schemas.Isolation{
		Level:    level,
		Enforced: []string{"namespaces", "seccomp", "capabilities", "no_new_privs", "non_root", "memory", "cpu", "network policy"},
		Missing:  []string{"pids", "proof that the cluster's network enforces policies"},
	}
	if t.opt.RuntimeClass != "" {
		i.Enforced = append(i.Enforced, "runtime class "+t.opt.RuntimeClass)
	}
	if t.opt.UserNamespaces {
		i.Enforced = append(i.Enforced, "user namespace")
	} else {
		i.Missing = append(i.Missing, "user namespace")
	}
	return i
}

// check returns an error for the first requirement that a box cannot meet.
func (t *terms) check(spec providers.Spec, network schemas.Network) error {
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	if network.Mode != "" && !slices.Contains(t.opt.Networks, network.Mode) {
		return cannot("network mode %q is not kept here: use one of %v", schemas.Quotable(string(network.Mode)), t.opt.Networks)
	}
	if err := refuseNetwork(network, t.opt.Egress); err != nil {
		return err
	}
	switch m := spec.MinIsolation; {
	case m != "" && m != "L0" && m != "L2" && m != level:
		return cannot("isolation %s was asked for, a pod has %s", schemas.Quotable(m), level)
	case spec.Pids > 0:
		return cannot("a pod cannot be limited in processes: the kubelet's podPidsLimit does that for all pods of a node")
	case spec.MemoryLimit > t.profile().MaxMemory:
		return cannot("%d MiB of memory were asked for, at most %d MiB are given", spec.MemoryLimit/mebi, t.profile().MaxMemory/mebi)
	}
	for _, m := range spec.Mounts {
		if err := checkMount(m); err != nil {
			return err
		}
		if err := t.checkStorage(m); err != nil {
			return err
		}
	}
	return nil
}

// checkStorage returns an error if the workspace's files are in a storage that pods cannot reach.
func (t *terms) checkStorage(m providers.Mount) error {
	switch {
	case m.Storage != "" && m.Storage != storageS3:
		return schemas.OpErrorf(schemas.Unsupported, "run", "workspaces on %s are not known here", schemas.Quotable(m.Storage))
	case m.Storage == storageS3 && t.opt.S3.Bucket == "":
		return schemas.OpErrorf(schemas.Unsupported, "run", "the workspace is on S3, and no bucket is named: "+
			"give the worker --kubernetes-s3-bucket, in a cluster with the driver %s", driverS3)
	}
	return nil
}
