package bucket

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

const (
	dialWithin   = 10 * time.Second
	answerWithin = 30 * time.Second
	idleWithin   = 90 * time.Second
	connections  = 32
	// sharedConnections is how many there are to one service for all buckets that share them, and how many are idle of all.
	sharedConnections = 256
)

// Connections are connections that several buckets share, so that opening a bucket needs no new connection. They are safe for concurrent
// use.
type Connections struct {
	public    bool
	transport *http.Transport
}

// NewConnections returns connections for buckets with the same [Options.Public] and [Options.Private].
func NewConnections(public bool, private []netip.Prefix) *Connections {
	t := newTransport(Options{Public: public, Private: private})
	t.MaxConnsPerHost, t.MaxIdleConns = sharedConnections, sharedConnections
	return &Connections{public, t}
}

// newTransport returns the transport to the service. For an endpoint that a tenant has named it connects to public addresses only, checks
// the address just before connecting, and uses no proxy.
func newTransport(o Options) *http.Transport {
	d := &net.Dialer{Timeout: dialWithin, KeepAlive: idleWithin / 3}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: d.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: connections,
		MaxConnsPerHost: connections, IdleConnTimeout: idleWithin, TLSHandshakeTimeout: dialWithin, ResponseHeaderTimeout: answerWithin,
		ExpectContinueTimeout: time.Second,
	}
	if o.Public {
		t.Proxy = nil
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return schemas.OpErrorf(schemas.Denied, "bucket", "the endpoint's address cannot be read")
			}
			return allowed(to.Addr(), o.Private)
		}
	}
	return t
}

// allowed returns an error if an address must not be connected to. It has no side effects.
func allowed(a netip.Addr, private []netip.Prefix) error {
	plain := a.Unmap().WithZone("")
	kind := netguard.Kind(plain)
	if kind == "" && a.Zone() == "" {
		return nil
	}
	if slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Contains(plain) }) && !netguard.Metadata(plain) {
		return nil
	}
	return schemas.OpErrorf(schemas.Denied, "bucket", "the endpoint leads to %s address: buckets of workspaces are at public ones, "+
		"but for the operator's --private-networks", cmpKind(kind))
}

func cmpKind(kind string) string {
	if kind == "" {
		return "a link-local"
	}
	return kind
}
