package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// maxQuestion is how much of a call's command a question in a chat shows, in bytes. The approval has the whole.
const maxQuestion = 1500

// askInChat posts an approval with two buttons in the chat that the call came from; users who cannot press them answer by a command.
func askInChat(ctx context.Context, b *streams.Bus, a schemas.Approval) error {
	return inChat(ctx, b, a.Call, requested(a), func(schemas.Origin) schemas.ChatBody {
		return schemas.ChatBody{
			Text: question(a) + fmt.Sprintf("\n\n`/approve %s` or `/deny %s`, before %s.", a.ID, a.ID,
				a.Expires.UTC().Format("15:04 MST, 2 January")),
			Buttons: []schemas.ChatButton{
				{Label: "Approve", Data: "approve:" + string(a.ID), Style: "approve"},
				{Label: "Deny", Data: "deny:" + string(a.ID), Style: "deny"},
			},
		}
	})
}

// answerInChat replaces the question in the chat that the call came from by one without buttons that says how it was answered. If it
// cannot be replaced, a message says so.
func answerInChat(ctx context.Context, b *streams.Bus, a schemas.Approval, answered schemas.Event) error {
	return inChat(ctx, b, a.Call, answered, func(to schemas.Origin) schemas.ChatBody {
		return schemas.ChatBody{Text: outcome(a), Edit: &schemas.ChatEdit{
			Delivery: schemas.ChatDeliveryID(schemas.ApprovalRequestedID(a.Account, a.ID), to, ""),
			Text:     question(a) + "\n\n" + outcome(a),
		}}
	})
}

// inChat stores a delivery to the chat of a call, once for each event. The chat is the call's origin, or else the one that the call's
// conversation belongs to. Without a chat it does nothing.
func inChat(ctx context.Context, b *streams.Bus, c schemas.Call, e schemas.Event,
	body func(to schemas.Origin) schemas.ChatBody) error {
	var to schemas.Origin
	if o := c.Origin; o != nil && o.Kind == schemas.OriginChannel {
		to = *o
	} else {
		chat, err := FindChat(ctx, b, c.Account, c.Conversation)
		if errors.Is(err, schemas.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		to = chat.Origin()
	}
	err := Deliver(ctx, b, schemas.ChatDelivery(e, to, "", body(to), b.Now()))
	if schemas.CodeOf(err) == schemas.Invalid { // a channel that never can be one: the conversation still has the event
		return nil
	}
	return err
}

// question returns the text of an approval for a chat.
func question(a schemas.Approval) string {
	what := schemas.HeadText(schemas.Command(a.Call.Tool, a.Call.Input), maxQuestion)
	if a.LeftOut() {
		what += "\n…"
	}
	return fmt.Sprintf("**May the agent run `%s`?**\n\n%s", a.Call.Tool, schemas.CodeBlock(what))
}

// outcome returns the text of a decided approval for a chat.
func outcome(a schemas.Approval) string {
	what := "`" + string(a.ID) + "`"
	switch a.State {
	case schemas.ApprovalApproved:
		what = "✅ Approved: " + what
	case schemas.ApprovalDenied:
		what = "❌ Denied: " + what
	case schemas.ApprovalExpired:
		return "⌛ Nobody answered in time: " + what + "."
	default:
		what = "Not asked any more: " + what
	}
	if a.DecidedBy != "" && a.DecidedBy != ByChat { // of a chat the reason says who it was
		what += ", over " + cmp.Or(map[string]string{"api": "the API", "nats": "NATS", "websocket": "a WebSocket"}[a.DecidedBy], a.DecidedBy)
	}
	if a.Reason != "" {
		what += ", " + a.Reason
	}
	return what + "."
}
