package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway/natsapi"
	"github.com/sandjet/sandjet/schemas"
)

// TestMisusesAreResults: what a model writes wrongly is the result of its call, at every door.
//
//guarantee:bad-input-is-answered-not-guessed
func TestMisusesAreResults(t *testing.T) {
	e := open(t)
	e.work()
	e.background(natsapi.IntakeConsumer{Bus: e.bus, Records: book{}}.Run)
	e.background(natsapi.Service{Bus: e.bus, Records: book{}, Version: "1.0.0"}.Run)
	nc, s := e.tenant(), e.socket()
	doors := map[string]func(t *testing.T, body string){
		"http": func(t *testing.T, body string) {
			t.Helper()
			if a := e.do(ask{method: http.MethodPost, path: "/v1/calls", body: body}); a.status != http.StatusAccepted {
				t.Errorf("%d %s", a.status, a.body)
			}
		},
		"socket": func(t *testing.T, body string) {
			t.Helper()
			s.write(`{"op":"send","id":1,"request":` + body + `}`)
			if f := s.next(); f.Op != "accepted" {
				t.Errorf("%+v", f)
			}
		},
		"request": func(t *testing.T, body string) {
			t.Helper()
			var a natsapi.Answer
			if err := json.Unmarshal(nc.Request(t, "sandjet.rpc.call", body), &a); err != nil || a.Error != nil {
				t.Errorf("%+v, %v", a, err)
			}
		},
		"publication": func(t *testing.T, body string) {
			t.Helper()
			nc.Publish(t, "sandjet.calls.auto.acct_alice", nil, body)
		},
	}
	n := 0
	for door, send := range doors {
		for name, tc := range map[string]struct{ body, field, says string }{
			"tool":     {`"tool":"browse","input":{"url":"x"}`, "tool", `"browse" is unknown: use one of bash, read`},
			"argument": {`"tool":"bash","input":{"cmd":"ls"}`, "input.cmd", "command is missing or empty. Known fields: command, background"},
			"type":     {`"tool":"bash","input":{"command":7}`, "input.command", "must be a string"},
			"NUL":      {`"tool":"bash","input":{"command":"a\u0000b"}`, "input.command", "NUL"},
		} {
			t.Run(door+"/"+name, func(t *testing.T) {
				n++
				conv := fmt.Sprintf("c_misuse_%d", n)
				send(t, fmt.Sprintf(`{"id":"misuse-%d","conversation":%q,%s}`, n, conv, tc.body))
				var r schemas.Result
				if err := json.Unmarshal(e.untilEvent(schemas.ConversationID(conv), schemas.CallFinished).Data, &r); err != nil {
					t.Fatal(err)
				}
				if r.Status != schemas.StatusFailed || r.Error == nil || r.Error.Code != schemas.Invalid || r.Error.Field != tc.field ||
					!strings.Contains(r.Text, tc.says) || !strings.Contains(r.Text, tc.field) {
					t.Errorf("%+v, %v", r, r.Error)
				}
			})
		}
	}
	if len(e.dead()) != 0 {
		t.Errorf("dead letters: %+v", e.dead())
	}
}
