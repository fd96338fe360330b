package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Time limits of a send.
const (
	// sendWithin limits the duration of a request to the service.
	sendWithin = 20 * time.Second
	// sendSettles is how long after sendWithin a request may still arrive. A deliverer that finds a part in the state sending waits for
	// both.
	sendSettles = 10 * time.Second
	// limitedFor is how long a place is paused if its service reports a rate limit without a time.
	limitedFor = 30 * time.Second
)

// state is what is known about a part.
type state string

// The states of a part.
const (
	queued    state = "queued"    // it did not arrive and can be sent
	sending   state = "sending"   // a request is in flight, or its sender crashed
	ambiguous state = "ambiguous" // it is unknown whether it arrived
	sent      state = "sent"      // the service has acknowledged it, or a search has found it
	dropped   state = "dropped"   // it is unknown whether it arrived, and it is not sent again
	failed    state = "failed"    // the service refuses it, or a person must decide whether to send it again
)

// ledger records what is known about a delivery's parts.
type ledger struct {
	Parts []part `json:"parts"`
	// Holder is the deliverer that is sending a part, and Until its deadline, by the stream's clock.
	Holder string    `json:"holder,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	// Route replaces the delivery's route if the chat has moved. Empty: it has not.
	Route json.RawMessage `json:"route,omitzero"`
	// Replay is the highest number of a manual replay that this ledger has taken into account.
	Replay int `json:"replay,omitzero"`
}

// part is one message of a delivery.
type part struct {
	State state `json:"state"`
	// Text and Plain are removed when the part was sent.
	Text  string `json:"text,omitzero"`
	Plain string `json:"plain,omitzero"`
	// File is whether the whole text is sent as an attached file.
	File bool `json:"file,omitzero"`
	// Edits is the earlier message that is replaced by this part. It is removed if the service refuses the edit: then the part is sent as
	// a message.
	Edits *edit `json:"edits,omitzero"`
	Tries int   `json:"tries,omitzero"`
	// Doubt is when the first request began that may have arrived. Zero: there was none.
	Doubt time.Time `json:"doubt,omitzero"`
	// Keyless is whether a request that may have arrived had no key, so that the service cannot detect a duplicate.
	Keyless bool `json:"keyless,omitzero"`
	// Marked is whether the message of the current request says that it may be a repeat.
	Marked bool   `json:"marked,omitzero"`
	ID     string `json:"id,omitzero"` // of the message
	URL    string `json:"url,omitzero"`
	Reason string `json:"reason,omitzero"` // set for failed and dropped
	// Held is whether a person must decide that the part is sent again.
	Held bool `json:"held,omitzero"`
}

// edit is an earlier message in the chat, and its new text.
type edit struct {
	ID    string `json:"id"`
	Text  string `json:"text,omitzero"`
	Plain string `json:"plain,omitzero"`
}

// rules are the properties of the service and the account's settings that [next] applies.
type rules struct {
	once        channel.Once
	window      time.Duration // how long the service remembers a key; 0: forever
	finds       bool          // the adapter can search for a message
	onAmbiguous schemas.OnAmbiguous
}

// happening is an event that concerns the current part of the ledger.
type happening struct {
	kind   happeningKind
	now    time.Time // by the stream's clock
	holder string
	replay int // of wake: number of manual replays
	// receipt is set for received and found.
	receipt channel.Receipt
	// reason, after and keyless are set for failures.
	reason  string
	after   time.Duration
	keyless bool
	// credential is set for refused: the credential itself is refused, so that nothing can be sent with it.
	credential bool
}

type happeningKind string

const (
	wake        happeningKind = "wake"        // a deliverer has received the delivery
	absentThere happeningKind = "absent"      // a search has not found the message
	found       happeningKind = "found"       // a search has found the message
	received    happeningKind = "received"    // the service has accepted the message
	notSent     happeningKind = "not_sent"    // it certainly did not arrive
	limited     happeningKind = "limited"     // it did not arrive because of a rate limit
	unclear     happeningKind = "unclear"     // it is unknown whether it arrived
	refused     happeningKind = "refused"     // the service will never accept it
	lookFailed  happeningKind = "look_failed" // the search has failed
	neverTried  happeningKind = "never_tried" // the deadline had passed before the request began
)

// action is the next step of a deliverer.
type action struct {
	kind   actionKind
	part   int
	marked bool
	since  time.Time     // of doLook: when the first request began
	wait   time.Duration // of doWait and doRetry: minimum
	reason string
}

type actionKind string

const (
	doSend  actionKind = "send"  // send the part, after the ledger was stored
	doLook  actionKind = "look"  // search for the part
	doWait  actionKind = "wait"  // try again after wait, which does not count as a try
	doRetry actionKind = "retry" // the try has failed; retry
	doStop  actionKind = "stop"  // stop for good: no try can succeed
	doNext  actionKind = "next"  // call next again with wake
	doDone  actionKind = "done"  // all parts are decided
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
		p.Doubt = time.Time{} // certain now: no earlier request has arrived or will
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
	if !mine { // another deliverer has continued meanwhile, and its results count
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
		if p.Edits != nil && !h.credential { // the message was deleted, or can no longer be edited
			*p = part{State: queued, Text: p.Text, Plain: p.Plain, Tries: p.Tries}
			return l, action{kind: doNext, part: i}
		}
	case wake, absentThere, found, lookFailed: // handled above
	}
	p.State, p.Reason, p.Marked = failed, h.reason, false
	return l, action{kind: doStop, part: i, reason: h.reason}
}

// wakened is the part of [next] for a deliverer that has just received the delivery and knows nothing but the ledger.
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
		p.doubted(l.Until) // its sender crashed, or will notice that its deadline has passed
		l.Holder, l.Until = "", time.Time{}
	case ambiguous:
	case sent, dropped: // skipped by at
	}
	switch {
	case p.Edits != nil: // edits are idempotent
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

// at returns the index of the first part that is neither sent nor dropped, or the number of parts.
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
