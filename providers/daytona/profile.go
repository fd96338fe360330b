package daytona

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a sandbox: namespaces of its own, which the service may or may not put into a
// virtual machine.
const level = "L2"

// mostRanges is how many ranges of addresses the service takes for one sandbox.
const mostRanges = 10

// Declared returns the most that the provider can offer. A sandbox's memory, processors and disk are those of its snapshot; limits in
// records do not change them.
func Declared() providers.Profile {
	return providers.Profile{
		Name:       "daytona",
		Networks:   []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout: schemas.Duration(schemas.MaxTimeout),
		MaxMemory:  schemas.MaxMemoryLimit << 20,
		MaxOutput:  schemas.MaxOutputLimit,
		Persistent: true,
		Pause:      schemas.PauseKeepsFiles,
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
		Level: level, Enforced: []string{"namespaces", "network"},
		Missing: []string{"memory", "cpu", "pids", "proof of what the service keeps"},
	}
}

// refuse returns an error for the first requirement that a sandbox cannot meet; nil if there is none. Codes: unsupported, invalid.
func (p *Provider) refuse(spec providers.Spec, n schemas.Network, mounts []providers.Mount) error {
	offer := carry.Offer{
		Service: "Daytona", Flag: "--daytona", Networks: p.opt.Networks, Levels: []string{"L0", level}, NoWorkspaces: p.opt.NoWorkspaces,
		Size: "the memory, processors and disk of its snapshot: leave the limit out, and choose another --daytona-snapshot",
	}
	if err := offer.Refuse(spec, n, mounts); err != nil {
		return err
	}
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	switch {
	case len(n.AllowDomains) > 0 && !p.opt.DropDomains:
		return cannot("network.allowDomains: a sandbox of Daytona is kept to ranges of addresses and not to names: " +
			"use allowCidrs, or another provider; --daytona-drop-domains lets it run without what they name")
	case len(n.DenyCIDRs) > 0:
		return cannot("network.denyCidrs: Daytona has no list of denials: list in allowCidrs what is left without these ranges")
	case len(n.AllowCIDRs) > mostRanges:
		return cannot("network.allowCidrs: Daytona takes %d ranges for a sandbox: join some", mostRanges)
	}
	for _, text := range n.AllowCIDRs {
		if r, err := netip.ParsePrefix(text); err == nil && !r.Addr().Is4() {
			return cannot("network.allowCidrs: %q: Daytona takes ranges of IPv4 only", schemas.Quotable(text))
		}
	}
	return nil
}

// notices returns notices about the network for the result of a run.
func notices(n schemas.Network) []string {
	if n.Mode != schemas.Restricted || len(n.AllowDomains) == 0 {
		return nil
	}
	return []string{"network.allowDomains: a sandbox of Daytona is kept to ranges of addresses and not to names, so what these name cannot be reached"}
}

// networkOf returns the service's settings for a network mode. An allow list denies everything else.
func networkOf(n schemas.Network) (blockAll bool, allowed string) {
	switch {
	case n.Mode == schemas.AllowAll:
		return false, ""
	case n.Mode == schemas.Restricted && len(n.AllowCIDRs) > 0:
		return false, strings.Join(n.AllowCIDRs, ",")
	default:
		return true, ""
	}
}
