package conversations

import (
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// Page is a part of a conversation as JSON.
type Page struct {
	Events []PageEvent `json:"events"`
	// Next is the cursor after the last event here: ask again with ?after= it.
	Next schemas.Cursor `json:"next"`
	// UpToDate reports that there were no more events.
	UpToDate bool `json:"up_to_date"`
	// Recovered is false if events after the given cursor are missing: Gap says which, and Events continues after them.
	Recovered bool         `json:"recovered"`
	Gap       *streams.Gap `json:"gap,omitzero"`
}

// PageEvent is one event, with the cursor after which to continue.
type PageEvent struct {
	Cursor schemas.Cursor `json:"cursor"`
	Event  schemas.Event  `json:"event"`

	// Of a compact page.
	Skipped  int               `json:"skipped,omitzero"`  // events left out before this one
	Snapshot *outputs.Snapshot `json:"snapshot,omitzero"` // what its call had printed before it
}

// GetEvents serves a conversation: as an event stream if the client accepts text/event-stream, otherwise as a page.
func (h *Conversations) GetEvents(w http.ResponseWriter, r *http.Request, who credentials.Principal) error {
	conv := schemas.ConversationID(r.PathValue("id"))
	if err := conv.Validate(); err != nil {
		return err
	}
	if err := who.Check(attachtoken.Read, conv); err != nil {
		return err
	}
	q, err := web.ParseQuery(r.URL.RawQuery, "after", "limit", "wait", "compact")
	if err != nil {
		return err
	}
	after, err := q.After(r.Header)
	if err != nil {
		return err
	}
	compact, err := q.Flag("compact")
	if err != nil {
		return err
	}
	if web.Accepts(r.Header, "text/event-stream") {
		return h.o.Live.Stream(w, r, who, live.View{Account: who.Account, Conversation: conv, After: after, Compact: compact})
	}
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	wait, err := q.Wait(h.o.Waits.Max)
	if err != nil {
		return err
	}
	if who.Token != nil {
		wait = min(wait, who.Token.Expires.Sub(h.o.Bus.Now()))
	}
	return h.pageEvents(w, r, live.View{Account: who.Account, Conversation: conv, After: after, Compact: compact}, limit, wait)
}

// pageEvents serves a page of a conversation. If other readers follow the conversation, or the request waits or is compact, the page is
// read from the frames that all readers share; otherwise it is read from the log.
func (h *Conversations) pageEvents(w http.ResponseWriter, r *http.Request, at live.View, limit int, wait time.Duration) error {
	if wait <= 0 && !at.Compact && !h.o.Live.Follows(at) {
		p, err := streams.Page(r.Context(), h.o.Bus, at.Account, at.Conversation, at.After, limit)
		if err != nil {
			return err
		}
		out := Page{Events: make([]PageEvent, 0, len(p.Events)), Next: p.Next, UpToDate: p.UpToDate, Recovered: p.Recovered, Gap: p.Gap}
		for _, e := range p.Events {
			out.Events = append(out.Events, PageEvent{Cursor: e.Cursor, Event: e.Value})
		}
		web.WriteJSON(w, http.StatusOK, out)
		return nil
	}
	out, err := h.o.Live.Page(r.Context(), at, limit, wait)
	if code := schemas.CodeOf(err); code == schemas.Exhausted || code == schemas.Unavailable {
		web.Later(w.Header())
	}
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}
