package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// turnRequest is the body of a message to an agent.
type turnRequest struct {
	// Conversation is where the turn continues; a new one is made when absent.
	Conversation schemas.ConversationID `json:"conversation,omitzero"`
	Input        string                 `json:"input"`
	// Mode says what happens to the message while a turn of the conversation runs. Default: steer.
	Mode schemas.TurnMode `json:"mode,omitzero" jsonschema:"enum=steer,enum=followup,enum=collect,enum=reject,enum=interrupt"`
}

// TurnAnswer is the response to a message to an agent.
type TurnAnswer struct {
	// ID names the message: events of its turn have it among taken.
	ID           schemas.FollowUpID     `json:"id"`
	Conversation schemas.ConversationID `json:"conversation"`
	Status       string                 `json:"status"` // accepted, or how the turn ended
	// End is the result of the turn; absent if it has not ended.
	End *schemas.TurnEndData `json:"end,omitzero"`
}

// maxTurnKey is how many bytes an Idempotency-Key of a message may have.
const maxTurnKey = 255

// PostTurn sends a message to an agent and, with ?wait=, waits for the end of the turn.
func (h *Conversations) PostTurn(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "wait")
	if err != nil {
		return err
	}
	wait, release, err := h.o.Waits.Begin(w, q, a)
	if err != nil {
		return err
	}
	defer release()
	agent := schemas.AgentID(r.PathValue("id"))
	if h.o.Agents == nil {
		return schemas.Errorf(schemas.Unsupported, "this gateway keeps no agents")
	}
	if _, err := h.o.Agents.ToolVisibility(r.Context(), a, agent); err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	var in turnRequest
	if err := schemas.DecodeStrict(body, schemas.MaxRequest, &in); err != nil {
		return err
	}
	f, err := followUpOf(a, agent, in, r.Header.Values("Idempotency-Key"), h.o.Bus.Now())
	if err != nil {
		return err
	}
	if h.o.Turns == nil {
		return schemas.Errorf(schemas.Unsupported, "nothing carries out turns of agents here: \"sandjet up\" does")
	}
	if err := h.o.Turns(r.Context(), a, agent); err != nil {
		return err
	}
	from, err := streams.LastEvent(r.Context(), h.o.Bus, a, f.Conversation)
	if err != nil {
		return err
	}
	existing, err := lifecycle.Address(r.Context(), h.o.Bus, f)
	if err != nil {
		return err
	}
	if existing {
		from = schemas.Cursor{}
	}
	answer := TurnAnswer{ID: f.ID, Conversation: f.Conversation, Status: "accepted"}
	if wait > 0 {
		if answer.End, err = h.awaitTurn(r.Context(), f, from, wait); err != nil {
			return err
		}
	}
	code := http.StatusAccepted
	if answer.End != nil {
		code, answer.Status = http.StatusOK, string(answer.End.Status)
	}
	web.WriteJSON(w, code, answer)
	return nil
}

// followUpOf returns the message of a request, to be stored on the log. Code: invalid.
func followUpOf(a schemas.AccountID, agent schemas.AgentID, in turnRequest, keys []string, now time.Time) (schemas.FollowUp, error) {
	if in.Conversation == "" {
		in.Conversation = schemas.NewConversationID()
		if len(keys) > 0 {
			return schemas.FollowUp{}, schemas.Invalidf("conversation", "is missing: an Idempotency-Key is one of a conversation, so name it")
		}
	}
	key := ""
	switch {
	case len(keys) > 1:
		return schemas.FollowUp{}, schemas.Invalidf("Idempotency-Key", "is given more than once")
	case len(keys) == 1 && (keys[0] == "" || len(keys[0]) > maxTurnKey):
		return schemas.FollowUp{}, schemas.Invalidf("Idempotency-Key", "is %d bytes long: from 1 to %d", len(keys[0]), maxTurnKey)
	case len(keys) == 1:
		key = keys[0]
	}
	if in.Mode != "" && !slices.Contains(schemas.TurnModes(), in.Mode) {
		return schemas.FollowUp{}, schemas.Invalidf("mode", "%q is unknown: use steer, followup, collect, reject or interrupt",
			schemas.Quotable(string(in.Mode)))
	}
	return schemas.FollowUp{
		ID: schemas.MakeEnvelopeID(in.Conversation, key), Account: a, Conversation: in.Conversation, Agent: agent,
		Origin: &schemas.Origin{Kind: "api"}, Results: []schemas.JobResult{}, Text: in.Input, Mode: in.Mode, Created: now.UTC(),
	}, in.Conversation.Validate()
}

// awaitTurn waits for the end of the turn that includes a message; nil if it has not ended when most has passed.
func (h *Conversations) awaitTurn(
	ctx context.Context, f schemas.FollowUp, from schemas.Cursor, most time.Duration,
) (*schemas.TurnEndData, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var turn schemas.TurnID
	for item, err := range streams.Follow(ctx, h.o.Bus, f.Account, f.Conversation, from) {
		if err != nil {
			return nil, err
		}
		e := item.Entry.Value
		if item.Kind != streams.ItemEvent {
			continue
		}
		var d schemas.TurnEndData
		about := []schemas.EventType{schemas.Message, schemas.AgentStarted, schemas.AgentFinished, schemas.AgentFailed}
		if !slices.Contains(about, e.Type) || json.Unmarshal(e.Data, &d) != nil {
			continue // a client's own may have other fields
		}
		if slices.Contains(d.Taken, string(f.ID)) && d.Turn != "" {
			turn = d.Turn
		}
		ends := e.Type == schemas.AgentFinished || e.Type == schemas.AgentFailed
		if ends && (turn != "" && d.Turn == turn || slices.Contains(d.Taken, string(f.ID))) {
			return &d, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none yet
}

// turnStopRequest is the body of a request to stop a turn.
type turnStopRequest struct {
	// When is boundary, behind the results that the turn waits for, or now: its calls are cancelled.
	When string `json:"when,omitzero" jsonschema:"enum=boundary,enum=now"`
}

// PostStop requests that the running turn of a conversation ends.
func (h *Conversations) PostStop(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	conv := schemas.ConversationID(r.PathValue("id"))
	if err := conv.Validate(); err != nil {
		return err
	}
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	var in turnStopRequest
	if r.ContentLength != 0 {
		if err := web.DecodeBody(w, r, false, &in); err != nil {
			return err
		}
	}
	mode := schemas.TurnStop
	switch in.When {
	case "", "boundary":
	case "now":
		mode = schemas.TurnStopNow
	default:
		return schemas.Invalidf("when", "%q is unknown: use boundary or now", schemas.Quotable(in.When))
	}
	hold, err := lifecycle.OpenTurnHolds(h.o.Bus).Get(r.Context(), lifecycle.TurnHoldKey(a, conv))
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	if err != nil || hold.Value.Turn == "" {
		return schemas.Errorf(schemas.Conflict, "no turn runs in the conversation: there is nothing to stop")
	}
	f := schemas.FollowUp{
		ID: schemas.MakeEnvelopeID(conv, ""), Account: a, Conversation: conv, Agent: hold.Value.Agent, Results: []schemas.JobResult{},
		Mode: mode, Created: h.o.Bus.Now().UTC(),
	}
	if _, err := lifecycle.Address(r.Context(), h.o.Bus, f); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, TurnAnswer{ID: f.ID, Conversation: conv, Status: "accepted"})
	return nil
}
