package e2b

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

// level is what a profile and results say of a sandbox: at least namespaces of its own. It is a virtual machine.
const level = "L3"

// Declared returns the most that the provider can offer. A sandbox's memory, processors and disk are those of its template; limits in
// records do not change them.
func Declared() providers.Profile {
	return providers.Profile{
		Name:       "e2b",
		Networks:   []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
		MaxTimeout: schemas.Duration(schemas.MaxTimeout),
		MaxMemory:  schemas.MaxMemoryLimit << 20,
		MaxOutput:  schemas.MaxOutputLimit,
		Persistent: true,
		Pause:      schemas.PauseKeepsProcesses,
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
		Level: level, Enforced: []string{"virtual machine", "network"},
		Missing: []string{"memory", "cpu", "pids", "proof of what the service keeps"},
	}
}

// refuse returns an error for the first requirement that a sandbox cannot meet; nil if there is none. Codes: unsupported, invalid.
func (p *Provider) refuse(spec providers.Spec, n schemas.Network, mounts []providers.Mount) error {
	offer := carry.Offer{
		Service: "E2B", Flag: "--e2b", Networks: p.opt.Networks, Levels: []string{"L0", "L2", level}, NoWorkspaces: p.opt.NoWorkspaces,
		Size: "the memory, processors and disk of its template: leave the limit out, and choose another --e2b-template",
	}
	if err := offer.Refuse(spec, n, mounts); err != nil {
		return err
	}
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	if len(n.DenyCIDRs) > 0 {
		return cannot("network.denyCidrs: on E2B what is allowed wins over what is denied: list in allowCidrs what is left without these ranges")
	}
	for _, text := range n.AllowDomains {
		if strings.Contains(text, ":") {
			return cannot("network.allowDomains: %q: E2B knows no ports of names", schemas.Quotable(text))
		}
	}
	return nil
}

// networkOf returns the service's settings for a network mode: deny-all by a switch of its own, restricted by denying everything and
// allowing a list, which takes precedence.
func networkOf(n schemas.Network) (internet bool, rules *network) {
	switch n.Mode {
	case schemas.AllowAll:
		return true, nil
	case schemas.Restricted:
		return true, &network{AllowOut: slices.Concat(n.AllowCIDRs, n.AllowDomains), DenyOut: []string{"0.0.0.0/0"}}
	default:
		return false, nil
	}
}

// homePath is the home of the plain user.
const homePath = "/home/" + userPlain
