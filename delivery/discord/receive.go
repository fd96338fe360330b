package discord

import (
	"cmp"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Verify implements [channel.Receiver]. Discord occasionally posts requests with an invalid signature, and disables an endpoint that
// accepts them.
func (a *Adapter) Verify(r channel.Request, to channel.Destination, now time.Time) error {
	key, err := hex.DecodeString(to.Credential[publicKey])
	if err != nil || len(key) != ed25519.PublicKeySize {
		return chatapi.Lacks(publicKey + " of 64 hexadecimal digits")
	}
	stamp := r.Header.Get("X-Signature-Timestamp")
	signature, err := hex.DecodeString(r.Header.Get("X-Signature-Ed25519"))
	if err != nil || len(signature) != ed25519.SignatureSize || !ed25519.Verify(key, slices.Concat([]byte(stamp), r.Body), signature) {
		return chatapi.Forged("the request is not signed by the channel's application")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return chatapi.Forged("the time of the signature is none")
	}
	return chatapi.Fresh(time.Unix(seconds, 0), now)
}

// Types of interactions.
const (
	ping      = 1
	slash     = 2
	component = 3
)

// interaction is the JSON that Discord posts, with only the fields that are read.
type interaction struct {
	ID          string          `json:"id"`
	Application string          `json:"application_id"`
	Type        int             `json:"type"`
	Event       json.RawMessage `json:"event"` // set for webhook events, which are not interactions
	Token       string          `json:"token"`
	Guild       string          `json:"guild_id"`
	ChannelID   string          `json:"channel_id"`
	Channel     struct {
		Type   int    `json:"type"`
		Parent string `json:"parent_id"`
	} `json:"channel"`
	Member struct {
		User user `json:"user"`
	} `json:"member"`
	Message struct {
		ID string `json:"id"`
	} `json:"message"`
	Data struct {
		Name     string  `json:"name"`
		Type     int     `json:"type"`
		Custom   string  `json:"custom_id"`
		Options  []value `json:"options"`
		Resolved struct {
			Attachments map[string]file `json:"attachments"`
		} `json:"resolved"`
	} `json:"data"`
}

type user struct {
	ID       string `json:"id"`
	Username string `json:"username"`
	Global   string `json:"global_name"`
	Bot      bool   `json:"bot"`
}

type file struct {
	Name string `json:"filename"`
	Type string `json:"content_type"`
	Size int64  `json:"size"`
	URL  string `json:"url"`
}

// value is an option of a command.
type value struct {
	Name    string          `json:"name"`
	Type    int             `json:"type"`
	Value   json.RawMessage `json:"value"`
	Options []value         `json:"options"` // set for a subcommand
}

// maxDepth is how many levels of subcommands are read.
const maxDepth = 3

// words returns the values of a command's options, in order, with the names of subcommands, and the ids of the attachments among them.
func words(list []value, depth int) (text, files []string) {
	for _, v := range list {
		var s string
		switch {
		case v.Options != nil && depth < maxDepth:
			inner, innerFiles := words(v.Options, depth+1)
			text, files = append(append(text, v.Name), inner...), append(files, innerFiles...)
		case len(v.Value) == 0:
		case json.Unmarshal(v.Value, &s) != nil:
			text = append(text, string(v.Value)) // a number or a boolean
		case v.Type == fileOption:
			files = append(files, s)
		default:
			text = append(text, s)
		}
	}
	return text, files
}

// answer returns the HTTP response to an interaction, with a JSON body.
func answer(body any) channel.Answer {
	return channel.Answer{Type: "application/json", Body: chatapi.Route(body)}
}

// only returns an ignored Inbound whose answer shows the reason to the user who gave the command.
func only(text string) channel.Inbound {
	in := chatapi.Ignore(text)
	in.Answer = aside(text)
	return in
}

// aside returns an answer to an interaction whose text only the user of the interaction sees.
func aside(text string) channel.Answer {
	return answer(map[string]any{"type": 4, "data": map[string]any{"content": text, "flags": 64}})
}

// unheard is the text shown to a user if the allow-lists of the channel's record exclude the user or the channel.
const unheard = "Nobody listens here: this channel or you are not among those that this bot is for."

// Read implements [channel.Receiver].
func (a *Adapter) Read(r channel.Request, to channel.Destination) (channel.Inbound, error) {
	var i interaction
	if err := chatapi.Decode(r.Body, &i); err != nil {
		return channel.Inbound{}, err
	}
	switch {
	case len(i.Event) > 0 && string(i.Event) != "null":
		in := chatapi.Ignore("it is an event, which was not asked for")
		in.Answer.Status = http.StatusNoContent
		return in, nil
	case i.Type == 0:
		return channel.Inbound{Kind: channel.Handshake, Answer: channel.Answer{Status: http.StatusNoContent}}, nil
	case i.Type == ping:
		return channel.Inbound{Kind: channel.Handshake, Answer: answer(map[string]int{"type": 1})}, nil
	case i.Type != slash && i.Type != component:
		return chatapi.Ignore("it is neither a command nor a button"), nil
	case i.Guild == "":
		return only("This works in servers alone."), nil
	case i.Member.User.Bot:
		return chatapi.Ignore("a bot gave it"), nil
	}
	for _, id := range []string{i.ID, i.Application, i.Guild, i.ChannelID, i.Member.User.ID} {
		if !snowflake(id) {
			return chatapi.Ignore("it lacks a number that it should have"), nil
		}
	}
	if i.Type == component {
		return i.pressed(), nil
	}
	return i.said(to.Credential[botToken]), nil
}

// inbound returns an Inbound with the fields that commands and buttons have in common.
func (i interaction) inbound() channel.Inbound {
	return channel.Inbound{
		Event: "discord:" + i.ID, Conversation: "discord:" + i.Guild + ":" + i.ChannelID, Place: i.place(), User: i.Member.User.ID,
		UserName: cmp.Or(i.Member.User.Global, i.Member.User.Username), Message: i.ID, Unheard: aside(unheard),
	}
}

// pressed returns the Inbound of a button press. Its route does not contain the interaction's token: an answer by that token would replace
// the message that has the button.
func (i interaction) pressed() channel.Inbound {
	if !snowflake(i.Message.ID) || i.Data.Custom == "" {
		return chatapi.Ignore("the message with the button is not named")
	}
	in := i.inbound()
	in.Kind, in.Data, in.Message = channel.Pressed, i.Data.Custom, i.Message.ID
	in.Route = chatapi.Route(Route{Guild: i.Guild, Channel: i.ChannelID, Message: i.Message.ID})
	in.Answer = answer(map[string]int{"type": 6})
	return in
}

// said returns the Inbound of a slash command. The response defers the answer: Discord shows that it is pending.
func (i interaction) said(bot string) channel.Inbound {
	if i.Data.Type > 1 || i.Data.Name == "" || i.Token == "" {
		return only("This command is not known here.")
	}
	in := i.inbound()
	text, files := words(i.Data.Options, 0)
	in.Kind, in.Text = channel.Text, strings.Join(text, " ")
	if i.Data.Name != askCommand {
		in.Text = strings.TrimSpace("/" + i.Data.Name + " " + in.Text)
	}
	for _, id := range files {
		if f, ok := i.Data.Resolved.Attachments[id]; ok && f.URL != "" {
			in.Files = append(in.Files, channel.InboundFile{Name: cmp.Or(f.Name, "file"), Type: f.Type, Size: max(f.Size, 0), Ref: f.URL})
		}
	}
	if in.Text == "" && len(in.Files) == 0 {
		return only("Say what to do.")
	}
	in.Route = chatapi.Route(Route{Guild: i.Guild, Channel: i.ChannelID, Application: i.Application, Interaction: i.ID,
		Sealed: sealed(i.Token, i.ID, bot)})
	in.Answer = answer(map[string]int{"type": 5})
	return in
}

// place returns the channel that is compared with the allow-list: for a thread, the channel that contains it.
func (i interaction) place() string {
	if i.Channel.Type >= 10 && i.Channel.Type <= 12 && snowflake(i.Channel.Parent) {
		return i.Channel.Parent
	}
	return i.ChannelID
}
