package durable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const account schemas.AccountID = "acct_test"

// ask asks a handler without a network; headers are names and values in turn. A refusal is answered
// with its status alone.
func ask(ctx context.Context, h *Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	path, query, _ := strings.Cut(path, "?")
	r := httptest.NewRequestWithContext(ctx, method, prefix+path+"?"+query, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	if err := h.Serve(w, r, account, path); err != nil {
		code := http.StatusTeapot // an error without a status of its own
		if refusal, ok := errors.AsType[*RefusalError](err); ok {
			code = refusal.HTTPStatus()
		} else if errors.Is(err, schemas.ErrNotFound) {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
	}
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Fatalf("status %d; want %d", w.Code, want)
	}
}

func TestAStreamThatIsUsedLivesOn(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "x", "Stream-Ttl", "60"), http.StatusCreated)
		for range 5 {
			time.Sleep(59 * time.Second)
			wantStatus(t, ask(t.Context(), h, http.MethodGet, "s", ""), http.StatusOK)
		}
		time.Sleep(59 * time.Second)
		wantStatus(t, ask(t.Context(), h, http.MethodHead, "s", ""), http.StatusOK)
		time.Sleep(6 * time.Second)
		wantStatus(t, ask(t.Context(), h, http.MethodHead, "s", ""), http.StatusNotFound)
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "y"), http.StatusCreated)
	})
}

func TestAnEventStreamKeepsItsStreamAlive(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "x", "Content-Type", "text/plain", "Stream-Ttl", "20"), http.StatusCreated)
		w := ask(t.Context(), h, http.MethodGet, "s?offset=-1&live=sse", "") // for its whole life of a minute
		if got := w.Body.String(); !strings.HasPrefix(got, "event: data\ndata:x\n\nevent: control\n") || strings.Count(got, "still here") < 4 {
			t.Errorf("the event stream was %q", got)
		}
		wantStatus(t, ask(t.Context(), h, http.MethodHead, "s", ""), http.StatusOK)
	})
}

// TestManyReadersShareOneSubscription follows one stream with many readers of both kinds.
func TestManyReadersShareOneSubscription(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const readers = 200
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "", "Content-Type", "application/json"), http.StatusCreated)
		var all sync.WaitGroup
		got := make([]string, readers)
		for i := range readers {
			kind := []string{"long-poll", "sse"}[i%2]
			all.Go(func() {
				got[i] = ask(t.Context(), h, http.MethodGet, "s?offset=now&live="+kind, "").Body.String()
			})
		}
		synctest.Wait()
		h.hub.mu.Lock()
		topics := len(h.hub.open)
		h.hub.mu.Unlock()
		if topics != 1 {
			t.Errorf("%d topics are open", topics)
		}
		wantStatus(t, ask(t.Context(), h, http.MethodPost, "s", `[{"n":1},{"n":2}]`, "Content-Type", "application/json", "Stream-Closed",
			"true"), http.StatusNoContent)
		all.Wait()
		for i, body := range got {
			if !strings.Contains(body, `[{"n":1},{"n":2}]`) || i%2 == 1 && !strings.Contains(body, `"streamClosed":true`) {
				t.Errorf("reader %d got %q", i, body)
			}
		}
		if len(h.hub.open) != 0 {
			t.Error("a topic stays open without readers")
		}
	})
}

func TestLiveReadersHearOfAnEnd(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for name, forked := range map[string]bool{"gone": false, "kept-for-a-fork": true} {
			h := New(Options{Bus: b})
			wantStatus(t, ask(t.Context(), h, http.MethodPut, name, ""), http.StatusCreated)
			if forked {
				wantStatus(t, ask(t.Context(), h, http.MethodPut, name+"-fork", "", "Stream-Forked-From", prefix+name), http.StatusCreated)
			}
			var poll, events *httptest.ResponseRecorder
			var both sync.WaitGroup
			begun := time.Now()
			both.Go(func() { poll = ask(t.Context(), h, http.MethodGet, name+"?offset=now&live=long-poll", "") })
			both.Go(func() { events = ask(t.Context(), h, http.MethodGet, name+"?offset=now&live=sse", "") })
			synctest.Wait()
			wantStatus(t, ask(t.Context(), h, http.MethodDelete, name, ""), http.StatusNoContent)
			both.Wait()
			want := http.StatusNotFound
			if forked {
				want = http.StatusGone
			}
			if took := time.Since(begun); poll.Code != want || events.Code != http.StatusOK || took > time.Second {
				t.Errorf("%s: the poll ended with %d, the events with %d, after %s", name, poll.Code, events.Code, took)
			}
		}
	})
}

func TestADrainEndsLiveReads(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		draining, drain := context.WithCancel(t.Context())
		h := New(Options{Bus: b, Draining: draining})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", ""), http.StatusCreated)
		var poll, events *httptest.ResponseRecorder
		var both sync.WaitGroup
		begun := time.Now()
		both.Go(func() { poll = ask(t.Context(), h, http.MethodGet, "s?offset=now&live=long-poll", "") })
		both.Go(func() { events = ask(t.Context(), h, http.MethodGet, "s?offset=now&live=sse", "") })
		synctest.Wait()
		drain()
		both.Wait()
		if took := time.Since(begun); poll.Code != http.StatusNoContent || events.Code != http.StatusOK || took > time.Second {
			t.Errorf("the poll ended with %d, the events with %d, after %s", poll.Code, events.Code, took)
		}
	})
}

func TestAnAccountMayHaveSoManyStreams(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b, MaxStreams: 3})
		for i := range 3 {
			wantStatus(t, ask(t.Context(), h, http.MethodPut, fmt.Sprintf("s%d", i), ""), http.StatusCreated)
		}
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s3", ""), http.StatusTooManyRequests)
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s1", ""), http.StatusOK)
		wantStatus(t, ask(t.Context(), New(Options{Bus: b, MaxStreams: 3}), http.MethodPut, "s3", ""), http.StatusTooManyRequests)
		wantStatus(t, ask(t.Context(), h, http.MethodDelete, "s1", ""), http.StatusNoContent)
		time.Sleep(2 * time.Minute) // deleted ones count for a while
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s3", ""), http.StatusCreated)
	})
}

// TestTheStreamCleanerRemovesWhatCrashesLeave stands in the places where a gateway may die.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestTheStreamCleanerRemovesWhatCrashesLeave(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, h := t.Context(), New(Options{Bus: b})
		s := h.store
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		wantStatus(t, ask(ctx, h, http.MethodPut, "kept", "x"), http.StatusCreated)
		wantStatus(t, ask(ctx, h, http.MethodPut, "old", "x", "Stream-Ttl", "60"), http.StatusCreated)
		wantStatus(t, ask(ctx, h, http.MethodPut, "source", "x"), http.StatusCreated)

		// Between the data and the record of a new stream.
		_, err := s.write(ctx, found{Record: Record{ID: "ds_data", Account: account}}, 0, state{}, []byte("x"))
		must(err)
		// Between the note at the source and the fork; the source is deleted later.
		source, err := s.live(ctx, account, "source")
		must(err)
		_, err = s.change(ctx, account, "source", source.ID, func(r *Record) error { return r.hold("ds_fork", "fork") })
		must(err)
		wantStatus(t, ask(ctx, h, http.MethodDelete, "source", ""), http.StatusNoContent)
		wantStatus(t, ask(ctx, h, http.MethodHead, "source", ""), http.StatusGone)
		// Between the record and the data of a deleted stream.
		wantStatus(t, ask(ctx, h, http.MethodPut, "deleted", "x"), http.StatusCreated)
		deleted, err := s.live(ctx, account, "deleted")
		must(err)
		must(s.log.Forget(ctx, recordKey(account, "deleted"), deleted.revision))

		count := func() int {
			t.Helper()
			names, err := s.log.Names(ctx)
			must(err)
			return len(names)
		}
		if n := count(); n != 5 {
			t.Fatalf("%d streams have data; want 5", n)
		}
		time.Sleep(2 * time.Minute)
		sweep, cancel := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() {
			if err := (&StreamCleaner{Bus: b, Every: 2 * time.Minute}).Run(sweep); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		if n := count(); n != 4 { // the old one went at once, the others must be seen twice
			t.Errorf("after one look %d streams have data; want 4", n)
		}
		time.Sleep(2 * time.Minute)
		if n := count(); n != 1 {
			t.Errorf("after two looks %d streams have data; want 1", n)
		}
		cancel()
		done.Wait()
		wantStatus(t, ask(ctx, h, http.MethodHead, "source", ""), http.StatusNotFound)
		wantStatus(t, ask(ctx, h, http.MethodHead, "kept", ""), http.StatusOK)
	})
}

// accountsBut are accounts of which one is in a state.
type accountsBut struct {
	one schemas.AccountID

	mu  sync.Mutex
	err error
}

func (a *accountsBut) Get(_ context.Context, id schemas.AccountID) (schemas.Document, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == a.one {
		return schemas.Document{}, a.err
	}
	return schemas.Document{ID: string(id)}, nil
}

func (a *accountsBut) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// TestStreamsGoWithTheirAccount cleans beside an account that is deleted, and its neighbour.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestStreamsGoWithTheirAccount(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const every = 2 * time.Minute
		h, accounts := New(Options{Bus: b}), &accountsBut{one: account}
		put := func(a schemas.AccountID, path string, header ...string) {
			t.Helper()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/"+path, strings.NewReader("x"))
			for i := 0; i+1 < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			if err := h.Serve(httptest.NewRecorder(), r, a, path); err != nil {
				t.Fatal(err)
			}
		}
		put(account, "plain")
		put(account, "source")
		put(account, "fork", headerForked, aliasPrefix+"source")
		put("acct_neighbour", "plain")
		sweep, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := (&StreamCleaner{Bus: b, Accounts: accounts, Every: every}).Run(sweep); err != nil {
				t.Error(err)
			}
		})
		defer done.Wait()
		defer cancel()
		for _, c := range []struct {
			name  string
			err   error
			looks int
			want  int
		}{
			{"the account is there", nil, 3, 4},
			{"it cannot be read", schemas.Errorf(schemas.Unavailable, "the account cannot be read"), 3, 4},
			{"it has no record", schemas.Errorf(schemas.NotFound, "there is no account"), 3, 4},
			{"it is deleted for one look", schemas.Wrap(schemas.NotFound, "", "there is no account", streams.ErrDeleted), 1, 4},
			{"it is there again", nil, 1, 4},
			{"it is deleted", schemas.Wrap(schemas.NotFound, "", "there is no account", streams.ErrDeleted), 3, 1},
		} {
			accounts.set(c.err)
			time.Sleep(time.Duration(c.looks)*every + every/100)
			names, err := h.store.log.Names(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(names) != c.want {
				t.Errorf("%s: %d streams have data, want %d", c.name, len(names), c.want)
			}
		}
		if n, err := h.store.log.Count(t.Context(), account); n != 0 || err != nil {
			t.Errorf("%d records are left, %v", n, err)
		}
	})
}

// TestAnAppendToADeletedStreamIsLost deletes a stream under a gateway that remembers its end.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestAnAppendToADeletedStreamIsLost(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, here, there := t.Context(), New(Options{Bus: b}), New(Options{Bus: b})
		wantStatus(t, ask(ctx, here, http.MethodPut, "s", "old"), http.StatusCreated)
		wantStatus(t, ask(ctx, here, http.MethodPost, "s", "er", "Content-Type", typeBytes), http.StatusNoContent)
		f, err := here.store.live(ctx, account, "s")
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, ask(ctx, there, http.MethodDelete, "s", ""), http.StatusNoContent)
		wantStatus(t, ask(ctx, there, http.MethodPut, "s", "new"), http.StatusCreated)
		if _, err := here.store.append(ctx, f, addition{}, []byte("est")); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("an append that was on its way: %v", err)
		}
		if got := ask(ctx, here, http.MethodGet, "s", "").Body.String(); got != "new" {
			t.Errorf("the new stream holds %q", got)
		}
	})
}

// TestAGatewayThatLagsBehindRefusesNothingInVain lets another gateway move a producer on.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestAGatewayThatLagsBehindRefusesNothingInVain(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, here, there := t.Context(), New(Options{Bus: b}), New(Options{Bus: b})
		wantStatus(t, ask(ctx, here, http.MethodPut, "s", ""), http.StatusCreated)
		send := func(h *Handler, seq string) *httptest.ResponseRecorder {
			return ask(ctx, h, http.MethodPost, "s", "x", "Content-Type", typeBytes, headerProducer, "p", headerEpoch, "0", headerPSeq, seq)
		}
		wantStatus(t, send(here, "0"), http.StatusOK)
		wantStatus(t, send(there, "1"), http.StatusOK)
		wantStatus(t, send(there, "2"), http.StatusOK)
		wantStatus(t, send(here, "3"), http.StatusOK) // a gap to what it remembers
		again := send(there, "0")
		wantStatus(t, again, http.StatusNoContent)
		if got := again.Header().Get(headerPSeq); got != "3" {
			t.Errorf("a retry is told that %s is stored; want 3", got)
		}
	})
}

// The clock of the host is a day ahead of the log's: a stream ends by the log's.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAHostWhoseClockIsAheadEndsNoStreamBeforeItsTime(t *testing.T) {
	const ahead = 24 * time.Hour
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		ends := time.Now().Add(20*time.Minute - ahead).UTC().Format(time.RFC3339) // as the log has it
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "x", "Content-Type", "text/plain", "Stream-Expires-At", ends), http.StatusCreated)
		ctx, stop := context.WithCancel(t.Context())
		var cleaner sync.WaitGroup
		cleaner.Go(func() {
			if err := (&StreamCleaner{Bus: b}).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(15 * time.Minute)
		wantStatus(t, ask(t.Context(), h, http.MethodHead, "s", ""), http.StatusOK)
		time.Sleep(11 * time.Minute)
		wantStatus(t, ask(t.Context(), h, http.MethodHead, "s", ""), http.StatusNotFound)
		stop()
		cleaner.Wait()
	}, func(s *natstest.Settings) {
		s.Log.LogClock = func() time.Time { return time.Now().Add(-ahead) }
	})
}
