package telegramtest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Double returns a double for manual use, with a credential and a chat.
func Double() chatfake.Double {
	return chatfake.Double{
		Kind: "telegram", Server: New(Options{}), Place: "1111111", User: "1111111", Route: json.RawMessage(`{"chat_id":1111111}`),
		Secrets: map[string]string{"bot_token": "123456789:a-double-takes-any", "secret_token": "a-secret-of-the-double"},
		Says: func(secrets map[string]string, place, user, text string) (http.Header, []byte, error) {
			chat, errChat := strconv.ParseInt(place, 10, 64)
			who, errWho := strconv.ParseInt(user, 10, 64)
			if errChat != nil || errWho != nil {
				return nil, nil, errors.New("chats and people of Telegram are numbers")
			}
			if secrets["secret_token"] == "" {
				return nil, nil, errors.New("the channel has no secret_token")
			}
			r := Says(secrets["secret_token"], time.Now().UnixMicro(), chat, who, text)
			return r.Header, r.Body, nil
		},
	}
}

// Update returns a request with an update, as Telegram posts it to a webhook that was registered with a secret.
func Update(secret, body string) channel.Request {
	h := http.Header{"Content-Type": {"application/json"}}
	h.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	return channel.Request{Header: h, Body: []byte(body)}
}

// Says returns the update that Telegram posts when a person writes to the bot in a private chat. The number becomes the id of update and
// message, and must be unique.
func Says(secret string, number, chat, user int64, text string) channel.Request {
	body, err := json.Marshal(map[string]any{"update_id": number, "message": map[string]any{
		"message_id": number, "date": 1764000000, "text": text,
		"from": map[string]any{"id": user, "is_bot": false, "first_name": "Somebody", "username": "somebody"},
		"chat": map[string]any{"id": chat, "type": "private"},
	}})
	if err != nil {
		panic(err) // numbers and strings can always be encoded
	}
	return Update(secret, string(body))
}
