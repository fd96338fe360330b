package gateway_test

import (
	"net/http"
	"testing"

	"github.com/sandjet/sandjet/gateway"
)

// TestMetricsAreTheOperatorsWhereThereAreTenants: they show how much all accounts do.
func TestMetricsAreTheOperatorsWhereThereAreTenants(t *testing.T) {
	k := openKept(t)
	for key, want := range map[string]int{"-": http.StatusUnauthorized, adminKey: http.StatusOK} {
		if a := k.do(ask{method: http.MethodGet, path: "/metrics", key: key}); a.status != want {
			t.Errorf("key %q: %d, want %d", key, a.status, want)
		}
	}
	e := open(t, func(o *gateway.Options) { o.MetricsElsewhere = true })
	if a := e.get("/metrics"); a.status != http.StatusNotFound {
		t.Errorf("metrics that are elsewhere are here too: %d", a.status)
	}
	if a := e.get("/healthz"); a.status != http.StatusOK {
		t.Errorf("health: %d", a.status)
	}
}
