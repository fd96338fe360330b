package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// ownFor is how long the addresses of this host are taken to be what they were.
const ownFor = 10 * time.Second

// own are the addresses of this host: what listens on all of them must not be reached by a public one either.
var own struct { //nolint:gochecknoglobals // one host
	mu    sync.Mutex
	at    time.Time
	addrs []netip.Addr
}

// hostAddresses returns the addresses of this host's interfaces, which it caches.
func hostAddresses() []netip.Addr {
	own.mu.Lock()
	defer own.mu.Unlock()
	if !own.at.IsZero() && time.Since(own.at) < ownFor {
		return own.addrs
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return own.addrs
	}
	own.at, own.addrs = time.Now(), nil
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own.addrs = append(own.addrs, p.Addr().Unmap())
		}
	}
	return own.addrs
}
