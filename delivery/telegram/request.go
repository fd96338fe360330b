package telegram

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// outgoing is the body of the methods that write text.
type outgoing struct {
	Chat      ChatID   `json:"chat_id"`
	Thread    int64    `json:"message_thread_id,omitzero"`
	Message   int64    `json:"message_id,omitzero"` // set for edits
	Text      string   `json:"text"`
	ParseMode string   `json:"parse_mode,omitzero"`
	Preview   *preview `json:"link_preview_options,omitzero"`
	Reply     *answers `json:"reply_parameters,omitzero"`
	Markup    *markup  `json:"reply_markup,omitzero"`
}

type preview struct {
	Disabled bool `json:"is_disabled"`
}

// answers makes a message a reply; if the message that it replies to was deleted, it is sent without that.
type answers struct {
	Message int64 `json:"message_id"`
	Anyway  bool  `json:"allow_sending_without_reply"`
}

type markup struct {
	Rows [][]press `json:"inline_keyboard"`
}

type press struct {
	Text string `json:"text"`
	Data string `json:"callback_data"`
}

const maxData = 64 // bytes of a button's data

// keyboard returns one row of buttons; nil if there are none.
func keyboard(list []channel.Button) (*markup, *channel.Error) {
	if len(list) == 0 {
		return nil, nil
	}
	row := make([]press, len(list))
	for i, b := range list {
		if b.Label == "" || b.Data == "" || len(b.Data) > maxData {
			return nil, chatapi.Refuse("a button has a label, and data of 1 to %d bytes", maxData)
		}
		row[i] = press{b.Label, b.Data}
	}
	return &markup{[][]press{row}}, nil
}

// request returns the method that sends a message, and its call. Plain is whether to send the text without markup.
func request(route Route, m channel.Message, plain bool) (string, chatapi.Call, *channel.Error) {
	body := outgoing{Chat: route.Chat, Thread: route.Thread, Text: m.Text, ParseMode: "HTML"}
	if plain {
		body.Text, body.ParseMode = m.Plain, ""
	}
	if m.Reply && route.Message != 0 {
		body.Reply = &answers{route.Message, true}
	}
	var failed *channel.Error
	if body.Markup, failed = keyboard(m.Buttons); failed != nil {
		return "", chatapi.Call{}, failed
	}
	if m.File == nil {
		body.Preview = &preview{Disabled: true}
		return "sendMessage", chatapi.Call{JSON: body}, nil
	}
	switch {
	case len(m.File.Data) > maxFile:
		return "", chatapi.Call{}, chatapi.Refuse("the file has %d bytes, and Telegram takes %d", len(m.File.Data), maxFile)
	case units(m.Plain) > maxCaption:
		return "", chatapi.Call{}, chatapi.Refuse("text beside a file is no longer than %d", maxCaption)
	}
	fields := []chatapi.Field{
		{Name: "chat_id", Value: string(route.Chat)}, {Name: "message_thread_id", Value: number(route.Thread)},
		{Name: "caption", Value: body.Text}, {Name: "reply_parameters", Value: text(body.Reply != nil, body.Reply)},
		{Name: "reply_markup", Value: text(body.Markup != nil, body.Markup)},
	}
	if body.Text != "" {
		fields = append(fields, chatapi.Field{Name: "parse_mode", Value: body.ParseMode})
	}
	form, kind, err := chatapi.Form(fields, "document", *m.File)
	if err != nil {
		return "", chatapi.Call{}, chatapi.Refuse("%s", err)
	}
	return "sendDocument", chatapi.Call{Body: form, Type: kind}, nil
}

// number returns the form value of n; empty for 0.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// text returns v as JSON, for the value of a form field; empty if is is false.
func text(is bool, v any) string {
	if !is {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "" // structs of strings can always be encoded
	}
	return string(b)
}

// units returns the length of a text in UTF-16 units, as Telegram counts it.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
