package streams_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/usage"
)

const neighbour schemas.AccountID = "acct_quiet"

// TestAnAccountThatKeepsMuchIsHeldAlone: an account writes through two gateways until its quotas are used up. The errors name its quotas.
// The work of a neighbour continues, and so does accepted work of the account. The quotas hold after a restart of the log and for a new
// gateway, and removals free the room again.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAnAccountThatKeepsMuchIsHeldAlone(t *testing.T) {
	const quota = 8 << 20
	quotas := &streams.Quotas{Log: quota, Durable: quota}
	l := natstest.Start(t, natstest.OnDisk(), func(s *natstest.Settings) { s.Server.MaxStore, s.Log.Quotas = 256<<20, quotas })
	ctx := t.Context()
	gateways := []*streams.Bus{l.Bus, l.Open()}
	text := strings.Repeat("x", 256<<10)
	publish := func(b *streams.Bus, a schemas.AccountID, id string) error {
		c := callOf(id)
		c.Account, c.Input = a, []byte(`{"command":"`+text+`"}`)
		return streams.Calls.Publish(ctx, b, c)
	}
	kept := 0
	var err error
	for n := 0; err == nil && n < 200; n++ {
		if err = publish(gateways[n%2], account, fmt.Sprint("call_", n)); err == nil {
			kept += len(text)
		}
	}
	// Each process knows what it wrote itself, and of the other what that has recorded.
	if schemas.CodeOf(err) != schemas.Exhausted || kept < quota/10*8 || kept > 2*quota {
		t.Fatalf("%d bytes of %d were taken, then: %v", kept, quota, err)
	}
	after, durable := uint64(0), 0
	for err = nil; err == nil && durable < 4*quota; durable += len(text) {
		var seq uint64
		if seq, err = streams.OpenDurable(l.Bus).Append(ctx, account, "ds_1", "", after, nil, []byte(text)); err == nil {
			after = seq
		}
	}
	if schemas.CodeOf(err) != schemas.Exhausted || durable < quota/10*8 {
		t.Fatalf("%d bytes of a durable stream were taken, then: %v", durable, err)
	}
	if err := gateways[0].RoomFor(ctx, account, len(text)); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("an event of its own: %v", err)
	}
	if err := streams.Events.Publish(ctx, l.Bus,
		eventOf(callOf("call_0"), "end", schemas.CallFinished, schemas.Result{Call: "call_0"})); err != nil {
		t.Errorf("what follows from an accepted call: %v", err)
	}
	retry := schemas.Delivery{ID: "msg_0", Account: account, Channel: schemas.WebhookChannel, Body: text}
	if err := streams.Deliveries.Requested().Schedule(ctx, gateways[0], retry, time.Now()); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("a delivery that it wants again: %v", err)
	}
	if err := streams.Deliveries.Schedule(ctx, gateways[0], retry, time.Now().Add(time.Hour)); err != nil {
		t.Errorf("the next try of a delivery: %v", err)
	}
	for i, b := range gateways {
		if err := publish(b, neighbour, fmt.Sprint("call_", i)); err != nil {
			t.Errorf("a neighbour: %v", err)
		}
	}
	held := func(when string, b *streams.Bus) {
		t.Helper()
		if err := publish(b, account, "call_more_"+when); schemas.CodeOf(err) != schemas.Exhausted {
			t.Errorf("%s: one more: %v", when, err)
		}
	}
	l.Restart()
	testwait.Eventually(t, "the log is reachable again", func() bool { return publish(l.Bus, neighbour, "call_back") == nil })
	held("restarted", l.Bus)
	third := l.Open()
	held("new", third)
	u := testwait.Must(third.Usage(ctx, account))(t)
	if sum := u.Calls.Bytes + u.Events.Bytes; u.LogLimit != quota || u.DurableLimit != quota || sum < quota/10*8 ||
		u.Durable.Bytes < quota/10*8 {
		t.Errorf("usage: %+v", u)
	}
	testwait.OK(t, streams.OpenDurable(third).Drop(ctx, account, "ds_1"))
}

// TestRequestsAtTheSameTimeShareAQuota: what one has reserved another does not get, until it is released.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestRequestsAtTheSameTimeShareAQuota(t *testing.T) {
	const quota = 1 << 20
	l := natstest.Start(t, func(s *natstest.Settings) { s.Log.Quotas = &streams.Quotas{Log: quota} })
	b, ctx := l.Bus, t.Context()
	release := testwait.Must(b.ReserveFor(ctx, account, quota/10*6))(t)
	if _, err := b.ReserveFor(ctx, account, quota/10*6); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("as much again at the same time: %v", err)
	}
	other := testwait.Must(b.ReserveFor(ctx, neighbour, quota/10*6))(t)
	other()
	e := eventOf(callOf("call_1"), "out", schemas.CallOutput, schemas.OutputData{Text: strings.Repeat("x", quota/2)})
	testwait.OK(t, streams.Events.Reserved().Publish(ctx, b, e))
	release()
	if _, err := b.ReserveFor(ctx, account, quota/10*6); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("beyond what was written: %v", err)
	}
	testwait.Must(b.ReserveFor(ctx, account, quota/10*4))(t)()
	testwait.Must(b.ReserveFor(ctx, account, quota/10*4))(t)()
}

// TestACountFindsWhatIsThere: what was removed, what another process never recorded, and large payloads.
//
//guarantee:what-one-tenant-can-do-to-another
func TestACountFindsWhatIsThere(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		large := callOf("large")
		large.Input = []byte(`{"command":"` + strings.Repeat("y", 3<<20) + `"}`)
		testwait.OK(t, streams.Calls.Publish(ctx, b, large))
		for n := range 5 {
			e := eventOf(callOf("one"), fmt.Sprint(n), schemas.CallOutput, schemas.OutputData{Text: "text"})
			testwait.OK(t, streams.Events.Publish(ctx, b, e))
		}
		d := streams.OpenDurable(b)
		testwait.Must(d.Append(ctx, account, "ds_1", "", 0, nil, make([]byte, 100_000)))(t)
		testwait.Must(d.Append(ctx, neighbour, "ds_2", "", 0, nil, make([]byte, 50_000)))(t)
		u := testwait.Must(b.Usage(ctx, account))(t)
		if u.Counted.IsZero() || u.Calls.Messages != 2 || u.Calls.Bytes < 3<<20 || u.Calls.Bytes > 3<<20+10_000 || // the call and its payload
			u.Events.Messages != 5 || u.Durable.Messages != 1 || u.Durable.Bytes < 100_000 || u.Durable.Bytes > 101_000 {
			t.Errorf("counted: %+v", u)
		}
		testwait.OK(t, d.Drop(ctx, account, "ds_1"))
		if u = testwait.Must(b.Usage(ctx, account))(t); u.Durable.Messages != 1 {
			t.Errorf("a count that is a moment old is believed: %+v", u)
		}
		time.Sleep(2 * usage.CountPause)
		if u = testwait.Must(b.Usage(ctx, account))(t); u.Durable.Messages != 0 || u.Durable.Bytes != 0 || u.Events.Messages != 5 {
			t.Errorf("counted again: %+v", u)
		}
		if u = testwait.Must(b.Usage(ctx, neighbour))(t); u.Durable.Messages != 1 || u.Calls.Messages != 0 {
			t.Errorf("the neighbour: %+v", u)
		}
	})
}

// TestWhatIsPutAsideCountsForItsAccount: a message that waits for its time counts beside the one that it will replace, and a count finds it.
// When its time has come it counts no more: at once where its queue hands it out, and once only, though a count has found it gone.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhatIsPutAsideCountsForItsAccount(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const size = 10_000
		ctx := t.Context()
		about := func(when string, messages int64) {
			t.Helper()
			const around = 500
			if got := testwait.Must(b.Usage(ctx, account))(t).Events; got.Messages != messages || got.Bytes < messages*size ||
				got.Bytes > messages*(size+around) {
				t.Errorf("%s: %+v, want %d messages", when, got, messages)
			}
		}
		again := func(in time.Duration) {
			t.Helper()
			next := schemas.Delivery{ID: "msg_0", Account: account, Channel: schemas.WebhookChannel, Body: strings.Repeat("x", size)}
			testwait.OK(t, streams.Deliveries.Schedule(ctx, b, next, time.Now().Add(in)))
		}
		handed := 0
		queue := func() (stop func()) {
			return consume(t, b, streams.Deliveries, streams.ConsumeOptions{Name: "d-webhook", Filter: schemas.WebhookChannel},
				func(context.Context, streams.Delivery[schemas.Delivery]) error {
					if handed++; handed == 2 {
						return streams.RetryAfter(time.Second, nil) // one that comes twice has fired once
					}
					return nil
				})
		}
		about("at first", 0)
		first := schemas.Delivery{ID: "msg_0", Account: account, Channel: schemas.WebhookChannel, Body: strings.Repeat("x", size)}
		testwait.OK(t, streams.Deliveries.Publish(ctx, b, first))
		stop := queue()
		again(10 * time.Second)
		about("while it waits", 2)
		time.Sleep(30 * time.Second)
		about("when it has come", 1)
		stop()
		again(time.Hour)
		time.Sleep(2 * usage.CountPause)
		about("counted", 2)
		again(time.Second) // instead of the other
		time.Sleep(2 * usage.CountPause)
		about("counted when it has come", 1)
		stop = queue()
		time.Sleep(30 * time.Second)
		stop()
		about("handed out after that", 1)
		if handed != 4 {
			t.Errorf("handed out %d times; want 4", handed)
		}
		if u := testwait.Must(b.Usage(ctx, neighbour))(t); u.Events.Messages != 0 {
			t.Errorf("the neighbour: %+v", u)
		}
	})
}

// TestWhatIsPutAsideCountsAgainstTheQuota: an account that fills its quota with delayed messages can start nothing more, while those
// still wait and other accounts start work. A large message counts with its payload. When all are due and delivered, the account can
// start work again.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhatIsPutAsideCountsAgainstTheQuota(t *testing.T) {
	const quota = 16 << 20
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const several, size = 4, quota / 16
		ctx := t.Context()
		putAside := func(n int) {
			t.Helper()
			d := schemas.Delivery{ID: schemas.DeliveryID(fmt.Sprint("msg_", n)), Account: account, Channel: schemas.WebhookChannel,
				Body: strings.Repeat("x", size/4*3)}
			testwait.OK(t, streams.Deliveries.Schedule(ctx, b, d, time.Now().Add(time.Hour)))
		}
		for n := range 2 * several {
			d := schemas.Delivery{ID: schemas.DeliveryID(fmt.Sprint("msg_", n)), Account: account, Channel: schemas.WebhookChannel,
				Body: strings.Repeat("x", size/4*3)}
			testwait.OK(t, streams.Deliveries.Publish(ctx, b, d))
		}
		testwait.OK(t, streams.Calls.Publish(ctx, b, callOf("one")))
		for n := range 2 * several {
			putAside(n)
		}
		large := schemas.Delivery{ID: "msg_large", Account: account, Channel: schemas.WebhookChannel, Body: strings.Repeat("x", 5*size)}
		testwait.OK(t, streams.Deliveries.Schedule(ctx, b, large, time.Now().Add(time.Hour)))
		if err := streams.Calls.Publish(ctx, b, callOf("two")); schemas.CodeOf(err) != schemas.Exhausted {
			t.Errorf("a call of an account whose quota is full of what waits: %v", err)
		}
		putAside(0)
		c := callOf("other")
		c.Account = neighbour
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		if u := testwait.Must(b.Usage(ctx, account))(t); u.Events.Bytes < quota/100*95 {
			t.Errorf("while it waits: %+v", u.Events)
		}
		time.Sleep(2 * time.Hour)
		if u := testwait.Must(b.Usage(ctx, account))(t); u.Events.Bytes > quota/100*75 {
			t.Errorf("when it has come: %+v", u.Events)
		}
		testwait.OK(t, streams.Calls.Publish(ctx, b, callOf("three")))
	}, func(s *natstest.Settings) { s.Log.Quotas = &streams.Quotas{Log: quota} })
}
