package chat

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/schemas"
)

// world is a chat service with the messages that have reached it, and the one ledger that all deliverers write by compare-and-set. Time
// advances only between steps.
type world struct {
	r        rules
	now      time.Time
	ledger   ledger
	revision int
	there    []arrival
	onTheWay []request // requests of crashed or unknowing deliverers: each arrives before its deadline, or never
}

type arrival struct {
	part   int
	marked bool
	at     time.Time
}

type request struct {
	part   int
	marked bool
	until  time.Time
}

// hand is a deliverer that has the delivery in flight: the ledger that it read, and its next action.
type hand struct {
	holder   string
	read     ledger
	revision int
	h        happening
	a        action
	decided  bool
	l        ledger
	wrote    bool
}

func (w *world) arrive(r request) {
	if w.r.once == channel.OnceByKey {
		for _, x := range w.there { // the service knows the key
			if x.part == r.part && (w.r.window == 0 || w.now.Sub(x.at) < w.r.window) {
				return
			}
		}
	}
	w.there = append(w.there, arrival{r.part, r.marked, w.now})
}

// TestLedgersByChance simulates deliverers that crash, are suspended and race, with a service that loses requests and responses. In every
// order, a delivery that is done has reached the chat completely. If the service lets the sender check, no part arrived twice; otherwise
// every repeat says that it may be one.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestLedgersByChance(t *testing.T) {
	t.Parallel()
	rounds := 1
	if longtest.Asked() {
		rounds = 20 // races of two are rare among random orders
	}
	for range rounds {
		proptest.Check(t, playWorld)
	}
}

func playWorld(t *rapid.T) {
	w := &world{now: time.Unix(1_800_000_000, 0)}
	w.r = rapid.SampledFrom([]rules{
		{once: channel.OnceByKey}, {once: channel.OnceByKey, window: 2 * time.Minute, finds: true},
		{once: channel.OnceByLook, finds: true}, {once: channel.OnceNever},
		{once: channel.OnceNever, onAmbiguous: schemas.ResendMarked}, {once: channel.OnceByKey, window: 2 * time.Minute},
	}).Draw(t, "rules")
	for range rapid.IntRange(1, 3).Draw(t, "parts") {
		w.ledger.Parts = append(w.ledger.Parts, part{State: queued, Text: "x"})
	}
	hands := make([]*hand, 3)
	done := false
	for n := 0; n < 400 && !done; n++ {
		i := rapid.IntRange(0, len(hands)-1).Draw(t, "hand")
		if n > 300 { // finally one of them continues undisturbed
			i = 0
			hands[1], hands[2] = nil, nil
		}
		done = w.step(t, hands, i, n > 300)
	}
	if !done {
		t.Fatalf("it never ended: %+v", w.ledger)
	}
	for _, r := range w.onTheWay { // requests still in flight
		if w.now.Before(r.until.Add(sendSettles)) {
			w.now = r.until
			w.arrive(r)
		}
	}
	w.check(t)
}

// step lets a deliverer take its next step, or time advance. It reports whether the delivery is done.
func (w *world) step(t *rapid.T, hands []*hand, i int, quiet bool) bool {
	if !quiet {
		switch rapid.IntRange(0, 9).Draw(t, "world") {
		case 0:
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 25 * time.Second, 11 * time.Minute}).Draw(t, "time"))
		case 1:
			hands[i] = nil // it crashes at any point
		}
	}
	for n := 0; n < len(w.onTheWay); n++ { // a request in flight arrives before its deadline, or never
		r := w.onTheWay[n]
		late := w.now.After(r.until.Add(sendSettles))
		if late || rapid.Bool().Draw(t, "arrives") {
			w.onTheWay = append(w.onTheWay[:n], w.onTheWay[n+1:]...)
			n--
			if !late {
				w.arrive(r)
			}
		}
	}
	x := hands[i]
	if x == nil {
		hands[i] = &hand{holder: fmt.Sprint(rapid.Uint64().Draw(t, "holder")), read: w.ledger, revision: w.revision}
		hands[i].h = happening{kind: wake, now: w.now, holder: hands[i].holder}
		return false
	}
	switch {
	case !x.decided:
		x.l, x.a = next(x.read, x.h, w.r)
		x.decided, x.wrote = true, false
	case !x.wrote:
		if !same(x.l, x.read) {
			if w.revision != x.revision { // another deliverer was faster
				hands[i] = nil
				return false
			}
			w.ledger, w.revision = x.l, w.revision+1
			x.revision = w.revision
		}
		x.read, x.wrote = x.l, true
	default:
		return w.act(t, hands, i, quiet)
	}
	return false
}

// act carries out the action that was decided and stored.
func (w *world) act(t *rapid.T, hands []*hand, i int, quiet bool) bool {
	x := hands[i]
	x.decided = false
	x.h = happening{kind: wake, now: w.now, holder: x.holder}
	switch x.a.kind {
	case doDone:
		return true
	case doNext:
	case doWait, doRetry, doStop:
		if quiet {
			w.now = w.now.Add(x.a.wait)
		}
		hands[i] = nil // the message is redelivered
	case doLook:
		x.h.kind = absentThere
		for _, a := range w.there {
			if a.part == x.a.part {
				x.h.kind = found
			}
		}
		if !quiet && rapid.IntRange(0, 4).Draw(t, "looked") == 0 {
			x.h.kind = lookFailed
		}
	case doSend:
		if !w.now.Before(x.l.Until) {
			x.h.kind = neverTried
			return false
		}
		x.h.kind = received
		if !quiet {
			x.h.kind = rapid.SampledFrom([]happeningKind{received, received, notSent, limited, unclear, "lost", "later"}).Draw(t, "outcome")
		}
		r := request{x.a.part, x.a.marked, x.l.Until}
		switch x.h.kind {
		case received:
			w.arrive(r)
		case unclear: // it arrived, and the answer was lost
			w.arrive(r)
		case "lost": // it did not arrive, and the sender does not know
			x.h.kind = unclear
		case "later":
			w.onTheWay = append(w.onTheWay, r)
			w.now = x.l.Until // the request's deadline has passed
			x.h.kind = unclear
		default:
		}
		x.h.now = w.now
	}
	return false
}

// check checks that the messages in the chat fulfil the guarantee.
func (w *world) check(t *rapid.T) {
	for i, p := range w.ledger.Parts {
		n, unmarked := 0, 0
		for _, a := range w.there {
			if a.part == i {
				n++
				if !a.marked {
					unmarked++
				}
			}
		}
		switch {
		case p.State != sent:
			t.Errorf("part %d is %s at the end", i, p.State)
		case n == 0:
			t.Errorf("part %d was lost: %+v", i, w)
		case n > 1 && (w.r.once == channel.OnceByLook || w.r.once == channel.OnceByKey && (w.r.finds || w.r.window == 0)):
			t.Errorf("part %d came %d times: %+v", i, n, w)
		case unmarked > 1:
			t.Errorf("part %d came %d times without a mark: %+v", i, unmarked, w)
		}
	}
	order := -1
	for _, a := range w.there {
		if a.part > order+1 {
			t.Errorf("part %d came before one that belongs before it: %+v", a.part, w.there)
		}
		order = max(order, a.part)
	}
}

// A key prevents a duplicate only if the request contained it. An adapter's error says if the request had none.
func TestWithoutAKeyASecondTryIsMarked(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for _, keyless := range []bool{false, true} {
		r := rules{once: channel.OnceByKey}
		l, a := next(ledger{Parts: []part{{State: queued, Text: "x"}}}, happening{kind: wake, now: now, holder: "a"}, r)
		if a.kind != doSend || a.marked {
			t.Fatalf("%+v", a)
		}
		h := happening{now: now.Add(time.Second), holder: "a"}
		h.fail(&channel.Error{Outcome: channel.Ambiguous, Reason: "lost", Keyless: keyless})
		if l, a = next(l, h, r); a.kind != doRetry {
			t.Fatalf("%+v", a)
		}
		if _, a = next(l, happening{kind: wake, now: now.Add(time.Minute), holder: "b"}, r); a.kind != doSend || a.marked != keyless {
			t.Errorf("keyless %v: %+v", keyless, a)
		}
	}
}

// FuzzLedger decides on arbitrary ledgers in the bucket, such as one of a newer version: next never panics, never sends a decided part
// again, and its ledger is decoded as it was encoded.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzLedger(f *testing.F) {
	for _, text := range []string{
		`{"parts":[{"state":"queued","text":"a"},{"state":"queued","file":true}]}`,
		`{"parts":[{"state":"sending","text":"a","doubt":"2026-01-01T00:00:00Z"}],"holder":"try_1","until":"2026-01-01T00:00:20Z"}`,
		`{"parts":[{"state":"ambiguous","edits":{"id":"7","text":"b"}}],"route":{"a":1},"replay":2}`, `{"parts":[{"state":"other"}]}`,
		`{"parts":[{"state":"failed","held":true}]}`, `{}`, `{"parts":null}`,
	} {
		for kind := range uint8(9) {
			f.Add([]byte(text), kind, kind)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	kinds := []happeningKind{wake, absentThere, found, received, notSent, limited, unclear, refused, lookFailed, neverTried}
	all := []rules{
		{once: channel.OnceByKey, window: time.Minute}, {once: channel.OnceByLook, finds: true}, {once: channel.OnceNever},
		{once: channel.OnceNever, onAmbiguous: schemas.HoldOnAmbiguous}, {once: channel.OnceNever, onAmbiguous: schemas.DropAmbiguous},
	}
	f.Fuzz(func(t *testing.T, text []byte, kind, rule uint8) {
		var l ledger
		if json.Unmarshal(text, &l) != nil {
			return
		}
		h := happening{kind: kinds[int(kind)%len(kinds)], now: now, holder: "try_1", replay: int(rule) % 3,
			receipt: channel.Receipt{ID: "9"}, credential: rule%2 == 0}
		after, a := next(l, h, all[int(rule)%len(all)])
		if len(after.Parts) != len(l.Parts) {
			t.Fatalf("%d parts have become %d", len(l.Parts), len(after.Parts))
		}
		for i, p := range l.Parts {
			settled := p.State == sent || p.State == dropped
			if settled && (after.Parts[i].State != p.State || a.kind == doSend && a.part == i) {
				t.Fatalf("part %d is settled, and becomes %+v, %+v", i, after.Parts[i], a)
			}
		}
		if a.kind == doSend && (after.Parts[a.part].State != sending || after.Holder != h.holder) {
			t.Fatalf("it sends %+v, and does not say so", after)
		}
		written, err := json.Marshal(after)
		if err != nil {
			t.Fatal(err)
		}
		var read ledger
		if err := json.Unmarshal(written, &read); err != nil {
			t.Fatal(err)
		}
		if again, err := json.Marshal(read); err != nil || string(again) != string(written) {
			t.Fatalf("%s is read as %s, %v", written, again, err)
		}
	})
}

// FuzzBody plans deliveries with arbitrary bodies: a body is refused, or every part has a text.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"text":"a\nb","buttons":[{"label":"x","data":"y"}],"edit":{"delivery":"dlv_1","text":"c"}}`), false)
	f.Add([]byte(`{"text":"x","results":[{"command":"ls","logs":"a"}]}`), true)
	f.Fuzz(func(t *testing.T, body []byte, followUp bool) {
		d := schemas.Delivery{ID: "dlv_1", Type: schemas.Message, Body: string(body)}
		if followUp {
			d.Type = schemas.FollowUpCreated
		}
		m, err := bodyOf(d)
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Fatal(err)
			}
			return
		}
		p := channel.Profile{Limit: 120, Unit: channel.CodePoints, Buttons: true}
		parts, err := plan(m, p, inLines)
		if err != nil {
			return
		}
		l := ledger{Parts: parts}
		if m.Edit != nil {
			l = editing(l, ledger{Parts: []part{{State: sent, ID: "7"}}}, m, p, inLines)
		}
		for i := range l.Parts {
			if messageFor(d, m, l, i, p).Key == "" {
				t.Fatal("a part without a key")
			}
		}
	})
}
