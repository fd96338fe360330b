package gateway_test

import (
	"net/http"
	"testing"

	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/schemas"
)

func TestOneCallIsListedByItsID(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		for _, id := range []string{"one", "two"} {
			body := `{"id":"` + id + `","conversation":"c_1","tool":"bash","input":{"command":"echo ` + id + `"}}`
			if a := e.post("/v1/calls", body); a.status != http.StatusAccepted {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		e.work()
		if a := e.get("/v1/calls/one?wait=60s"); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for query, want := range map[string]int{"?id=one": 1, "?id=never": 0, "": 2} {
			a := e.get("/v1/calls" + query)
			list := decode[calls.List](t, a)
			if a.status != http.StatusOK || len(list.Calls) != want || list.Next != "" {
				t.Errorf("%q: %d %s", query, a.status, a.body)
			}
			if c := append(list.Calls, schemas.CallSummary{})[0]; want == 1 &&
				(c.ID != "one" || c.Summary != "echo one" || c.Status != "completed" || c.Workspace == "" || c.Finished.IsZero()) {
				t.Errorf("%q: %+v", query, c)
			}
		}
		if a := e.do(ask{path: "/v1/calls?id=one", key: bobKey}); len(decode[calls.List](t, a).Calls) != 0 {
			t.Errorf("another account's: %d %s", a.status, a.body)
		}
		for _, query := range []string{"?id=", "?id=not%20one", "?id=one&limit=1", "?id=one&conversation=c_1", "?id=one&before=two", "?id=one&id=two"} {
			if a := e.get("/v1/calls" + query); a.status != http.StatusBadRequest {
				t.Errorf("%q: %d %s", query, a.status, a.body)
			}
		}
	})
}
