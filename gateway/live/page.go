package live

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Page is a part of a conversation, with the wire format of the Page of package gateway. That one has decoded events, for the OpenAPI
// document and for pages that are read from the log; this one has the shared JSON of the frames, which is not decoded again.
type Page struct {
	Events    []PageEvent    `json:"events"`
	Next      schemas.Cursor `json:"next"`
	UpToDate  bool           `json:"up_to_date"`
	Recovered bool           `json:"recovered"`
	Gap       *streams.Gap   `json:"gap,omitzero"`
}

// PageEvent is one event with the cursor that resumes after it.
type PageEvent struct {
	Cursor schemas.Cursor  `json:"cursor"`
	Event  json.RawMessage `json:"event"`

	Skipped  int             `json:"skipped,omitzero"` // of a compact page
	Snapshot json.RawMessage `json:"snapshot,omitzero"`
}

// Page returns at most limit events after a cursor, of at most 1 MiB in total unless a single one is larger. If there are none it waits
// for the first, until wait has passed or the gateway drains. A waiting request occupies the slots of an event stream and releases its
// hold (see [web.HoldOf]). Codes: exhausted, unavailable, those of the log.
func (s *Server) Page(ctx context.Context, at View, limit int, wait time.Duration) (Page, error) {
	leave, err := s.enter()
	if err != nil {
		return Page{}, err
	}
	defer leave()
	if wait > 0 {
		release, err := s.Places.stream(at.Account)
		if err != nil {
			return Page{}, err
		}
		defer release()
		web.HoldOf(ctx).Release()
	}
	woken := make(chan struct{}, 1)
	reader := s.follow(at, notify(woken))
	defer reader.Close()
	over := time.NewTimer(wait)
	defer over.Stop()
	p := filling{Page: Page{Events: []PageEvent{}, Next: at.After, Recovered: true}, limit: limit}
	for waited := wait <= 0; ; {
		for step := range reader.Ready() {
			if p.take(step) {
				return p.Page, nil
			}
			if step.Kind == replay.StepFailed && s.Draining.Err() == nil {
				return p.Page, step.Err
			}
		}
		if p.UpToDate && (waited || len(p.Events) > 0) || s.Draining.Err() != nil {
			return p.Page, nil
		}
		select {
		case <-woken:
		case <-over.C:
			waited = true
		case <-s.Draining.Done():
		case <-ctx.Done():
			return p.Page, nil // the client is gone and reads nothing
		}
	}
}

// pageBytes limits a page of several events, as for pages that are read from the log.
const pageBytes = 1 << 20

// filling is a page under construction.
type filling struct {
	Page

	limit, bytes int
}

// take adds a step to a page and reports whether the page is complete.
func (p *filling) take(step replay.Step) (full bool) {
	switch step.Kind {
	case replay.StepAttached:
		p.Next, p.Gap, p.Recovered = step.From, step.Gap, step.Gap == nil
	case replay.StepGap:
		if len(p.Events) > 0 {
			return true // the next page begins with it
		}
		p.Next, p.Gap, p.Recovered = step.Gap.To, step.Gap, false
	case replay.StepEvent:
		p.bytes += len(step.Frame.Data()) + len(step.Snapshot.Data())
		if n := len(p.Events); n == p.limit || n > 0 && p.bytes > pageBytes {
			return true
		}
		p.Events = append(p.Events, PageEvent{step.Frame.Cursor(), step.Frame.Data(), step.Skipped, step.Snapshot.Data()})
		p.Next = step.Frame.Cursor()
	case replay.StepLive:
		p.UpToDate = true
		return len(p.Events) > 0 || p.Gap != nil
	case replay.StepFailed:
	}
	return false
}

// notify returns a wake function that sends to a channel with capacity one, without blocking.
func notify(c chan<- struct{}) func() {
	return func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
