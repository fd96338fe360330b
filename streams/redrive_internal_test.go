package streams

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/subjects"
)

// TestALetterThatIsSentTwiceIsOneMessage: the same letter is sent twice because the first publication is not confirmed, or because the
// letter is not removed. A publication keeps the message id of its publisher, also when it is dead-lettered and sent again once more.
//
//guarantee:one-result-for-every-accepted-call
func TestALetterThatIsSentTwiceIsOneMessage(t *testing.T) {
	t.Parallel()
	b := openBus(t)
	ctx := t.Context()
	const a = schemas.AccountID("acct_1")
	delivery, err := Deliveries.encode(schemas.Delivery{ID: "msg_1", Account: a, Channel: "webhook", Body: "x"})
	if err != nil {
		t.Fatal(err)
	}
	subject, err := Deliveries.subject(b, schemas.Delivery{ID: "msg_1", Account: a, Channel: "webhook", Body: "x"})
	if err != nil {
		t.Fatal(err)
	}
	named := intake.PublicationID(a, "mine")
	publication := []byte(`{"tool":"bash"}`)
	for _, d := range []schemas.DeadLetter{
		{Stream: streamIntake, Subject: subjects.WaitingSubject(a), Payload: publication},
		{Stream: streamIntake, Subject: subjects.WaitingSubject(a), Payload: publication, Headers: Headers{intake.HeaderMsgID: {named}}},
		{Stream: streamDeliver, Subject: subject, Payload: delivery},
	} {
		d.ID, d.Account, d.First, d.Time, d.Reason = letterID(d.Stream, uint64(7+len(d.Headers))), a, b.Now().UTC(), b.Now(), "given up"
		first := publicationOf(a, d.Subject, d.First, d.Headers, d.Payload)
		if err := OpenDeadLetters(b).write(ctx, d); err != nil {
			t.Fatal(err)
		}
		letters := OpenDeadLetters(b)
		letter, err := letters.Show(ctx, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		before := lastOf(t, b, d.Stream)
		for range 2 {
			if err := letters.resend(ctx, letter); err != nil {
				t.Fatal(err)
			}
		}
		after := lastOf(t, b, d.Stream)
		if after != before+1 {
			t.Errorf("%s: %d messages were stored; want one", d.ID, after-before)
		}
		if d.Stream != streamIntake {
			continue
		}
		m, err := b.reader.Get(ctx, d.Stream, direct.Request{Seq: after})
		if err != nil {
			t.Fatal(err)
		}
		again := publicationOf(a, m.Subject, m.Time, Headers(m.Headers), m.Data)
		if again.CallID() != first.CallID() || again.Conversation() != first.Conversation() || !again.Redriven || first.Redriven {
			t.Errorf("%s: sent again it is %+v; it was %+v", d.ID, again, first)
		}
		if again.Rejected(nil).ID == first.Rejected(nil).ID {
			t.Errorf("%s: that it is refused again is not reported", d.ID)
		}
	}
}

func lastOf(t *testing.T, b *Bus, stream string) uint64 {
	t.Helper()
	info, err := b.reader.Info(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return info.State.LastSeq
}

// TestAPublisherDoesNotSayThatItSendsAgain: what names a publication that was sent again is ours to write.
func TestAPublisherDoesNotSayThatItSendsAgain(t *testing.T) {
	t.Parallel()
	m := nats.NewMsg("sandjet.calls.auto.acct_1")
	m.Header["sandjet-publication"] = []string{"2026-11-25T12:00:00Z acct_2.other"}
	m.Header["Sandjet-Redriven"] = []string{"INTAKE.1"}
	m.Header.Set("X-Own", "1")
	out, err := intake.Message(m, streamIntake)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Header) != 1 || out.Header.Get("X-Own") != "1" {
		t.Errorf("stored with %v", out.Header)
	}
}
