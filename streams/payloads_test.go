package streams_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestAPayloadIsAwaitedForAMinuteOfTheLogsClock: a server may have a message before it has the payload. Until the message is a minute old
// the payload counts as on its way, then as gone. The log's clock stamps the message, so its age is by that clock.
func TestAPayloadIsAwaitedForAMinuteOfTheLogsClock(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead time.Duration // of the host's clock
		age   time.Duration // of the messages when they are read, by the log's clock
		gone  bool
	}{
		{"the clocks agree", 0, time.Second, false},
		{"the host's clock is ahead", 2 * time.Minute, time.Second, false},
		{"the clocks agree, a minute later", 0, time.Minute, true},
		{"the host's clock is behind, a minute later", -2 * time.Minute, 2 * time.Minute, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				readWithoutPayloads(t, b, c.ahead+c.age, c.gone)
			}, skewed(c.ahead))
		})
	}
}

// readWithoutPayloads reads an event and consumes a call whose payloads are missing, some time after both were stored.
func readWithoutPayloads(t *testing.T, b *streams.Bus, after time.Duration, gone bool) {
	t.Helper()
	ctx, call := t.Context(), callOf("a")
	call.Input = []byte(`{"command":"` + strings.Repeat("x", 2<<20) + `"}`)
	event := eventOf(call, "1", schemas.CallOutput, schemas.OutputData{Text: strings.Repeat("x", 2<<20)})
	testwait.OK(t, streams.Calls.Publish(ctx, b, call))
	testwait.OK(t, streams.Events.Publish(ctx, b, event))
	callArrives := testwait.Must(b.HoldPayload(ctx, "payloads_2d"))(t)
	eventArrives := testwait.Must(b.HoldPayload(ctx, "payloads_39d"))(t)
	time.Sleep(after)

	page, err := streams.ReadEvents(ctx, b, account, call.Conversation, 1, 0)
	switch {
	case !gone && schemas.CodeOf(err) != schemas.Unavailable:
		t.Errorf("the event is read as %+v, %v; want that it is unavailable", page.Events, err)
	case gone && (err != nil || len(page.Events) != 1 || !page.Events[0].Lost):
		t.Errorf("the event is read as %+v, %v; want that it is lost", page.Events, err)
	}
	consumed := 0
	stop := consume(t, b, streams.Calls, local, func(context.Context, streams.Delivery[schemas.Call]) error {
		consumed++
		return nil
	})
	time.Sleep(5 * time.Second)
	testwait.OK(t, callArrives())
	testwait.OK(t, eventArrives())
	time.Sleep(30 * time.Second)
	stop()
	var dead []schemas.Code
	for _, l := range letters(t, b) {
		dead = append(dead, l.Code)
	}
	if gone {
		if consumed != 0 || !slices.Equal(dead, []schemas.Code{schemas.NotFound}) {
			t.Errorf("the call is consumed %d times and has dead letters for %q; want one for not_found", consumed, dead)
		}
		return
	}
	if consumed != 1 || len(dead) != 0 {
		t.Errorf("the call is consumed %d times and has dead letters for %q; want it consumed once", consumed, dead)
	}
	page = testwait.Must(streams.ReadEvents(ctx, b, account, call.Conversation, 1, 0))(t)
	if len(page.Events) != 1 || page.Events[0].Lost || len(page.Events[0].Value.Data) < 2<<20 {
		t.Errorf("with its payload the event is read as %d events", len(page.Events))
	}
}
