package calls

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/streams/callstore"
)

// Limits of the lists of calls and conversations.
const (
	DefaultPage = 50
	MaxPage     = 100
)

// List is the response with an account's calls, the newest first.
type List struct {
	Calls []schemas.CallSummary `json:"calls"`
	// Next is the value of before for the next page; absent if there are no older calls.
	Next schemas.CallID `json:"next,omitzero"`
}

// ConversationList is the response with an account's conversations, the one with the newest call first.
type ConversationList struct {
	Conversations []schemas.ConversationSummary `json:"conversations"`
	// Next is the value of before for the next page; absent if there are no older ones. A conversation with calls on both pages is on
	// both.
	Next schemas.CallID `json:"next,omitzero"`
}

// List lists the account's calls of the last 24 hours.
func (h *Calls) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "id", "conversation", "limit", "before")
	if err != nil {
		return err
	}
	if q.Values.Has("id") {
		return h.getListed(w, r, a, q)
	}
	before, limit, err := recentPage(q)
	if err != nil {
		return err
	}
	conversation := schemas.ConversationID(strings.ToValidUTF8(q.Values.Get("conversation"), "\uFFFD"))
	if conversation != "" {
		if err := conversation.Validate(); err != nil {
			return err
		}
	}
	calls, next, err := h.Recent(r.Context(), a, before, limit, func(c schemas.Call) bool {
		return conversation == "" || c.Conversation == conversation
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, List{calls, next})
	return nil
}

// getListed responds with a list of the one call with an id, or an empty list.
func (h *Calls) getListed(w http.ResponseWriter, r *http.Request, a schemas.AccountID, q web.Query) error {
	if len(q.Values) > 1 {
		return schemas.Invalidf("id", "stands alone: leave conversation, limit and before out")
	}
	id := schemas.CallID(strings.ToValidUTF8(q.Values.Get("id"), "\uFFFD"))
	if err := id.Validate(); err != nil {
		return err
	}
	c, err := h.o.Bus.Calls().FindListed(r.Context(), a, id)
	if errors.Is(err, schemas.ErrNotFound) {
		web.WriteJSON(w, http.StatusOK, List{Calls: []schemas.CallSummary{}})
		return nil
	}
	if err != nil {
		return err
	}
	list, err := h.listed(r.Context(), []callstore.Listed{c})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, List{Calls: list})
	return nil
}

// GetConversations lists the account's conversations that had calls within 24 hours.
func (h *Calls) GetConversations(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "limit", "before")
	if err != nil {
		return err
	}
	before, limit, err := recentPage(q)
	if err != nil {
		return err
	}
	seen := map[schemas.ConversationID]bool{}
	calls, next, err := h.Recent(r.Context(), a, before, limit, func(c schemas.Call) bool {
		isNew := !seen[c.Conversation]
		seen[c.Conversation] = true
		return isNew
	})
	if err != nil {
		return err
	}
	list := ConversationList{make([]schemas.ConversationSummary, len(calls)), next}
	for i, c := range calls {
		list.Conversations[i] = schemas.ConversationSummary{ID: c.Conversation, LastCall: c}
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// recentPage parses the paging parameters of a list. Code: invalid.
func recentPage(q web.Query) (before schemas.CallID, limit int, err error) {
	n, err := q.Integer("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return "", 0, err
	}
	before = schemas.CallID(strings.ToValidUTF8(q.Values.Get("before"), "\uFFFD"))
	if before != "" {
		if err := before.Validate(); err != nil {
			return "", 0, web.Rename(err, "before")
		}
	}
	return before, int(n), nil
}

// Recent returns the calls that want accepts, with their states; next is empty if there are no older ones.
func (h *Calls) Recent(ctx context.Context, a schemas.AccountID, before schemas.CallID, limit int, want func(schemas.Call) bool) (
	list []schemas.CallSummary, next schemas.CallID, err error,
) {
	calls, last, more, err := h.o.Bus.Calls().Recent(ctx, a, before, limit, want)
	if before != "" && schemas.CodeOf(err) == schemas.NotFound {
		return nil, "", web.Rename(err, "before")
	}
	if err != nil {
		return nil, "", err
	}
	if list, err = h.listed(ctx, calls); more {
		next = last
	}
	return list, next, err
}

// Running returns the running calls of one page of those that mayRun accepts; next is empty if there are no older ones.
func (h *Calls) Running(ctx context.Context, a schemas.AccountID, before schemas.CallID, mayRun func(schemas.Call) bool) (
	list []schemas.CallID, next schemas.CallID, err error,
) {
	recent, next, err := h.Recent(ctx, a, before, MaxPage, mayRun)
	for _, of := range recent {
		if of.Status == StateRunning {
			list = append(list, of.ID)
		}
	}
	return list, next, err
}

// listed returns the summaries of calls, with their states.
func (h *Calls) listed(ctx context.Context, calls []callstore.Listed) ([]schemas.CallSummary, error) {
	states, err := h.o.Bus.States().Recent(ctx, calls)
	if err != nil {
		return nil, err
	}
	list := make([]schemas.CallSummary, len(calls))
	for i, c := range calls {
		state, known := states[c.Call.ID]
		list[i] = summarize(c, state, known)
	}
	return list, nil
}

func summarize(r callstore.Listed, state callstate.State, known bool) schemas.CallSummary {
	c := r.Call
	s := schemas.CallSummary{
		ID: c.ID, Conversation: c.Conversation, Tool: c.Tool, Summary: r.Summary, Accepted: c.Accepted, Agent: c.Agent,
		Workspace: c.Workspace, Sandbox: c.Sandbox, Provider: c.Provider, Job: c.Job, Approval: c.Approval,
	}
	switch result := state.Result; {
	case result != nil:
		s.Status, s.Started, s.Finished = string(result.Status), result.Started, result.Finished
		if result.Output != nil {
			s.ExitCode = &result.Output.ExitCode
		}
	case !known, state.Forgotten: // asked for alone, it is looked up whether it has ended
	case len(state.Started) > 0:
		s.Status = StateRunning
	case r.Parked:
		s.Status = StateAwaiting
	default:
		s.Status = StateQueued
	}
	return s
}
