package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// editor is a service whose messages can be edited.
type editor struct {
	*service
	refuses bool
	edits   int
}

func (s *editor) Edit(ctx context.Context, to channel.Destination, id string, m channel.Message) error {
	chat, err := s.Destination(to.Route)
	if err != nil {
		return err
	}
	f := s.fault()
	s.mu.Lock()
	s.edits++
	list := s.chats[chat]
	i := slices.IndexFunc(list, func(x message1) bool { return x.id == id })
	if i < 0 || s.refuses {
		s.mu.Unlock()
		return &channel.Error{Outcome: channel.Refused, Reason: "message to edit not found"}
	}
	if f == none || f == unanswered {
		list[i].text, list[i].m = m.Text, m
	}
	s.mu.Unlock()
	switch f {
	case none:
		return nil
	case unanswered:
		<-ctx.Done()
		return &channel.Error{Outcome: channel.Ambiguous, Reason: "no answer"}
	default:
		return &channel.Error{Outcome: channel.NotSent, Reason: "there is no way"}
	}
}

func openEditor() *editor {
	s := newService(channel.OnceNever)
	s.profile.Buttons = true
	return &editor{service: s}
}

// asks returns a delivery with a question, answers one that replaces the question by its answer.
func asks(text string) schemas.Delivery {
	d := toChat(1, "x", text)
	d.Body = string(must(json.Marshal(schemas.ChatBody{Text: text, Buttons: []schemas.ChatButton{{Label: "Yes", Data: "y"}}})))
	return d
}

func answers(question schemas.Delivery, b *streams.Bus) schemas.Delivery {
	d := toChat(2, "x", "")
	d.Created = b.Now()
	d.Body = string(must(json.Marshal(schemas.ChatBody{Text: "approved", Edit: &schemas.ChatEdit{
		Delivery: question.ID, Text: "the question: approved",
	}})))
	return d
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}

func (s *editor) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, m := range s.seen("x") {
		text := m.text
		if len(m.m.Buttons) > 0 {
			text += " [" + m.m.Buttons[0].Label + "]"
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the chat has %q, want %q", got, want)
	}
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestAQuestionSaysHowItWasAnswered(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for name, c := range map[string]struct {
			question string
			before   func(*editor)
			answer   func(*schemas.Delivery)
			want     []string
			edited   bool
		}{
			"it can be edited":        {"may I?", nil, nil, []string{"the question: approved"}, true},
			"it was long":             {"may I\nreally?", nil, nil, []string{"may I", "approved"}, true},
			"it cannot be edited now": {"may I?", func(e *editor) { e.refuses = true }, nil, []string{"may I? [Yes]", "approved"}, false},
			"the answer fell back": {"may I?", nil, func(d *schemas.Delivery) { d.FallbackOf = "dlv_1" },
				[]string{"may I? [Yes]", "approved"}, false},
			"its answer is lost": {"may I?", func(e *editor) {
				e.faults = func(n int) fault { return map[int]fault{0: none, 1: unanswered}[n] }
			}, nil, []string{"the question: approved"}, true},
			"the service is away for a while": {"may I?", func(e *editor) {
				e.faults = func(n int) fault { return map[int]fault{1: lostBefore, 2: lostBefore}[n] }
			}, nil, []string{"the question: approved"}, true},
		} {
			service := openEditor()
			s := &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
			question := asks(c.question)
			question.ID = schemas.DeliveryID("dlv_q" + fmt.Sprint(len(name)))
			if c.before != nil {
				c.before(service)
			}
			if v := try(t, s, question); v.Kind != delivery.Delivered {
				t.Fatalf("%s: %+v", name, v)
			}
			answer := answers(question, b)
			answer.ID = schemas.DeliveryID("dlv_a" + fmt.Sprint(len(name)))
			if c.answer != nil {
				c.answer(&answer)
			}
			for n := 0; try(t, s, answer).Kind != delivery.Delivered; n++ {
				if n == 5 {
					t.Fatalf("%s: it is never done", name)
				}
			}
			edits := service.edits
			if v := try(t, s, answer); v.Kind != delivery.Delivered || service.edits != edits { // redelivered
				t.Errorf("%s: %+v, %d edits and then %d", name, v, edits, service.edits)
			}
			service.want(t, c.want...)
			e, err := s.ledgers.Get(t.Context(), "acct_1."+string(answer.ID))
			if err != nil || (e.Value.Parts[0].Edits != nil) != c.edited || e.Value.Parts[0].Text != "" {
				t.Errorf("%s: %+v, %v", name, e.Value, err)
			}
		}
	})
}

// A process crashes while it delivers an answer: the question is edited to show the answer, and no other message is sent.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestAnAnswerThroughDeathsIsThereOnce(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for i, place := range []stage{atNoted, atAnswered, atStored} {
			service := openEditor()
			s := &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
			question := asks("may I?")
			question.ID = schemas.DeliveryID(fmt.Sprint("dlv_q", i))
			try(t, s, question)
			deaths := 0
			s.at = func(at stage, _ schemas.Delivery) error {
				if at == place && deaths < 2 {
					deaths++
					return errDied
				}
				return nil
			}
			answer := answers(question, b)
			answer.ID = schemas.DeliveryID(fmt.Sprint("dlv_a", i))
			for n := 0; try(t, s, answer).Kind != delivery.Delivered; n++ {
				if n == 5 {
					t.Fatalf("%s: it is never done", place)
				}
				time.Sleep(time.Minute)
			}
			if service.want(t, "the question: approved"); deaths == 0 {
				t.Errorf("nobody died at %s", place)
			}
		}
	})
}

// An answer that is delivered before its question waits for the question, but not forever.
func TestAnAnswerComesBehindItsQuestion(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		service := openEditor()
		service.faults = func(n int) fault { return map[int]fault{0: lostBefore}[n] }
		s := &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
		question := asks("may I?")
		answer := answers(question, b)
		waits := func() {
			t.Helper()
			if v := try(t, s, answer); v.Kind != delivery.Held || v.After <= 0 || len(service.seen("x")) != 0 {
				t.Errorf("%+v, the chat has %d messages", v, len(service.seen("x")))
			}
		}
		waits()
		try(t, s, question) // the question does not arrive
		waits()
		try(t, s, question)
		try(t, s, answer)
		service.want(t, "the question: approved")

		never := asks("may I?")
		never.ID = "dlv_never"
		late := answers(never, b)
		late.ID = "dlv_late"
		if v := try(t, s, late); v.Kind != delivery.Held {
			t.Errorf("%+v", v)
		}
		time.Sleep(earlierWithin)
		if v := try(t, s, late); v.Kind != delivery.Delivered {
			t.Errorf("%+v", v)
		}
		service.want(t, "the question: approved", "approved")
	})
}

// A service without buttons gets the question without buttons. A service without edits gets the answer as another message.
func TestAServiceThatCanDoNeither(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		service := newService(channel.OnceNever)
		s := &Sender{Bus: b, Channels: bot(), Adapter: service, Render: inLines}
		question := asks("may I?")
		try(t, s, question)
		try(t, s, answers(question, b))
		(&editor{service: service}).want(t, "may I?", "approved")
	})
}
