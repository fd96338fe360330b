package streams

import (
	"fmt"
	"testing"
)

// TestAnnouncementsAreBounded: announcements of calls on which this process does not act are dropped in the end, and the latest
// one is kept.
func TestAnnouncementsAreBounded(t *testing.T) {
	t.Parallel()
	var a announcements
	for n := range 5 * mostAnnounced {
		a.add(fmt.Sprint(n), Certainty{Generation: uint64(n)})
		if kept := len(a.younger) + len(a.older); kept > 2*mostAnnounced {
			t.Fatalf("%d are kept after %d", kept, n)
		}
	}
	last := 5*mostAnnounced - 1
	if sure, ok := a.take(fmt.Sprint(last)); !ok || sure.Generation != uint64(last) {
		t.Errorf("the last one is %v, %v", sure, ok)
	}
	if _, ok := a.take(fmt.Sprint(last)); ok {
		t.Error("it is said twice")
	}
	if _, ok := a.take("0"); ok {
		t.Error("the first one is still there")
	}
}
