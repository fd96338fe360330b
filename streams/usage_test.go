package streams_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const neighbour schemas.AccountID = "acct_quiet"

// TestAnAccountThatKeepsMuchIsHeldAlone: an account writes until its quotas are used up, through two gateways. It is told that they
// are its own; a neighbour's work goes on, and so does what was accepted of the account. The quotas hold after a restart of the log
// and for a new gateway, and removals make the room again.
func TestAnAccountThatKeepsMuchIsHeldAlone(t *testing.T) {
	const quota = 8 << 20
	quotas := &streams.Quotas{Log: quota, Durable: quota}
	l := natstest.Start(t, natstest.OnDisk(), func(s *streams.ServerOptions, o *streams.Options) { s.MaxStore, o.Quotas = 256<<20, quotas })
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
func TestRequestsAtTheSameTimeShareAQuota(t *testing.T) {
	const quota = 1 << 20
	l := natstest.Start(t, func(_ *streams.ServerOptions, o *streams.Options) { o.Quotas = &streams.Quotas{Log: quota} })
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
		time.Sleep(2 * streams.CountPause)
		if u = testwait.Must(b.Usage(ctx, account))(t); u.Durable.Messages != 0 || u.Durable.Bytes != 0 || u.Events.Messages != 5 {
			t.Errorf("counted again: %+v", u)
		}
		if u = testwait.Must(b.Usage(ctx, neighbour))(t); u.Durable.Messages != 1 || u.Calls.Messages != 0 {
			t.Errorf("the neighbour: %+v", u)
		}
	})
}
