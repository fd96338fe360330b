package telegram

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// secretHeader is the header in which Telegram sends the webhook's secret.
const secretHeader = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // a name, not a secret

// Verify implements [channel.Receiver]. An update carries no time; a repeated update is recognized by its update_id.
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

// update is the JSON that Telegram posts, with only the fields that are read.
type update struct {
	ID       int64     `json:"update_id"`
	Message  *incoming `json:"message"`
	Callback *struct {
		ID      string    `json:"id"`
		From    user      `json:"from"`
		Message *incoming `json:"message"`
		Data    string    `json:"data"`
	} `json:"callback_query"`
	Edited *struct{} `json:"edited_message"`
}

type user struct {
	ID       int64  `json:"id"`
	Bot      bool   `json:"is_bot"`
	First    string `json:"first_name"`
	Last     string `json:"last_name"`
	Username string `json:"username"`
}

// name returns the user name, or else the first and last name.
func (u user) name() string {
	return cmp.Or(u.Username, strings.TrimSpace(u.First+" "+u.Last))
}

type incoming struct {
	ID      int64 `json:"message_id"`
	Thread  int64 `json:"message_thread_id"`
	IsTopic bool  `json:"is_topic_message"`
	From    *user `json:"from"`
	Chat    struct {
		ID int64 `json:"id"`
	} `json:"chat"`
	Text     string `json:"text"`
	Caption  string `json:"caption"`
	Document *file  `json:"document"`
	Audio    *file  `json:"audio"`
	Video    *file  `json:"video"`
	Voice    *file  `json:"voice"`
	Photo    []file `json:"photo"`
}

type file struct {
	ID   string `json:"file_id"`
	Name string `json:"file_name"`
	Type string `json:"mime_type"`
	Size int64  `json:"file_size"`
}

// files returns the files of a message, each with a name.
func (m *incoming) files() (list []channel.InboundFile) {
	add := func(f *file, name, kind string) {
		if f != nil && f.ID != "" {
			list = append(list, channel.InboundFile{Name: cmp.Or(f.Name, name), Type: cmp.Or(f.Type, kind), Size: max(f.Size, 0), Ref: f.ID})
		}
	}
	add(m.Document, "document", "")
	add(m.Audio, "audio", "")
	add(m.Video, "video.mp4", "video/mp4")
	add(m.Voice, "voice.ogg", "audio/ogg")
	if len(m.Photo) > 0 { // the sizes of one picture, largest last
		add(&m.Photo[len(m.Photo)-1], "photo.jpg", "image/jpeg")
	}
	return list
}

// thread returns the topic of a message; 0 if it is in none. In groups without topics, message_thread_id identifies a chain of replies,
// and is ignored.
func (m *incoming) thread() int64 {
	if !m.IsTopic {
		return 0
	}
	return max(m.Thread, 0)
}

// Read implements [channel.Receiver].
func (a *Adapter) Read(r channel.Request, to channel.Destination) (channel.Inbound, error) {
	var u update
	if err := chatapi.Decode(r.Body, &u); err != nil {
		return channel.Inbound{}, err
	}
	switch {
	case u.Callback != nil && u.Callback.Message != nil && u.Callback.Message.ID > 0 && u.Callback.Message.Chat.ID != 0:
		in := u.Callback.Message.inbound(u.ID, u.Callback.From)
		in.Kind, in.Data = channel.Pressed, u.Callback.Data
		// Telegram shows the button as busy until the press is answered. The response to the webhook may contain the answer.
		in.Answer = channel.Answer{Type: "application/json",
			Body: chatapi.Route(map[string]string{"method": "answerCallbackQuery", "callback_query_id": u.Callback.ID})}
		return in, nil
	case u.Callback != nil:
		return chatapi.Ignore("the message with the button is not there any more"), nil
	case u.Edited != nil:
		return chatapi.Ignore("a message was edited"), nil
	case u.Message == nil, u.Message.ID <= 0, u.Message.Chat.ID == 0:
		return chatapi.Ignore("it is no message"), nil
	case u.Message.From == nil:
		return chatapi.Ignore("it was not written by a person"), nil
	case u.Message.From.Bot:
		return chatapi.Ignore("a bot wrote it"), nil
	}
	in := u.Message.inbound(u.ID, *u.Message.From)
	in.Kind = channel.Text
	var other bool
	if in.Text, other = command(cmp.Or(u.Message.Text, u.Message.Caption), to.Settings["username"]); other {
		return chatapi.Ignore("it is a command for another bot"), nil
	}
	if in.Files = u.Message.files(); in.Text == "" && len(in.Files) == 0 {
		return chatapi.Ignore("it has neither text nor files"), nil
	}
	return in, nil
}

// inbound returns an Inbound with the fields that messages and button presses have in common.
func (m *incoming) inbound(update int64, from user) channel.Inbound {
	chat := strconv.FormatInt(m.Chat.ID, 10)
	in := channel.Inbound{
		Event: "tg:" + strconv.FormatInt(update, 10), Conversation: "tg:" + chat, Place: chat, User: strconv.FormatInt(from.ID, 10),
		UserName: from.name(), Message: strconv.FormatInt(m.ID, 10),
		Route: chatapi.Route(Route{Chat: ChatID(chat), Thread: m.thread(), Message: m.ID}),
	}
	if t := m.thread(); t != 0 {
		in.Conversation += ":" + strconv.FormatInt(t, 10)
	}
	return in
}

// command removes a bot's name from a command: /new@sandjet_bot becomes /new. It returns other true if that is not the bot ours.
func command(text, ours string) (rest string, other bool) {
	if !strings.HasPrefix(text, "/") {
		return text, false
	}
	word, rest, _ := strings.Cut(text, " ")
	if i := strings.IndexByte(word, '\n'); i >= 0 {
		word, rest = text[:i], text[i:]
	} else if rest != "" {
		rest = " " + rest
	}
	name, bot, named := strings.Cut(word, "@")
	if !named {
		return text, false
	}
	if ours != "" && !strings.EqualFold(bot, strings.TrimPrefix(ours, "@")) {
		return "", true
	}
	return name + rest, false
}
