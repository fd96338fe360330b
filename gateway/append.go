package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Appended says where an event stands that a client has added.
type Appended struct {
	ID     string         `json:"id"`
	Cursor schemas.Cursor `json:"cursor"`
}

// postEvent adds an event to a conversation and has it delivered to the endpoints that want it: 201, or
// 200 when it was there already.
func (g *Gateway) postEvent(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
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
	e := appendedEvent(a, conv, in, g.Bus.Now())
	endpoints, err := g.endpointsOf(r.Context(), a)
	if err != nil {
		return err
	}
	release, err := g.Bus.ReserveFor(r.Context(), a, int64(len(body))+schemas.WebhookDeliveriesSize(e, endpoints))
	if err != nil {
		return err
	}
	defer release()
	stored, err := streams.Events.Reserved().Store(r.Context(), g.Bus, e)
	if err != nil {
		return err
	}
	if stored.Cursor.Epoch == "" {
		return schemas.Errorf(schemas.Unavailable, "the event is added, but where is not known now: ask again with its id")
	}
	// A repeat delivers too: the gateway that took the first request may have died in between.
	if err := lifecycle.NotifyReserved(r.Context(), g.Bus, e, stored.Cursor, endpoints); err != nil {
		return err
	}
	if err := g.answerInChat(r.Context(), e); err != nil {
		return err
	}
	code := http.StatusCreated
	if stored.Duplicate {
		code = http.StatusOK
	}
	web.WriteJSON(w, code, Appended{ID: e.ID, Cursor: stored.Cursor})
	return nil
}

// appendedEvent makes the event on the conversation. Its id is made from the client's, which is the
// client's own on each conversation.
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

// endpointsOf are an account's webhook endpoints; none where this gateway keeps none.
func (g *Gateway) endpointsOf(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error) {
	if g.Endpoints == nil {
		return nil, nil
	}
	return g.Endpoints.List(ctx, a)
}
