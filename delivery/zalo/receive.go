package zalo

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// secretHeader is the header in which Zalo sends the webhook's secret.
const secretHeader = "X-Bot-Api-Secret-Token" //nolint:gosec // a name, not a secret

// Verify implements [channel.Receiver]. An event carries no time; a repeated event is recognized by the id of its message.
func (a *Adapter) Verify(r channel.Request, to channel.Destination, _ time.Time) error {
	secret := to.Credential[secretToken]
	if secret == "" {
		return chatapi.Lacks(secretToken)
	}
	if !chatapi.Same(r.Header.Get(secretHeader), secret) {
		return chatapi.Forged("the request does not show the channel's secret_token")
	}
	return nil
}

// event is the JSON that Zalo posts, with only the fields that are read.
type event struct {
	Name    string `json:"event_name"`
	Message struct {
		ID   id `json:"message_id"`
		From struct {
			ID      id     `json:"id"`
			Name    string `json:"name"`
			Display string `json:"display_name"`
			Bot     bool   `json:"is_bot"`
		} `json:"from"`
		Chat struct {
			ID   id     `json:"id"`
			Type string `json:"chat_type"`
		} `json:"chat"`
		Text    string `json:"text"`
		Caption string `json:"caption"`
		Photo   string `json:"photo_url"`
		Picture string `json:"photo"`
	} `json:"message"`
}

// Read implements [channel.Receiver]. The body is either the event, or an object whose result is the event, like a response of the Bot
// API.
func (a *Adapter) Read(r channel.Request, _ channel.Destination) (channel.Inbound, error) {
	var posted struct {
		Result json.RawMessage `json:"result"`
	}
	if err := chatapi.Decode(r.Body, &posted); err != nil {
		return channel.Inbound{}, err
	}
	body := r.Body
	if len(posted.Result) > 0 && posted.Result[0] == '{' {
		body = posted.Result
	}
	var e event
	if err := chatapi.Decode(body, &e); err != nil {
		return channel.Inbound{}, err
	}
	m := e.Message
	switch {
	case e.Name != "message.text.received" && e.Name != "message.image.received":
		return chatapi.Ignore("it is neither text nor a picture"), nil
	case m.Chat.Type != "PRIVATE":
		return chatapi.Ignore("it was not written to the bot alone"), nil
	case m.From.Bot:
		return chatapi.Ignore("a bot wrote it"), nil
	case !m.ID.valid() || !m.From.ID.valid() || !m.Chat.ID.valid():
		return chatapi.Ignore("it lacks an id that it should have"), nil
	}
	in := channel.Inbound{
		Kind: channel.Text, Event: strings.Join([]string{"zalo", e.Name, string(m.Chat.ID), string(m.From.ID), string(m.ID)}, ":"),
		Conversation: "zalo:" + string(m.Chat.ID), Place: string(m.Chat.ID), User: string(m.From.ID),
		UserName: cmp.Or(m.From.Display, m.From.Name), Text: cmp.Or(m.Text, m.Caption), Message: string(m.ID),
		Route: chatapi.Route(Route{m.Chat.ID}),
	}
	if photo := cmp.Or(m.Photo, m.Picture); photo != "" {
		in.Files = []channel.InboundFile{{Name: "photo.jpg", Type: "image/jpeg", Ref: photo}}
	}
	if in.Text == "" && len(in.Files) == 0 {
		return chatapi.Ignore("it has neither text nor files"), nil
	}
	return in, nil
}
