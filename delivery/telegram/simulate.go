package telegram

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Simulate implements [channel.Simulator]. The update's id is derived from the time, and far above Telegram's own ids.
func (a *Adapter) Simulate(to channel.Destination, said channel.Said, now time.Time) (channel.Request, error) {
	chat, err := strconv.ParseInt(said.Place, 10, 64)
	if err != nil || chat == 0 {
		return channel.Request{}, schemas.Invalidf("place", "%q is not the number of a chat", schemas.Quotable(said.Place))
	}
	from := user{ID: chat, Username: "somebody"} // the id of a private chat is its user's
	if said.User != "" {
		if from.ID, err = strconv.ParseInt(said.User, 10, 64); err != nil {
			return channel.Request{}, schemas.Invalidf("user", "%q is not the number of a person", schemas.Quotable(said.User))
		}
	}
	message := map[string]any{"message_id": now.UnixMilli(), "date": now.Unix(), "text": said.Text, "from": from,
		"chat": map[string]any{"id": chat}}
	switch len(said.Files) {
	case 0:
	case 1:
		message["document"] = file{ID: said.Files[0], Name: said.Files[0]}
	default:
		return channel.Request{}, schemas.Invalidf("files", "are %d: a message of Telegram has one", len(said.Files))
	}
	body, err := chatapi.Encode(map[string]any{"update_id": now.UnixNano(), "message": message})
	if err != nil {
		return channel.Request{}, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(secretHeader, to.Credential[secretToken])
	return channel.Request{Header: header, Body: body}, nil
}
