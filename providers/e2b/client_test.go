package e2b_test

import (
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for E2B may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of E2B for JavaScript")
	s, url := e2btest.Start(t, e2btest.Options{MaxRunning: 2})
	cloudtest.VendorsClient(t, "e2btest/client", []string{"E2B_API_KEY=" + e2btest.Key, "E2B_API_URL=" + url, "E2B_SANDBOX_URL=" + url},
		[]string{"create", "run", "stdin", "kill", "deadline", "files", "list", "pause", "limits", "gone"})
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
