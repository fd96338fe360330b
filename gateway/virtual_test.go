package gateway_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// inTime runs f in virtual time with a gateway to which pipes lead, and the keys of its accounts: what
// ends after a while does so exactly then, however busy the machine is.
func inTime(t *testing.T, f func(t *testing.T, e *edge, k *keys), change ...func(*gateway.Options)) {
	t.Helper()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		k := newKeys(t)
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		o := gateway.Options{Bus: b, Records: book{}, Keys: k, DurableStreams: true}
		for _, c := range change {
			c(&o)
		}
		e := &edge{
			t: t, bus: b, url: "http://gateway", gw: gateway.New(o),
			client: &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}},
			dialer: &websocket.Dialer{NetDialContext: l.dial},
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.gw.Run(ctx, l) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		f(t, e, k)
	})
}
