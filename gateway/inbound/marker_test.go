package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// slow is a service that takes marks as slowly as configured, and refuses to show that the bot types.
type slow struct {
	takes         time.Duration
	marks, typing *atomic.Int64
}

func (slow) Profile() channel.Profile                    { return channel.Profile{Kind: "slow"} }
func (slow) Destination(json.RawMessage) (string, error) { return "", nil }
func (slow) Send(context.Context, channel.Destination, channel.Message) (channel.Receipt, error) {
	return channel.Receipt{}, errors.New("nothing is sent here")
}

func (s slow) React(ctx context.Context, to channel.Destination) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.takes):
	}
	if string(to.Route) == `{"chat":1}` && to.Credential["token"] == "t" {
		s.marks.Add(1)
	}
	return nil
}

func (s slow) Typing(context.Context, channel.Destination) error {
	s.typing.Add(1)
	return errors.New("refused")
}

func TestMarksAreACourtesy(t *testing.T) {
	message := channel.Inbound{Kind: channel.Text, Route: json.RawMessage(`{"chat":1}`)}
	c := schemas.ChatChannel{Kind: "slow", Secrets: map[string]string{"token": "t"}, Agent: "agent_1"}
	for name, v := range map[string]struct {
		takes         time.Duration
		within        time.Duration
		marks, typing int64
	}{
		"a quick service":        {10 * time.Millisecond, time.Minute, marksWaiting, marksWaiting},
		"one that never answers": {time.Hour, time.Hour, 0, marksWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := slow{v.takes, new(atomic.Int64), new(atomic.Int64)}
				m := NewMarker(func(kind string) (channel.Adapter, bool) { return s, kind == "slow" }, nil)
				for range marksWaiting + 1000 { // none is taken yet: what is too many gets no mark, and nothing blocks
					m.Seen(c, message)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- m.Run(ctx) }()
				time.Sleep(v.within)
				if got, typing := s.marks.Load(), s.typing.Load(); got != v.marks || typing != v.typing {
					t.Errorf("%d marks, %d times typing; want %d and %d", got, typing, v.marks, v.typing)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
