package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// unserved are providers of which one is served.
type unserved struct{ only string }

func (u unserved) Serves(_ context.Context, provider string) (bool, error) {
	return provider == u.only, nil
}

// A call that no worker would take is refused at once, with the remedy, unless it asks to wait. The repeat of an accepted call is that
// call.
//
//guarantee:one-result-for-every-accepted-call
func TestACallThatNobodyWouldTakeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *streams.Bus) {
		admitter := Admitter{Bus: b, Records: &book{}, Kind: API, Serving: unserved{"other"}}
		_, err := admitter.Admit(t.Context(), alice, bash("x", "true"))
		if schemas.CodeOf(err) != schemas.Unavailable || !strings.Contains(err.Error(), "wait_for_worker") {
			t.Errorf("%v: want it refused with the remedy", err)
		}
		if _, err := b.Calls().Find(t.Context(), alice, "x"); schemas.CodeOf(err) != schemas.NotFound {
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

// TestOpenJobsOfAnAccountAreBounded: one more is refused before anything of it is on the log, the repeat of one that was taken is not, and
// neither is another account's; when one has settled there is room again.
//
//guarantee:bounds
func TestOpenJobsOfAnAccountAreBounded(t *testing.T) {
	const most = 3
	for range 2 { // see inBubble
		runtime.GC()
	}
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		admitter := Admitter{Bus: b, Records: &book{bypass: true}, Kind: API}
		job := func(id schemas.CallID) schemas.Request {
			return schemas.Request{ID: id, Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"make","background":true}`)}
		}
		var first schemas.Call
		for n := range most {
			got, err := admitter.Admit(t.Context(), alice, job(schemas.CallID(fmt.Sprint("call_", n))))
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				first = got.Call
			}
		}
		refused := func(when string) {
			t.Helper()
			_, err := admitter.Admit(t.Context(), alice, job("call_more"))
			if !errors.Is(err, schemas.ErrExhausted) || !strings.Contains(err.Error(), "jobs stop") {
				t.Errorf("%s: %v, want it refused with the remedy", when, err)
			}
		}
		refused("as many as it may have")
		if _, err := b.Calls().Find(t.Context(), alice, "call_more"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("%v: what was refused is a call all the same", err)
		}
		if got, err := admitter.Admit(t.Context(), alice, job("call_0")); err != nil || !got.Existing {
			t.Errorf("the repeat: %+v, %v", got, err)
		}
		if _, err := admitter.Admit(t.Context(), "acct_bob", job("call_0")); err != nil {
			t.Errorf("another account's: %v", err)
		}
		if _, err := admitter.Admit(t.Context(), alice, bash("plain", "true")); err != nil {
			t.Errorf("in the foreground: %v", err)
		}
		time.Sleep(time.Minute)
		refused("later")
		p, err := lifecycle.FindJob(t.Context(), b, alice, first.Job)
		if err != nil {
			t.Fatal(err)
		}
		lifecycle.MarkSettled(b, p.Value) // its mark stays for a while
		time.Sleep(10 * time.Second)
		if _, err := admitter.Admit(t.Context(), alice, job("call_more")); err != nil {
			t.Errorf("when one has settled: %v", err)
		}
		time.Sleep(10 * time.Second)
		if _, err := admitter.Admit(t.Context(), alice, job("call_yet_more")); !errors.Is(err, schemas.ErrExhausted) {
			t.Errorf("as many again: %v", err)
		}
	}, func(s *natstest.Settings) { s.Log.OpenJobs = most })
}

// An id is free again a day after its call was admitted, once the call has ended, also before it is forgotten.
//
//guarantee:the-same-id-is-the-same-call
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
		if got, err := b.Calls().Find(t.Context(), alice, "ended"); err != nil || got.Digest != again.Call.Digest {
			t.Errorf("%v, %v", got.Digest, err)
		}
		if got := admit(t, b, bash("open", "true")); !got.Existing || got.Call.Accepted != open.Accepted {
			t.Errorf("%+v: want the call that has no end yet", got)
		}
	})
}
