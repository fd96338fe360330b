package lifecycle_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A process that dies while it takes a message of a chat leaves some of what follows on the log. The process that takes it again, also
// hours later and after the chat has moved to another conversation, adds the rest, and nothing twice.
//
//guarantee:a-message-of-a-chat-counts-once
func TestAMessageThatWasTakenHalfIsTakenWhole(t *testing.T) {
	natstest.Hours(t)
	chat := schemas.Chat{
		Account: "acct_1", Channel: "chan_1", Kind: "telegram", Name: schemas.ChatName("chan_1", "tg:1"), Route: []byte(`{"chat_id":1}`),
	}
	for name, died := range map[string]int{
		"before anything": 0, "once it was noted": 1, "once the turn had begun": 2, "before its answer": 3,
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				turn := func() schemas.FollowUp {
					return schemas.MessageTurn(chat, "agent_1", schemas.ChatMessage{
						Channel: "chan_1", Kind: "telegram", Event: "tg:7", Place: "1", Text: "a", Received: b.Now(),
					})
				}
				first := turn()
				steps := []func() error{
					func() error {
						_, err := streams.OpenBucket[schemas.Received](b, streams.ReceivedMessages).Create(t.Context(),
							schemas.ReceivedKey(first.Account, first.ID), schemas.Received{Conversation: first.Conversation}, 0)
						return err
					},
					func() error { return streams.Turns.Publish(t.Context(), b, first) },
					func() error { return lifecycle.Receive(t.Context(), b, first, nil) },
				}
				for _, step := range steps[:died] {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Hour)
				if died > 0 {
					chat.Begun = 1 // a person has said /new meanwhile
				}
				for range 2 {
					if err := lifecycle.Receive(t.Context(), b, turn(), nil); err != nil {
						t.Fatal(err)
					}
				}
				chat.Begun = 0
				turns := 0
				for v, err := range streams.Turns.Replay(t.Context(), b, "", schemas.Cursor{}) {
					if err != nil {
						t.Fatal(err)
					}
					if turns++; v.Value.Conversation != first.Conversation {
						t.Errorf("its turn is in %s", v.Value.Conversation)
					}
				}
				page, err := streams.ReadEvents(t.Context(), b, first.Account, first.Conversation, 0, 0)
				if err != nil || turns != 1 || len(page.Events) != 1 || page.Events[0].Value.Type != schemas.MessageReceived {
					t.Errorf("%d turns, %d events, %v", turns, len(page.Events), err)
				}
			})
		})
	}
}
