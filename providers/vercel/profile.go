package vercel

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a sandbox: it is a virtual machine.
const level = "L3"

// Declared returns the most that the provider can offer. The operator's settings determine a sandbox's memory and processors, the service
// its disk; limits in records do not change them.
func Declared() providers.Profile {
	return providers.Profile{
		Name:                "vercel",
		Networks:            []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout:          schemas.Duration(schemas.MaxTimeout),
		MaxMemory:           schemas.MaxMemoryLimit << 20,
		MaxOutput:           schemas.MaxOutputLimit,
		Persistent:          true,
		Pause:               schemas.PauseKeepsFiles,
		Jobs:                true,
		ExclusiveWorkspaces: true, // a drive has one writer
		Shell:               "bash",
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
		Level: level, Enforced: []string{"virtual machine", "network"},
		Missing: []string{"memory", "cpu", "pids", "proof of what the service keeps"},
	}
}

// refuse returns an error for the first requirement that a sandbox cannot meet; nil if there is none. Codes: unsupported, invalid.
func (p *Provider) refuse(spec providers.Spec, n schemas.Network, mounts []providers.Mount) error {
	offer := carry.Offer{
		Service: "Vercel", Flag: "--vercel", Networks: p.opt.Networks, Levels: []string{"L0", "L2", level}, NoWorkspaces: p.opt.NoWorkspaces,
		Size: "the memory and processors of --vercel-vcpus and the disk of its service: leave the limit out",
	}
	if err := offer.Refuse(spec, n, mounts); err != nil {
		return err
	}
	for _, text := range n.AllowDomains {
		if strings.Contains(text, ":") {
			return schemas.OpErrorf(schemas.Unsupported, "run", "network.allowDomains: %q: Vercel knows no ports of names", schemas.Quotable(text))
		}
	}
	return nil
}

// networkOf returns the service's settings for a network mode. Lists deny everything that they do not allow; denied ranges take
// precedence.
func networkOf(n schemas.Network) rules {
	switch {
	case n.Mode == schemas.AllowAll:
		return rules{Mode: "allow-all"}
	case n.Mode == schemas.Restricted && len(n.AllowDomains)+len(n.AllowCIDRs) > 0:
		r := rules{Allow: &[]string{}}
		*r.Allow = append(*r.Allow, n.AllowDomains...)
		if len(n.AllowCIDRs)+len(n.DenyCIDRs) > 0 {
			r.Subnets = &subnets{Allow: n.AllowCIDRs, Deny: n.DenyCIDRs}
		}
		return r
	default:
		return rules{Mode: "deny-all"}
	}
}

// checkNetwork returns an error if the service gave a sandbox another network than requested, or does not report it. Code: unsupported.
func checkNetwork(b box, n schemas.Network) error {
	kept, want := b.Session.Policy, networkOf(n)
	if kept == nil {
		kept = b.Sandbox.Policy
	}
	if kept != nil && want.Mode != "" && kept.Mode == want.Mode {
		return nil
	}
	if kept != nil && want.Mode == "" && kept.Mode == "custom" {
		var s subnets
		if want.Subnets != nil {
			s = *want.Subnets
		}
		if same(kept.Domains, *want.Allow) && same(kept.Allowed, s.Allow) && same(kept.Denied, s.Deny) {
			return nil
		}
	}
	return schemas.OpErrorf(schemas.Unsupported, "create", "Vercel does not keep this network for the project of this worker")
}

// same reports whether two lists have the same members.
func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
