package daytona_test

import (
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/daytona/daytonatest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for Daytona may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of Daytona for JavaScript")
	s, url := daytonatest.Start(t, daytonatest.Options{MaxRunning: 2})
	cloudtest.VendorsClient(t, "daytonatest/client", []string{"DAYTONA_API_KEY=" + daytonatest.Key, "DAYTONA_API_URL=" + url},
		[]string{"create", "execute", "deadline", "session", "files", "labels", "stop", "limits", "gone"})
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
