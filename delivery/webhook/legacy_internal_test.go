package webhook

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestLegacySignaturesTakeTurnsDuringARotation: a receiver that knows either key takes one of two tries; after the overlap there
// is one key.
func TestLegacySignaturesTakeTurnsDuringARotation(t *testing.T) {
	now := time.Now()
	fresh, former := NewSecret(), NewSecret()
	e := schemas.Endpoint{URL: "https://example.com/hook", Legacy: true,
		Secrets: []schemas.EndpointSecret{{Key: fresh}, {Key: former, Expires: now.Add(time.Hour)}}}
	d := schemas.Delivery{ID: "dlv_1", Body: `{"a":1}`}
	signed := func(attempt int, at time.Time) string {
		t.Helper()
		d.Attempt = attempt
		r, err := (&Sender{}).request(t.Context(), e, d, at)
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Get(HeaderLegacy)
	}
	for attempt, key := range []string{fresh, former, fresh, former} {
		if got := signed(attempt, now); got != signLegacy(key, d.Body) {
			t.Errorf("try %d is signed with the wrong key", attempt)
		}
	}
	if got := signed(1, now.Add(2*time.Hour)); got != signLegacy(fresh, d.Body) {
		t.Error("a key that has ended signs")
	}
}
