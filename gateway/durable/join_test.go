package durable

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestAPlaceBehindTheEndIsRefused: a reader that waits there would miss what is stored before it.
func TestAPlaceBehindTheEndIsRefused(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "one"), http.StatusCreated)
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "fork", "", headerForked, prefix+"s"), http.StatusCreated)
		const far = 1 << 40
		for _, path := range []string{"s", "fork"} {
			f, err := h.store.live(t.Context(), account, path)
			if err != nil {
				t.Fatal(err)
			}
			e, err := h.store.end(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for query, after := range map[string]uint64{"": e.seq + 1, "&live=long-poll": e.seq + 1, "&live=sse": far} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, prefix+path+"?offset="+formatOffset(after)+query, http.NoBody)
				if err := h.Serve(httptest.NewRecorder(), r, account, path); !errors.Is(err, schemas.ErrInvalid) {
					t.Errorf("%s at %d of %d%s: %v; want invalid", path, after, e.seq, query, err)
				}
			}
			wantStatus(t, ask(t.Context(), h, http.MethodGet, path+"?offset="+formatOffset(e.seq), ""), http.StatusOK)
		}
	})
}

// TestAReaderMayGiveUpBeforeItsSubscriptionIsThere beside others that wait for the same one.
func TestAReaderMayGiveUpBeforeItsSubscriptionIsThere(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "one"), http.StatusCreated)
		f, err := h.store.live(t.Context(), account, "s")
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var readers sync.WaitGroup
		for range 20 {
			for _, ctx := range []context.Context{t.Context(), gone, t.Context()} {
				readers.Go(func() {
					topic, err := h.hub.join(ctx, f)
					if err == nil {
						h.hub.leave(f, topic)
					} else if ctx != gone {
						t.Error(err)
					}
				})
			}
			readers.Wait()
		}
		if len(h.hub.open) > 0 {
			t.Errorf("%d subscriptions are left", len(h.hub.open))
		}
	})
}
