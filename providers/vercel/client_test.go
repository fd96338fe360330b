package vercel_test

import (
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
	"github.com/sandjet/sandjet/providers/vercel/verceltest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for Vercel may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of Vercel for JavaScript")
	s, url := verceltest.Start(t, verceltest.Options{MaxRunning: 3})
	cloudtest.VendorsClient(t, "verceltest/client", []string{"VERCEL_TOKEN=" + verceltest.Token, "VERCEL_TEAM_ID=" + verceltest.Team,
		"VERCEL_PROJECT_ID=" + verceltest.Project, "API_URL=" + url},
		[]string{"create", "run", "detached", "deadline", "files", "network", "extend", "resume", "drives", "snapshot", "list",
			"limits", "gone"})
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
