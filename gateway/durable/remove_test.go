package durable

import (
	"net/http"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// TestAnExpiredStreamThatIsUsedAgainIsKept: one gateway finds that a stream's time is over, and before it has removed the record
// another has let the stream live on.
func TestAnExpiredStreamThatIsUsedAgainIsKept(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "data", headerTTL, "60"), http.StatusCreated)
		old, err := h.store.live(t.Context(), account, "s")
		if err != nil {
			t.Fatal(err)
		}
		used, err := h.store.change(t.Context(), account, "s", old.ID, func(r *Record) error { r.Touched = h.store.now(); return nil })
		if err != nil || used.revision == old.revision {
			t.Fatalf("revision %d after %d, %v", used.revision, old.revision, err)
		}
		asked := 0
		kept, err := h.store.removeWhile(t.Context(), old, func(*Record) bool { asked++; return false })
		if err != nil || kept == nil || kept.revision != used.revision || asked != 1 {
			t.Errorf("kept %+v, %v; the condition was asked %d times", kept, err, asked)
		}
		wantStatus(t, ask(t.Context(), h, http.MethodGet, "s", ""), http.StatusOK)
		if err := h.store.remove(t.Context(), old); err != nil { // a DELETE does not depend on its use
			t.Fatal(err)
		}
		wantStatus(t, ask(t.Context(), h, http.MethodHead, "s", ""), http.StatusNotFound)
	})
}
