package kubernetes

import (
	"net/netip"
	"slices"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// refuseNetwork returns an error for rules that a NetworkPolicy and the proxy cannot enforce. Codes: unsupported (credentials, or domains
// without a proxy), invalid (a CIDR).
func refuseNetwork(n schemas.Network, by *Egress) error {
	if len(n.Credentials) > 0 {
		return schemas.OpErrorf(schemas.Unsupported, "run", "network.credentials: a pod cannot be kept from the value of a variable: "+
			"leave them out, or use another provider")
	}
	if len(n.AllowDomains) > 0 {
		if by == nil {
			return schemas.OpErrorf(schemas.Unsupported, "run", "network.allowDomains: a NetworkPolicy knows addresses and no names, and this worker "+
				"has no egress proxy: apply deploy/kubernetes/egress.yaml and name its service with --kubernetes-egress, or use allowCidrs")
		}
		if _, err := egress.Compile(n, by.Private); err != nil {
			return err
		}
	}
	for field, list := range map[string][]string{"network.allowCidrs": n.AllowCIDRs, "network.denyCidrs": n.DenyCIDRs} {
		for _, text := range list {
			if _, err := netip.ParsePrefix(text); err != nil {
				return schemas.Invalidf(field, "%q is not a range of addresses such as 192.0.2.0/24", schemas.Quotable(text))
			}
		}
	}
	return nil
}

// linkLocal returns the link-local address ranges, at which cloud providers serve the node's credentials.
func linkLocal() []string { return []string{"169.254.0.0/16", "fe80::/10"} }

// waysOut returns the egress rules of a network mode. Deny-all has none, not even for DNS. There is no DNS either if host names are
// reached through a proxy: DNS queries could carry any data to any host.
func waysOut(n schemas.Network, by *proxy) []any {
	var to []any
	switch n.Mode {
	case schemas.AllowAll:
		to = blocks([]string{"0.0.0.0/0", "::/0"}, linkLocal())
	case schemas.Restricted:
		to = blocks(n.AllowCIDRs, append(slices.Clone(n.DenyCIDRs), linkLocal()...))
	default:
		return nil
	}
	if by != nil {
		rules := []any{by.rule()}
		if len(to) > 0 {
			rules = append(rules, object{"to": to})
		}
		return rules
	}
	names := object{"ports": []any{object{"protocol": "UDP", "port": int64(53)}, object{"protocol": "TCP", "port": int64(53)}}}
	if len(to) == 0 { // a rule without "to" would open everything
		return []any{names}
	}
	return []any{names, object{"to": to}}
}

// blocks returns the IP ranges of allow without those of except. The API requires that an exception lies within its range; a range that an
// exception covers entirely is dropped.
func blocks(allow, except []string) []any {
	var to []any
	for _, text := range allow {
		outer := netip.MustParsePrefix(text).Masked()
		covered := false
		var inner []any
		for _, e := range except {
			switch x := netip.MustParsePrefix(e).Masked(); {
			case !outer.Overlaps(x):
			case x.Bits() <= outer.Bits():
				covered = true
			default:
				inner = append(inner, x.String())
			}
		}
		if covered {
			continue
		}
		block := object{"cidr": outer.String()}
		if len(inner) > 0 {
			block["except"] = inner
		}
		to = append(to, object{"ipBlock": block})
	}
	return to
}
