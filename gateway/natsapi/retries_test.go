package natsapi

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestAnAccountOfWhichNothingComesIsForgotten: a delayed account that stops leaves nothing behind, and one that keeps sending is still
// delayed.
func TestAnAccountOfWhichNothingComesIsForgotten(t *testing.T) {
	t.Parallel()
	const accounts = 1000
	h, now := &holdups{until: map[schemas.AccountID]time.Time{}}, time.Now()
	for n := range accounts {
		h.stop(schemas.AccountID(fmt.Sprint("acct_", n)), now)
	}
	if _, try := h.ask("acct_1", now); try || len(h.until) != accounts {
		t.Errorf("it is tried at once: %v; %d accounts are held up", try, len(h.until))
	}
	for range 3 * holdupKept / time.Second {
		now = now.Add(time.Second)
		h.stop("acct_goes_on", now)
	}
	if _, held := h.until["acct_goes_on"]; !held || len(h.until) != 1 {
		t.Errorf("%d accounts are remembered, the one that goes on: %v", len(h.until), held)
	}
}
