package schemas

import (
	"encoding/json"
	"testing"
	"time"
)

func TestAnInstanceOfTheVersionBeforeHasAState(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]InstanceState{
		`{"provider":"docker","ref":{"id":"a","epoch":"b"}}`:                                 InstanceReady,
		`{"provider":"docker","ref":{"id":"a","epoch":"b"},"ending":"2026-11-22T10:00:00Z"}`: InstanceEnding,
		`{"provider":"docker","ref":{"id":"a","epoch":"b"},"state":"paused"}`:                InstancePaused,
		`{"worker":"worker_1"}`: InstanceReserving,
	} {
		var i Instance
		if err := json.Unmarshal([]byte(text), &i); err != nil || i.State != want {
			t.Errorf("%s: %q, %v, want %q", text, i.State, err, want)
		}
	}
}

func FuzzDecodeInstance(f *testing.F) {
	whole, err := json.Marshal(Instance{
		Account: "acct_1", Sandbox: "sb_1", Workspace: "ws_1", Provider: "docker", State: InstancePaused, Ref: Ref{ID: "a", Epoch: "b"},
		Made: time.Unix(1, 0).UTC(), Wanted: InstanceWish{State: WantRunning, At: time.Unix(2, 0).UTC()},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"ref":{"id":"a"},"ending":"2026-11-22T10:00:00Z"}`))
	f.Add([]byte(`{"state":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var i, again Instance
		if json.Unmarshal(data, &i) != nil {
			return
		}
		if i.State == "" {
			t.Fatal("an instance without a state")
		}
		text, err := json.Marshal(i)
		if err != nil {
			return // times beyond the year 9999
		}
		if err := json.Unmarshal(text, &again); err != nil || !again.Made.Equal(i.Made) || again.Ref != i.Ref || again.State != i.State {
			t.Fatalf("%s was read as %+v, and again as %+v, %v", data, i, again, err)
		}
	})
}
