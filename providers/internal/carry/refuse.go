package carry

import (
	"net/netip"
	"slices"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Offer describes what the sandboxes of a vendor's service offer to every caller of a worker.
type Offer struct {
	Service  string // its name in errors, such as Modal
	Flag     string // the first part of its flags, such as --modal
	Networks []schemas.NetworkMode
	// Credentials is whether variables can be bound to hosts.
	Credentials bool
	// Levels are the levels of isolation that a caller may request; the sandboxes' actual level is the last.
	Levels []string
	// Size completes the sentence "a sandbox of Modal has": the memory and processors, and what to do instead of requesting a limit.
	Size string
	// NoWorkspaces is whether the worker's operator has disabled workspaces.
	NoWorkspaces bool
}

// Refuse returns an error for the first requirement that no sandbox of the service can meet; nil if there is none. The provider checks
// further restrictions of its service itself. Codes: unsupported, invalid.
func (o Offer) Refuse(spec providers.Spec, n schemas.Network, mounts []providers.Mount) error {
	cannot := func(format string, args ...any) error {
		return schemas.OpErrorf(schemas.Unsupported, "run", format, args...)
	}
	switch {
	case n.Mode != "" && !slices.Contains(o.Networks, n.Mode):
		return cannot("the operator of this worker does not allow the network mode %q: it has %s-networks %v",
			schemas.Quotable(string(n.Mode)), o.Flag, o.Networks)
	case len(n.Credentials) > 0 && !o.Credentials:
		return cannot("network.credentials: a sandbox of %s cannot be kept from the value of a variable: leave them out, or use another provider",
			o.Service)
	case spec.MinIsolation != "" && !slices.Contains(o.Levels, spec.MinIsolation):
		return cannot("isolation %s was asked for, and %s has %s", schemas.Quotable(spec.MinIsolation), o.Service, o.Levels[len(o.Levels)-1])
	case spec.MemoryLimit > 0 || spec.CPUs > 0 || spec.Pids > 0 || spec.Disk > 0:
		return cannot("a sandbox of %s has %s", o.Service, o.Size)
	case len(mounts) > 0 && o.NoWorkspaces:
		return cannot("this worker has no workspaces on %s: its operator has said %s-no-workspaces; leave the workspace out, or use another provider",
			o.Service, o.Flag)
	case len(mounts) > 1:
		return cannot("a sandbox of %s has one workspace here", o.Service)
	case len(mounts) == 1 && mounts[0].Storage != "":
		return cannot("a workspace on %s is not reached from sandboxes of %s: use one without storage.provider, or another provider",
			schemas.Quotable(mounts[0].Storage), o.Service)
	}
	if err := checkRanges("network.allowCidrs", n.AllowCIDRs); err != nil {
		return err
	}
	if err := checkRanges("network.denyCidrs", n.DenyCIDRs); err != nil {
		return err
	}
	return CheckMounts(mounts)
}

func checkRanges(field string, ranges []string) error {
	for _, text := range ranges {
		if _, err := netip.ParsePrefix(text); err != nil {
			return schemas.Invalidf(field, "%q is not a range of addresses such as 192.0.2.0/24", schemas.Quotable(text))
		}
	}
	return nil
}
