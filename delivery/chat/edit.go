package chat

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// earlierWithin is how long a delivery that replaces an earlier message waits until it is known whether the chat has that one;
	// earlierAfter is the time between two checks.
	earlierWithin = 10 * time.Minute
	earlierAfter  = 5 * time.Second
)

// errEarlier is the error of a delivery that replaces a message of which it is not known yet whether the chat has it.
var errEarlier = errors.New("the earlier message is still on its way")

// first returns the initial ledger of a delivery. Codes: invalid; or errEarlier.
func (s *send) first(ctx context.Context) (ledger, error) {
	parts, err := plan(s.m, s.profile, s.Render)
	l := ledger{Parts: parts, Replay: s.d.Replay}
	if err != nil || s.m.Edit == nil || s.d.FallbackOf != "" { // the fallback's chat never had the message
		return l, err
	}
	if _, ok := s.Adapter.(channel.Editor); !ok {
		return l, nil
	}
	e, err := s.ledgers.Get(ctx, string(s.d.Account)+"."+string(s.m.Edit.Delivery))
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return l, err
	}
	earlier := e.Value
	if settled := err == nil && !slices.ContainsFunc(earlier.Parts, open); !settled && s.Bus.Now().Sub(s.d.Created) < earlierWithin {
		return l, errEarlier
	}
	return editing(l, earlier, s.m, s.profile, s.Render), nil
}

// open reports whether the state of a part is not final.
func open(p part) bool { return p.State != sent && p.State != dropped && p.State != failed }

// editing returns a ledger that replaces the last message of an earlier ledger by an edit, if the chat has that message, and l otherwise.
// It has no side effects.
func editing(l, earlier ledger, m schemas.ChatBody, p channel.Profile, render Render) ledger {
	n := len(earlier.Parts)
	if n == 0 || earlier.Parts[n-1].State != sent || earlier.Parts[n-1].ID == "" || earlier.Parts[n-1].File || len(l.Parts) != 1 {
		return l
	}
	now := edit{ID: earlier.Parts[n-1].ID, Text: l.Parts[0].Text, Plain: l.Parts[0].Plain}
	if n == 1 { // otherwise the message to be replaced is only the last part of its text
		list, cut := render(m.Edit.Text, Layout{Format: p.Format, Limit: p.Limit, Unit: p.Unit, MaxParts: 1})
		if len(list) == 1 && !cut {
			now.Text, now.Plain = list[0].Text, list[0].Plain
		}
	}
	l.Parts[0].Edits = &now
	l.Route = earlier.Route // the chat may have moved to another route
	return l
}
