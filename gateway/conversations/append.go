package conversations

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Appended is the response with the id and the cursor of an appended event.
type Appended struct {
	ID     string         `json:"id"`
	Cursor schemas.Cursor `json:"cursor"`
}

// PostEvent appends an event to a conversation and delivers it to the account's endpoints: 201, or 200 if it was appended before.
func (h *Conversations) PostEvent(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	conv := schemas.ConversationID(r.PathValue("id"))
	if err := conv.Validate(); err != nil {
		return err
	}
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := web.ReadJSONUpTo(w, r, schemas.MaxEvent, "keep large data in a workspace and name it")
	if err != nil {
		return err
	}
	in, err := schemas.DecodeAppendedEvent(body)
	if err != nil {
		return err
	}
	e := appendedEvent(a, conv, in, h.o.Bus.Now())
	endpoints, err := h.endpointsOf(r.Context(), a)
	if err != nil {
		return err
	}
	release, err := h.o.Bus.ReserveFor(r.Context(), a, int64(len(body))+schemas.WebhookDeliveriesSize(e, endpoints))
	if err != nil {
		return err
	}
	defer release()
	stored, err := streams.Events.Reserved().Store(r.Context(), h.o.Bus, e)
	if err != nil {
		return err
	}
	if stored.Cursor.Epoch == "" {
		return schemas.Errorf(schemas.Unavailable, "the event is added, but where is not known now: ask again with its id")
	}
	// A repeat delivers too: the gateway that took the first request may have died in between.
	if err := lifecycle.NotifyReserved(r.Context(), h.o.Bus, e, stored.Cursor, endpoints); err != nil {
		return err
	}
	if err := h.answerInChat(r.Context(), e); err != nil {
		return err
	}
	code := http.StatusCreated
	if stored.Duplicate {
		code = http.StatusOK
	}
	web.WriteJSON(w, code, Appended{ID: e.ID, Cursor: stored.Cursor})
	return nil
}

// appendedEvent returns the event to store. Its id is derived from the client's, which must be unique in the conversation.
func appendedEvent(a schemas.AccountID, conv schemas.ConversationID, in schemas.AppendedEvent, now time.Time) schemas.Event {
	id := in.ID
	if id == "" {
		id = schemas.NewID("ev_")
	}
	return schemas.Event{
		SpecVersion: "1.0", ID: string(a) + "." + string(conv) + "." + id + ".client", Type: in.Type, Source: schemas.AccountSource(a),
		Subject: cmp.Or(string(in.Turn), string(in.Agent)), Time: now.UTC(), Conversation: conv, Account: a, Data: in.Data,
	}
}

// endpointsOf returns an account's webhook endpoints; none if this gateway has no records of them.
func (h *Conversations) endpointsOf(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error) {
	if h.o.Endpoints == nil {
		return nil, nil
	}
	return h.o.Endpoints(ctx, a)
}

// answerInChat delivers the text of an agent's event to the chat of the conversation, if there is one.
func (h *Conversations) answerInChat(ctx context.Context, e schemas.Event) error {
	text := said(e)
	if text == "" {
		return nil
	}
	chat, err := lifecycle.FindChat(ctx, h.o.Bus, e.Account, e.Conversation)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return lifecycle.Deliver(ctx, h.o.Bus, schemas.ChatDelivery(e, chat.Origin(), "", schemas.ChatBody{Text: text, Reply: true}, h.o.Bus.Now()))
}

// said returns the text for people in a chat of an event that a harness has appended: a message of the agent's, or the reason why a turn
// has failed. It is empty for all other events.
func said(e schemas.Event) string {
	var data struct {
		Role  string `json:"role"`
		Text  string `json:"text"`
		Error string `json:"error"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return "" // its fields are the client's own: they may be of any type
	}
	switch {
	case e.Type == schemas.Message && (data.Role == "" || data.Role == "assistant"):
		return data.Text
	case e.Type == schemas.AgentFailed && data.Error != "":
		return "⚠️ " + data.Error
	}
	return ""
}
