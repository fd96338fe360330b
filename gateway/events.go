package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Page is a part of a conversation as JSON.
type Page struct {
	Events []PageEvent `json:"events"`
	// Next is the cursor after the last event here: ask again with ?after= it.
	Next schemas.Cursor `json:"next"`
	// UpToDate says that nothing more was there.
	UpToDate bool `json:"up_to_date"`
	// Recovered is false when what followed the given cursor is no longer all there: Gap says what
	// is missing, and Events goes on behind it.
	Recovered bool         `json:"recovered"`
	Gap       *streams.Gap `json:"gap,omitzero"`
}

// PageEvent is one event with the cursor that resumes after it.
type PageEvent struct {
	Cursor schemas.Cursor `json:"cursor"`
	Event  schemas.Event  `json:"event"`

	// Of a compact page.
	Skipped  int               `json:"skipped,omitzero"`  // events left out before this one
	Snapshot *streams.Snapshot `json:"snapshot,omitzero"` // what its call had printed before it
}

// getEvents reads a conversation: as a stream for who accepts text/event-stream, else as a page.
func (g *Gateway) getEvents(w http.ResponseWriter, r *http.Request, who principal) error {
	conv := schemas.ConversationID(r.PathValue("id"))
	if err := conv.Validate(); err != nil {
		return err
	}
	if err := who.check(attachtoken.Read, conv); err != nil {
		return err
	}
	q, err := parseQuery(r.URL.RawQuery, "after", "limit", "wait", "compact")
	if err != nil {
		return err
	}
	after, err := q.after(r.Header)
	if err != nil {
		return err
	}
	compact, err := q.flag("compact")
	if err != nil {
		return err
	}
	if accepts(r.Header, "text/event-stream") {
		return g.openStream(w, r, who, view{who.account, conv, after, compact})
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	wait, err := q.wait(g.MaxWait)
	if err != nil {
		return err
	}
	if who.token != nil {
		wait = min(wait, who.token.Expires.Sub(g.Bus.Now()))
	}
	return g.pageEvents(w, r, view{who.account, conv, after, compact}, limit, wait)
}

// view is what a client sees of a conversation.
type view struct {
	account schemas.AccountID
	conv    schemas.ConversationID
	after   schemas.Cursor
	compact bool
}

// accepts reports whether the client asks for a type of content by name.
func accepts(h http.Header, want string) bool {
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), want) {
				return true
			}
		}
	}
	return false
}

// pageOut is a [Page] whose events are JSON already.
type pageOut struct {
	Events    []eventOut     `json:"events"`
	Next      schemas.Cursor `json:"next"`
	UpToDate  bool           `json:"up_to_date"`
	Recovered bool           `json:"recovered"`
	Gap       *streams.Gap   `json:"gap,omitzero"`
}

type eventOut struct {
	Cursor schemas.Cursor  `json:"cursor"`
	Event  json.RawMessage `json:"event"`

	Skipped  int             `json:"skipped,omitzero"` // of a compact page
	Snapshot json.RawMessage `json:"snapshot,omitzero"`
}

// pageEvents answers a part of a conversation. A conversation that others follow too, or that is
// waited for, is read where they read it; a single look goes to the log. What it takes for a compact page
// is of use to the next one too.
func (g *Gateway) pageEvents(w http.ResponseWriter, r *http.Request, at view, limit int, wait time.Duration) error {
	if wait <= 0 && !at.compact && !g.live().Follows(at.account, at.conv) {
		p, err := streams.Page(r.Context(), g.Bus, at.account, at.conv, at.after, limit)
		if err != nil {
			return err
		}
		out := Page{Events: make([]PageEvent, 0, len(p.Events)), Next: p.Next, UpToDate: p.UpToDate, Recovered: p.Recovered, Gap: p.Gap}
		for _, e := range p.Events {
			out.Events = append(out.Events, PageEvent{Cursor: e.Cursor, Event: e.Value})
		}
		writeJSON(w, http.StatusOK, out)
		return nil
	}
	if wait > 0 { // who waits holds what a stream does
		release, err := g.takeStream(at.account)
		if err != nil {
			later(w.Header())
			return err
		}
		defer release()
		holdOf(r.Context()).release()
	}
	out, err := g.waitPage(r.Context(), at, limit, wait)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// waitPage reads at most limit events. If there is none it waits for the first, until wait has
// passed or the gateway drains.
func (g *Gateway) waitPage(ctx context.Context, at view, limit int, wait time.Duration) (pageOut, error) {
	woken := make(chan struct{}, 1)
	reader := g.follow(at.account, at.conv, at.after, at.compact, notify(woken))
	defer reader.Close()
	over := time.NewTimer(wait)
	defer over.Stop()
	p := pageOut{Events: []eventOut{}, Next: at.after, Recovered: true}
	for waited := wait <= 0; ; {
		for step := range reader.Ready() {
			if p.take(step, orCommon(limit)) {
				return p, nil
			}
			if step.Kind == replay.StepFailed && g.draining.Err() == nil {
				return p, step.Err
			}
		}
		if p.UpToDate && (waited || len(p.Events) > 0) || g.draining.Err() != nil {
			return p, nil
		}
		select {
		case <-woken:
		case <-over.C:
			waited = true
		case <-g.draining.Done():
		case <-ctx.Done():
			return p, nil // the client is gone and reads nothing
		}
	}
}

// take adds a step to a page and reports whether the page ends with it.
func (p *pageOut) take(step replay.Step, limit int) (full bool) {
	switch step.Kind {
	case replay.StepAttached:
		p.Next, p.Gap, p.Recovered = step.From, step.Gap, step.Gap == nil
	case replay.StepGap:
		if len(p.Events) > 0 {
			return true // the next page begins with it
		}
		p.Next, p.Gap, p.Recovered = step.Gap.To, step.Gap, false
	case replay.StepEvent:
		if len(p.Events) == limit {
			return true
		}
		p.Events = append(p.Events, eventOut{step.Frame.Cursor(), step.Frame.Data(), step.Skipped, step.Snapshot.Data()})
		p.Next = step.Frame.Cursor()
	case replay.StepLive:
		p.UpToDate = true
		return len(p.Events) > 0 || p.Gap != nil
	case replay.StepFailed:
	}
	return false
}

// orCommon is how many events a page has whose client does not say.
func orCommon(limit int) int {
	const common = 100
	if limit == 0 {
		return common
	}
	return limit
}

// notify makes a reader's wake of a channel with room for one.
func notify(c chan<- struct{}) func() {
	return func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
