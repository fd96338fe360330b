package cloud

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestRoom: a sandbox that a worker has started counts until a list shows it, or for a minute. Sandboxes being started count in the order
// of their slots.
//
//guarantee:bounds
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var listed []Running
		r := &Room{Most: 2, Service: "Cloud", Flag: "--cloud-sandboxes", List: func(context.Context) ([]Running, error) { return listed, nil }}
		enter := func(what, id string, fits bool) *Slot {
			t.Helper()
			s, err := r.Enter(t.Context(), id)
			if fits != (err == nil) || err != nil && schemas.CodeOf(err) != schemas.Exhausted {
				t.Fatalf("%s: %v, want %v", what, err, fits)
			}
			return s
		}
		enter("the first", "", true).Started("a")
		second := enter("the second", "", true)
		enter("one too many", "", false)
		second.Leave()
		second.Leave()
		second = enter("after it has left", "b", true)
		second.Started("b")
		second.Leave()
		enter("two are not listed yet", "", false)
		listed = []Running{{ID: "a"}}
		enter("one is listed, one is not", "", false)
		listed = []Running{{ID: "a"}, {ID: "b"}}
		enter("both are listed", "", false)
		enter("it runs already", "b", true).Leave()
		listed = []Running{{ID: "a"}}
		enter("one has ended elsewhere", "", true).Started("c")
		enter("and another was started", "", false)
		r.Ended("c")
		enter("which has ended here", "", true).Started("d")
		time.Sleep(unlistedFor + time.Second)
		early, late := r.Take(""), r.Take("")
		if err := late.Fits(listed); schemas.CodeOf(err) != schemas.Exhausted {
			t.Errorf("the later of two: %v", err)
		}
		if err := early.Fits(listed); err != nil {
			t.Errorf("the earlier of two: %v", err)
		}
	})
}

// TestRecount: if there are too many, the newest are ended, and all workers agree which these are.
func TestRecount(t *testing.T) {
	t.Parallel()
	at := func(id string, second int64) Running { return Running{id, time.Unix(second, 0)} }
	for name, c := range map[string]struct {
		listed []Running
		fails  bool
		ended  string
	}{
		"as many as may":     {listed: []Running{at("b", 1), at("a", 2)}},
		"the newest":         {listed: []Running{at("c", 9), at("a", 2), at("b", 1)}, ended: "c"},
		"the newest, by id":  {listed: []Running{at("c", 1), at("b", 1), at("a", 1)}, ended: "c"},
		"the two newest":     {listed: []Running{at("d", 4), at("c", 3), at("a", 1), at("b", 2)}, ended: "cd"},
		"the list is broken": {listed: []Running{at("c", 9), at("a", 2), at("b", 1)}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Room{Most: 2, List: func(context.Context) ([]Running, error) {
				if c.fails {
					return nil, errors.New("no list")
				}
				return c.listed, nil
			}}
			ended := ""
			for _, id := range []string{"a", "b", "c", "d"} {
				if err := r.Recount(t.Context(), id); schemas.CodeOf(err) == schemas.Exhausted {
					ended += id
				} else if err != nil {
					t.Error(err)
				}
			}
			if ended != c.ended {
				t.Errorf("ended %q, want %q", ended, c.ended)
			}
		})
	}
}
