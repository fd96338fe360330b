package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

// TestATokenAnswersTheQuestionsOfItsConversation: and of no other, and only with the op.
func TestATokenAnswersTheQuestionsOfItsConversation(t *testing.T) {
	e, _ := ticketed(t, func(o *gateway.Options) { o.Records = strict{} })
	e.work()
	mine, other := e.asked(`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"echo hi"}}`),
		e.asked(`{"id":"other","conversation":"c_2","tool":"bash","input":{"command":"echo hi"}}`)
	reads := e.opened(e.token(`{"conversations":["c_1"],"ops":["read","send","cancel"]}`))
	reads.refused(`{"op":"approve","id":1,"approval":"` + mine + `","approved":true}`)

	s := e.opened(e.token(`{"conversations":["c_1"],"ops":["approve"]}`))
	s.refused(`{"op":"approve","id":1,"approval":"` + other + `","approved":true}`)
	s.refused(`{"op":"cancel","id":1,"call":"mine"}`)
	s.write(`{"op":"approve","id":2,"approval":"` + mine + `","approved":true,"reason":"fine"}`)
	if f := s.next(); f.Op != "decided" || *f.ID != 2 || f.Call != "mine" {
		t.Errorf("%+v; want decided", f)
	}
	if r := decode[schemas.Result](t, e.get("/v1/calls/mine?wait=60")); r.Text != "hi" {
		t.Errorf("the call ended with %+v", r)
	}
	if a := e.get("/v1/approvals/" + other); decode[schemas.Approval](t, a).State != schemas.ApprovalPending {
		t.Errorf("the other question: %s", a.body)
	}
}

// TestATokenCancelsTheCallsOfItsConversation: and of no other, and only with the op.
func TestATokenCancelsTheCallsOfItsConversation(t *testing.T) {
	e, _ := ticketed(t)
	e.work()
	for _, body := range []string{
		`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"hang","background":true}}`,
		`{"id":"other","conversation":"c_2","tool":"bash","input":{"command":"hang","background":true}}`,
	} {
		if a := e.post("/v1/calls", body); a.status >= 300 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	e.opened(e.token(`{"conversations":["c_1"],"ops":["read","send","approve"]}`)).refused(`{"op":"cancel","id":1,"call":"mine"}`)
	s := e.opened(e.token(`{"conversations":["c_1"],"ops":["cancel"]}`))
	s.refused(`{"op":"cancel","id":1,"call":"other"}`)
	s.refused(`{"op":"attach","id":1,"conv":"c_1"}`)
	s.write(`{"op":"cancel","id":2,"call":"mine","reason":"never mind"}`)
	if f := s.next(); f.Op != "cancelling" || *f.ID != 2 || f.Call != "mine" {
		t.Errorf("%+v; want cancelling", f)
	}
	if r := decode[schemas.Result](t, e.get("/v1/calls/mine?wait=60")); r.Status != schemas.StatusCancelled {
		t.Errorf("the call ended with %+v", r)
	}
	if a := e.post("/v1/calls/other/cancel", ""); a.status >= 300 { // else its worker waits for ever
		t.Errorf("the other call: %d %s", a.status, a.body)
	}
}

// TestAnAccountGetsNoMoreBytesThanItMay: what is above its pace waits, and is not lost.
func TestAnAccountGetsNoMoreBytesThanItMay(t *testing.T) {
	const rate, size, events = 100_000, 5_000, 40
	const together = 40_000 // at most, of what goes out in one write, after which the rest waits
	e := open(t, func(o *gateway.Options) { o.Limits.BytesPerSecond = rate })
	for n := range events {
		e.note("c_1", n, strings.Repeat("x", size))
	}
	begun := time.Now()
	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1"}`)
	if all := s.until("live"); len(all) != events+2 {
		t.Errorf("%d frames; want %d events between attached and live", len(all), events)
	}
	// A second's worth may go out at once.
	if took, least := time.Since(begun), time.Duration(events*size-rate-together)*time.Second/rate; took < least {
		t.Errorf("%d bytes took %s; want at least %s", events*size, took, least)
	}
}

// opened is a socket that a token opens.
func (e *edge) opened(token string) *socket {
	e.t.Helper()
	s, _, err := e.dial(asProtocol(token))
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

// refused sends an operation with the id 1 that is denied.
func (s *socket) refused(op string) {
	s.t.Helper()
	s.write(op)
	if f := s.next(); f.Op != "error" || f.ID == nil || *f.ID != 1 || f.Error.Code != schemas.Denied {
		s.t.Errorf("%s: %+v; want denied", op, f)
	}
}
