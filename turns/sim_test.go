package turns_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/turns"
)

// world is a transcript, models and tools around the decisions of one conversation. It checks each of them.
type world struct {
	t      *testing.T
	r      *rand.Rand
	c      turns.Config
	s      turns.State
	v      turns.View
	log    []turns.Kept
	from   uint64
	begun  map[schemas.TurnID]int // answers of each turn
	ended  map[schemas.TurnID]schemas.TurnStatus
	effect map[schemas.CallID]int
	seq    int
	same   bool // the model makes the same call again and again
	quiet  bool // no more comes in, and nothing breaks
}

func user(text string) []schemas.ModelMessage {
	return []schemas.ModelMessage{{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockText, Text: text}}}}
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, r: r, begun: map[schemas.TurnID]int{}, ended: map[schemas.TurnID]schemas.TurnStatus{}, effect: map[schemas.CallID]int{}}
	w.c = turns.Config{
		Conversation: "acct_a/c", Models: []turns.Model{{Name: "big", Context: []int64{0, 2000, 6000}[r.IntN(3)]}, {Name: "small"}},
		System: "be brief", MaxSteps: 1 + r.IntN(6), MaxTokens: 300, Budget: []int64{0, 3000, 20_000}[r.IntN(3)],
		Tools: []models.Tool{{Name: "z", Schema: json.RawMessage(`{}`)}, {Name: "a", Schema: json.RawMessage(`{}`)}},
	}
	w.same = r.IntN(8) == 0
	w.v = turns.View{Now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	w.forget()
	return w
}

// forget is what a crash does: all is gone but the log.
func (w *world) forget() {
	w.v.Mine, w.v.Asked, w.v.Cancelled = 0, nil, time.Time{}
	w.v.Called, w.v.Ended = map[schemas.CallID]bool{}, map[schemas.CallID]schemas.UsedResult{}
	w.s = turns.Load(w.read())
}

// read is the transcript as its readers get it.
func (w *world) read() []turns.Kept {
	return slices.DeleteFunc(slices.Clone(w.log), func(k turns.Kept) bool { return k.Seq < w.from })
}

// store appends a commit, through JSON as the log does.
func (w *world) store(d turns.Decision) {
	w.t.Helper()
	commit := schemas.Commit{ID: "commit_1", Turn: d.Turn, At: w.v.Now, Entries: d.Entries}
	data, err := schemas.EncodeCommit(commit)
	if err != nil {
		w.t.Fatalf("a commit that cannot be stored: %v: %+v", err, commit)
	}
	if commit, err = schemas.DecodeCommit(data); err != nil {
		w.t.Fatal(err)
	}
	k := turns.Kept{Seq: w.s.Tail + uint64(1+w.r.IntN(3)), Commit: commit}
	w.log, w.from = append(w.log, k), d.From
	w.s, w.v.Mine, w.v.Asked = w.s.Apply(k), k.Seq, nil
	if again := turns.Load(w.read()); !reflect.DeepEqual(again, w.s) {
		w.t.Fatalf("read again it is another state:\n%+v\n%+v", again, w.s)
	}
	for _, e := range commit.Entries {
		if e.Kind == schemas.EntryAnswer {
			if w.begun[d.Turn]++; w.begun[d.Turn] > w.c.MaxSteps || w.begun[d.Turn] != e.Step {
				w.t.Fatalf("answer %d of turn %s is of step %d, of at most %d", w.begun[d.Turn], d.Turn, e.Step, w.c.MaxSteps)
			}
		}
		if e.Kind == schemas.EntryEnd {
			if w.ended[d.Turn] != "" {
				w.t.Fatalf("turn %s has two ends", d.Turn)
			}
			w.ended[d.Turn] = e.Status
		}
	}
	if u := w.s.Used; w.c.Budget > 0 && u.In+u.Out+u.CacheRead+u.CacheWrite > w.c.Budget {
		w.t.Fatalf("used %+v of a budget of %d", u, w.c.Budget)
	}
	if len(w.s.Pending()) == 0 {
		if err := turns.Pairing(w.s.Messages()); err != nil {
			w.t.Fatalf("%v\n%s", err, show(w.s.Messages()))
		}
	}
}

func show(m []schemas.ModelMessage) string {
	b, err := schemas.EncodeJSON(m)
	return fmt.Sprint(string(b), err)
}

// turn plays one decision. It reports whether the conversation rests.
func (w *world) turn() bool {
	w.t.Helper()
	d := turns.Next(w.s, w.c, w.v)
	for _, s := range d.Settle {
		w.v.Inbox = slices.DeleteFunc(w.v.Inbox, func(e turns.Envelope) bool { return e.ID == s.ID })
	}
	switch {
	case len(d.Entries) > 0:
		w.store(d)
		return false
	case d.Ask != nil:
		if err := turns.Pairing(d.Ask.Request.Messages); err != nil {
			w.t.Fatalf("asked: %v\n%s", err, show(d.Ask.Request.Messages))
		}
		if d.Ask.Request.MaxTokens < 1 || d.Ask.Request.MaxTokens > w.c.MaxTokens || d.Ask.Purpose == "" && d.Ask.Request.Tools[0].Name != "a" {
			w.t.Fatalf("asked for %d tokens with %v", d.Ask.Request.MaxTokens, d.Ask.Request.Tools)
		}
		w.v.Asked = &turns.Asked{Step: d.Ask.Step, Attempt: d.Ask.Attempt, Purpose: d.Ask.Purpose}
		w.reply(d.Ask)
		return false
	case d.StopAsk:
		w.v.Asked.Err = &models.Error{Class: turns.Stopped, Begun: true}
		return false
	case len(d.Cancel) > 0:
		w.v.Cancelled = w.v.Now
		return false
	case len(d.Call) > 0:
		for _, c := range d.Call {
			w.v.Called[c.ID] = true
			w.effect[c.ID] = 1
		}
		return false
	case d.Idle:
		return true
	}
	for _, id := range w.s.Pending() { // calls end
		if w.v.Called[id] && w.r.IntN(2) == 0 {
			w.v.Ended[id] = schemas.UsedResult{Status: schemas.StatusCompleted, Text: w.result()}
		}
	}
	w.v.Now = w.v.Now.Add(time.Duration(1+w.r.IntN(20)) * time.Second)
	return false
}

func (w *world) result() string {
	if w.same {
		return "the same"
	}
	return fmt.Sprint("result ", w.r.IntN(3))
}

// reply is the model's word on a request.
func (w *world) reply(a *turns.Ask) {
	usage := schemas.TokenUsage{In: int64(w.r.IntN(60)), Out: w.r.Int64N(a.Request.MaxTokens + 1)}
	if !w.quiet && w.r.IntN(4) == 0 {
		classes := []models.Class{models.Overloaded, models.RateLimited, models.SpendLimit, models.TooLong, models.BadRequest,
			models.BadKey, models.Disconnected}
		w.v.Asked.Err = &models.Error{Class: classes[w.r.IntN(len(classes))], Begun: w.r.IntN(2) == 0,
			After: time.Duration(w.r.IntN(3)) * time.Second}
		return
	}
	answer := &models.Answer{Model: a.Request.Model, Usage: usage, Stop: models.StopEnd}
	if w.r.IntN(5) > 0 {
		answer.Blocks = append(answer.Blocks, schemas.Block{Type: schemas.BlockText, Text: strings.Repeat("word ", w.r.IntN(200))})
	}
	uses := w.r.IntN(4)
	if w.same {
		uses = 1
	}
	for range uses {
		answer.Stop = models.StopToolUse
		id := ""
		if w.r.IntN(5) > 0 { // some servers count from the start in each answer, some give none
			id = fmt.Sprint("u", w.r.IntN(4))
		}
		answer.Blocks = append(answer.Blocks, schemas.Block{Type: schemas.BlockToolUse, Use: id, Name: "a", Input: json.RawMessage(`{}`)})
	}
	if w.r.IntN(6) == 0 {
		stops := []models.Stop{models.StopMaxTokens, models.StopPause, models.StopRefusal, models.StopContext, models.StopToolUse}
		answer.Stop = stops[w.r.IntN(len(stops))]
	}
	w.v.Asked.Answer = answer
}

// happens lets something come from outside.
func (w *world) happens() {
	switch w.r.IntN(12) {
	case 0, 1:
		modes := []turns.Mode{"", turns.Steer, turns.FollowUp, turns.Collect, turns.Reject, turns.Interrupt, turns.StopSoon, turns.StopNow}
		w.seq++
		e := turns.Envelope{ID: fmt.Sprint("e", w.seq), Mode: modes[w.r.IntN(len(modes))]}
		if e.Mode != turns.StopSoon && e.Mode != turns.StopNow {
			e.Messages = user(strings.Repeat("please ", w.r.IntN(100)) + e.ID)
		}
		w.v.Inbox = append(w.v.Inbox, e)
	case 2:
		w.forget()
	case 3:
		w.v.Now = w.v.Now.Add(time.Minute)
	}
}

func play(t *testing.T, seed uint64) { played(t, seed) }

func played(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed)
	w.v.Inbox = []turns.Envelope{{ID: "e0", Messages: user("begin")}}
	for range 150 {
		w.happens()
		w.turn()
	}
	w.quiet = true
	for n := 0; !w.turn(); n++ {
		if n > 5000 {
			t.Fatalf("seed %d: it does not come to rest: %+v", seed, turns.Next(w.s, w.c, w.v))
		}
	}
	for turn := range w.begun {
		if w.ended[turn] == "" {
			t.Fatalf("turn %s has no end", turn)
		}
	}
	return w
}

// Whatever models, people and crashes do: transcripts are valid at each commit, turns keep to their budget and steps, have one end, and
// each reader of the transcript has the same state.
//
//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
//guarantee:a-turn-outlives-the-process-that-carries-it-out
func TestTurnsThroughAnything(t *testing.T) {
	t.Parallel()
	ends, kinds := map[schemas.TurnStatus]bool{}, map[schemas.EntryKind]bool{}
	for seed := range uint64(120) {
		w := played(t, seed)
		for _, status := range w.ended {
			ends[status] = true
		}
		for _, k := range w.log {
			for _, e := range k.Commit.Entries {
				kinds[e.Kind] = true
			}
		}
	}
	if len(ends) != len(schemas.TurnStatuses()) || len(kinds) != len(schemas.EntryKinds()) {
		t.Errorf("only these were met: %v, %v", ends, kinds)
	}
}

//guarantee:a-turn-keeps-to-its-budget-and-its-steps-and-its-transcript-can-be-sent-to-a-model-at-any-time
func FuzzTurns(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(play)
}
