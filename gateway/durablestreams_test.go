package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

// TestDurableStreamsAreOffUnlessAskedFor: every method of their routes names the flag that turns them on, to who has a key; others
// learn nothing.
func TestDurableStreamsAreOffUnlessAskedFor(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.DurableStreams = false })
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodGet, http.MethodDelete} {
		a := e.do(ask{method: method, path: "/v1/streams/notes/today?offset=-1"})
		if p := a.problem(t); a.status != http.StatusNotFound || p.Code != schemas.NotFound || !strings.Contains(p.Message, "--durable-streams") {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
		if a := e.do(ask{method: method, path: "/v1/streams/notes/today", key: "-"}); a.status != http.StatusUnauthorized {
			t.Errorf("%s without a key: %d %s", method, a.status, a.body)
		}
	}
}
