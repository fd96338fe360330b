package chat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

const (
	maxParts = 8         // messages of a delivery
	maxTexts = 512 << 10 // bytes of their texts, which the ledger stores
	fileName = "message.md"
	fileType = "text/markdown; charset=utf-8"

	mark = "(possible repeat)"
)

// Part is a piece of a document that fits into one message: Text has the chat's format, Plain is the same without markup.
type Part struct{ Text, Plain string }

// Layout describes the format and the limits of the parts of a document.
type Layout struct {
	Format   channel.Format
	Limit    int // of a part, in units of Unit
	Unit     channel.Unit
	MaxParts int
}

// Render converts a Markdown document to a chat's format and splits it. Cut reports that it exceeds MaxParts parts, which the last part
// says. It has no side effects.
type Render func(document string, l Layout) (parts []Part, cut bool)

// bodyOf returns the message of a delivery. Commands and outputs in a follow-up are formatted as code.
func bodyOf(d schemas.Delivery) (schemas.ChatBody, error) {
	b, err := schemas.ChatBodyOf(d)
	if err != nil {
		return b, err
	}
	if d.Type == schemas.FollowUpCreated {
		var f schemas.FollowUp
		if json.Unmarshal([]byte(d.Body), &f) == nil { // ChatBodyOf has decoded it before
			b.Text = followUpMarkdown(f)
		}
	}
	if strings.TrimSpace(b.Text) == "" {
		return b, schemas.Invalidf("body", "says nothing")
	}
	return b, nil
}

// followUpMarkdown returns the text of a follow-up with its commands and outputs as code, so that nothing in them is taken for Markdown.
func followUpMarkdown(f schemas.FollowUp) string {
	var b strings.Builder
	text := f.Text
	take := func(before, piece, after string) {
		if i := strings.Index(text, before+piece+after); piece != "" && i >= 0 {
			b.WriteString(text[:i] + before[:len(before)-1] + "\n\n" + schemas.CodeBlock(piece) + "\n")
			text = text[i+len(before)+len(piece):]
		}
	}
	for _, r := range f.Results {
		take("\nCommand: ", r.Command, "")
		take(":\n", strings.TrimRight(r.Logs, "\n"), "")
	}
	return b.String() + text
}

// plan splits a message into parts. If there are too many, the whole message is attached as a file to the first part, if the service
// accepts files; otherwise the last part says that the rest is left out.
func plan(m schemas.ChatBody, p channel.Profile, render Render) ([]part, error) {
	l := Layout{Format: p.Format, Limit: p.Limit - len(mark) - 2, Unit: p.Unit, MaxParts: maxParts}
	list, cut := render(m.Text, l)
	if n := fitting(list); n < len(list) {
		l.MaxParts = n
		list, cut = render(m.Text, l)
	}
	if len(list) == 0 {
		return nil, schemas.Invalidf("body", "says nothing that can be shown")
	}
	file := cut && int64(len(m.Text)) <= p.MaxFile
	if file {
		list = list[:1]
	}
	parts := make([]part, 0, len(list)+1)
	for _, x := range list {
		if x.Plain == x.Text {
			x.Plain = ""
		}
		parts = append(parts, part{State: queued, Text: x.Text, Plain: x.Plain})
	}
	if file {
		parts = append(parts, part{State: queued, File: true})
	}
	return parts, nil
}

// fitting returns how many parts the ledger can store, at least one.
func fitting(list []Part) int {
	all := 0
	for i, x := range list {
		if all += len(x.Text) + len(x.Plain); all > maxTexts && i > 0 {
			return i
		}
	}
	return len(list)
}

// keyOf returns the key of a part, the same on every try.
func keyOf(id schemas.DeliveryID, i int) string { return fmt.Sprintf("%s.%d", id, i) }

// messageFor returns the adapter's message for a part.
func messageFor(d schemas.Delivery, m schemas.ChatBody, l ledger, i int, profile channel.Profile) channel.Message {
	p := l.Parts[i]
	out := channel.Message{Key: keyOf(d.ID, i), Text: p.Text, Plain: p.Plain, Reply: m.Reply && i == 0}
	if out.Plain == "" {
		out.Plain = p.Text
	}
	if p.File {
		out.File = &channel.File{Name: fileName, Type: fileType, Data: []byte(m.Text)}
	}
	if i == len(l.Parts)-1 && profile.Buttons { // otherwise the text says how to answer
		for _, b := range m.Buttons {
			out.Buttons = append(out.Buttons, channel.Button{Label: b.Label, Data: b.Data, Style: channel.Style(b.Style)})
		}
	}
	if p.Edits != nil {
		out.Text, out.Plain, out.Buttons, out.Reply = p.Edits.Text, cmp.Or(p.Edits.Plain, p.Edits.Text), nil, false
		return out
	}
	if p.Marked {
		gap := " "
		// A list or a code block must begin its own line.
		if profile.Format == channel.GitHubText || profile.Format == channel.DiscordText {
			gap = "\n\n"
		}
		out.Text, out.Plain = strings.TrimRight(mark+gap+out.Text, " \n"), strings.TrimRight(mark+gap+out.Plain, " \n")
	}
	return out
}
