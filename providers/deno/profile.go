package deno

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a sandbox: at least namespaces of its own. It is a virtual machine.
const level = "L3"

// Declared returns the most that the provider can offer. The worker's settings determine a sandbox's memory, the service its processors
// and disk; limits in records do not change them.
func Declared() providers.Profile {
	return providers.Profile{
		Name:                "deno",
		Networks:            []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout:          schemas.Duration(schemas.MaxTimeout),
		MaxMemory:           schemas.MaxMemoryLimit << 20,
		MaxOutput:           schemas.MaxOutputLimit,
		Persistent:          true,
		Jobs:                true,
		Credentials:         true,
		ExclusiveWorkspaces: true,
		Shell:               "bash",
	}
}

// Profile returns what the provider offers with this worker's settings.
func (p *Provider) Profile() providers.Profile {
	f := Declared()
	f.Networks = slices.Clone(p.opt.Networks)
	f.Credentials = slices.Contains(f.Networks, schemas.Restricted)
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
		Service: "Deno", Flag: "--deno", Networks: p.opt.Networks, Levels: []string{"L0", "L2", level}, NoWorkspaces: p.opt.NoWorkspaces,
		Credentials: true,
		Size:        "the memory of --deno-memory, and the processors and disk of the service: leave the limit out, and choose another --deno-memory",
	}
	if err := offer.Refuse(spec, n, mounts); err != nil {
		return err
	}
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	switch {
	case len(n.Credentials) > 0 && n.Mode != schemas.Restricted:
		return cannot("network.credentials: variables are bound to hosts in the mode restricted only")
	case len(n.DenyCIDRs) > 0:
		return cannot("network.denyCidrs: Deno has no list of denials: list in allowDomains and allowCidrs what is left without these ranges")
	}
	for _, text := range n.AllowCIDRs {
		if r, err := netip.ParsePrefix(text); err == nil && !r.IsSingleIP() {
			return cannot("network.allowCidrs: %q: Deno keeps a sandbox to names and single addresses, and not to ranges: "+
				"list addresses such as 192.0.2.7/32", schemas.Quotable(text))
		}
	}
	for name := range n.Credentials {
		if spec.Env[name] == "" {
			return schemas.Invalidf("network.credentials", "%q is not a variable of the sandbox with a value", schemas.Quotable(name))
		}
	}
	return nil
}

// allowedOf returns the service's list of allowed hosts for a network mode: empty for deny-all, nil for allow-all. A name without a port
// opens ports 80 and 443; in the service's list it would open all ports.
func allowedOf(n schemas.Network) *[]string {
	if n.Mode == schemas.AllowAll {
		return nil
	}
	hosts := []string{}
	if n.Mode != schemas.Restricted {
		return &hosts
	}
	for _, name := range n.AllowDomains {
		if strings.Contains(name, ":") {
			hosts = append(hosts, name)
		} else {
			hosts = append(hosts, name+":80", name+":443")
		}
	}
	for _, text := range n.AllowCIDRs {
		if r, err := netip.ParsePrefix(text); err == nil && r.Addr().Is6() {
			hosts = append(hosts, "["+r.Addr().String()+"]")
		} else if err == nil {
			hosts = append(hosts, r.Addr().String())
		}
	}
	return &hosts
}
