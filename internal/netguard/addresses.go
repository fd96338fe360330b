// Package netguard parses host names and untrusted addresses, and decides whether an address is public. Webhooks and the network of
// sandboxes both use it, so that there is one list of non-public addresses and one way to parse a name. It has no side effects.
package netguard

import (
	"net/netip"
	"slices"
)

// block is a part of the address space that is not public, with the name of its kind.
type block struct {
	prefix netip.Prefix
	kind   string
}

// blocks returns the parts in order of precedence. IPv6 has few public ranges: Kind treats addresses outside of those as reserved.
func blocks() []block {
	table := []struct{ prefix, kind string }{
		{"0.0.0.0/8", "an unspecified"},
		{"127.0.0.0/8", "a loopback"},
		{"10.0.0.0/8", "a private"},
		{"172.16.0.0/12", "a private"},
		{"192.168.0.0/16", "a private"},
		{"100.64.0.0/10", "a carrier's private"},
		{"169.254.0.0/16", "a link-local"},
		{"168.63.129.16/32", "a cloud's own"}, // Azure's host, from inside its machines
		{"192.0.0.0/24", "a reserved"},
		{"192.0.2.0/24", "a documentation"},
		{"198.51.100.0/24", "a documentation"},
		{"203.0.113.0/24", "a documentation"},
		{"192.88.99.0/24", "a relay"},
		{"198.18.0.0/15", "a benchmarking"},
		{"224.0.0.0/4", "a multicast"},
		{"240.0.0.0/4", "a reserved"},
		{"::/128", "an unspecified"},
		{"::1/128", "a loopback"},
		{"fc00::/7", "a private"}, // fd00:ec2::254, a cloud's metadata, is one
		{"fe80::/10", "a link-local"},
		{"ff00::/8", "a multicast"},
		{"64:ff9b:1::/48", "a translated"},
		{"2001::/32", "a Teredo"}, // its inner address is the receiver's choice
		{"2001::/23", "a reserved"},
		{"2001:db8::/32", "a documentation"},
		{"3fff::/20", "a documentation"},
	}
	list := make([]block, len(table))
	for i, row := range table {
		list[i] = block{netip.MustParsePrefix(row.prefix), row.kind}
	}
	return list
}

// These are constants that the language has no literals for.
var (
	notPublic = blocks()                              //nolint:gochecknoglobals // a table
	nat64     = netip.MustParsePrefix("64:ff9b::/96") //nolint:gochecknoglobals // a constant
	sixToFour = netip.MustParsePrefix("2002::/16")    //nolint:gochecknoglobals // a constant
	global    = netip.MustParsePrefix("2000::/3")     //nolint:gochecknoglobals // a constant
)

// Kind names the kind of an address that is not public, with its article: "a private". It is empty for public addresses. An IPv6 address
// that embeds an IPv4 address has the kind of that.
func Kind(a netip.Addr) string {
	if a.Zone() != "" {
		return "a link-local"
	}
	a = Carried(a)
	if !a.IsValid() {
		return "an unspecified"
	}
	for _, block := range notPublic {
		if block.prefix.Contains(a) {
			return block.kind
		}
	}
	if a.Is6() && !global.Contains(a) {
		return "a reserved"
	}
	return ""
}

// Carried returns the IPv4 address that an IPv6 address embeds (mapped, NAT64, 6to4), else the address itself.
func Carried(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a.WithZone("")):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a.WithZone("")):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// Closed is [Within], except that prefixes inside of one of the opened networks count as public: it returns "".
func Closed(p netip.Prefix, opened []netip.Prefix) string {
	if slices.ContainsFunc(opened, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }) {
		return ""
	}
	return Within(p)
}

// Within names the kind of the non-public part of the address space that contains all of p; empty if there is none.
func Within(p netip.Prefix) string {
	for _, block := range notPublic {
		if block.prefix.Bits() <= p.Bits() && block.prefix.Contains(p.Addr()) {
			return block.kind
		}
	}
	if p.Addr().Is6() && !p.Addr().Is4In6() && !global.Overlaps(p) && !nat64.Overlaps(p) {
		return "a reserved"
	}
	return ""
}

// metadata are the addresses at which clouds provide the credentials of a host or a task.
var metadata = []netip.Addr{ //nolint:gochecknoglobals // a table
	netip.MustParseAddr("169.254.169.254"), // most clouds
	netip.MustParseAddr("169.254.170.2"),   // tasks of AWS
	netip.MustParseAddr("169.254.170.23"),  // pods of AWS
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd00:ec2::23"),
	netip.MustParseAddr("fd20:ce::254"),
}

// Metadata reports whether a cloud provides credentials at the address. No rule should ever allow it.
func Metadata(a netip.Addr) bool { return slices.Contains(metadata, Carried(a.WithZone(""))) }
