package deno_test

import (
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for Deno may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of Deno Sandbox for JavaScript")
	s, url := denotest.Start(t, denotest.Options{MaxRunning: 2})
	cloudtest.VendorsClient(t, "denotest/client", []string{"DENO_DEPLOY_TOKEN=" + denotest.Token, "DENO_DEPLOY_ENDPOINT=" + url, "DENO_SANDBOX_ENDPOINT=" + url},
		[]string{"volumes", "config", "create", "spawn", "streams", "kill", "files", "list", "connect", "limits", "gone"})
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
