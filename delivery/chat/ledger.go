package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Times of a send.
const (
	// sendWithin bounds a request to the service.
	sendWithin = 20 * time.Second
	// sendSettles is how long after that bound a request may still arrive. A deliverer that finds a part being sent waits for both.
	sendSettles = 10 * time.Second
	// limitedFor is how long a place is left alone whose service says that it is too much, and not for how long.
	limitedFor = 30 * time.Second
)

// state is what is known about a part.
type state string

// The states of a part.
const (
	queued    state = "queued"    // it did not arrive, and may be sent
	sending   state = "sending"   // a request is under way, or its sender died
	ambiguous state = "ambiguous" // it is unknown whether it arrived
	sent      state = "sent"      // it arrived: the service says so, or it was found there
	dropped   state = "dropped"   // it is unknown whether it arrived, and it is not sent again
	failed    state = "failed"    // the service refuses it, or it must not be sent again
)

// ledger records what is known about a delivery's parts.
type ledger struct {
	Parts []part `json:"parts"`
	// Holder is who sends now, and Until when it ends at the latest, by the log's clock.
	Holder string    `json:"holder,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	// Route is where parts go where the chat has moved. Empty: where the delivery says.
	Route json.RawMessage `json:"route,omitzero"`
	// Replay is the last time that a person had it delivered again of which this ledger knows.
	Replay int `json:"replay,omitzero"`
}

// part is one message of a delivery.
type part struct {
	State state `json:"state"`
	// Text and Plain are there until the part is sent.
	Text  string `json:"text,omitzero"`
	Plain string `json:"plain,omitzero"`
	// File: the whole text goes as a file in place of a text.
	File bool `json:"file,omitzero"`
	// Edits is the earlier message that says this now. It is taken away where the service refuses that: then Text goes as a message.
	Edits *edit `json:"edits,omitzero"`
	Tries int   `json:"tries,omitzero"`
	// Doubt is when the first request began that may have arrived; zero: none may have.
	Doubt time.Time `json:"doubt,omitzero"`
	// Keyless: a request that may have arrived had no key, so the service knows none that it has.
	Keyless bool `json:"keyless,omitzero"`
	// Marked: the request under way says that it may be a repeat.
	Marked bool   `json:"marked,omitzero"`
	ID     string `json:"id,omitzero"` // of the message
	URL    string `json:"url,omitzero"`
	Reason string `json:"reason,omitzero"` // of failed and dropped
	// Held: a person has to say that it is sent again.
	Held bool `json:"held,omitzero"`
}

// edit is an earlier message in the chat, and its new text.
type edit struct {
	ID    string `json:"id"`
	Text  string `json:"text,omitzero"`
	Plain string `json:"plain,omitzero"`
}

// rules are the service's and the account's rules that next applies.
type rules struct {
	once        channel.Once
	window      time.Duration // in which the service knows a key; 0: for good
	finds       bool          // the adapter can look
	onAmbiguous schemas.OnAmbiguous
}

// happening is an event that concerns the current part of the ledger.
type happening struct {
	kind   happeningKind
	now    time.Time // by the log's clock
	holder string
	replay int // of wake: how often a person had it delivered again
	// of received and found
	receipt channel.Receipt
	// of what failed
	reason  string
	after   time.Duration
	keyless bool
	// of refused: nothing at all can be sent with the credential
	credential bool
}

type happeningKind string

const (
	wake        happeningKind = "wake"        // a deliverer takes the delivery up
	absentThere happeningKind = "absent"      // the service was looked through, and the message is not there
	found       happeningKind = "found"       // the service was looked through, and the message is there
	received    happeningKind = "received"    // the service has it
	notSent     happeningKind = "not_sent"    // it did not arrive
	limited     happeningKind = "limited"     // likewise: too much
	unclear     happeningKind = "unclear"     // it is unknown
	refused     happeningKind = "refused"     // the service will never take it
	lookFailed  happeningKind = "look_failed" // the service could not be looked through
	neverTried  happeningKind = "never_tried" // the time to send was over before the request began
)

// action is what a deliverer has to do next.
type action struct {
	kind   actionKind
	part   int
	marked bool
	since  time.Time     // of look: when the first request began
	wait   time.Duration // of hold and retry: at least
	reason string
}

type actionKind string

const (
	doSend  actionKind = "send"  // send the part, once the ledger is written
	doLook  actionKind = "look"  // look whether the part is there
	doWait  actionKind = "wait"  // nothing may be tried before wait is over; that is no try
	doRetry actionKind = "retry" // the try has failed
	doStop  actionKind = "stop"  // no try will ever help
	doNext  actionKind = "next"  // continue with wake
	doDone  actionKind = "done"  // all parts are settled
)

// next returns the ledger after an event, and the action to take. It has no side effects, and does not change what l points to. If the
// returned ledger differs it must be written before the action is taken; if it cannot be written because another process has changed it,
// the ledger is read again instead.
func next(l ledger, h happening, r rules) (ledger, action) {
	l.Parts = append([]part(nil), l.Parts...)
	if h.kind == wake && h.replay > l.Replay {
		l.Replay = h.replay
		for i := range l.Parts {
			if p := &l.Parts[i]; p.State == failed {
				p.State, p.Reason = p.unsent(), ""
			}
		}
	}
	i := l.at()
	if i == len(l.Parts) {
		return l, action{kind: doDone}
	}
	p := &l.Parts[i]
	mine := p.State == sending && l.Holder == h.holder && h.holder != ""
	switch h.kind {
	case wake:
		return wakened(l, i, h, r)
	case absentThere:
		if p.State != ambiguous {
			return wakened(l, i, h, r)
		}
		p.Doubt = time.Time{} // it is certain: whatever was sent is there or never will be
		return begun(l, i, h, false)
	case found:
		if p.State != ambiguous {
			return wakened(l, i, h, r)
		}
		return arrived(l, i, h.receipt)
	case lookFailed:
		return l, action{kind: doRetry, part: i, wait: h.after, reason: h.reason}
	case received, notSent, limited, unclear, refused, neverTried:
	}
	if !mine { // another has gone on meanwhile: what it found out counts
		return wakened(l, i, h, r)
	}
	until := l.Until
	l.Holder, l.Until = "", time.Time{}
	switch h.kind {
	case received:
		return arrived(l, i, h.receipt)
	case notSent:
		p.State, p.Marked = p.unsent(), false
		return l, action{kind: doRetry, part: i, wait: h.after, reason: h.reason}
	case limited:
		p.State, p.Marked = p.unsent(), false
		return l, action{kind: doWait, part: i, wait: h.after, reason: h.reason}
	case neverTried:
		p.State, p.Marked = p.unsent(), false
		p.Tries--
		return l, action{kind: doNext, part: i}
	case unclear:
		p.doubted(until)
		p.Keyless = p.Keyless || h.keyless
		return l, action{kind: doRetry, part: i, wait: h.after, reason: h.reason}
	case refused:
		if p.Edits != nil && !h.credential { // it is gone, or may not be changed any more
			*p = part{State: queued, Text: p.Text, Plain: p.Plain, Tries: p.Tries}
			return l, action{kind: doNext, part: i}
		}
	case wake, absentThere, found, lookFailed: // above
	}
	p.State, p.Reason, p.Marked = failed, h.reason, false
	return l, action{kind: doStop, part: i, reason: h.reason}
}

// wakened is next for a deliverer that begins with a delivery and knows only the ledger.
func wakened(l ledger, i int, h happening, r rules) (ledger, action) {
	p := &l.Parts[i]
	switch p.State {
	case queued:
		return begun(l, i, h, false)
	case failed:
		return l, action{kind: doStop, part: i, reason: p.Reason}
	case sending:
		if wait := l.Until.Add(sendSettles).Sub(h.now); wait > 0 {
			return l, action{kind: doWait, part: i, wait: wait, reason: "another deliverer sends it"}
		}
		p.doubted(l.Until) // its sender has died, or will find that its time is over
		l.Holder, l.Until = "", time.Time{}
	case ambiguous:
	case sent, dropped: // at is past these
	}
	switch {
	case p.Edits != nil: // twice is once
		return begun(l, i, h, false)
	case r.once == channel.OnceByKey && !p.Keyless && (r.window == 0 || h.now.Add(sendWithin+sendSettles).Sub(p.Doubt) < r.window):
		return begun(l, i, h, false)
	case r.once != channel.OnceNever && r.finds:
		return l, action{kind: doLook, part: i, since: p.Doubt}
	}
	switch r.onAmbiguous {
	case schemas.Resend:
		return begun(l, i, h, false)
	case schemas.DropAmbiguous:
		p.State, p.Reason = dropped, "nobody knows whether it arrived"
		p.Text, p.Plain = "", ""
		return l, action{kind: doNext, part: i}
	case schemas.HoldOnAmbiguous:
		if !p.Held {
			p.State, p.Held = failed, true
			p.Reason = fmt.Sprintf("nobody knows whether part %d of %d arrived, and on_ambiguous is hold", i+1, len(l.Parts))
			return l, action{kind: doStop, part: i, reason: p.Reason}
		}
	case schemas.ResendMarked, "":
	}
	return begun(l, i, h, true)
}

// begun records that a part is about to be sent.
func begun(l ledger, i int, h happening, marked bool) (ledger, action) {
	p := &l.Parts[i]
	p.State, p.Marked, p.Held = sending, marked, false
	p.Tries++
	l.Holder, l.Until = h.holder, h.now.Add(sendWithin)
	return l, action{kind: doSend, part: i, marked: marked}
}

// doubted records that a request may have arrived; its time ended at until.
func (p *part) doubted(until time.Time) {
	p.State = ambiguous
	if p.Doubt.IsZero() {
		p.Doubt = until.Add(-sendWithin)
	}
}

// arrived records that a part has arrived.
func arrived(l ledger, i int, r channel.Receipt) (ledger, action) {
	p := &l.Parts[i]
	done := part{State: sent, Tries: p.Tries, Marked: p.Marked, File: p.File, ID: r.ID, URL: r.URL}
	if p.Edits != nil {
		done.ID, done.Edits = p.Edits.ID, &edit{ID: p.Edits.ID}
	}
	*p = done
	l.Holder, l.Until = "", time.Time{}
	if len(r.Route) > 0 {
		l.Route = r.Route
	}
	return l, action{kind: doNext, part: i}
}

// unsent returns the state of a part whose last request did not arrive: ambiguous if an earlier request may have, else queued.
func (p *part) unsent() state {
	if p.Doubt.IsZero() {
		return queued
	}
	return ambiguous
}

// at returns the index of the first undecided part, or the number of parts.
func (l ledger) at() int {
	for i, p := range l.Parts {
		if p.State != sent && p.State != dropped {
			return i
		}
	}
	return len(l.Parts)
}

// same reports whether two ledgers are equal.
func same(a, b ledger) bool {
	return slices.EqualFunc(a.Parts, b.Parts, sameParts) && a.Holder == b.Holder && a.Until.Equal(b.Until) &&
		string(a.Route) == string(b.Route) && a.Replay == b.Replay
}

func sameParts(p, q part) bool {
	if (p.Edits == nil) != (q.Edits == nil) || p.Edits != nil && *p.Edits != *q.Edits {
		return false
	}
	p.Edits, q.Edits = nil, nil
	return p == q
}
