// Package egresstest has what tests of ways out need: a [World] of names and servers that stands in for the internet, a probe that
// tries to get out of a sandbox, and the suite that every provider with a relay passes.
package egresstest

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// World simulates the internet outside of a relay: names, and servers at public addresses that really run on this host. It is a resolver
// and, by [World.Dial], a dialer, and records its requests. Its methods are safe for concurrent use.
type World struct {
	// Certs are those of the servers that speak TLS.
	Certs *x509.CertPool

	tb      testing.TB
	mu      sync.Mutex
	names   map[string][]string // addresses
	servers map[string]string   // public address and port: where it really is
	lookups []string
	dialled []string
}

// New returns an empty world. Its servers end with the test.
func New(tb testing.TB) *World {
	return &World{tb: tb, names: map[string][]string{}, servers: map[string]string{}, Certs: x509.NewCertPool()}
}

// Name sets the addresses of a name.
func (w *World) Name(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name+"."] = addrs
}

// Serve sets the real address of the server at a public address and port.
func (w *World) Serve(at, really string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[at] = really
}

// LookupNetIP returns the addresses of a name, which must end with a dot.
func (w *World) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, host)
	var list []netip.Addr
	for _, a := range w.names[host] {
		list = append(list, netip.MustParseAddr(a))
	}
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return list, nil
}

// Dial connects to the server at a public address. No server answers at others.
func (w *World) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	at := w.servers[to.String()]
	w.mu.Unlock()
	if at == "" {
		return nil, syscall.ECONNREFUSED
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at)
}

// Dialled returns the addresses that were dialled, in order.
func (w *World) Dialled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialled)
}

// Lookups returns the names that were looked up, each with a dot at its end.
func (w *World) Lookups() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lookups)
}

// Web starts a web server for a name at a public address: on port 80 or, with TLS and HTTP/2, on 443.
func (w *World) Web(name, addr string, secure bool, handler http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	port := "80"
	if secure {
		port = "443"
		s.EnableHTTP2 = true
		s.StartTLS()
		w.Certs.AddCert(s.Certificate())
	} else {
		s.Start()
	}
	w.tb.Cleanup(s.Close)
	w.Name(name, addr)
	w.Serve(net.JoinHostPort(addr, port), s.Listener.Addr().String())
	return s
}

// Echo makes a server at a public address repeat what it receives.
func (w *World) Echo(at string) {
	w.Serve(at, Listen(w.tb, "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.Copy(c, c)
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}))
}

// Greet makes a server at public addresses say "greeting" and then read until the client closes.
func (w *World) Greet(at ...string) {
	really := Greeter(w.tb, "127.0.0.1:0")
	for _, a := range at {
		w.Serve(a, really)
	}
}

// Greeter is a server of this host that says "greeting" and then reads until the client closes. It returns its address.
func Greeter(tb testing.TB, at string) string {
	tb.Helper()
	return Listen(tb, at, func(c net.Conn) {
		_, _ = io.WriteString(c, "greeting\n")
		_, _ = io.Copy(io.Discard, c)
	})
}

// Listen has f serve the connections to an address of this host, each in a goroutine, until the test ends, and returns the address.
func Listen(tb testing.TB, at string, f func(net.Conn)) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", at)
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			all.Go(func() {
				defer func() {
					_ = c.Close()
					mu.Lock()
					delete(open, c)
					mu.Unlock()
				}()
				f(c)
			})
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}
