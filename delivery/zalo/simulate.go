package zalo

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Simulate implements [channel.Simulator]. Without a user, the user's id is that of the chat, as in private chats.
func (a *Adapter) Simulate(to channel.Destination, said channel.Said, now time.Time) (channel.Request, error) {
	chat, from := id(said.Place), id(cmp.Or(said.User, said.Place))
	if !chat.valid() || !from.valid() {
		return channel.Request{}, schemas.Invalidf("place", "%q is not the id of a chat", schemas.Quotable(said.Place))
	}
	name, message := "message.text.received", map[string]any{
		"message_id": strconv.FormatInt(now.UnixNano(), 36), "date": now.UnixMilli(), "text": said.Text,
		"from": map[string]any{"id": from, "display_name": "somebody"}, "chat": map[string]any{"id": chat, "chat_type": "PRIVATE"},
	}
	switch len(said.Files) {
	case 0:
	case 1:
		name, message["photo_url"] = "message.image.received", "https://photo.zdn.vn/"+url.PathEscape(said.Files[0])
	default:
		return channel.Request{}, schemas.Invalidf("files", "are %d: a message of Zalo has one picture", len(said.Files))
	}
	body, err := chatapi.Encode(map[string]any{"event_name": name, "message": message})
	if err != nil {
		return channel.Request{}, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(secretHeader, to.Credential[secretToken])
	return channel.Request{Header: header, Body: body}, nil
}
