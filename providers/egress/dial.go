package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/internal/netguard"
)

const (
	// dialWithin is how long a lookup and a connection may take together.
	dialWithin = 15 * time.Second
	// mostAddresses of a name are tried.
	mostAddresses = 16
)

// Resolver looks names up. [net.Resolver] implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// target is the destination of a connection.
type target struct {
	host netguard.Host
	port uint16
}

func (t target) String() string { return net.JoinHostPort(t.host.String(), strconv.Itoa(int(t.port))) }

// refusal returns a refusal of a connection to the target.
func (t target) refusal(rule, text string) *Refusal {
	return &Refusal{Name: t.host.Name, Addr: t.host.Addr, Port: t.port, Rule: rule, Text: text}
}

// decide returns why the rules refuse a target; nil if they allow it.
func (r *Relay) decide(t target) *Refusal {
	var v Verdict
	if t.host.Name != "" {
		v = r.opt.Rules.Name(t.host.Name, t.port)
	} else {
		v = r.opt.Rules.Addr(t.host.Addr, t.port)
	}
	if v.Allowed {
		return nil
	}
	return t.refusal(v.Rule, v.Text)
}

// dial connects to a target, if the rules allow it. It checks them again because it is the only place that connects.
func (r *Relay) dial(ctx context.Context, t target) (net.Conn, *Refusal) {
	if refusal := r.decide(t); refusal != nil {
		return nil, refusal
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	addrs := []netip.Addr{t.host.Addr}
	if t.host.Name != "" {
		var err error
		if addrs, err = r.opt.Resolver.LookupNetIP(ctx, "ip", t.host.Name+"."); err != nil {
			text := fmt.Sprintf("host %s is allowed, but cannot be looked up", t.host.Name)
			if failed, ok := errors.AsType[*net.DNSError](err); ok && failed.IsNotFound {
				text = fmt.Sprintf("host %s is allowed, but does not exist", t.host.Name)
			}
			return nil, t.refusal(RuleUnreachable, text)
		}
	}
	// One address that is not allowed spoils them all: a name that means two networks is not what its rule was written for.
	for _, a := range addrs {
		if v := r.opt.Rules.Resolved(a); !v.Allowed {
			text := v.Text
			if t.host.Name != "" {
				text = fmt.Sprintf("host %s leads to a place that is not open: %s", t.host.Name, v.Text)
			}
			return nil, t.refusal(v.Rule, text)
		}
	}
	addrs = addrs[:min(len(addrs), mostAddresses)]
	var last error
	for i, a := range addrs {
		within, cancel := context.WithTimeout(ctx, share(ctx, len(addrs)-i))
		conn, err := r.opt.Dial(within, netip.AddrPortFrom(a.Unmap(), t.port))
		cancel()
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, t.refusal(RuleUnreachable, fmt.Sprintf("%s is allowed, but cannot be connected to: %s", t, reason(last)))
}

// share returns the part of the remaining time for one of n attempts.
func share(ctx context.Context, n int) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline) / time.Duration(max(n, 1))
}

// reason describes why a connection failed, without addresses of this host.
func reason(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "no answer in time"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no route"
	default:
		return "the connection failed"
	}
}

// direct returns a function that dials a checked address, and checks it once more just before it connects.
func direct(rules *Rules) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		d := net.Dialer{KeepAlive: 30 * time.Second, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || at.Port() != to.Port() || at.Addr().Unmap() != to.Addr().Unmap() || !rules.Resolved(at.Addr()).Allowed {
				return syscall.EACCES
			}
			return nil
		}}
		return d.DialContext(ctx, "tcp", to.String())
	}
}
