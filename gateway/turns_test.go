package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/schemas"
)

func TestWhatIsSaidToAnAgent(t *testing.T) {
	t.Parallel()
	k := openKept(t, func(o *gateway.Options) {
		o.AgentTurns = func(context.Context, schemas.AccountID, schemas.AgentID) error { return nil }
	})
	agent, _ := k.add(k.anna, "agents", `{"name":"writer"}`)
	path := "/v1/agents/" + agent + "/turns"
	first := k.as(k.anna, http.MethodPost, path, `{"conversation":"c","input":"hello"}`, "Idempotency-Key", "k")
	said := decode[conversations.TurnAnswer](t, first)
	if first.status != http.StatusAccepted || said.ID == "" || said.Conversation != "c" || said.Status != "accepted" || said.End != nil {
		t.Errorf("%d %s", first.status, first.body)
	}
	if again := k.as(k.anna, http.MethodPost, path, `{"conversation":"c","input":"hello"}`, "Idempotency-Key", "k"); again.body != first.body {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		status     int
	}{
		"another text under the key": {path, `{"conversation":"c","input":"other"}`, []string{"Idempotency-Key", "k"}, 409},
		"a key without conversation": {path, `{"input":"hello"}`, []string{"Idempotency-Key", "k"}, 400},
		"rejected while one waits":   {path, `{"conversation":"c","input":"x","mode":"reject"}`, nil, 409},
		"a stop is no mode":          {path, `{"conversation":"c","input":"x","mode":"stop"}`, nil, 400},
		"nothing":                    {path, `{"conversation":"c","input":""}`, nil, 400},
		"too much":                   {path, `{"input":"` + strings.Repeat("x", schemas.MaxTurnInput+1) + `"}`, nil, 400},
		"an unknown field":           {path, `{"input":"x","moed":"steer"}`, nil, 400},
		"an unknown parameter":       {path + "?wiat=1", `{"input":"x"}`, nil, 400},
		"no agent":                   {"/v1/agents/" + schemas.NewID(schemas.AgentPrefix) + "/turns", `{"input":"x"}`, nil, 404},
		"no turn to stop":            {"/v1/conversations/other/stop", `{}`, nil, 409},
		"an unknown way to stop":     {"/v1/conversations/c/stop", `{"when":"later"}`, nil, 400},
		"a wait that passes":         {path + "?wait=0.1", `{"conversation":"d","input":"x"}`, nil, 202},
	} {
		if a := k.as(k.anna, http.MethodPost, c.path, c.body, c.headers...); a.status != c.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}
