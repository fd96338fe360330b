package durable

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// unconfirmed is a bucket that does not learn that a record was stored.
type unconfirmed struct{ recordBucket }

func (u unconfirmed) Create(ctx context.Context, key string, r Record, ttl time.Duration) (uint64, error) {
	if _, err := u.recordBucket.Create(ctx, key, r, ttl); err != nil {
		return 0, err
	}
	return 0, schemas.OpErrorf(schemas.Unavailable, "create", "no confirmation came")
}

func wantData(t *testing.T, h *Handler, path, want string) {
	t.Helper()
	w := ask(t.Context(), h, http.MethodGet, path+"?offset=-1", "")
	if wantStatus(t, w, http.StatusOK); w.Body.String() != want {
		t.Errorf("%s has %q; want %q", path, w.Body.String(), want)
	}
}

// TestAForkWhoseConfirmationIsLostKeepsWhatItInherits: the record of a fork is stored, and the gateway does not learn it. The fork has
// the data of its source also when that is deleted.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestAForkWhoseConfirmationIsLostKeepsWhatItInherits(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "source", "one"), http.StatusCreated)
		known := h.store.records
		h.store.records = unconfirmed{known}
		if w := ask(t.Context(), h, http.MethodPut, "fork", "two", "Stream-Forked-From", prefix+"source"); w.Code < http.StatusBadRequest {
			t.Fatalf("status %d without a confirmation", w.Code)
		}
		h.store.records = known
		wantStatus(t, ask(t.Context(), h, http.MethodDelete, "source", ""), http.StatusNoContent)
		wantData(t, h, "fork", "onetwo")
	})
}

// TestAForkThatWasNotMadeFreesItsSource: what is refused for certain is no fork.
func TestAForkThatWasNotMadeFreesItsSource(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "source", "one"), http.StatusCreated)
		for code, want := range map[schemas.Code]int{schemas.Invalid: 0, schemas.Unavailable: 1} {
			known := h.store.records
			h.store.records = refusing{known, code}
			ask(t.Context(), h, http.MethodPut, "fork", "two", "Stream-Forked-From", prefix+"source")
			h.store.records = known
			source, err := h.store.live(t.Context(), account, "source")
			if err != nil || len(source.Forks) != want {
				t.Errorf("after %s the source is kept for %v, %v; want %d forks", code, source.Forks, err, want)
			}
			if _, err := h.store.change(t.Context(), account, "source", source.ID, func(r *Record) error { r.Forks = nil; return nil }); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// refusing is a bucket that stores no new record.
type refusing struct {
	recordBucket

	code schemas.Code
}

func (r refusing) Create(context.Context, string, Record, time.Duration) (uint64, error) {
	return 0, schemas.OpErrorf(r.code, "create", "refused")
}

// TestAForkThatItsSourceDoesNotKnowIsNotedAgain: the cleaner finds it before it removes the source whose time is over.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestAForkThatItsSourceDoesNotKnowIsNotedAgain(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		for _, name := range []string{"over", "deleted"} {
			ttl := map[string]string{"over": "60", "deleted": "36000"}[name]
			wantStatus(t, ask(t.Context(), h, http.MethodPut, name, "one", headerTTL, ttl), http.StatusCreated)
			wantStatus(t, ask(t.Context(), h, http.MethodPut, name+"-fork", "two", headerTTL, "36000", "Stream-Forked-From", prefix+name),
				http.StatusCreated)
			source, err := h.store.live(t.Context(), account, name)
			if err != nil || len(source.Forks) != 1 {
				t.Fatalf("the source is kept for %v, %v", source.Forks, err)
			}
			if _, err := h.store.change(t.Context(), account, name, source.ID, func(r *Record) error { r.Forks = nil; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		cleaned := make(chan error, 1)
		go func() { cleaned <- (&StreamCleaner{Bus: b, Every: time.Minute}).Run(ctx) }()
		time.Sleep(5 * time.Minute)
		wantStatus(t, ask(t.Context(), h, http.MethodDelete, "deleted", ""), http.StatusNoContent)
		time.Sleep(5 * time.Minute)
		stop()
		if err := <-cleaned; err != nil {
			t.Error(err)
		}
		wantData(t, h, "over-fork", "onetwo")
		wantData(t, h, "deleted-fork", "onetwo")
	})
}
