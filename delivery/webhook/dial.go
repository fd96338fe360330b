package webhook

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Policy says which addresses may be dialled. The zero value is for production: public addresses, https,
// ports 443 and 8443.
type Policy struct {
	// AllowLoopback is for development: 127.0.0.0/8 and ::1, on every port.
	AllowLoopback bool
	// AllowHTTP is for development: URLs without TLS, and port 80.
	AllowHTTP bool
	// Networks may be dialled though they are not public, on every port: receivers of one's own.
	Networks []netip.Prefix
	// Ports may be dialled beside 443 and 8443.
	Ports []uint16
}

// allowed reports why an address must not be dialled. It is pure. What is not known to be public is
// refused.
func allowed(to netip.AddrPort, p Policy) error {
	refuse := func(kind string) error {
		return schemas.Errorf(schemas.Denied, "dial", "the endpoint's name resolves to %s address %s: webhooks go to public addresses only", kind, to.Addr())
	}
	if !to.IsValid() {
		return schemas.Errorf(schemas.Denied, "dial", "the endpoint's address cannot be read")
	}
	if to.Addr().Zone() != "" {
		return refuse("a link-local")
	}
	a := to.Addr().Unmap()
	if p.AllowLoopback && a.IsLoopback() {
		return nil
	}
	if slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
		return nil
	}
	if kind := private(a); kind != "" {
		return refuse(kind)
	}
	port := to.Port()
	if port != 443 && port != 8443 && (port != 80 || !p.AllowHTTP) && !slices.Contains(p.Ports, port) {
		return schemas.Errorf(schemas.Denied, "dial", "port %d is not one for webhooks: use 443 or 8443", port)
	}
	return nil
}

// block is a part of the address space that is not public, with what to call it.
type block struct {
	prefix netip.Prefix
	kind   string
}

// blocks are looked through from the top. Version 6 has few public parts, so what is none of them is
// refused in private.
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

// notPublic, nat64, sixToFour and global are constants that the language has no literals for.
var (
	notPublic = blocks()                              //nolint:gochecknoglobals // a table
	nat64     = netip.MustParsePrefix("64:ff9b::/96") //nolint:gochecknoglobals // a constant
	sixToFour = netip.MustParsePrefix("2002::/16")    //nolint:gochecknoglobals // a constant
	global    = netip.MustParsePrefix("2000::/3")     //nolint:gochecknoglobals // a constant
)

// private names the kind of an address that is not public; empty: it is. Addresses of version 6 that
// carry one of version 4 are what they carry.
func private(a netip.Addr) string {
	b := a.As16()
	switch {
	case a.Is4():
	case nat64.Contains(a):
		return private(netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFour.Contains(a):
		return private(netip.AddrFrom4([4]byte(b[2:6])))
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

// dialer returns a dialer that refuses addresses outside of the policy. It looks at the address that is
// about to be connected to, after the name was resolved: a name that resolves differently the second
// time cannot get around it. Resolver may be nil.
func dialer(p Policy, resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{
		Timeout: dialWithin, KeepAlive: 30 * time.Second, Resolver: resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return schemas.Errorf(schemas.Denied, "dial", "the endpoint's address cannot be read")
			}
			return allowed(to, p)
		},
	}
}
