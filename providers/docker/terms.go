package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// terms is what the operator and the engine allow for sandboxes.
type terms struct {
	opt     Options
	facts   facts
	noRelay string // why containers have no relay; empty: they have one
}

// check returns an error if containers of this engine cannot satisfy the spec, network or mounts.
func (t *terms) check(spec providers.Spec, network schemas.Network, mounts []providers.Mount) error {
	no := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	if network.Mode == schemas.Restricted && t.noRelay != "" {
		return no("this worker cannot keep the network mode %q for containers: %s; use %q, or another provider (\"sandjet doctor\" explains)",
			network.Mode, t.noRelay, schemas.DenyAll)
	}
	if _, err := egress.Compile(network, t.opt.PrivateNetworks); err != nil {
		return err
	}
	switch {
	case len(network.Credentials) > 0 && t.opt.Keys == nil:
		return no("this worker has no keys by which containers work with secrets that they do not have: " +
			"leave network.credentials out, or use another provider")
	case network.Mode != "" && !slices.Contains(t.opt.Networks, network.Mode):
		return no("the operator of this worker does not allow the network mode %q: it has --networks %v", network.Mode, t.opt.Networks)
	case network.Mode != "" && network.Mode != schemas.DenyAll && t.opt.GPUs != 0 && !t.opt.GPUNetwork:
		return no("containers with GPUs have no network here: the operator allows both by --docker-gpu-network")
	case t.opt.MaxMemory > 0 && spec.MemoryLimit > t.opt.MaxMemory:
		return no("the operator of this worker allows a box %d MiB of memory (--max-memory), not %d", t.opt.MaxMemory/mebi, spec.MemoryLimit/mebi)
	case t.opt.MaxCPUs > 0 && spec.CPUs > t.opt.MaxCPUs:
		return no("the operator of this worker allows a box %g processors (--docker-cpus), not %g", t.opt.MaxCPUs, spec.CPUs)
	case !slices.Contains([]string{"", "L0", "L2", level}, spec.MinIsolation):
		return no("isolation %q was asked for and containers have %s", spec.MinIsolation, level)
	case spec.MemoryLimit > 0 && !t.facts.memory:
		return no("the engine cannot limit the memory of a container")
	case spec.Pids > 0 && !t.facts.pids:
		return no("the engine cannot limit the processes of a container")
	case spec.CPUs > 0 && !t.facts.cpus:
		return no("the engine cannot limit the processors of a container")
	}
	return checkMounts(mounts)
}

// checkMounts returns an error if a workspace cannot be mounted. Code: invalid.
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

// rules returns the rules of a container, with defaults for what the spec leaves open.
func (t *terms) rules(spec providers.Spec, network schemas.Network, mounts []providers.Mount) rules {
	r := rules{
		Account: spec.Account, Network: network.Mode, Mounts: mounts, Memory: spec.MemoryLimit, Pids: spec.Pids, CPUs: spec.CPUs,
		Image: t.opt.Image, Runtime: t.opt.Runtime, User: user{t.opt.UID, t.opt.GID}.String(), GPUs: t.opt.GPUs,
	}
	if r.Network == "" {
		r.Network = schemas.DenyAll
	}
	if t.relayed(r.Network) {
		r.Relay = &network
	}
	if r.Memory <= 0 {
		r.Memory = t.opt.Memory
	}
	if r.Pids <= 0 {
		r.Pids = t.opt.Pids
	}
	if r.CPUs <= 0 && t.opt.MaxCPUs > 0 {
		r.CPUs = t.opt.MaxCPUs
	}
	return r
}

// rules describes how a container is made. It consists of data only, so that it can be compared.
type rules struct {
	Account schemas.AccountID   `json:"account"`
	Network schemas.NetworkMode `json:"network"`
	Mounts  []providers.Mount   `json:"mounts"`
	Memory  int64               `json:"memory"`
	Pids    int                 `json:"pids"`
	CPUs    float64             `json:"cpus"`
	Image   string              `json:"image"`
	Runtime string              `json:"runtime"`
	User    string              `json:"user"`
	GPUs    int                 `json:"gpus"`
	// Relay is the whole network of a container whose way out is a relay.
	Relay *schemas.Network `json:"relay,omitempty"`
}

// digest returns a hash of the rules.
func (r rules) digest() string {
	b, err := json.Marshal(r) //nolint:musttag // mounts are compared, and never read
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// relayed reports whether containers with a network mode have a relay.
func (t *terms) relayed(mode schemas.NetworkMode) bool {
	return mode == schemas.Restricted || mode == schemas.AllowAll && t.noRelay == ""
}

// isolation returns the isolation of a container with a network mode.
func (t *terms) isolation(mode schemas.NetworkMode) schemas.Isolation {
	i := schemas.Isolation{Level: level}
	add := func(there bool, words ...string) {
		if there {
			i.Enforced = append(i.Enforced, words...)
		} else {
			i.Missing = append(i.Missing, words...)
		}
	}
	add(true, "mountns", "pidns", "netns", "ipcns", "caps", "nnp")
	add(t.facts.userns, "userns")
	add(t.facts.seccomp, "seccomp")
	add(t.facts.memory, "cgroup.memory")
	add(t.facts.pids, "cgroup.pids")
	add(t.facts.cpus, "cgroup.cpu")
	if mode == schemas.AllowAll && !t.relayed(mode) {
		i.Missing = append(i.Missing, "network.deny")
	}
	if t.opt.Runtime != "" {
		i.Enforced = append(i.Enforced, "runtime."+t.opt.Runtime)
	}
	return i
}
