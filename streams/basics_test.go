package streams_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

const account schemas.AccountID = "acct_test"

// callOf makes a call that validates.
func callOf(id string) schemas.Call {
	return schemas.Call{
		ID: schemas.CallID(id), Account: account, Conversation: "c_" + schemas.ConversationID(id), Tool: schemas.ToolBash,
		Input: json.RawMessage(`{"command":"true"}`), Provider: "local", Workspace: "ws_1", Sandbox: "sb_1",
		Accepted: time.Now().UTC(), Deadline: time.Now().Add(time.Hour).UTC(),
	}
}

func eventOf(c schemas.Call, n string, typ schemas.EventType, data any) schemas.Event {
	return schemas.NewEvent(c, typ, c.EventID()+"."+n, time.Now(), data)
}

//guarantee:the-same-id-is-the-same-call
func TestACallIsPublishedOnceAndFound(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, c := t.Context(), callOf("one.two:three")
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		other := c
		other.Provider = "docker"
		for _, again := range []schemas.Call{c, other} {
			if err := streams.Calls.Publish(ctx, b, again); !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("publish again for %s: %v; want a conflict", again.Provider, err)
			}
		}
		if got := testwait.Must(b.Calls().Find(ctx, account, c.ID))(t); got.Digest != c.Digest || got.Provider != "local" {
			t.Errorf("found %+v", got)
		}
		if _, err := b.Calls().Find(ctx, "acct_other", c.ID); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("another account finds it: %v", err)
		}
		time.Sleep(25 * time.Hour)
		if got := testwait.Must(b.Calls().Find(ctx, account, c.ID))(t); got.ID != c.ID {
			t.Error("it went before anybody knew that it has its end")
		}
		_, before, err := b.Calls().Old(ctx, 0)
		testwait.OK(t, err)
		testwait.OK(t, b.Calls().Forget(ctx, before))
		if _, err := b.Calls().Find(ctx, account, c.ID); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("after a day: %v; want not_found", err)
		}
	})
}

// consume runs a consumer until the returned function is called, which waits for its end.
func consume[T schemas.Eventer](t *testing.T, b *streams.Bus, topic streams.Topic[T], o streams.ConsumeOptions,
	f func(context.Context, streams.Delivery[T]) error) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- topic.Consume(ctx, b, o, f) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("consume: %v", err)
		}
	}
}

func TestAHandlersLongWorkIsDeliveredOnce(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var n int
		stop := consume(t, b, streams.Calls, streams.ConsumeOptions{Name: "w-local", Filter: "local", Slots: 4},
			func(_ context.Context, d streams.Delivery[schemas.Call]) error {
				n++
				time.Sleep(9 * time.Minute)
				if d.Late() {
					t.Error("the signs of life were late")
				}
				return nil
			})
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("a")))
		time.Sleep(time.Hour)
		stop()
		if n != 1 {
			t.Errorf("delivered %d times; want once", n)
		}
	})
}

//guarantee:a-conversation-has-no-holes
func TestFollowReplaysThenContinuesLive(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := callOf("a")
		publish := func(n string) {
			testwait.OK(t, streams.Events.Publish(ctx, b, eventOf(c, n, schemas.CallOutput, schemas.OutputData{Text: n})))
		}
		publish("1")
		publish("2")
		publish("2") // twice is once
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i, err := range streams.Follow(ctx, b, account, c.Conversation, schemas.Cursor{}) {
				if err != nil {
					t.Error(err)
					return
				}
				switch i.Kind {
				case streams.ItemAttached:
					got = append(got, "attached")
				case streams.ItemLive:
					got = append(got, "live")
				case streams.ItemEvent:
					got = append(got, i.Entry.Value.ID[len(c.EventID())+1:])
				}
			}
		}()
		synctest.Wait()
		publish("3")
		publish("4")
		synctest.Wait()
		cancel()
		<-done
		want := []string{"attached", "1", "2", "live", "3", "4"}
		if len(got) != len(want) {
			t.Fatalf("got %v; want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("got %v; want %v", got, want)
			}
		}
	})
}

func TestBucketLeasesEnd(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		k := streams.OpenBucket[string](b, streams.Leases)
		ctx := t.Context()
		testwait.Must(k.Put(ctx, "w1", "me"))(t)
		for range 5 {
			time.Sleep(time.Second)
			testwait.Must(k.Put(ctx, "w1", "me"))(t)
		}
		if got := testwait.Must(k.Get(ctx, "w1"))(t); got.Value != "me" {
			t.Errorf("got %q", got.Value)
		}
		time.Sleep(4 * time.Second)
		if _, err := k.Get(ctx, "w1"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("after its life: %v; want not_found", err)
		}
	})
}

func TestDropHistoryLeavesTheLatest(t *testing.T) {
	const user, password = "sandjet", "s"
	l := natstest.Start(t, natstest.Listen(natsauth.User{Name: user, Password: password}))
	k := streams.OpenBucket[string](l.Bus, streams.Records)
	c := natstest.Dial(t, l.Server.URL(), user, password)
	older(t, c)
	for n := range 4 {
		testwait.Must(k.Put(t.Context(), "a", fmt.Sprint("a", n)))(t)
		testwait.Must(k.Put(t.Context(), "b.c", fmt.Sprint("b", n)))(t)
	}
	if err := k.Delete(t.Context(), "b.c"); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		var info struct {
			State struct{ Messages int } `json:"state"`
		}
		if err := json.Unmarshal(c.Request(t, "$JS.API.STREAM.INFO.KV_records", ""), &info); err != nil {
			t.Fatal(err)
		}
		return info.State.Messages
	}
	if n := kept(); n < 5 {
		t.Fatalf("only %d values are kept: this shows nothing", n)
	}
	for range 2 { // again changes nothing
		if err := k.DropHistory(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := kept(); n != 2 {
			t.Errorf("%d messages are left, want the value and the mark of the deletion", n)
		}
	}
	if got := testwait.Must(k.Get(t.Context(), "a"))(t); got.Value != "a3" {
		t.Errorf("%+v", got)
	}
	if _, err := k.Get(t.Context(), "b.c"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("the deleted one: %v", err)
	}
}
