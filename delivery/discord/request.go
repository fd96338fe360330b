package discord

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// outgoing is the body of a message. Its Mentions are always empty, so that a message notifies no one.
type outgoing struct {
	Content     string       `json:"content"`
	Nonce       string       `json:"nonce,omitzero"`
	Enforce     bool         `json:"enforce_nonce,omitzero"`
	Mentions    mentions     `json:"allowed_mentions"`
	Reference   *reference   `json:"message_reference,omitzero"`
	Components  []row        `json:"components"`
	Attachments []attachment `json:"attachments,omitzero"`
}

type mentions struct {
	Parse []string `json:"parse"`
}

type reference struct {
	Message string `json:"message_id"`
	Needed  bool   `json:"fail_if_not_exists"`
}

// row is a row of buttons.
type row struct {
	Type       int      `json:"type"` // 1: a row
	Components []button `json:"components"`
}

type button struct {
	Type   int    `json:"type"` // 2: a button
	Style  int    `json:"style"`
	Label  string `json:"label"`
	Custom string `json:"custom_id"`
}

type attachment struct {
	ID   int    `json:"id"`
	Name string `json:"filename"`
}

const (
	maxData  = 64 // bytes; Discord takes 100 characters
	maxLabel = 80 // characters
	perRow   = 5
)

// nonce derives the nonce of a message from its key: at most 25 characters, Discord's limit.
func nonce(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sj" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:13]))
}

// styleOf returns Discord's number of a button style.
func styleOf(s channel.Style) int {
	switch s {
	case channel.Approve:
		return 3
	case channel.Deny:
		return 4
	case channel.Neutral:
	}
	return 2
}

// body returns the body of a message, without nonce and reference. It refuses files and buttons that exceed the limits.
func body(m channel.Message) (outgoing, *channel.Error) {
	b := outgoing{Content: m.Text, Mentions: mentions{[]string{}}, Components: []row{}}
	if m.File != nil {
		if len(m.File.Data) > maxFile {
			return b, chatapi.Refuse("the file has %d bytes, and Discord takes %d", len(m.File.Data), maxFile)
		}
		b.Attachments = []attachment{{0, chatapi.FileName(m.File.Name)}}
	}
	for part := range slices.Chunk(m.Buttons, perRow) {
		line := row{Type: 1}
		for _, press := range part {
			if press.Label == "" || utf8.RuneCountInString(press.Label) > maxLabel || press.Data == "" || len(press.Data) > maxData {
				return b, chatapi.Refuse("a button has a label of 1 to %d characters, and data of 1 to %d bytes", maxLabel, maxData)
			}
			line.Components = append(line.Components, button{2, styleOf(press.Style), press.Label, press.Data})
		}
		b.Components = append(b.Components, line)
	}
	return b, nil
}

// request returns the call that sends a body: as JSON, or as a multipart form if there is a file.
func request(method, path string, b outgoing, f *channel.File) (chatapi.Call, *channel.Error) {
	c := chatapi.Call{Method: method, Path: path}
	if f == nil {
		c.JSON = b
		return c, nil
	}
	payload, err := chatapi.Encode(b)
	if err == nil {
		c.Body, c.Type, err = chatapi.Form([]chatapi.Field{{Name: "payload_json", Value: string(payload)}}, "files[0]", *f)
	}
	if err != nil {
		return c, chatapi.Refuse("%s", err)
	}
	return c, nil
}
