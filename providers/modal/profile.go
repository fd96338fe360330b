package modal

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a sandbox: namespaces of its own at least. It has a kernel in user space (gVisor), or a
// virtual machine.
const level = "L3"

// Declared returns the most that the provider can offer. The operator's settings determine memory and processors; limits in records do not
// change them. A sandbox that has ended cannot be restarted, so pausing is not supported.
func Declared() providers.Profile {
	return providers.Profile{
		Name:       "modal",
		Networks:   []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout: schemas.Duration(schemas.MaxTimeout),
		MaxMemory:  schemas.MaxMemoryLimit << 20,
		MaxOutput:  schemas.MaxOutputLimit,
		Persistent: true,
		Jobs:       true,
		Shell:      "bash",
	}
}

// Profile returns what the provider offers with this worker's settings.
func (p *Provider) Profile() providers.Profile {
	f := Declared()
	f.Networks = slices.Clone(p.opt.Networks)
	f.Isolation = isolation()
	return f
}

func isolation() schemas.Isolation {
	return schemas.Isolation{
		Level: level, Enforced: []string{"kernel of its own", "network"},
		Missing: []string{"memory", "cpu", "pids", "proof of what the service keeps"},
	}
}

// refuse returns an error for the first requirement that a sandbox cannot meet; nil if there is none. Codes: unsupported, invalid.
func (p *Provider) refuse(spec providers.Spec, n schemas.Network, mounts []providers.Mount) error {
	offer := carry.Offer{
		Service: "Modal", Flag: "--modal", Networks: p.opt.Networks, Levels: []string{"L0", "L2", level}, NoWorkspaces: p.opt.NoWorkspaces,
		Size: "the memory and processors of --modal-memory and --modal-cpus: leave the limit out",
	}
	if err := offer.Refuse(spec, n, mounts); err != nil {
		return err
	}
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	if len(n.DenyCIDRs) > 0 {
		return cannot("network.denyCidrs: Modal has no list of denials: list in allowCidrs what is left without these ranges")
	}
	for _, text := range n.AllowDomains {
		name, below := strings.CutPrefix(text, "*.")
		switch {
		case strings.Contains(text, ":"):
			return cannot("network.allowDomains: %q: Modal knows no ports of names", schemas.Quotable(text))
		case below && !slices.Contains(n.AllowDomains, name):
			return cannot("network.allowDomains: %q: Modal may let %s itself pass with it: list that too, or leave it out",
				schemas.Quotable(text), schemas.Quotable(name))
		}
	}
	return nil
}

// setNetwork sets the service's settings for a network mode. Lists deny everything else; an empty list beside a non-empty one denies all
// of its kind.
func (n *newSandbox) setNetwork(want schemas.Network) {
	switch {
	case want.Mode == schemas.AllowAll:
	case want.Mode == schemas.Restricted && len(want.AllowCIDRs)+len(want.AllowDomains) > 0:
		n.CIDRs, n.Domains = append([]string{}, want.AllowCIDRs...), append([]string{}, want.AllowDomains...)
	default:
		n.Block = true
	}
}
