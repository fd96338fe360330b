package redispace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/chat"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/redisconn"
	"github.com/sandjet/sandjet/internal/redistest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// enough is a timeout for events that must happen, on a loaded machine.
const enough = 2 * time.Minute

// open returns a pacer that waits longer for a server on a loaded machine than a deliverer does.
func open(t *testing.T, s *redistest.Server) *Pacer {
	t.Helper()
	o, err := redisconn.Options(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = enough, enough, enough, enough
	p := New(redis.NewClient(o))
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func take(t *testing.T, p *Pacer, at chat.Place, limits ...channel.Pace) time.Duration {
	t.Helper()
	wait, err := p.Take(t.Context(), at, limits)
	if err != nil {
		t.Fatal(err)
	}
	return wait
}

func each(of channel.PaceOf, events int, per time.Duration) channel.Pace {
	return channel.Pace{Of: of, Events: events, Per: per}
}

func room(name string) chat.Place { return chat.Place{Channel: "chan_1", Destination: name} }

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestTwoDeliverersNeverPassALimit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	pacers := []*Pacer{open(t, s), open(t, s)}
	limits := []channel.Pace{each(channel.PerDestination, 7, time.Hour), each(channel.PerCredential, 10, 2*time.Hour)}
	race := func(at chat.Place) (got int) {
		var (
			mu  sync.Mutex
			all sync.WaitGroup
		)
		for i := range 40 {
			all.Go(func() {
				wait, err := pacers[i%2].Take(t.Context(), at, limits)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case wait == 0:
					got++
				case wait < time.Hour/2 || wait > 2*time.Hour:
					t.Errorf("wait %s", wait)
				}
			})
		}
		all.Wait()
		return got
	}
	for _, c := range []struct {
		at   chat.Place
		want int
	}{{room("a"), 7}, {room("b"), 3}, {room("c"), 0}, {chat.Place{Channel: "chan_2", Destination: "a"}, 7}} {
		if got := race(c.at); got != c.want {
			t.Errorf("%+v: %d turns, want %d", c.at, got, c.want)
		}
	}
}

func TestTheWindowMovesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := open(t, redistest.Start(t))
	limit := each(channel.PerDestination, 2, 50*time.Millisecond)
	for range 5 { // refused turns in between do not count
		testwait.Eventually(t, "a turn", func() bool { return take(t, p, room("a"), limit) == 0 })
	}
	testwait.Eventually(t, "no key is left", func() bool {
		n, err := p.db.DBSize(t.Context()).Result()
		return err == nil && n == 0
	})
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestARestIsKeptByAll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, two := open(t, s), open(t, s)
	for _, wait := range []time.Duration{time.Hour, time.Minute} { // the longer one stays
		if err := one.Rest(t.Context(), room("a"), wait); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a turn that is refused is not taken
		if wait := take(t, two, room("a"), each(channel.PerDestination, 1, 10*time.Hour)); wait < 50*time.Minute || wait > time.Hour {
			t.Errorf("it may go on after %s", wait)
		}
	}
	if wait := take(t, two, room("b")); wait != 0 {
		t.Errorf("another place waits %s", wait)
	}
	if err := two.Rest(t.Context(), chat.Place{Channel: "chan_1"}, 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{"a": time.Hour, "b": time.Hour} {
		if wait := take(t, one, room(name)); wait < want {
			t.Errorf("%s may go on after %s, though the whole channel rests", name, wait)
		}
	}
	if wait := take(t, one, chat.Place{Channel: "chan_2", Destination: "a"}); wait != 0 {
		t.Errorf("another channel waits %s", wait)
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := open(t, s)
	take(t, p, room("a"))
	s.Kill()
	_, taken := p.Take(t.Context(), room("a"), nil)
	for verb, err := range map[string]error{"Take": taken, "Rest": p.Rest(t.Context(), room("a"), time.Hour), "Ping": p.Ping(t.Context())} {
		if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "--redis-url") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	s.Restart() // empty, and without the scripts
	testwait.Eventually(t, "the server is found again", func() bool { return p.Ping(t.Context()) == nil })
	if wait := take(t, p, room("a"), each(channel.PerDestination, 1, time.Hour)); wait != 0 {
		t.Errorf("wait %s", wait)
	}
	if _, err := Open("localhost:6379"); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("Open: %v", err)
	}
}

// service is a chat service and its adapter. The first request to the place "tired" is limited for an hour.
type service struct {
	mu    sync.Mutex
	asked map[string]int
}

func (s *service) Profile() channel.Profile {
	return channel.Profile{
		Kind: "memory", Format: channel.PlainText, Limit: 100, Unit: channel.Bytes, Once: channel.OnceNever,
		Pace: []channel.Pace{each(channel.PerDestination, 3, time.Hour)},
	}
}

func (s *service) Destination(route json.RawMessage) (string, error) {
	var name string
	return name, json.Unmarshal(route, &name)
}

func (s *service) Send(_ context.Context, to channel.Destination, _ channel.Message) (channel.Receipt, error) {
	name, err := s.Destination(to.Route)
	if err != nil {
		return channel.Receipt{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[name]++
	if name == "tired" {
		return channel.Receipt{}, &channel.Error{Outcome: channel.Limited, Reason: "too much", After: time.Hour, Of: channel.PerDestination}
	}
	return channel.Receipt{ID: fmt.Sprint(s.asked[name])}, nil
}

func (s *service) Get(context.Context, schemas.AccountID, schemas.ChannelID) (schemas.ChatChannel, error) {
	return schemas.ChatChannel{ID: "chan_1", Account: "acct_1", Kind: "memory"}, nil
}

func (s *service) List(ctx context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error) {
	c, err := s.Get(ctx, a, "")
	return []schemas.ChatChannel{c}, err
}

func whole(document string, _ chat.Layout) ([]chat.Part, bool) {
	return []chat.Part{{Text: document}}, false
}

// A pause that a service requests from one deliverer is known to the other one. While Redis is unavailable, each enforces the limits by
// itself.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestTwoDeliverersKeepOnePace(t *testing.T) {
	t.Parallel()
	s, log, chats := redistest.Start(t), natstest.Start(t), &service{asked: map[string]int{}}
	deliverer := func(bus *streams.Bus) *chat.Sender {
		return &chat.Sender{Bus: bus, Channels: chats, Adapter: chats, Render: whole, Pacer: open(t, s)}
	}
	bus := log.Open()
	one, two := deliverer(bus), deliverer(bus)
	n := 0
	send := func(d *chat.Sender, place string) delivery.Verdict {
		t.Helper()
		n++
		event := fmt.Sprint("event ", n)
		_, v := d.Send(t.Context(), schemas.Delivery{
			ID: schemas.MakeDeliveryID(event, "memory"), Account: "acct_1", Channel: "memory", Route: json.RawMessage(`"` + place + `"`),
			Event: event, Type: schemas.Message, Conversation: "c_1", Body: `{"text":"hello"}`, Created: bus.Now(),
		})
		return v
	}
	for _, d := range []*chat.Sender{one, two, one, two} {
		if v := send(d, "tired"); v.Kind != delivery.Held || v.After < 50*time.Minute {
			t.Errorf("%+v", v)
		}
	}
	if got := chats.asked["tired"]; got != 1 {
		t.Errorf("%d requests to a chat that wants none", got)
	}
	for i, d := range []*chat.Sender{one, two, one, two, one} {
		if v := send(d, "brisk"); (v.Kind == delivery.Delivered) != (i < 3) {
			t.Errorf("message %d: %+v", i+1, v)
		}
	}
	if got := chats.asked["brisk"]; got != 3 {
		t.Errorf("%d requests, of 3 that the service takes", got)
	}
	s.Kill()
	// This deliverer has sent two messages to the chat within the hour, and has counted them: one more is allowed.
	for i := range 3 {
		if v := send(one, "brisk"); (v.Kind == delivery.Delivered) != (i < 1) {
			t.Errorf("without Redis, message %d: %+v", i+1, v)
		}
	}
	if v := send(one, "tired"); v.Kind != delivery.Held {
		t.Errorf("without Redis, to the chat that wants none: %+v", v)
	}
	if v := send(two, "other"); v.Kind != delivery.Delivered {
		t.Errorf("without Redis: %+v", v)
	}
}
