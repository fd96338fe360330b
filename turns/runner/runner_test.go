package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/turns"
)

const (
	anna  schemas.AccountID      = "acct_anna"
	talk  schemas.ConversationID = "talk/1"
	agent schemas.AgentID        = "agent_1"
)

// reply is what a scripted model does with a request.
type reply struct {
	say   string
	calls []string // commands of bash
	err   *models.Error
	took  time.Duration
}

// model answers by a function of the last message. It holds every request to the rules of both wires.
type model struct {
	answer func(said string) reply

	mu    sync.Mutex
	asked []string
	wrong error
}

func (m *model) Stream(ctx context.Context, r models.Request) iter.Seq2[models.Delta, error] {
	last := r.Messages[len(r.Messages)-1]
	var parts []string
	for _, b := range last.Blocks {
		parts = append(parts, b.Text)
	}
	said := strings.Join(parts, "|")
	m.mu.Lock()
	m.asked = append(m.asked, said)
	n := len(m.asked)
	if err := turns.Pairing(r.Messages); err != nil {
		m.wrong = err
	}
	m.mu.Unlock()
	return func(yield func(models.Delta, error) bool) {
		a := m.answer(said)
		if !wait.Sleep(ctx, a.took) {
			yield(models.Delta{}, ctx.Err())
			return
		}
		if a.err != nil {
			yield(models.Delta{}, a.err)
			return
		}
		out := models.Answer{Stop: models.StopEnd, Model: r.Model, Usage: schemas.TokenUsage{In: 10, Out: 5}}
		if a.say != "" {
			if !yield(models.Delta{Text: a.say}, nil) {
				return
			}
			out.Blocks = append(out.Blocks, schemas.Block{Type: schemas.BlockText, Text: a.say})
		}
		for i, command := range a.calls {
			in, _ := json.Marshal(map[string]string{"command": command}) // a map of strings
			out.Stop = models.StopToolUse
			out.Blocks = append(out.Blocks, schemas.Block{Type: schemas.BlockToolUse, Use: fmt.Sprintf("u%d_%d", n, i), Name: "bash", Input: in})
		}
		yield(models.Delta{Answer: &out}, nil)
	}
}

func (m *model) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// world is a log with workers that count what they do.
type world struct {
	t     *testing.T
	b     *streams.Bus
	model *model
	took  time.Duration // of each call

	mu      sync.Mutex
	effects map[string]int // by command
	minds   error
}

func (w *world) Mind(context.Context, schemas.AccountID, schemas.AgentID) (Mind, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Mind{
		Config: turns.Config{
			Models: []turns.Model{{Name: "fake"}}, System: "be brief", MaxSteps: 8,
			Tools: []models.Tool{{Name: "bash", Schema: json.RawMessage(`{"type":"object"}`)}},
		},
		Clients: []models.Client{w.model}, Tools: map[string]schemas.Tool{"bash": schemas.ToolBash},
	}, w.minds
}

func (w *world) Resolve(_ context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	now := w.b.Now().UTC()
	return schemas.Call{
		ID: r.ID, Account: a, Conversation: r.Conversation, Agent: r.Agent, Turn: r.Turn, Tool: r.Tool, Input: r.Input, Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(23 * time.Hour),
		Digest: r.Digest(),
	}, nil
}

// work runs calls: the effect comes first, then the result, as with a worker that dies in between.
func (w *world) work(ctx context.Context) {
	err := streams.Calls.Consume(ctx, w.b, streams.ConsumeOptions{Name: "w-fake", Filter: "fake", Slots: 64},
		func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
			var in schemas.BashInput
			if err := json.Unmarshal(d.Value.Input, &in); err != nil {
				return err
			}
			if !wait.Sleep(ctx, w.took) {
				return ctx.Err()
			}
			w.mu.Lock()
			w.effects[in.Command]++
			w.mu.Unlock()
			_, err := lifecycle.Finish(ctx, w.b, d.Value, schemas.Result{Call: d.Value.ID, Conversation: d.Value.Conversation,
				Tool: d.Value.Tool, Status: schemas.StatusCompleted, Text: "did " + in.Command, Finished: w.b.Now()}, true)
			return err
		})
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) runner() *Runner {
	return &Runner{Bus: w.b, Minds: w, Calls: admission.Admitter{Records: w}, Linger: time.Second}
}

// say addresses the agent.
func (w *world) say(text string, mode schemas.TurnMode) (schemas.FollowUpID, error) {
	id := schemas.MakeEnvelopeID(talk, "")
	_, err := lifecycle.Address(w.t.Context(), w.b, schemas.FollowUp{
		ID: id, Account: anna, Conversation: talk, Agent: agent, Results: []schemas.JobResult{}, Text: text, Mode: mode, Created: w.b.Now(),
	})
	return id, err
}

func (w *world) events() (list []schemas.Event) {
	w.t.Helper()
	for e, err := range streams.Events.Replay(w.t.Context(), w.b, string(anna)+"/"+string(talk), schemas.Cursor{}) {
		testwait.OK(w.t, err)
		list = append(list, e.Value)
	}
	return list
}

// ends are the ends of turns, in order.
func (w *world) ends() (list []schemas.TurnEndData) {
	w.t.Helper()
	for _, e := range w.events() {
		if e.Type == schemas.AgentFinished || e.Type == schemas.AgentFailed {
			var d schemas.TurnEndData
			testwait.OK(w.t, json.Unmarshal(e.Data, &d))
			list = append(list, d)
		}
	}
	return list
}

func (w *world) await(n int) []schemas.TurnEndData {
	w.t.Helper()
	var ends []schemas.TurnEndData
	testwait.Eventually(w.t, fmt.Sprintf("%d ends of turns", n), func() bool {
		ends = w.ends()
		return len(ends) >= n
	})
	return ends
}

// judge holds the whole transcript to what is promised of it, and returns how many answers and attempts without one it has.
func (w *world) judge() (answers, spent int) {
	w.t.Helper()
	var kept []turns.Kept
	seen := map[string]bool{}
	for k, err := range streams.ReadTranscript(w.t.Context(), w.b, anna, talk) {
		testwait.OK(w.t, err)
		kept = append(kept, turns.Kept{Seq: k.Seq, Commit: k.Commit})
		for _, e := range k.Commit.Entries {
			switch e.Kind {
			case schemas.EntryAnswer:
				answers++
				key := fmt.Sprint(k.Commit.Turn, e.Step)
				if seen[key] {
					w.t.Errorf("step %d of turn %s has two answers", e.Step, k.Commit.Turn)
				}
				seen[key] = true
			case schemas.EntrySpent:
				spent++
			default: // it is no request's end
			}
		}
		if s := turns.Load(kept); len(s.Pending()) == 0 {
			testwait.OK(w.t, turns.Pairing(s.Messages()))
		}
	}
	if w.model.wrong != nil {
		w.t.Errorf("a model was asked wrongly: %v", w.model.wrong)
	}
	ids := map[string]int{}
	for _, e := range w.events() {
		if ids[e.ID]++; ids[e.ID] > 1 {
			w.t.Errorf("the event %s is there %d times", e.ID, ids[e.ID])
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for command, n := range w.effects {
		if n != 1 {
			w.t.Errorf("%q took effect %d times", command, n)
		}
	}
	return answers, spent
}

// open begins a world; what it starts ends before the test.
func open(t *testing.T, b *streams.Bus, answer func(string) reply) *world {
	w := &world{t: t, b: b, model: &model{answer: answer}, effects: map[string]int{}}
	w.start(t, func(ctx context.Context) error { w.work(ctx); return nil })
	return w
}

// start runs something until the test ends, or what it returns is called.
func (w *world) start(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// twice runs two commands, then one more, then is done.
func twice(said string) reply {
	switch {
	case strings.Contains(said, "did three"):
		return reply{say: "All is done."}
	case strings.Contains(said, "did one"):
		return reply{calls: []string{"three"}}
	default:
		return reply{say: "Let me look.", calls: []string{"one", "two"}}
	}
}

func TestATurn(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		w := open(t, b, twice)
		r := w.runner()
		defer w.start(t, r.Run)()
		_, err := w.say("Please do it.", "")
		testwait.OK(t, err)
		end := w.await(1)[0]
		if end.Status != schemas.TurnCompleted || end.Text != "All is done." || end.Steps != 3 || end.Usage.In != 30 || end.Agent != agent {
			t.Errorf("it ended as %+v", end)
		}
		if answers, spent := w.judge(); answers != 3 || spent != 0 || len(w.effects) != 3 {
			t.Errorf("%d answers, %d attempts without one, effects %v", answers, spent, w.effects)
		}
		var types []schemas.EventType
		for _, e := range w.events() {
			if !strings.HasPrefix(string(e.Type), "call.") && e.Type != schemas.MessageDelta {
				types = append(types, e.Type)
			}
		}
		want := []schemas.EventType{
			schemas.AgentStarted, schemas.Message, schemas.Message, schemas.AgentStepFinished, schemas.AgentStepFinished, schemas.Message,
			schemas.AgentStepFinished, schemas.AgentFinished,
		}
		if !slices.Equal(types, want) {
			t.Errorf("events %v, want %v", types, want)
		}
		_, err = w.say("Thanks.", "") // the same conversation continues
		testwait.OK(t, err)
		if ends := w.await(2); ends[1].Turn == ends[0].Turn || ends[1].Status != schemas.TurnCompleted {
			t.Errorf("the second turn ended as %+v", ends[1])
		}
	})
}

// A process may die before and after each write: another one ends the turn, with each answer and each effect once.
//
//guarantee:a-turn-outlives-the-process-that-carries-it-out
func TestTurnsOutliveTheirProcess(t *testing.T) {
	died := errors.New("died")
	for _, stage := range []string{
		"commit in", "committed in", "told in", "commit answer", "committed answer", "told answer", "called", "commit results",
		"committed results", "told results", "commit end", "committed end", "told end",
	} {
		t.Run(stage, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				w := open(t, b, twice)
				a := w.runner()
				gone := make(chan struct{})
				once := sync.OnceFunc(func() { close(gone) })
				want, last := strings.CutSuffix(stage, " end")
				if last {
					want += " answer" // the last answer and the end are one commit
				} else {
					want = stage
				}
				a.at = func(at string) error {
					if at == want && (!last || len(w.model.requests()) == 3) {
						once()
						return died
					}
					select {
					case <-gone:
						return died
					default:
						return nil
					}
				}
				stop := w.start(t, a.Run)
				_, err := w.say("Please do it.", "")
				testwait.OK(t, err)
				<-gone
				stop()
				defer w.start(t, w.runner().Run)()
				ends := w.await(1)
				answers, _ := w.judge()
				if len(ends) != 1 || ends[0].Status != schemas.TurnCompleted || ends[0].Text != "All is done." || answers != 3 || len(w.effects) != 3 {
					t.Errorf("it ended as %+v with %d answers, effects %v", ends, answers, w.effects)
				}
			})
		})
	}
}

// A turn that waits for a call, or for a model's server, is held by no process, and continues when it can.
//
//guarantee:a-turn-outlives-the-process-that-carries-it-out
func TestAWaitingCallIsHeldByNoWorker(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		refusals := 0
		w := open(t, b, func(said string) reply {
			if refusals++; refusals == 1 {
				return reply{err: &models.Error{Class: models.RateLimited, After: 5 * time.Minute}}
			}
			return twice(said)
		})
		w.took = 3 * time.Hour
		r := w.runner()
		defer w.start(t, r.Run)()
		begun := time.Now()
		_, err := w.say("Please do it.", "")
		testwait.OK(t, err)
		inHand := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.hands)
		}
		time.Sleep(time.Minute)
		if n := len(w.model.requests()); n != 1 || inHand() != 0 {
			t.Errorf("within Retry-After: %d requests, %d in hand", n, inHand())
		}
		time.Sleep(5 * time.Minute)
		if n := len(w.model.requests()); n != 2 {
			t.Errorf("after Retry-After: %d requests", n)
		}
		time.Sleep(time.Hour)
		if inHand() != 0 {
			t.Error("a turn that waits for a call is in hand")
		}
		for len(w.ends()) == 0 && time.Since(begun) < 24*time.Hour {
			time.Sleep(time.Minute)
		}
		if took := time.Since(begun); took < 6*time.Hour || took > 6*time.Hour+8*time.Minute {
			t.Errorf("it took %s: a call's end is to be noticed at once", took)
		}
		if answers, spent := w.judge(); answers != 3 || spent != 1 {
			t.Errorf("%d answers, %d attempts without one", answers, spent)
		}
	})
}

func TestWhatComesWhileATurnRuns(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		w := open(t, b, func(said string) reply {
			r := twice(said)
			r.took = time.Second
			return r
		})
		w.took = 10 * time.Second
		defer w.start(t, w.runner().Run)()
		say := func(text string, mode schemas.TurnMode) schemas.FollowUpID {
			t.Helper()
			return testwait.Must(w.say(text, mode))(t)
		}
		say("Please do it.", "")
		time.Sleep(5 * time.Second) // it waits for calls
		say("And be quick.", schemas.TurnSteer)
		say("Then rest.", schemas.TurnFollowUp)
		if _, err := w.say("No?", schemas.TurnReject); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("reject while a turn runs: %v", err)
		}
		w.await(1)
		if asked := w.model.requests(); !strings.Contains(asked[1], "And be quick.") || strings.Contains(strings.Join(asked[:3], " "), "rest") {
			t.Errorf("asked %q", asked)
		}
		time.Sleep(5 * time.Second) // the next turn waits for calls
		say("", schemas.TurnStopNow)
		ends := w.await(2)
		if ends[1].Status != schemas.TurnStopped {
			t.Errorf("a turn that was stopped ended as %+v", ends[1])
		}
		w.mu.Lock()
		w.effects = map[string]int{}
		w.mu.Unlock()
		say("Again.", "")
		time.Sleep(5 * time.Second)
		say("No, that.", schemas.TurnInterrupt)
		ends = w.await(4)
		if ends[2].Status != schemas.TurnStopped || ends[3].Status != schemas.TurnCompleted {
			t.Errorf("ends after an interruption: %+v", ends[2:])
		}
	})
}

// What waits is bounded, and what is repeated is the same.
func TestWhatMayWait(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		w := open(t, b, twice)
		f := schemas.FollowUp{ID: schemas.MakeEnvelopeID(talk, "key"), Account: anna, Conversation: talk, Agent: agent, Text: "once"}
		for n := range 2 {
			if existing, err := lifecycle.Address(t.Context(), b, f); err != nil || existing != (n == 1) {
				t.Fatalf("time %d: %v, %v", n, existing, err)
			}
		}
		other := f
		other.Text = "twice"
		if _, err := lifecycle.Address(t.Context(), b, other); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("another text under the same key: %v", err)
		}
		for range schemas.MaxWaitingTurns - 1 {
			_, err := w.say("more", schemas.TurnCollect)
			testwait.OK(t, err)
		}
		if _, err := w.say("too much", ""); !errors.Is(err, schemas.ErrExhausted) {
			t.Errorf("one too many: %v", err)
		}
		if _, err := w.say("", ""); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("nothing: %v", err)
		}
		defer w.start(t, w.runner().Run)()
		w.await(1)
		testwait.Eventually(t, "there is place again", func() bool {
			_, err := w.say("now", "")
			return err == nil
		})
		if existing, err := lifecycle.Address(t.Context(), b, f); err != nil || !existing {
			t.Errorf("again once it was taken in: %v, %v", existing, err)
		}
	})
}

// Another process that has written wins: a late process stands down, and the answer of its model is dropped.
//
//guarantee:a-turn-outlives-the-process-that-carries-it-out
func TestWhoComesLateStandsDown(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		w := open(t, b, func(said string) reply {
			r := twice(said)
			r.took = 20 * time.Second
			return r
		})
		a := w.runner()
		defer w.start(t, a.Run)()
		_, err := w.say("Please do it.", "")
		testwait.OK(t, err)
		testwait.Eventually(t, "the model is asked", func() bool { return len(w.model.requests()) == 1 })
		// As after a pause: another process has taken the record, and has settled the attempt.
		holds, key := lifecycle.OpenTurnHolds(b), lifecycle.TurnHoldKey(anna, talk)
		p := testwait.Must(holds.Get(t.Context(), key))(t)
		p.Value.Owner, p.Value.Epoch = "turns_other", p.Value.Epoch+1
		testwait.Must(holds.Update(t.Context(), key, p.Value, p.Revision))(t)
		var last streams.KeptCommit
		for k, err := range streams.ReadTranscript(t.Context(), b, anna, talk) {
			testwait.OK(t, err)
			last = k
		}
		_, err = streams.AppendCommit(t.Context(), b, anna, talk, last.Seq, 0, schemas.Commit{
			ID: schemas.NewID(schemas.CommitPrefix), Turn: last.Commit.Turn, At: b.Now(), Entries: []schemas.Entry{{
				Kind: schemas.EntrySpent, Step: 1, Attempt: 1, Model: "fake", Reason: "owner_lost", Again: b.Now(),
			}},
		})
		testwait.OK(t, err)
		ends := w.await(1)
		if answers, spent := w.judge(); answers != 3 || spent < 1 || ends[0].Status != schemas.TurnCompleted {
			t.Errorf("%d answers, %d attempts without one, %+v", answers, spent, ends)
		}
	})
}

// A turn that no process can carry out still ends.
func TestAnAgentThatIsGone(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		w := open(t, b, twice)
		w.took = time.Hour
		defer w.start(t, w.runner().Run)()
		_, err := w.say("Please do it.", "")
		testwait.OK(t, err)
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.minds = schemas.Errorf(schemas.NotFound, "there is no agent %q", agent)
		w.mu.Unlock()
		for range 180 {
			if time.Sleep(time.Minute); len(w.ends()) > 0 {
				break
			}
		}
		if ends := w.ends(); len(ends) != 1 || ends[0].Status != schemas.TurnFailed || !strings.Contains(ends[0].Error, "no agent") {
			t.Errorf("ends %+v", ends)
		}
		w.judge()
	})
}
