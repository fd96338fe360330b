package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// service is a chat service in memory, and its adapter. It may store a message and still return an error.
type service struct {
	profile channel.Profile

	mu     sync.Mutex
	chats  map[string][]message1
	known  map[string]channel.Receipt // by key
	faults func(n int) fault          // of the nth request
	n      int
	rest   time.Duration // of receipts
}

// message1 is a message in a chat.
type message1 struct {
	id, key, text string
	m             channel.Message
	at            time.Time
}

// fault is a failure of a request.
type fault string

const (
	none       fault = ""
	lostBefore fault = "lost before" // it never leaves, and that is known
	lost       fault = "lost"        // it never arrives, and the sender gets no response
	unanswered fault = "unanswered"  // it arrives, and the response is lost
	late       fault = "late"        // it arrives after the request's deadline
	tooMuch    fault = "too much"
	gone       fault = "gone"
	blind      fault = "blind" // the chat cannot be looked through
)

func newService(once channel.Once) *service {
	return &service{
		profile: channel.Profile{Kind: "memory", Format: channel.PlainText, Limit: 120, Unit: channel.CodePoints, Once: once},
		chats:   map[string][]message1{}, known: map[string]channel.Receipt{}, faults: func(int) fault { return none },
	}
}

func (s *service) Profile() channel.Profile { return s.profile }

func (s *service) Destination(route json.RawMessage) (string, error) {
	var r struct{ Chat string }
	if err := json.Unmarshal(route, &r); err != nil || r.Chat == "" {
		return "", schemas.Invalidf("chat", "is missing")
	}
	return r.Chat, nil
}

func (s *service) fault() fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return s.faults(s.n - 1)
}

// put stores a message in a chat, unless its key is known.
func (s *service) put(chat string, m channel.Message) channel.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.known[m.Key]; ok && s.profile.Once == channel.OnceByKey {
		return r
	}
	r := channel.Receipt{ID: fmt.Sprint(len(s.chats[chat]) + 1), Rest: s.rest}
	s.chats[chat] = append(s.chats[chat], message1{id: r.ID, key: m.Key, text: m.Text, m: m, at: time.Now()})
	s.known[m.Key] = r
	return r
}

func (s *service) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	chat, err := s.Destination(to.Route)
	if err != nil || to.Credential["token"] != "hidden" {
		return channel.Receipt{}, &channel.Error{Outcome: channel.Refused, Reason: "no credential"}
	}
	switch f := s.fault(); f {
	case lostBefore:
		return channel.Receipt{}, &channel.Error{Outcome: channel.NotSent, Reason: "there is no way"}
	case tooMuch:
		return channel.Receipt{}, &channel.Error{Outcome: channel.Limited, Reason: "too much", After: 7 * time.Second, Of: channel.PerDestination}
	case gone:
		return channel.Receipt{}, &channel.Error{Outcome: channel.Refused, Reason: "the bot was blocked by the user"}
	case lost, late, unanswered:
		if f == unanswered {
			s.put(chat, m)
		}
		<-ctx.Done()
		if f == late {
			s.put(chat, m)
		}
		return channel.Receipt{}, &channel.Error{Outcome: channel.Ambiguous, Reason: "no answer"}
	case none, blind:
	}
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	return s.put(chat, m), nil
}

// finder is a service that can be searched.
type finder struct{ *service }

func (s finder) Find(_ context.Context, _ channel.Destination, key string, _ time.Time) (channel.Receipt, bool, error) {
	if s.fault() == blind {
		return channel.Receipt{}, false, &channel.Error{Outcome: channel.NotSent, Reason: "there is no way"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.known[key]
	return r, ok, nil
}

func (s *service) adapter() channel.Adapter {
	if s.profile.Once == channel.OnceByLook {
		return finder{s}
	}
	return s
}

// seen returns the messages of a chat.
func (s *service) seen(chat string) []message1 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]message1(nil), s.chats[chat]...)
}

// records are the channels of an account.
type records []schemas.ChatChannel

func (r records) List(context.Context, schemas.AccountID) ([]schemas.ChatChannel, error) {
	return r, nil
}

func (r records) Get(_ context.Context, _ schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error) {
	for _, c := range r {
		if c.ID == id {
			return c, nil
		}
	}
	return schemas.ChatChannel{}, schemas.Errorf(schemas.NotFound, "there is none")
}

func bot() records {
	return records{{ID: "chan_1", Account: "acct_1", Kind: "memory", Name: "bot", Secrets: map[string]string{"token": "hidden"}}}
}

const cutHere = "the rest is left out"

// inLines renders a document unchanged, with a part for each line.
func inLines(document string, l Layout) (parts []Part, cut bool) {
	for i, line := range strings.Split(document, "\n") {
		if i == l.MaxParts {
			parts[i-1].Text = cutHere
			return parts, true
		}
		parts = append(parts, Part{Text: line[:min(len(line), l.Limit)]})
	}
	return parts, false
}

func toChat(n int, chat, document string) schemas.Delivery {
	body, err := json.Marshal(schemas.ChatBody{Text: document})
	if err != nil {
		panic(err)
	}
	return schemas.Delivery{
		ID: schemas.MakeDeliveryID(fmt.Sprint("event ", n), "memory"), Account: "acct_1", Channel: "memory",
		Route: json.RawMessage(`{"chat":"` + chat + `"}`), Event: fmt.Sprint("event ", n), Type: schemas.Message, Conversation: "c_1",
		Body: string(body), Created: time.Now().UTC(),
	}
}

var errDied = errors.New("it died")

// TestEveryMessageComesOnce sends 500 deliveries by three processes that crash or are suspended at every possible point, to a service that
// loses requests and responses. No message is lost. If the service lets the sender check, no message arrives twice; otherwise a possible
// repeat says so.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestEveryMessageComesOnce(t *testing.T) {
	t.Parallel()
	for _, once := range []channel.Once{channel.OnceByKey, channel.OnceByLook, channel.OnceNever} {
		t.Run(string(once), func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) { everyMessageOnce(t, b, once) })
		})
	}
}

func everyMessageOnce(t *testing.T, b *streams.Bus, once channel.Once) {
	const deliveries = 500
	s := newService(once)
	chance := rand.New(rand.NewPCG(14, uint64(len(once))))
	var mu sync.Mutex // guards the variables below
	s.faults = func(int) fault {
		mu.Lock()
		defer mu.Unlock()
		return []fault{none, none, none, none, none, lostBefore, lost, unanswered, late, tooMuch, blind}[chance.IntN(11)]
	}
	deaths, pauses := 0, 0
	senders := make([]*Sender, 3)
	for i := range senders {
		senders[i] = &Sender{Bus: b, Channels: bot(), Adapter: s.adapter(), Render: inLines}
		senders[i].at = func(stage, schemas.Delivery) error {
			mu.Lock()
			what := chance.IntN(20)
			mu.Unlock()
			switch what {
			case 0:
				mu.Lock()
				deaths++
				mu.Unlock()
				return errDied
			case 1:
				mu.Lock()
				pauses++
				mu.Unlock()
				time.Sleep(11 * time.Minute)
			}
			return nil
		}
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 100)
	for n := range deliveries {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			handOut(t, senders, toChat(n, fmt.Sprint("chat ", n), fmt.Sprintf("first of %d\nsecond of %d", n, n)))
		})
	}
	wg.Wait()
	repeats := 0
	for n := range deliveries {
		got := s.seen(fmt.Sprint("chat ", n))
		for part, word := range []string{"first", "second"} {
			whole, unmarked := 0, 0
			for i, m := range got {
				if !strings.HasSuffix(m.text, fmt.Sprintf("%s of %d", word, n)) {
					continue
				}
				whole++
				if !strings.HasPrefix(m.text, mark) {
					unmarked++
				}
				if part == 1 && i == 0 {
					t.Errorf("delivery %d: the second part came first: %+v", n, got)
				}
			}
			repeats += whole - 1
			switch {
			case whole == 0:
				t.Errorf("delivery %d: the %s part was lost: %+v", n, word, got)
			case whole > 1 && once != channel.OnceNever, unmarked > 1:
				t.Errorf("delivery %d: the %s part came %d times, %d times without a mark: %+v", n, word, whole, unmarked, got)
			}
		}
	}
	if deaths < 100 || pauses < 100 || once == channel.OnceNever && repeats == 0 {
		t.Errorf("%d deaths, %d pauses, %d repeats: this shows nothing", deaths, pauses, repeats)
	}
}

// handOut delivers a delivery to one process after the other, as JetStream does: again after a delay if it failed, and to another process
// if there was no progress ack, although the first continues.
func handOut(t *testing.T, senders []*Sender, d schemas.Delivery) {
	type end struct {
		v delivery.Verdict
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := range 2000 {
		done := make(chan end, 1)
		wg.Go(func() {
			_, v := senders[n%len(senders)].Send(context.Background(), d)
			done <- end{v}
		})
		var e end
		select {
		case e = <-done:
		case <-time.After(40 * time.Second): // it is suspended
			continue
		}
		switch e.v.Kind {
		case delivery.Delivered:
			return
		case delivery.Stopped, delivery.Dropped:
			t.Errorf("%s: %+v", d.ID, e.v)
			return
		case delivery.Busy, delivery.Failed, delivery.Held:
		}
		time.Sleep(max(e.v.After, 5*time.Second))
	}
	t.Errorf("%s was never delivered", d.ID)
}

// try sends a delivery once.
func try(t *testing.T, s *Sender, d schemas.Delivery) delivery.Verdict {
	t.Helper()
	made, v := s.Send(t.Context(), d)
	if v.Kind == delivery.Failed && made.Error == "" {
		t.Error("a try failed and does not say why")
	}
	return v
}

// The account chooses what to do with a message that may have arrived.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestTheAccountChoosesWhatBecomesOfAmbiguousMessages(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for n, c := range []struct {
			way   schemas.OnAmbiguous
			want  []string
			kind  delivery.Kind
			again []string // after a manual replay
		}{
			{"", []string{"a", mark + " a", "b"}, delivery.Delivered, nil},
			{schemas.ResendMarked, []string{"a", mark + " a", "b"}, delivery.Delivered, nil},
			{schemas.Resend, []string{"a", "a", "b"}, delivery.Delivered, nil},
			{schemas.DropAmbiguous, []string{"a", "b"}, delivery.Delivered, nil},
			{schemas.HoldOnAmbiguous, []string{"a"}, delivery.Stopped, []string{"a", mark + " a", "b"}},
		} {
			service, channels := newService(channel.OnceNever), bot()
			service.faults = func(n int) fault { return []fault{unanswered, none, none, none}[n] }
			channels[0].OnAmbiguous = c.way
			s := &Sender{Bus: b, Channels: channels, Adapter: service, Render: inLines}
			d := toChat(n, "x", "a\nb")
			if v := try(t, s, d); v.Kind != delivery.Failed {
				t.Errorf("%s: %+v", c.way, v)
			}
			if v := try(t, s, d); v.Kind != c.kind {
				t.Errorf("%s: %+v", c.way, v)
			}
			check := func(want []string) {
				t.Helper()
				var got []string
				for _, m := range service.seen("x") {
					got = append(got, m.text)
				}
				if strings.Join(got, "|") != strings.Join(want, "|") {
					t.Errorf("%s: %q, want %q", c.way, got, want)
				}
			}
			check(c.want)
			if c.again == nil {
				continue
			}
			if v := try(t, s, d); v.Kind != delivery.Stopped || !strings.Contains(v.Reason, "part 1 of 2") {
				t.Errorf("%s: without a person: %+v", c.way, v)
			}
			if v := try(t, s, d.Again(b.Now())); v.Kind != delivery.Delivered {
				t.Errorf("%s: %+v", c.way, v)
			}
			check(c.again)
		}
	})
}

// If a service says in a receipt how long it accepts nothing more, no request is sent before.
func TestAPlaceRestsAsItsServiceSays(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		service := newService(channel.OnceByKey)
		service.faults = func(int) fault { return none }
		service.rest = 5 * time.Second
		s := &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
		if v := try(t, s, toChat(1, "slow", "a")); v.Kind != delivery.Delivered {
			t.Errorf("%+v", v)
		}
		if v := try(t, s, toChat(2, "slow", "a")); v.Kind != delivery.Held || v.After <= 4*time.Second || service.n != 1 {
			t.Errorf("%+v after %d requests", v, service.n)
		}
		if v := try(t, s, toChat(3, "other", "a\nb")); v.Kind != delivery.Held || len(service.seen("other")) != 1 { // also between two parts
			t.Errorf("%+v, %+v", v, service.seen("other"))
		}
		time.Sleep(6 * time.Second)
		if v := try(t, s, toChat(3, "other", "a\nb")); v.Kind != delivery.Delivered || len(service.seen("other")) != 2 {
			t.Errorf("%+v, %+v", v, service.seen("other"))
		}
	})
}

// A rate-limited place is paused without further requests, and no other place waits for it.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestALimitHoldsBackOnePlace(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		service := newService(channel.OnceByKey)
		service.faults = func(n int) fault { return map[int]fault{0: tooMuch}[n] }
		s := &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
		if v := try(t, s, toChat(1, "slow", "a")); v.Kind != delivery.Held || v.After != 7*time.Second {
			t.Errorf("%+v", v)
		}
		if v := try(t, s, toChat(2, "slow", "a")); v.Kind != delivery.Held || v.After <= 6*time.Second || service.n != 1 {
			t.Errorf("%+v after %d requests", v, service.n)
		}
		if v := try(t, s, toChat(3, "other", "a")); v.Kind != delivery.Delivered {
			t.Errorf("%+v", v)
		}
		time.Sleep(8 * time.Second)
		if v := try(t, s, toChat(1, "slow", "a")); v.Kind != delivery.Delivered {
			t.Errorf("%+v", v)
		}

		// The rate limits of a place and of a credential are enforced without requests to the service.
		service.profile.Pace = []channel.Pace{
			{Of: channel.PerDestination, Events: 2, Per: time.Minute}, {Of: channel.PerCredential, Events: 3, Per: time.Hour},
		}
		s = &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
		if v := try(t, s, toChat(4, "slow", "a\nb\nc")); v.Kind != delivery.Held || v.After > time.Minute || len(service.seen("slow")) != 3 {
			t.Errorf("%+v, %+v", v, service.seen("slow"))
		}
		if v := try(t, s, toChat(5, "other", "a\nb")); v.Kind != delivery.Held || v.After < 50*time.Minute {
			t.Errorf("%+v", v)
		}
	})
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestDeliveriesThatNoTryWillHelp(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		service := newService(channel.OnceByKey)
		service.faults = func(int) fault { return gone }
		two := append(bot(), schemas.ChatChannel{ID: "chan_2", Account: "acct_1", Kind: "memory"})
		off := bot()
		off[0].Disabled, off[0].Reason = true, "its owner disabled it"
		for name, c := range map[string]struct {
			channels records
			change   func(*schemas.Delivery)
			want     string
		}{
			"refused":         {bot(), func(*schemas.Delivery) {}, "the bot was blocked by the user"},
			"no channel":      {nil, func(*schemas.Delivery) {}, "has no memory channel"},
			"which of them":   {two, func(*schemas.Delivery) {}, "has 2 memory channels"},
			"another channel": {bot(), func(d *schemas.Delivery) { d.ChannelID = "chan_9" }, "no memory channel chan_9"},
			"disabled":        {off, func(*schemas.Delivery) {}, "disabled: its owner disabled it"},
			"no place":        {bot(), func(d *schemas.Delivery) { d.Route = json.RawMessage(`{}`) }, "no place of memory: is missing"},
			"no message":      {bot(), func(d *schemas.Delivery) { d.Body = "{}" }, "says nothing"},
		} {
			d := toChat(len(name), "x", "a")
			c.change(&d)
			s := &Sender{Bus: b, Channels: c.channels, Adapter: service, Render: inLines}
			if v := try(t, s, d); v.Kind != delivery.Stopped || !strings.Contains(v.Reason, c.want) || strings.Contains(v.Reason, "hidden") {
				t.Errorf("%s: %+v", name, v)
			}
		}
	})
}

func TestWhatIsTooLongGoesAsAFileOrSaysSo(t *testing.T) {
	t.Parallel()
	document := strings.Repeat("line\n", 20)
	m := schemas.ChatBody{Text: document, Reply: true, Buttons: []schemas.ChatButton{{Label: "Yes", Data: "y", Style: "approve"}}}
	p := newService(channel.OnceByKey).profile
	parts, err := plan(m, p, inLines)
	if err != nil || len(parts) != maxParts || parts[maxParts-1].Text != cutHere {
		t.Errorf("%+v, %v", parts, err)
	}
	p.MaxFile, p.Buttons = 1<<20, true
	if parts, err = plan(m, p, inLines); err != nil || len(parts) != 2 || !parts[1].File {
		t.Fatalf("%+v, %v", parts, err)
	}
	d := toChat(1, "x", document)
	first, second := messageFor(d, m, ledger{Parts: parts}, 0, p), messageFor(d, m, ledger{Parts: parts}, 1, p)
	if !first.Reply || second.Reply || len(first.Buttons) != 0 || len(second.Buttons) != 1 || second.Buttons[0].Style != channel.Approve ||
		first.Key == second.Key || !bytes.Equal(second.File.Data, []byte(document)) || second.Text != "" || first.Plain != "line" {
		t.Errorf("%+v\n%+v", first, second)
	}
	m.Text = strings.Repeat(strings.Repeat("x", maxTexts/3)+"\n", 7) // more than a ledger stores
	if parts, err := plan(m, channel.Profile{Limit: 1 << 20}, inLines); err != nil || len(parts) != 3 || parts[2].Text != cutHere {
		t.Errorf("%d parts, %v", len(parts), err)
	}
}
