package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestPlainPublisher: a NATS client publishes the JSON of a call, nothing else, and finds the result
// on the conversation.
func TestPlainPublisher(t *testing.T) {
	e := open(t)
	e.work()
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	nc := e.tenant()
	nc.Publish(t, "sandjet.calls.auto.acct_alice", nil, `{"conversation":"c_1","tool":"bash","input":{"command":"echo hi"}}`)
	p := e.untilEvent("c_1", schemas.CallFinished)
	var res schemas.Result
	if err := json.Unmarshal(p.Data, &res); err != nil || res.Text != "hi" {
		t.Errorf("%s: %v", p.Data, err)
	}
}

// untilEvent waits for an event of a type on a conversation of alice.
func (e *edge) untilEvent(conv schemas.ConversationID, want schemas.EventType) schemas.Event {
	e.t.Helper()
	var found schemas.Event
	eventually(e.t, fmt.Sprintf("%s on %s", want, conv), func() bool {
		for _, ev := range decode[conversations.Page](e.t, e.get("/v1/conversations/"+string(conv)+"/events")).Events {
			if ev.Event.Type == want {
				found = ev.Event
				return true
			}
		}
		return false
	})
	return found
}

func TestPublisherIsAnswered(t *testing.T) {
	e := open(t)
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	nc := e.tenant()
	ask := func(body string) natsapi.Answer {
		inbox := nc.Inbox(t)
		nc.Publish(t, "sandjet.calls.auto.acct_alice", map[string]string{natsapi.HeaderReply: inbox.Subject}, body)
		var a natsapi.Answer
		if err := json.Unmarshal(inbox.Next(t), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"x"}}`); a.ID != "mine" ||
		a.Conversation != "c_1" || a.Error != nil {
		t.Errorf("%+v", a)
	}
	if a := ask(`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"y"}}`); a.Error == nil ||
		a.Error.Code != schemas.Conflict {
		t.Errorf("other content: %+v", a)
	}
	if a := ask(`{"tool":"bash"}`); a.Error == nil || a.Error.Field != "input" {
		t.Errorf("no input: %+v", a)
	}
}

// TestMalformedPublications: each ends among the dead letters with the reason, and as an event.
//
//guarantee:bad-input-is-answered-not-guessed
func TestMalformedPublications(t *testing.T) {
	e := open(t)
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	nc := e.tenant()
	for n, tc := range []struct{ body, conv, says string }{
		{`not JSON`, "c_rejected", "JSON object"},
		{`{"conversation":"c_1","tool":"rm"}`, "c_1", "missing"},
		{`{"conversation":"c_2","tool":"bash","input":{"command":"x"},"account":"acct_bob"}`, "c_2", "not the account"},
		{"{\"conversation\":\"c_3\",\"tool\":\"bash\",\"input\":{\"command\":\"\xff\"}}", "c_3", "UTF-8"},
		{`{"conversation":"c_4","tool":"bash","input":{"command":"x"},"deadline":"2020-01-01T00:00:00Z"}`, "c_4", "has passed"},
	} {
		nc.Publish(t, "sandjet.calls.auto.acct_alice", nil, tc.body)
		ev := e.untilEvent(schemas.ConversationID(tc.conv), schemas.CallRejected)
		var d schemas.RejectedData
		if err := json.Unmarshal(ev.Data, &d); err != nil || d.Error == nil || !strings.Contains(d.Error.Error(), tc.says) {
			t.Errorf("%s: event %s (%v)", tc.body, ev.Data, err)
		}
		eventually(t, "it is a dead letter", func() bool { return len(e.dead()) == n+1 })
		if l := e.dead()[n]; string(l.Payload) != tc.body || !strings.Contains(l.Reason, tc.says) || l.Account != alice {
			t.Errorf("%s: dead letter %+v", tc.body, l)
		}
	}
}

func (e *edge) dead() []schemas.DeadLetter {
	e.t.Helper()
	var all []schemas.DeadLetter
	for entry, err := range streams.Dead.Replay(e.t.Context(), e.bus, "", schemas.Cursor{}) {
		if err != nil {
			e.t.Fatal(err)
		}
		all = append(all, entry.Value)
	}
	return all
}

// TestForeignInbox: the NATS API may publish on every subject, and a client must not make it publish to the inbox of another account.
//
//guarantee:tenants-are-isolated
func TestForeignInbox(t *testing.T) {
	e := open(t)
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	nc := e.tenant()
	nc.Publish(t, "sandjet.calls.auto.acct_alice", map[string]string{natsapi.HeaderReply: "sandjet.calls.auto.acct_bob"},
		`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"x"}}`)
	e.untilEvent("c_1", schemas.CallRejected)
	if a := e.get("/v1/calls/mine"); a.status != 404 {
		t.Errorf("it was admitted: %s", a.body)
	}
}

// TestUnknownAccount: a role publishes for an account that has no records.
//
//guarantee:tenants-are-isolated
func TestUnknownAccount(t *testing.T) {
	e := open(t)
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	raw := streams.Raw{Account: "acct_nobody", Data: []byte(bash("x"))}
	if err := streams.Intake.Publish(t.Context(), e.bus, raw); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a dead letter", func() bool { return len(e.dead()) == 1 })
	if l := e.dead()[0]; !strings.Contains(l.Reason, "no account") || l.Code != schemas.NotFound {
		t.Errorf("%+v", l)
	}
}

func TestFrontDoor(t *testing.T) {
	e := open(t)
	e.background(natsapi.Service{Bus: e.bus, Records: book{}, Version: "1.0.0"}.Run)
	nc := e.tenant()
	ask := func(subject, body string) (a natsapi.Answer) {
		if err := json.Unmarshal(nc.Request(t, subject, body), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, subject := range []string{"sandjet.rpc.call", "sandjet.rpc.call.acct_alice"} { // the server puts the account in
		if a := ask(subject, bash("x")); a.Error != nil || a.ID == "" || a.Conversation == "" {
			t.Errorf("%s: %+v", subject, a)
		} else if got := e.get("/v1/calls/" + string(a.ID)); got.status != 202 {
			t.Errorf("%s: %d %s", subject, got.status, got.body)
		}
	}
	for body, field := range map[string]string{
		`{"input":{}}`: "tool", `x`: "", `{"tool":"bash","input":{"command":"x"},"account":"acct_bob"}`: "account",
	} {
		if a := ask("sandjet.rpc.call", body); a.Error == nil || a.Error.Field != field || a.ID != "" {
			t.Errorf("%s: %+v", body, a)
		}
	}
}
