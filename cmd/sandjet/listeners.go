package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// address is host:port; port 0 means any that is free.
type address struct {
	host string
	port int
}

func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// UnmarshalText reads host:port.
func (a *address) UnmarshalText(b []byte) error {
	host, port, err := net.SplitHostPort(string(b))
	if err != nil {
		return schemas.Invalidf("", "%q is not an address: write HOST:PORT, such as 127.0.0.1:8080; port 0 takes any free one",
			schemas.Quotable(string(b)))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return schemas.Invalidf("", "%q is not a port: write a number from 0 to 65535", schemas.Quotable(port))
	}
	*a = address{host, int(n)}
	return nil
}

// loopback reports whether only this host reaches the address.
func (a address) loopback() bool {
	if a.host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.Unmap().IsLoopback()
}

// allow returns an error for an address that other hosts can reach, unless remote is set. Code: denied.
func (a address) allow(flag string, remote bool) error {
	if remote || a.loopback() {
		return nil
	}
	return schemas.Errorf(schemas.Denied,
		"--%s %s is reachable from other hosts, without TLS: add --allow-remote if that is meant, and put a TLS proxy in front", flag, a)
}

// listen opens the address. Codes: conflict (it is in use), denied.
func (a address) listen(ctx context.Context, flag string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.String())
	if err == nil {
		return l, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, schemas.Errorf(schemas.Conflict,
			"%s is in use by another program: stop it, or choose another port with --%s %s (0 takes any that is free)",
			a, flag, address{a.host, 0})
	}
	if errors.Is(err, syscall.EACCES) {
		return nil, schemas.Errorf(schemas.Denied, "%s may not be opened by this user: choose a port above 1023 with --%s", a, flag)
	}
	return nil, fmt.Errorf("--%s %s: %w", flag, a, err)
}

// free returns an error if the address cannot be opened now.
func (a address) free(ctx context.Context, flag string) error {
	l, err := a.listen(ctx, flag)
	if err != nil {
		return err
	}
	return l.Close()
}

// reach returns the address by which a client on this host reaches a listener.
func reach(l net.Listener) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// dials reports whether a server accepts connections at a NATS address.
func dials(ctx context.Context, address string) bool {
	const patience = 2 * time.Second
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// portOf returns the port of a NATS address, 0 when it has none.
func portOf(natsURL string) int {
	u, err := url.Parse(natsURL)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return 0
	}
	return port
}
