package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/gateway/webhooks"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

var _ webhooks.Records = records.Endpoints{}

// ring has one new key.
func ring(t *testing.T) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openWithEndpoints opens a gateway that keeps webhook endpoints.
func openWithEndpoints(t *testing.T) *edge {
	t.Helper()
	return openWithQuota(t, nil)
}

// openWithQuota is openWithEndpoints for accounts that may keep so much.
func openWithQuota(t *testing.T, quotas *streams.Quotas) *edge {
	t.Helper()
	return openLogOf(t, true, quotas, func(o *gateway.Options) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		store, err := records.Open(ctx, o.Bus, ring(t), recordstest.Providers())
		if err != nil {
			t.Fatal(err)
		}
		o.Endpoints = store.Endpoints
	})
}

func (e *edge) patch(path, body string) answer {
	e.t.Helper()
	return e.do(ask{method: http.MethodPatch, path: path, body: body})
}

// webhook adds an endpoint of alice and returns it with its path.
func (e *edge) webhook(body string) (schemas.Endpoint, string) {
	e.t.Helper()
	a := e.post("/v1/webhooks", body)
	if a.status != http.StatusCreated {
		e.t.Fatalf("%d %s", a.status, a.body)
	}
	p := decode[schemas.Endpoint](e.t, a)
	return p, "/v1/webhooks/" + string(p.ID)
}

// deliveries are those on the log for an account's endpoints.
func (e *edge) deliveries() []schemas.Delivery {
	e.t.Helper()
	var list []schemas.Delivery
	for entry, err := range streams.Deliveries.Replay(e.t.Context(), e.bus, schemas.WebhookChannel, schemas.Cursor{}) {
		if err != nil {
			e.t.Fatal(err)
		}
		list = append(list, entry.Value)
	}
	return list
}

func TestSecretsAreShownOnce(t *testing.T) {
	e := openWithEndpoints(t)
	p, path := e.webhook(`{"url":"https://example.com/a","events":["message","job.finished","message"],"description":"mine"}`)
	if p.ID.Validate() != nil || p.Account != alice || p.URL != "https://example.com/a" || p.Description != "mine" || len(p.Events) != 2 {
		t.Errorf("%+v", p)
	}
	secret := p.Secrets[0].Key
	text, ok := strings.CutPrefix(secret, "whsec_")
	if b, err := base64.StdEncoding.DecodeString(text); !ok || err != nil || len(b) != 32 {
		t.Errorf("the secret is %q", secret)
	}
	own := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 24)))
	if q, _ := e.webhook(`{"url":"https://example.com/b","secret":"` + own + `"}`); q.Secrets[0].Key != own {
		t.Errorf("a secret of one's own became %q", q.Secrets[0].Key)
	}
	for name, a := range map[string]answer{
		"one": e.get(path), "all": e.get("/v1/webhooks"), "changed": e.patch(path, `{"description":"ours"}`),
	} {
		if a.status != http.StatusOK || strings.Contains(a.body, "whsec_") || !strings.Contains(a.body, `"key":"********"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if list := decode[webhooks.List](t, e.get("/v1/webhooks")); len(list.Webhooks) != 2 || list.Webhooks[0].Description != "ours" {
		t.Errorf("%+v", list)
	}
}

func TestEndpointsAreChanged(t *testing.T) {
	e := openWithEndpoints(t)
	_, path := e.webhook(`{"url":"https://example.com/a","events":["message"],"concurrency":2}`)
	for _, step := range []struct {
		patch string
		want  func(schemas.Endpoint) bool
	}{
		{`{}`, func(p schemas.Endpoint) bool {
			return p.URL == "https://example.com/a" && p.Concurrency == 2 && len(p.Events) == 1
		}},
		{`{"url":"https://example.com/b","legacy":true}`, func(p schemas.Endpoint) bool {
			return p.URL == "https://example.com/b" && p.Legacy && p.Concurrency == 2
		}},
		{`{"content_type":"application/cloudevents+json"}`, func(p schemas.Endpoint) bool { return p.ContentType == schemas.WebhookCloudEvents }},
		{`{"events":[],"concurrency":8}`, func(p schemas.Endpoint) bool { return len(p.Events) == 0 && p.Concurrency == 8 && p.Legacy }},
		{`{"disabled":true}`, func(p schemas.Endpoint) bool { return p.Disabled && p.Reason != "" }},
		{`{"disabled":false}`, func(p schemas.Endpoint) bool { return !p.Disabled && p.Reason == "" }},
	} {
		a := e.patch(path, step.patch)
		if p := decode[schemas.Endpoint](t, a); a.status != http.StatusOK || !step.want(p) || p.Updated.IsZero() {
			t.Errorf("%s: %d %s", step.patch, a.status, a.body)
		}
	}
	if a := e.do(ask{method: http.MethodDelete, path: path}); a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	if a := e.get(path); a.status != http.StatusNotFound {
		t.Errorf("after the deletion: %d %s", a.status, a.body)
	}
}

func TestRotatedSecretsOverlap(t *testing.T) {
	e := openWithEndpoints(t)
	p, path := e.webhook(`{"url":"https://example.com/a"}`)
	before := time.Now()
	q := decode[schemas.Endpoint](t, e.post(path+"/rotate-secret", ""))
	if len(q.Secrets) != 2 || q.Secrets[0].Key == p.Secrets[0].Key || !strings.HasPrefix(q.Secrets[0].Key, "whsec_") ||
		q.Secrets[1].Key != "********" {
		t.Fatalf("%+v", q)
	}
	if left := q.Secrets[1].Expires.Sub(before); left < 23*time.Hour || left > 25*time.Hour {
		t.Errorf("the former secret ends in %s", left)
	}
	r := decode[schemas.Endpoint](t, e.post(path+"/rotate-secret", `{"overlap":0}`))
	if len(r.Secrets) != 1 || r.Secrets[0].Key == q.Secrets[0].Key {
		t.Errorf("without an overlap: %+v", r)
	}
}

func TestForeignEndpointsAreNotFound(t *testing.T) {
	e := openWithEndpoints(t)
	p, _ := e.webhook(`{"url":"https://example.com/a"}`)
	for _, a := range []ask{
		{method: http.MethodGet, path: "/v1/webhooks/%s"},
		{method: http.MethodPatch, path: "/v1/webhooks/%s", body: `{"disabled":true}`},
		{method: http.MethodDelete, path: "/v1/webhooks/%s"},
		{method: http.MethodPost, path: "/v1/webhooks/%s/rotate-secret"},
		{method: http.MethodPost, path: "/v1/webhooks/%s/test"},
		{method: http.MethodPost, path: "/v1/webhooks/replay", body: `{"since":"1h","endpoint":"%s"}`},
	} {
		a.key = bobKey
		ask := func(id schemas.EndpointID) answer {
			b := a
			b.path, b.body = strings.ReplaceAll(a.path, "%s", string(id)), strings.ReplaceAll(a.body, "%s", string(id))
			return e.do(b)
		}
		theirs, nobodys := ask(p.ID), ask("wh_nobodys")
		if theirs.status != http.StatusNotFound || strings.ReplaceAll(theirs.body, string(p.ID), "wh_nobodys") != nobodys.body {
			t.Errorf("%s %s: %d %s; one that never was: %s", a.method, a.path, theirs.status, theirs.body, nobodys.body)
		}
	}
	if list := decode[webhooks.List](t, e.do(ask{method: http.MethodGet, path: "/v1/webhooks", key: bobKey})); len(list.Webhooks) != 0 {
		t.Errorf("somebody else sees %+v", list)
	}
}

func TestEndpointsAreLimited(t *testing.T) {
	e := openWithEndpoints(t)
	for n := range schemas.MaxEndpoints {
		e.webhook(fmt.Sprintf(`{"url":"https://example.com/%d"}`, n))
	}
	if a := e.post("/v1/webhooks", `{"url":"https://example.com/x"}`); a.status != http.StatusTooManyRequests ||
		a.problem(t).Code != schemas.Exhausted {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestInsecureEndpoints(t *testing.T) {
	const body = `{"url":"http://example.com/a"}`
	e := openWithEndpoints(t)
	if a := e.post("/v1/webhooks", body); a.status != http.StatusBadRequest || a.problem(t).Field != "url" {
		t.Errorf("%d %s", a.status, a.body)
	}
	_, path := e.webhook(`{"url":"https://example.com/a"}`)
	if a := e.patch(path, body); a.status != http.StatusBadRequest || a.problem(t).Field != "url" {
		t.Errorf("changed: %d %s", a.status, a.body)
	}
	lax := open(t, func(o *gateway.Options) {
		store, err := records.Open(t.Context(), o.Bus, ring(t), recordstest.Providers())
		if err != nil {
			t.Fatal(err)
		}
		o.Endpoints, o.AllowInsecureWebhooks = store.Endpoints, true
	})
	lax.webhook(body)
}

func TestTestDeliveries(t *testing.T) {
	e := openWithEndpoints(t)
	p, path := e.webhook(`{"url":"https://example.com/a","events":["job.finished"]}`)
	a := e.post(path+"/test", "")
	made := decode[map[string]schemas.DeliveryID](t, a)["delivery"]
	list := e.deliveries()
	if a.status != http.StatusAccepted || len(list) != 1 || list[0].ID != made || list[0].Endpoint != p.ID || list[0].Type != schemas.Message {
		t.Fatalf("%d %s, %+v", a.status, a.body, list)
	}
	if !strings.Contains(list[0].Body, `"test":true`) {
		t.Errorf("delivers %s", list[0].Body)
	}
	e.patch(path, `{"disabled":true}`)
	if a := e.post(path+"/test", ""); a.status != http.StatusConflict {
		t.Errorf("a disabled endpoint: %d %s", a.status, a.body)
	}
	// The delivery is made again: for all, for this endpoint, and alone.
	for body, want := range map[string]string{
		`{"since":"1h"}`: `{"replayed":1}`, `{"since":"1h","endpoint":"` + string(p.ID) + `"}`: `{"replayed":1}`,
		`{"id":"` + string(made) + `"}`: `{"replayed":1}`, `{"since":"2100-01-01T00:00:00Z"}`: `{"replayed":0}`,
	} {
		if a := e.post("/v1/webhooks/replay", body); a.status != http.StatusOK || a.body != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := e.post("/v1/webhooks/replay", `{"id":"msg_nobodys"}`); a.status != http.StatusNotFound {
		t.Errorf("an unknown delivery: %d %s", a.status, a.body)
	}
	if a := e.do(ask{method: http.MethodPost, path: "/v1/webhooks/replay", body: `{"since":"1h"}`, key: bobKey}); a.body != `{"replayed":0}` {
		t.Errorf("somebody else: %d %s", a.status, a.body)
	}
}

func TestBadRequestsAboutEndpoints(t *testing.T) {
	e := openWithEndpoints(t)
	_, path := e.webhook(`{"url":"https://example.com/a"}`)
	const all, replay = "/v1/webhooks", "/v1/webhooks/replay"
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		field              string
	}{
		"no url":              {"POST", all, `{}`, 400, "url"},
		"no address":          {"POST", all, `{"url":"example.com"}`, 400, "url"},
		"user in the address": {"POST", all, `{"url":"https://me:pw@example.com"}`, 400, "url"},
		"unknown type":        {"POST", all, `{"url":"https://example.com","events":["call.output"]}`, 400, "events"},
		"too many at a time":  {"POST", all, `{"url":"https://example.com","concurrency":65}`, 400, "concurrency"},
		"a secret on two lines": {"POST", all,
			`{"url":"https://example.com","secret":"whsec_c2VjcmV0c2VjcmV0\nc2VjcmV0c2VjcmV0"}`, 400, "secret"},
		"short secret":      {"POST", all, `{"url":"https://example.com","secret":"whsec_c2hvcnQ="}`, 400, "secret"},
		"bare secret":       {"POST", all, `{"url":"https://example.com","secret":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}`, 400, "secret"},
		"unknown field":     {"POST", all, `{"uri":"https://example.com"}`, 400, "uri"},
		"parameters":        {"POST", all + "?a=1", `{"url":"https://example.com"}`, 400, "a"},
		"a content type":    {"POST", all, `{"url":"https://example.com","content_type":"text/plain"}`, 400, "content_type"},
		"bad patch":         {"PATCH", path, `{"concurrency":-1}`, 400, "concurrency"},
		"patch of a secret": {"PATCH", path, `{"secret":"x"}`, 400, "secret"},
		"empty patch":       {"PATCH", path, ``, 400, ""},
		"long overlap":      {"POST", path + "/rotate-secret", `{"overlap":"169h"}`, 400, "overlap"},
		"negative overlap":  {"POST", path + "/rotate-secret", `{"overlap":-1}`, 400, "overlap"},
		"negative text":     {"POST", path + "/rotate-secret", `{"overlap":"-1h"}`, 400, "overlap"},
		"replay of nothing": {"POST", replay, `{}`, 400, "since"},
		"replay since when": {"POST", replay, `{"since":"yesterday"}`, 400, "since"},
		"get of replay":     {"GET", replay, ``, 405, ""},
		"malformed id":      {"GET", all + "/a.b", ``, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := e.do(ask{method: tc.method, path: tc.path, body: tc.body})
			if p := a.problem(t); a.status != tc.status || p.Field != tc.field || p.Message == "" {
				t.Errorf("%d %s; want %d about %q", a.status, a.body, tc.status, tc.field)
			}
		})
	}
	if a := open(t).get("/v1/webhooks"); a.status != http.StatusNotImplemented {
		t.Errorf("a gateway without endpoints: %d %s", a.status, a.body)
	}
}

func TestAppendedEvents(t *testing.T) {
	e := openWithEndpoints(t)
	wants, _ := e.webhook(`{"url":"https://example.com/a","events":["agent.finished"]}`)
	e.webhook(`{"url":"https://example.com/b","events":["message"]}`)
	const path = "/v1/conversations/c_1/events"
	const body = `{"id":"done","type":"agent.finished","turn":"turn_1","agent":"agent_1","data":{"steps":3}}`
	a := e.post(path, body)
	first := decode[conversations.Appended](t, a)
	if a.status != http.StatusCreated || first.ID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if b := e.post(path, body); b.status != http.StatusOK || b.body != a.body {
		t.Errorf("the repeat: %d %s, want %s", b.status, b.body, a.body)
	}
	page := decode[conversations.Page](t, e.get(path))
	if len(page.Events) != 1 || page.Events[0].Cursor != first.Cursor {
		t.Fatalf("the conversation has %+v, answered %+v", page.Events, first)
	}
	got := page.Events[0].Event
	if got.ID != first.ID || got.Type != schemas.AgentFinished || got.Subject != "turn_1" || string(got.Data) != `{"steps":3}` ||
		got.Source != "/accounts/acct_alice" {
		t.Errorf("%+v", got)
	}
	list := e.deliveries()
	if len(list) != 1 || list[0].Endpoint != wants.ID || list[0].Event != first.ID {
		t.Fatalf("delivers %+v", list)
	}
	var sent struct {
		Data struct {
			Steps        int
			Conversation string
			Cursor       schemas.Cursor
		}
	}
	if err := json.Unmarshal([]byte(list[0].Body), &sent); err != nil || sent.Data.Steps != 3 || sent.Data.Conversation != "c_1" ||
		sent.Data.Cursor != first.Cursor {
		t.Errorf("delivers %s: %v", list[0].Body, err)
	}
	// An id is the client's own on each conversation, and each account has its own.
	if a := e.post("/v1/conversations/c_2/events", body); a.status != http.StatusCreated {
		t.Errorf("the id on another conversation: %d %s", a.status, a.body)
	}
	if a := e.do(ask{method: http.MethodPost, path: path, body: body, key: bobKey}); a.status != http.StatusCreated {
		t.Errorf("the id of another account: %d %s", a.status, a.body)
	}
	if page := decode[conversations.Page](t, e.get(path)); len(page.Events) != 1 {
		t.Errorf("somebody else's event is on alice's conversation: %+v", page.Events)
	}
	for range 2 {
		if a := e.post(path, `{"type":"message","data":{}}`); a.status != http.StatusCreated {
			t.Errorf("without an id: %d %s", a.status, a.body)
		}
	}
}

// TestAnAppendIsRefusedWhoseDeliveriesDoNotFit: an event for a hundred endpoints takes the room of a hundred bodies, and is refused
// before anything of it is written; so are the test of an endpoint, and what is appended at the same time.
//
//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestAnAppendIsRefusedWhoseDeliveriesDoNotFit(t *testing.T) {
	const quota = 8 << 20
	e := openWithQuota(t, &streams.Quotas{Log: quota})
	_, path := e.webhook(`{"url":"https://example.com/0","events":["agent.failed"]}`)
	for n := range 50 {
		e.webhook(fmt.Sprintf(`{"url":"https://example.com/%d","events":["message"]}`, n))
	}
	const events = "/v1/conversations/c_1/events"
	large := `"data":{"text":"` + strings.Repeat("x", 200<<10) + `"}}`
	if a := e.post(events, `{"type":"message",`+large); a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "may keep") {
		t.Errorf("51 bodies: %d %.300s", a.status, a.body)
	}
	if n := len(e.deliveries()); n != 0 || len(decode[conversations.Page](t, e.get(events)).Events) != 0 {
		t.Errorf("%d deliveries of what was refused are on the log, or the event is", n)
	}
	if a := e.post(events, `{"type":"agent.failed",`+large); a.status != http.StatusCreated {
		t.Errorf("for one endpoint: %d %.300s", a.status, a.body)
	}
	if a := e.post(events, `{"type":"message","data":{}}`); a.status != http.StatusCreated || len(e.deliveries()) != 51 {
		t.Errorf("a small one for 50: %d %.300s, %d deliveries", a.status, a.body, len(e.deliveries()))
	}
	for n := 0; e.post(events, `{"type":"agent.step.finished",`+large).status == http.StatusCreated; n++ {
		if n > quota>>17 {
			t.Fatal("the quota is never used up")
		}
	}
	for n := 0; e.post(path+"/test", "").status == http.StatusAccepted; n++ {
		if n > quota>>9 {
			t.Fatal("tests of an endpoint are made beyond the quota")
		}
	}
}

// TestAppendedEventsArePublishedLive: the transports pass on whatever type an event has.
func TestAppendedEventsArePublishedLive(t *testing.T) {
	e := open(t)
	s := e.socket()
	s.write(`{"op":"attach","conv":"c_1"}`)
	s.until("live")
	a := decode[conversations.Appended](t, e.post("/v1/conversations/c_1/events", `{"type":"agent.step.finished","data":{"n":1}}`))
	if f := s.next(); f.Op != "ev" || f.Data.Type != schemas.AgentStepFinished || f.Data.ID != a.ID || f.Cur != a.Cursor.String() {
		t.Errorf("%+v", f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	lines := e.stream(ctx, "/v1/conversations/c_1/events", nil)
	for {
		c := chunk(t, lines)
		if strings.Contains(c, "event: agent.step.finished") {
			break
		}
		if strings.Contains(c, "upToDate") {
			t.Fatal("the replay lacks the event")
		}
	}
}

func TestBadAppendedEvents(t *testing.T) {
	e := open(t)
	for name, tc := range map[string]struct {
		conv, body string
		status     int
		field      string
	}{
		"type of ours":         {"c_1", `{"type":"job.finished","data":{}}`, 400, "type"},
		"no type":              {"c_1", `{"data":{}}`, 400, "type"},
		"no data":              {"c_1", `{"type":"message"}`, 400, "data"},
		"data is no object":    {"c_1", `{"type":"message","data":[1]}`, 400, "data"},
		"malformed id":         {"c_1", `{"id":"a b","type":"message","data":{}}`, 400, "id"},
		"malformed turn":       {"c_1", `{"turn":"x","type":"message","data":{}}`, 400, "turn"},
		"unknown field":        {"c_1", `{"type":"message","data":{},"time":"now"}`, 400, "time"},
		"bad JSON":             {"c_1", `{`, 400, ""},
		"malformed conversion": {"a%20b", `{"type":"message","data":{}}`, 400, "conversation"},
		"too large":            {"c_1", `{"type":"message","data":{"a":"` + strings.Repeat("x", schemas.MaxEvent) + `"}}`, 413, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := e.post("/v1/conversations/"+tc.conv+"/events", tc.body)
			if p := a.problem(t); a.status != tc.status || p.Field != tc.field || p.Message == "" {
				t.Errorf("%d %s; want %d about %q", a.status, a.body, tc.status, tc.field)
			}
		})
	}
	if page := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events")); len(page.Events) != 0 {
		t.Errorf("a refused event is there: %+v", page.Events)
	}
}
