// Package wires opens the client of whichever wire a model's server speaks, and connects it only to where its caller lets it.
package wires

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/anthropic"
	"github.com/sandjet/sandjet/models/openai"
	"github.com/sandjet/sandjet/schemas"
)

// Open returns the client of a wire. Code: invalid.
func Open(w schemas.Wire, o models.Options) (models.Client, error) {
	switch w {
	case schemas.WireAnthropic:
		return opened(anthropic.New(o))
	case schemas.WireOpenAI:
		return opened(openai.New(o))
	}
	return nil, schemas.Invalidf("wire", "%q is unknown: use anthropic or openai", schemas.Quotable(string(w)))
}

func opened[C models.Client](c C, err error) (models.Client, error) {
	if err != nil {
		return nil, fmt.Errorf("open the client of a model: %w", err)
	}
	return c, nil
}

const (
	maxHeaders = 64 << 10 // bytes of an answer's
	keepAlive  = 15 * time.Second
	idleWithin = 30 * time.Second
	idlePer    = 16 // connections to a server that are kept for the next request
)

// Transport returns the transport for servers that accounts have named. Before each connection it calls allowed with the resolved address
// and whether the connection is encrypted; the error of allowed becomes the request's error. It uses no proxy, since that would connect in
// its place. connect limits the time to connect, and again that of the TLS handshake; 0 means [models.DefaultConnect].
func Transport(connect time.Duration, allowed func(a netip.Addr, encrypted bool) error) http.RoundTripper {
	if connect <= 0 {
		connect = models.DefaultConnect
	}
	one := func(encrypted bool) *http.Transport {
		d := &net.Dialer{Timeout: connect, KeepAlive: keepAlive}
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return schemas.OpErrorf(schemas.Denied, "url", "leads to an address that cannot be read")
			}
			return allowed(to.Addr(), encrypted)
		}
		return &http.Transport{
			DialContext: d.DialContext, TLSHandshakeTimeout: connect, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeaders,
			DisableCompression: true, MaxIdleConnsPerHost: idlePer, IdleConnTimeout: idleWithin, // events come as they are written
		}
	}
	return transport{encrypted: one(true), clear: one(false)}
}

type transport struct{ encrypted, clear *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return t.encrypted.RoundTrip(r)
	}
	return t.clear.RoundTrip(r)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t transport) CloseIdleConnections() {
	t.encrypted.CloseIdleConnections()
	t.clear.CloseIdleConnections()
}
