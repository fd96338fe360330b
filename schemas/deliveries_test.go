package schemas

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func TestEndpointValidate(t *testing.T) {
	for name, c := range map[string]struct {
		e     Endpoint
		field string
	}{
		"https":           {Endpoint{URL: "https://example.com/hook?x=1"}, ""},
		"some events":     {Endpoint{URL: "https://example.com", Events: []EventType{JobFinished, AgentFinished}}, ""},
		"no URL":          {Endpoint{}, "url"},
		"no host":         {Endpoint{URL: "https:///x"}, "url"},
		"another scheme":  {Endpoint{URL: "ftp://example.com"}, "url"},
		"a password":      {Endpoint{URL: "https://a:b@example.com"}, "url"},
		"a fragment":      {Endpoint{URL: "https://example.com/#x"}, "url"},
		"a long URL":      {Endpoint{URL: "https://example.com/" + strings.Repeat("x", MaxEndpointURL)}, "url"},
		"unknown event":   {Endpoint{URL: "https://example.com", Events: []EventType{"job.exploded"}}, "events"},
		"not delivered":   {Endpoint{URL: "https://example.com", Events: []EventType{CallOutput}}, "events"},
		"too many a time": {Endpoint{URL: "https://example.com", Concurrency: MaxEndpointConcurrency + 1}, "concurrency"},
	} {
		err := c.e.Validate()
		got := ""
		if e, ok := err.(*Error); ok { //nolint:errorlint // it is not wrapped
			got = e.Field
		}
		if got != c.field {
			t.Errorf("%s: field %q (%v), want %q", name, got, err, c.field)
		}
	}
}

func TestWebhookDeliveries(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	j := Job{ID: "job_1", Account: "acct_1", Conversation: "c_1"}
	e := NewJobEvent(j, JobFinished, JobFinishedID(j.Account, j.ID), now, JobResult{Job: j.ID, State: JobCompleted})
	at := Cursor{Epoch: "e", Seq: 7}
	endpoints := []Endpoint{
		{ID: "wh_all", Account: "acct_1"},
		{ID: "wh_jobs", Account: "acct_1", Events: []EventType{JobFinished}},
		{ID: "wh_agents", Account: "acct_1", Events: []EventType{AgentFinished}},
		{ID: "wh_off", Account: "acct_1", Disabled: true},
		{ID: "wh_foreign", Account: "acct_2"},
	}
	list := slices.Collect(WebhookDeliveries(e, at, endpoints, now))
	if len(list) != 2 || list[0].Endpoint != "wh_all" || list[1].Endpoint != "wh_jobs" {
		t.Fatalf("%+v", list)
	}
	if list[0].ID == list[1].ID || strings.ContainsAny(string(list[0].ID), ". ") {
		t.Errorf("ids %q and %q", list[0].ID, list[1].ID)
	}
	if unsafe.StringData(list[0].Body) != unsafe.StringData(list[1].Body) {
		t.Error("the body is made for each of the endpoints")
	}
	again := slices.Collect(WebhookDeliveries(e, at, endpoints, now.Add(time.Hour)))
	if again[0].ID != list[0].ID || again[0].Body != list[0].Body {
		t.Error("made again it is another delivery")
	}
	var body struct {
		SpecVersion, ID, Type, Timestamp string
		Data                             struct{ Job, Conversation, Cursor string }
	}
	if err := json.Unmarshal([]byte(list[0].Body), &body); err != nil {
		t.Fatal(err)
	}
	if body.SpecVersion != "1.0" || body.ID != e.ID || body.Type != "job.finished" || body.Timestamp == "" || body.Data.Job != "job_1" ||
		body.Data.Conversation != "c_1" || body.Data.Cursor != at.String() {
		t.Errorf("%s", list[0].Body)
	}
}

// TestTheSizeOfDeliveriesIsKnownBefore: no less than what they take, and little more.
func TestTheSizeOfDeliveriesIsKnownBefore(t *testing.T) {
	endpoints := make([]Endpoint, MaxEndpoints)
	for i := range endpoints {
		endpoints[i] = Endpoint{ID: EndpointID(NewID(EndpointPrefix)), Account: "acct_1"}
	}
	for name, data := range map[string]string{
		"small":                       `{}`,
		"text":                        `{"text":"` + strings.Repeat("x", 200<<10) + `"}`,
		"what is escaped":             `{"text":"` + strings.Repeat(`\"\n\u2028\u0000<&`, 10<<10) + `"}`,
		"what is left out of a body":  `{"text":"` + strings.Repeat("x", MaxWebhookBody) + `"}`,
		"what is left out with space": `{"text":` + strings.Repeat(" ", 200<<10) + `1}`,
	} {
		e := Event{ID: "acct_1.c_1.x.client", Type: Message, Account: "acct_1", Conversation: "c_1", Data: []byte(data)}
		size, sum := WebhookDeliveriesSize(e, endpoints), int64(0)
		for d := range WebhookDeliveries(e, Cursor{Epoch: "abcdefghijklm", Seq: 1 << 62, Mark: 7}, endpoints, time.Now()) {
			sum += int64(len(mustJSON(d)))
		}
		if size < sum || size > sum+sum/4+MaxEndpoints*512 {
			t.Errorf("%s: %d bytes, said %d", name, sum, size)
		}
	}
	if size := WebhookDeliveriesSize(Event{Account: "acct_2", Type: Message}, endpoints); size != 0 {
		t.Errorf("without receivers: %d", size)
	}
}

func TestMembersOfTheDataAreNotOverwritten(t *testing.T) {
	e := Event{ID: "e", Type: Message, Account: "acct_1", Conversation: "c_1", Data: []byte(`{"conversation":"theirs","cursor":7}`)}
	at := Cursor{Epoch: "e", Seq: 1}
	var body struct {
		Conversation, Cursor string
		Data                 json.RawMessage
	}
	if err := json.Unmarshal([]byte(WebhookBody(e, at)), &body); err != nil {
		t.Fatal(err)
	}
	if body.Conversation != "c_1" || body.Cursor != at.String() || string(body.Data) != string(e.Data) {
		t.Errorf("%+v with %s", body, body.Data)
	}
}

func TestALongBodyIsLeftOutAndNamed(t *testing.T) {
	e := Event{ID: "e", Type: Message, Account: "acct_1", Conversation: "c_1",
		Data: mustJSON(map[string]string{"text": strings.Repeat("x", MaxWebhookBody)})}
	body := WebhookBody(e, Cursor{Epoch: "e", Seq: 1})
	if len(body) > MaxWebhookBody || !strings.Contains(body, `"omitted":true`) || !strings.Contains(body, `"conversation":"c_1"`) {
		t.Errorf("%d bytes: %.300s", len(body), body)
	}
}

func TestDecodeAppendedEvent(t *testing.T) {
	for text, field := range map[string]string{
		`{"type":"agent.finished","data":{"response":"hi"}}`:        "",
		`{"id":"a.b:c","type":"message","turn":"turn_1","data":{}}`: "",
		`{"type":"call.finished","data":{}}`:                        "type",
		`{"type":"job.finished","data":{}}`:                         "type",
		`{"type":"message"}`:                                        "data",
		`{"type":"message","data":[]}`:                              "data",
		`{"type":"message","data":{},"id":"a/b"}`:                   "id",
		`{"type":"message","data":{},"turn":"x"}`:                   "turn",
		`{"type":"message","data":{},"account":"acct_2"}`:           "account",
	} {
		_, err := DecodeAppendedEvent([]byte(text))
		got := ""
		if e, ok := err.(*Error); ok { //nolint:errorlint // it is not wrapped
			got = e.Field
		}
		if got != field || (err == nil) != (field == "") {
			t.Errorf("%s: field %q (%v), want %q", text, got, err, field)
		}
	}
}

func TestFollowUpIDs(t *testing.T) {
	a := MakeFollowUpID("acct_1", "g", "job_1")
	if a != MakeFollowUpID("acct_1", "g", "job_2") {
		t.Error("a group has two follow-ups")
	}
	if a == MakeFollowUpID("acct_2", "g", "job_1") || a == MakeFollowUpID("acct_1", "", "job_1") ||
		MakeFollowUpID("acct_1", "", "job_1") == MakeFollowUpID("acct_1", "", "job_2") {
		t.Error("two follow-ups share an id")
	}
}
