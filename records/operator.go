package records

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

// Operator is what the operator of a deployment allows to sandboxes, which share its hosts, and to models. No record of an account can
// exceed it. The zero value allows everything that the provider can do.
type Operator struct {
	// Networks are the modes that may be used. Empty: all.
	Networks []schemas.NetworkMode
	// MaxMemory is the most memory of a sandbox, in bytes. 0: no limit but the provider's.
	MaxMemory int64
	// MaxJobs is the highest jobLimit of a sandbox. 0: schemas.MaxJobs.
	MaxJobs int
	// PrivateNetworks may be listed by sandboxes though they are not public.
	PrivateNetworks []netip.Prefix
	// ModelNetworks may have servers of models though they are not public.
	ModelNetworks []netip.Prefix
}

// check returns what of a sandbox is not allowed. Code: denied.
func (o Operator) check(providers schemas.Catalog, s schemas.Sandbox) error {
	if p, _ := providers.Find(s.Provider); !p.OnHost {
		return nil // its sandboxes are not on a host of this deployment
	}
	denied := func(field, format string, args ...any) error {
		return &schemas.Error{Code: schemas.Denied, Field: field, Message: fmt.Sprintf(format, args...)}
	}
	if len(o.Networks) > 0 && s.Network.Mode != "" && !slices.Contains(o.Networks, s.Network.Mode) {
		return denied("config.network.mode",
			"the operator of this server does not allow %s: use %s, or ask for gateways and workers with --networks %s",
			schemas.Quotable(string(s.Network.Mode)), list(o.Networks), schemas.Quotable(string(s.Network.Mode)))
	}
	if o.MaxMemory > 0 && s.MemoryLimit > o.MaxMemory {
		return denied("config.memoryLimit",
			"the operator of this server allows %d MiB at most, not %d: use less, or ask for gateways and workers with a higher --max-memory",
			o.MaxMemory/mebi, s.MemoryLimit/mebi)
	}
	if o.MaxJobs > 0 && s.JobLimit > o.MaxJobs {
		return denied("config.jobLimit",
			"the operator of this server allows %d background jobs of a sandbox at the same time, not %d: use less, or ask for gateways and "+
				"workers with a higher --max-jobs", o.MaxJobs, s.JobLimit)
	}
	for i, text := range s.Network.AllowCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // the record's own check names it
		}
		if kind := netguard.Closed(p, o.PrivateNetworks); kind != "" {
			return denied(fmt.Sprintf("config.network.allowCidrs[%d]", i),
				"%s is not public but %s network, and the operator of this server does not open it: list public networks, "+
					"or ask for gateways and workers with --private-networks %s", p, kind, p)
		}
	}
	return nil
}

// allowed checks the sandbox or the model of a record, if it is one.
func (o Operator) allowed(providers schemas.Catalog, r record) error {
	if r.Model != nil {
		return o.checkModel(r.Model.ModelConfig)
	}
	if r.Sandbox == nil {
		return nil
	}
	return o.check(providers, *r.Sandbox)
}
