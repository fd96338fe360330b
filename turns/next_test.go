package turns_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/turns"
)

// table is a conversation whose model says what a test wants.
func table(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 1)
	w.c = turns.Config{Conversation: "acct_a/c", Models: []turns.Model{{Name: "big"}, {Name: "small"}}, MaxTokens: 300, MaxSteps: 20}
	w.v.Inbox = []turns.Envelope{{ID: "e0", Messages: user("begin")}}
	return w
}

// next stores what is to be stored and returns the first decision that is something else.
func (w *world) next() turns.Decision {
	w.t.Helper()
	for range 20 {
		d := turns.Next(w.s, w.c, w.v)
		if len(d.Entries) == 0 {
			return d
		}
		w.store(d)
	}
	w.t.Fatal("it only writes")
	return turns.Decision{}
}

// ask returns the request that is to be sent now, and takes it for sent.
func (w *world) ask() *turns.Ask {
	w.t.Helper()
	d := w.next()
	if d.Ask == nil {
		w.t.Fatalf("nothing is asked: %+v", d)
	}
	w.v.Asked = &turns.Asked{Step: d.Ask.Step, Attempt: d.Ask.Attempt, Purpose: d.Ask.Purpose}
	return d.Ask
}

func (w *world) says(stop models.Stop, blocks ...schemas.Block) {
	w.v.Asked.Answer = &models.Answer{Model: "big", Stop: stop, Blocks: blocks, Usage: schemas.TokenUsage{In: 10, Out: 5}}
}

func (w *world) fails(class models.Class, after time.Duration) {
	w.v.Asked.Err = &models.Error{Class: class, After: after}
}

func word(s string) schemas.Block { return schemas.Block{Type: schemas.BlockText, Text: s} }

func tool(id string) schemas.Block {
	return schemas.Block{Type: schemas.BlockToolUse, Use: id, Name: "a", Input: []byte(`{}`)}
}

// kinds are the kinds of the last n commits' entries.
func (w *world) kinds(n int) (list []schemas.EntryKind) {
	for _, k := range w.log[len(w.log)-n:] {
		for _, e := range k.Commit.Entries {
			list = append(list, e.Kind)
		}
	}
	return list
}

func (w *world) last() schemas.Entry {
	entries := w.log[len(w.log)-1].Commit.Entries
	return entries[len(entries)-1]
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestATurnWithATool(t *testing.T) {
	t.Parallel()
	w := table(t)
	w.ask()
	w.says(models.StopToolUse, word("look"), tool("u1"), tool("u2"))
	d := w.next()
	if len(d.Call) != 2 || d.Call[0].ID == d.Call[1].ID {
		t.Fatalf("calls: %+v", d)
	}
	w.forget() // who comes after a crash finds the same calls
	if again := w.next(); len(again.Call) != 2 || again.Call[0].ID != d.Call[0].ID || again.Call[1].ID != d.Call[1].ID {
		t.Fatalf("calls after a crash: %+v", again)
	}
	w.v.Inbox = []turns.Envelope{{ID: "e1", Mode: turns.FollowUp, Messages: user("later")}, {ID: "e2", Messages: user("also")}}
	for i, c := range d.Call {
		w.v.Called[c.ID] = true
		if d := w.next(); i == 0 && (d.Ask != nil || d.Idle) {
			t.Fatalf("with one result: %+v", d)
		}
		w.v.Ended[c.ID] = schemas.UsedResult{Status: schemas.StatusCompleted, Text: "done"}
	}
	ask := w.ask()
	blocks := ask.Request.Messages[len(ask.Request.Messages)-1].Blocks
	want := []schemas.EntryKind{schemas.EntryResults, schemas.EntryIn, schemas.EntryOpen}
	if len(blocks) != 3 || blocks[0].Use != "u1" || blocks[2].Text != "also" || !slices.Equal(w.kinds(1), want) {
		t.Fatalf("%v: %+v", w.kinds(1), blocks)
	}
	first := w.s.Turn
	w.says(models.StopEnd, word("there"))
	w.ask()
	if w.ended[first] != schemas.TurnCompleted || w.s.Turn == first || !w.s.Took("e1") {
		t.Errorf("the turn's end is %q, and then %+v", w.ended[first], w.s)
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestOverloadedModels(t *testing.T) {
	t.Parallel()
	w := table(t)
	for n, want := range []string{"big", "big", "small"} {
		ask := w.ask()
		if ask.Request.Model != want || ask.Attempt != n+1 || ask.Step != 1 {
			t.Fatalf("attempt %d: %+v", n+1, ask)
		}
		w.fails(models.Overloaded, 30*time.Second)
		if d := w.next(); !d.Until.Equal(w.v.Now.Add(30 * time.Second)) {
			t.Fatalf("it waits until %v", d.Until)
		}
		w.v.Now = w.v.Now.Add(30 * time.Second)
	}
	turn := w.s.Turn
	for n := 4; n <= turns.MaxAttempts; n++ {
		if ask := w.ask(); ask.Attempt != n {
			t.Fatalf("attempt %d", ask.Attempt)
		}
		w.fails(models.Disconnected, 0)
		if d := w.next(); n < turns.MaxAttempts {
			w.v.Now = d.Until
		}
	}
	if w.ended[turn] != schemas.TurnFailed || w.last().Reason != string(models.Disconnected) {
		t.Errorf("it ended %+v", w.last())
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestWhatIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []models.Class{models.SpendLimit, models.BadKey, models.BadRequest, models.TooLong} {
		w := table(t)
		w.ask()
		w.fails(class, time.Second)
		if d := w.next(); !d.Idle || w.last().Status != schemas.TurnFailed || w.last().Reason == "" {
			t.Errorf("%s: %+v after %+v", class, d, w.last())
		}
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestAStepThatAnotherHasOpened(t *testing.T) {
	t.Parallel()
	w := table(t)
	w.c.Budget = 1000
	w.ask()
	w.forget()
	if ask := w.ask(); ask.Attempt != 2 || ask.Step != 1 || w.s.Used.In == 0 {
		t.Errorf("asked %+v, used %+v", ask, w.s.Used)
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestTooLongIsSummedUpOnce(t *testing.T) {
	t.Parallel()
	w := table(t)
	for n := range 3 {
		w.ask()
		w.says(models.StopToolUse, tool("u"+string(rune('a'+n))))
		for _, c := range w.next().Call {
			w.v.Called[c.ID], w.v.Ended[c.ID] = true, schemas.UsedResult{Status: schemas.StatusCompleted, Text: string(rune('a' + n))}
		}
	}
	w.ask()
	w.fails(models.TooLong, 0)
	if ask := w.ask(); ask.Purpose != schemas.PurposeSummary || len(ask.Request.Tools) > 0 {
		t.Fatalf("asked %+v", ask)
	}
	w.says(models.StopEnd, word("in short"))
	ask := w.ask()
	if ask.Purpose != "" || ask.Step != 4 || len(ask.Request.Messages) != 5 || ask.Request.Messages[0].Blocks[1].Text != "begin" {
		t.Fatalf("asked %s", show(ask.Request.Messages))
	}
	w.fails(models.TooLong, 0)
	if d := w.next(); !d.Idle || w.last().Status != schemas.TurnFailed {
		t.Errorf("after a second time: %+v", w.last())
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestATurnIsStopped(t *testing.T) {
	t.Parallel()
	for _, mode := range []turns.Mode{turns.StopNow, turns.Interrupt} {
		w := table(t)
		w.ask()
		w.v.Inbox = []turns.Envelope{{ID: "s", Mode: mode, Messages: user("instead")}}
		if d := w.next(); !d.StopAsk {
			t.Fatalf("%s while a model is asked: %+v", mode, d)
		}
		turn := w.s.Turn
		w.fails(turns.Stopped, 0)
		if d := w.next(); w.ended[turn] != schemas.TurnStopped || (mode == turns.Interrupt) != (d.Ask != nil) {
			t.Errorf("%s: %+v after %q", mode, d, w.ended[turn])
		}
	}
	w := table(t)
	w.ask()
	w.says(models.StopToolUse, tool("u1"), tool("u2"))
	call := w.next().Call
	w.v.Called[call[0].ID] = true
	w.v.Inbox = []turns.Envelope{{ID: "s", Mode: turns.StopNow}}
	if d := w.next(); len(d.Cancel) != 1 || d.Cancel[0] != call[0].ID {
		t.Fatalf("to be cancelled: %+v", d)
	}
	w.v.Cancelled = w.v.Now
	if d := w.next(); !d.Until.Equal(w.v.Now.Add(turns.StopWithin)) || len(d.Cancel) > 0 {
		t.Fatalf("then: %+v", d)
	}
	w.v.Now = w.v.Now.Add(turns.StopWithin)
	d := w.next()
	results := w.log[len(w.log)-1].Commit.Entries[0].Results
	if !d.Idle || len(results) != 2 || results[0].Status != schemas.StatusInterrupted || results[1].Status != schemas.StatusCancelled {
		t.Errorf("%+v, results %+v", d, results)
	}
}

func TestAModelThatRepeatsItself(t *testing.T) {
	t.Parallel()
	w := table(t)
	for n := 0; ; n++ {
		d := w.next()
		if d.Idle {
			if n != 3 || w.last().Status != schemas.TurnLooping {
				t.Errorf("after %d steps: %+v", n, w.last())
			}
			return
		}
		w.ask()
		w.says(models.StopToolUse, tool("u"+string(rune('a'+n))))
		for _, c := range w.next().Call {
			w.v.Called[c.ID], w.v.Ended[c.ID] = true, schemas.UsedResult{Status: schemas.StatusCompleted, Text: "the same"}
		}
	}
}

func TestWhoWaitsForTheNextTurn(t *testing.T) {
	t.Parallel()
	w := table(t)
	w.ask()
	w.v.Inbox = []turns.Envelope{
		{ID: "c1", Mode: turns.Collect, Messages: user("1")}, {ID: "r", Mode: turns.Reject, Messages: user("2")},
		{ID: "f", Mode: turns.FollowUp, Messages: user("3")}, {ID: "c2", Mode: turns.Collect, Messages: user("4")}, {ID: "e0"},
	}
	if d := w.next(); !slices.Equal(d.Settle, []turns.Settled{{"r", turns.Rejected}, {"e0", turns.Taken}}) {
		t.Errorf("settled: %+v", d.Settle)
	}
	w.says(models.StopEnd, word("so"))
	w.ask()
	if !w.s.Took("c1") || !w.s.Took("c2") || w.s.Took("f") {
		t.Error("what was collected is not taken together")
	}
}

// What is left of a transcript whose beginning went with its age begins with the first whole turn.
func TestATranscriptWithoutItsBeginning(t *testing.T) {
	t.Parallel()
	w := table(t)
	w.ask()
	w.says(models.StopToolUse, tool("u1"))
	c := w.next().Call[0]
	w.v.Called[c.ID], w.v.Ended[c.ID] = true, schemas.UsedResult{Status: schemas.StatusCompleted}
	w.ask()
	w.says(models.StopEnd, word("so"))
	w.v.Inbox = []turns.Envelope{{ID: "e1", Mode: turns.FollowUp, Messages: user("second")}}
	w.ask()
	for cut := range w.log {
		s := turns.Load(w.log[cut:])
		if err := turns.Pairing(s.Messages()); len(s.Messages()) > 0 && err != nil || s.Tail != w.s.Tail {
			t.Errorf("from commit %d on: %v", cut, err)
		}
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func TestPairing(t *testing.T) {
	t.Parallel()
	result := func(id string) schemas.Block { return schemas.Block{Type: schemas.BlockToolResult, Use: id} }
	m := func(r schemas.Role, b ...schemas.Block) schemas.ModelMessage {
		return schemas.ModelMessage{Role: r, Blocks: b}
	}
	a, u := schemas.RoleAssistant, schemas.RoleUser
	good := []schemas.ModelMessage{m(u, word("x")), m(a, tool("1"), tool("2")), m(u, result("2"), result("1"), word("y"))}
	if err := turns.Pairing(good); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][]schemas.ModelMessage{
		"nothing": {}, "an answer first": {m(a, word("x"))}, "an answer last": {m(u, word("x")), m(a, word("y"))},
		"no alternation": {m(u, word("x")), m(u, word("y")), m(u, word("z"))}, "an empty one": {m(u)},
		"a use without a result":    {m(u, word("x")), m(a, tool("1"), tool("2")), m(u, result("1"))},
		"a result without a use":    {m(u, word("x")), m(a, word("y")), m(u, result("1"))},
		"a result behind words":     {m(u, word("x")), m(a, tool("1")), m(u, word("y"), result("1"))},
		"a result twice":            {m(u, word("x")), m(a, tool("1"), tool("2")), m(u, result("1"), result("1"))},
		"an id again":               {m(u, word("x")), m(a, tool("1")), m(u, result("1")), m(a, tool("1")), m(u, result("1"))},
		"an id that is empty":       {m(u, word("x")), m(a, tool("")), m(u, result(""))},
		"a use by the user":         {m(u, tool("1"))},
		"a result by the assistant": {m(u, word("x")), m(a, result("1")), m(u, word("y"))},
	} {
		if turns.Pairing(bad) == nil {
			t.Errorf("%s: it is let through", name)
		}
	}
}
