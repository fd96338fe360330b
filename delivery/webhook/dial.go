package webhook

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

// Policy is which addresses may be dialled. The zero value is for production: public addresses, https, ports 443 and 8443.
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

// allowed returns an error if an address must not be dialled, including addresses not known to be public. It has no side effects.
func allowed(to netip.AddrPort, p Policy) error {
	refuse := func(kind string) error {
		return schemas.OpErrorf(schemas.Denied, "dial",
			"the endpoint's name resolves to %s address %s: webhooks go to public addresses only", kind, to.Addr())
	}
	if !to.IsValid() {
		return schemas.OpErrorf(schemas.Denied, "dial", "the endpoint's address cannot be read")
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
	if kind := netguard.Kind(a); kind != "" {
		return refuse(kind)
	}
	port := to.Port()
	if port != 443 && port != 8443 && (port != 80 || !p.AllowHTTP) && !slices.Contains(p.Ports, port) {
		return schemas.OpErrorf(schemas.Denied, "dial", "port %d is not one for webhooks: use 443 or 8443", port)
	}
	return nil
}

// dialer returns a dialer that refuses addresses outside of the policy. It checks the resolved address just before connecting, so that a
// name which resolves differently the second time cannot bypass it. Resolver may be nil.
func dialer(p Policy, resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{
		Timeout: dialWithin, KeepAlive: 30 * time.Second, Resolver: resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return schemas.OpErrorf(schemas.Denied, "dial", "the endpoint's address cannot be read")
			}
			return allowed(to, p)
		},
	}
}
