package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// unserved are providers of which one is served.
type unserved struct{ only string }

func (u unserved) Serves(_ context.Context, provider string) (bool, error) {
	return provider == u.only, nil
}

// A call that nobody would take is refused at once, with the remedy, unless it says that it waits. The repeat of one
// that was taken is that one.
func TestACallThatNobodyWouldTakeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		admitter := Admitter{Bus: b, Records: &book{}, Kind: API, Serving: unserved{"other"}}
		_, err := admitter.Admit(t.Context(), alice, bash("x", "true"))
		if schemas.CodeOf(err) != schemas.Unavailable || !strings.Contains(err.Error(), "wait_for_worker") {
			t.Errorf("%v: want it refused with the remedy", err)
		}
		if _, err := streams.FindCall(t.Context(), b, alice, "x"); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("%v: it is a call all the same", err)
		}
		waits := bash("x", "true")
		waits.WaitForWorker = true
		first, err := admitter.Admit(t.Context(), alice, waits)
		if err != nil {
			t.Fatal(err)
		}
		again, err := admitter.Admit(t.Context(), alice, bash("x", "true"))
		if err != nil || !again.Existing || again.Call.Accepted != first.Call.Accepted {
			t.Errorf("%+v, %v: want the call that waits", again, err)
		}
		admitter.Serving = unserved{first.Call.Provider}
		if _, err := admitter.Admit(t.Context(), alice, bash("y", "true")); err != nil {
			t.Errorf("where it is served: %v", err)
		}
	})
}

// An id is free again a day after its call was admitted, once that has its end, also before it is forgotten.
func TestAnIDIsUsedAgainAfterADay(t *testing.T) {
	natstest.Hours(t)
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		ended, open := admit(t, b, bash("ended", "true")).Call, admit(t, b, bash("open", "true")).Call
		end(t, b, ended)
		time.Sleep(25 * time.Hour)
		again := admit(t, b, bash("ended", "echo other"))
		if again.Existing || again.Call.Digest == ended.Digest {
			t.Errorf("%+v: want a new call", again)
		}
		if got, err := streams.FindCall(t.Context(), b, alice, "ended"); err != nil || got.Digest != again.Call.Digest {
			t.Errorf("%v, %v", got.Digest, err)
		}
		if got := admit(t, b, bash("open", "true")); !got.Existing || got.Call.Accepted != open.Accepted {
			t.Errorf("%+v: want the call that has no end yet", got)
		}
	})
}
