package streams_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// An event whose payload is gone for good is a gap for every reader. It is never skipped.
//
//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestAnEventWhosePayloadIsGoneIsAGap(t *testing.T) {
	l := natstest.Start(t, natstest.Listen(natsauth.User{Name: "role", Password: "r"}))
	c := callOf("a")
	for _, text := range []string{"1", strings.Repeat("x", 2<<20), "3"} {
		testwait.OK(t, streams.Events.Publish(t.Context(), l.Bus, eventOf(c, text[:1], schemas.CallOutput, schemas.OutputData{Text: text})))
	}
	events := readAll(t, l.Bus, c)
	if len(events) != 3 || len(events[1].Value.Data) < 2<<20 || events[1].Lost {
		t.Fatalf("%d events", len(events))
	}
	first, lost := events[0].Cursor, events[1].Cursor
	natstest.Dial(t, l.Server.URL(), "role", "r").Purge(t, "OBJ_payloads_39d", ">", 0)

	events = readAll(t, l.Bus, c)
	if len(events) != 3 || events[0].Lost || !events[1].Lost || events[2].Lost {
		t.Errorf("read: %v", events)
	}
	r := testwait.Must(streams.Page(t.Context(), l.Bus, account, c.Conversation, first, 0))(t)
	if len(r.Events) != 1 || r.Recovered || r.Gap == nil || r.Gap.From != first || r.Gap.To != lost {
		t.Errorf("page: %d events, recovered %v, gap %v", len(r.Events), r.Recovered, r.Gap)
	}
	var gaps []streams.Gap
	var told []schemas.Cursor
	for item, err := range streams.Follow(t.Context(), l.Bus, account, c.Conversation, schemas.Cursor{}) {
		testwait.OK(t, err)
		if item.Gap != nil {
			gaps = append(gaps, *item.Gap)
		}
		if item.Kind == streams.ItemEvent {
			told = append(told, item.Entry.Cursor)
		}
		if item.Kind == streams.ItemLive {
			break
		}
	}
	if !slices.Equal(told, []schemas.Cursor{first, events[2].Cursor}) ||
		!slices.Equal(gaps, []streams.Gap{{From: first.Place(), To: lost.Place()}}) {
		t.Errorf("follow: told %v, gaps %v", told, gaps)
	}
}

// readAll reads a conversation page by page.
func readAll(t *testing.T, b *streams.Bus, c schemas.Call) (all []streams.Entry[schemas.Event]) {
	t.Helper()
	for from, more := uint64(1), true; more; {
		page := testwait.Must(streams.ReadEvents(t.Context(), b, account, c.Conversation, from, 0))(t)
		all, from, more = append(all, page.Events...), page.Last+1, page.More
	}
	return all
}

// TestListsOfDeadLettersReadNoPayload: a list has the letters whose payloads lie elsewhere without reading these, and says how large each is.
func TestListsOfDeadLettersReadNoPayload(t *testing.T) {
	l := natstest.Start(t, natstest.Listen(natsauth.User{Name: "role", Password: "r"}))
	ctx, letters := t.Context(), streams.OpenDeadLetters(l.Bus)
	large, small := make([]byte, 3<<20), []byte("small")
	now := time.Now().UTC()
	for id, payload := range map[string][]byte{"CALLS.1": large, "CALLS.2": small} {
		testwait.OK(t, streams.Dead.Publish(ctx, l.Bus, schemas.DeadLetter{
			ID: id, Stream: "CALLS", Subject: "sandjet.calls.local.acct_test.YQ", Account: account, Reason: strings.Repeat("ü", 8<<10), Code: schemas.Invalid,
			First: now, Time: now, Headers: map[string][]string{"A": {strings.Repeat("x", 8<<10)}}, Payload: payload,
		}))
	}
	if d := testwait.Must(letters.Show(ctx, "CALLS.1"))(t); len(d.Payload) != len(large) || len(d.Headers) != 1 {
		t.Errorf("%d bytes are shown", len(d.Payload))
	}
	natstest.Dial(t, l.Server.URL(), "role", "r").Purge(t, "OBJ_payloads_31d", ">", 0)
	list := testwait.Must(letters.List(ctx, "", 0))(t)
	sizes := map[string]int{}
	for _, d := range list {
		sizes[d.ID] = d.Size
		if d.Payload != nil || d.Code != schemas.Invalid || !strings.HasPrefix(d.Reason, "ü") || !d.First.Equal(now) || d.Account != account {
			t.Errorf("%s: %d bytes of a payload, %+.200v", d.ID, len(d.Payload), d)
		}
	}
	if len(list) != 2 || sizes["CALLS.1"] != len(large) || sizes["CALLS.2"] != len(small) {
		t.Errorf("sizes: %v", sizes)
	}
	if list := testwait.Must(letters.List(ctx, "INTAKE", 0))(t); len(list) != 0 {
		t.Errorf("of another stream: %d", len(list))
	}
	if _, err := letters.Show(ctx, "CALLS.1"); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a letter without its payload is shown: %v", err)
	}
}
