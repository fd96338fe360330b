package streams_test

import (
	"context"
	"slices"
	"strconv"
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
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
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

// TestWhoAsksHowFarACallIsDoesNotReadItsInput: of a call with megabytes of it only the size is known, also while a client waits for its
// result, and it cannot be published without it by mistake. What is small is there.
func TestWhoAsksHowFarACallIsDoesNotReadItsInput(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		for name, c := range map[string]struct {
			size int
			left bool
		}{"small": {16, false}, "large": {schemas.MaxApprovalInput, true}, "elsewhere": {2 << 20, true}} {
			call := callOf(name)
			call.Input = []byte(`{"command":"` + strings.Repeat("x", c.size) + `"}`)
			testwait.OK(t, streams.Calls.Publish(ctx, b, call))
			if name == "elsewhere" {
				arrives := testwait.Must(b.HoldPayload(ctx, "payloads_2d"))(t)
				defer func() {
					testwait.OK(t, arrives())
					whole := testwait.Must(b.Calls().FindWhole(ctx, account, call.ID))(t)
					if string(whole.Input) != string(call.Input) || whole.InputLeftOut() {
						t.Errorf("the whole call has %d bytes of %d", len(whole.Input), len(call.Input))
					}
				}()
			}
			found := testwait.Must(b.Calls().Find(ctx, account, call.ID))(t)
			if found.InputLeftOut() != c.left || (len(found.Input) == 0) != c.left || found.InputBytes() != len(call.Input) {
				t.Errorf("%s: found with %d bytes of %d, left out: %t", name, len(found.Input), found.InputBytes(), found.InputLeftOut())
			}
			if have, want := schemas.AcceptedEvent(found), schemas.AcceptedEvent(call); string(have.Data) != string(want.Data) {
				t.Errorf("%s: its acceptance is announced as %.200s, want %.200s", name, have.Data, want.Data)
			}
			waiting, cancel := context.WithTimeout(ctx, time.Second)
			state, err := b.AwaitCall(waiting, call)
			cancel()
			if err == nil || state == nil || len(state.Call.Input) > schemas.MaxApprovalInput {
				t.Errorf("%s: the state of who waits is %+v, %v", name, state, err)
			}
			if err := streams.Calls.Publish(ctx, b, found); c.left != (schemas.CodeOf(err) == schemas.Internal) {
				t.Errorf("%s: published as it was found: %v", name, err)
			}
		}
	})
}

// TestAPageOfLargeEventsIsSmall: what lies in the store of payloads counts for the size of a page as what lies in the log itself, and it is
// not fetched before it is known to fit.
func TestAPageOfLargeEventsIsSmall(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, call := t.Context(), callOf("a")
		sizes := []int{100, 2 << 20, 100, 100, 2 << 20, 2 << 20, 500 << 10, 500 << 10, 500 << 10}
		for i, size := range sizes {
			e := eventOf(call, strconv.Itoa(i), schemas.CallOutput, schemas.OutputData{Text: strings.Repeat("x", size)})
			testwait.OK(t, streams.Events.Publish(ctx, b, e))
		}
		want := []int{1, 1, 2, 1, 1, 2, 1} // events of each page
		var pages, reads []int
		for at := (schemas.Cursor{}); ; {
			page := testwait.Must(streams.Page(ctx, b, account, call.Conversation, at, streams.MaxPage))(t)
			pages, at = append(pages, len(page.Events)), page.Next
			if page.UpToDate {
				break
			}
		}
		for from, more := uint64(1), true; more; {
			page := testwait.Must(streams.ReadEvents(ctx, b, account, call.Conversation, from, 0))(t)
			reads, from, more = append(reads, len(page.Events)), page.Last+1, page.More
		}
		if !slices.Equal(pages, want) || !slices.Equal(reads, want) {
			t.Errorf("of events of %d bytes the pages have %d, and those that readers share %d; want %d", sizes, pages, reads, want)
		}
	})
}
