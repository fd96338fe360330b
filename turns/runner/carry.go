package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/turns"
)

const (
	waitsHere  = 2 * time.Second // a wait for a model's server up to this is spent here; a longer one by a scheduled wake
	lookAgain  = time.Minute     // after this a turn that waits for calls is checked, in case its wake was lost
	lookSeldom = 15 * time.Minute
)

// carrying is a conversation while this process runs its turns. Only one goroutine uses it, except for the requests to models.
type carrying struct {
	r *Runner
	place
	hand *hand
	hold held
	log  *slog.Logger

	mind   Mind
	known  bool // mind is up to date for the present step
	state  turns.State
	own    uint64 // the last commit that this process appended, or may treat as its own
	inbox  []streams.WaitingTurn
	readTo uint64

	asked  *turns.Asked
	asking *asking
	beside sync.WaitGroup

	answered  time.Time // when the answer was stored whose calls are awaited
	calls     *callstate.Several
	called    map[schemas.CallID]bool
	ended     map[schemas.CallID]schemas.UsedResult
	cancelled time.Time
	lastText  string // the agent's last text in the turn
	lost      bool   // the turn is abandoned
}

func (c *carrying) close() {
	if c.asking != nil {
		c.asking.cancel()
	}
	c.beside.Wait()
}

// run advances the conversation until there is nothing to do for now.
func (c *carrying) run(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.r.stopping() && c.asked == nil {
			return errStopping
		}
		if err := c.look(ctx); err != nil {
			return err
		}
		is, err := c.think(ctx)
		if err != nil {
			return err
		}
		if !is {
			continue
		}
		d := turns.Next(c.state, c.mind.Config, c.view())
		if err := c.settle(ctx, d.Settle); err != nil {
			return err
		}
		if len(d.Entries) > 0 {
			if err := c.commit(ctx, d.Turn, d.From, d.Entries); err != nil {
				return err
			}
			continue
		}
		done, err := c.effects(ctx, d)
		if done || err != nil {
			return err
		}
	}
}

// load reads the transcript, and publishes the events of its last commit if that may not have been done.
func (c *carrying) load(ctx context.Context) error {
	var kept []turns.Kept
	for k, err := range streams.ReadTranscript(ctx, c.r.Bus, c.account, c.conversation) {
		if err != nil {
			return fmt.Errorf("read the transcript: %w", err)
		}
		kept = append(kept, turns.Kept{Seq: k.Seq, Commit: k.Commit})
		for _, e := range k.Commit.Entries {
			c.note(k.Commit.At, e)
		}
	}
	c.state = turns.Load(kept)
	c.readTo = c.hold.Seen
	c.called, c.ended = map[schemas.CallID]bool{}, map[schemas.CallID]schemas.UsedResult{}
	if c.hold.resting == c.state.Tail {
		c.own = c.state.Tail // no process has asked a model since
	}
	// The process that wrote the last commit may have died before its events were published.
	if n := len(kept); n > 0 && c.hold.Derived < c.state.Tail {
		if err := c.publishEvents(ctx, kept[n-1], c.r.Bus.AbsentAt(kept[n-1].Commit.At)); err != nil {
			return err
		}
	}
	c.hold.Derived = c.state.Tail
	return nil
}

// note records data of an entry that is needed beside the state.
func (c *carrying) note(at time.Time, e schemas.Entry) {
	switch e.Kind {
	case schemas.EntryIn:
		if e.Begins {
			c.lastText = ""
		}
	case schemas.EntryAnswer:
		c.answered = at
		if text := textOf(e.Blocks); text != "" {
			c.lastText = text
		}
	case schemas.EntryOpen, schemas.EntrySpent, schemas.EntryResults, schemas.EntrySummary, schemas.EntryEnd:
	}
}

func textOf(blocks []schemas.Block) string {
	var parts []string
	for _, b := range blocks {
		if b.Type == schemas.BlockText && strings.TrimSpace(b.Text) != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// look reads new messages and the states of the awaited calls.
func (c *carrying) look(ctx context.Context) error {
	more, err := streams.ReadTurns(ctx, c.r.Bus, c.account, c.conversation, c.readTo)
	if err != nil {
		return err
	}
	for _, w := range more {
		c.readTo = max(c.readTo, w.Seq)
		if !c.hold.Has(w.Seq, w.FollowUp.ID) {
			c.inbox = append(c.inbox, w)
		}
	}
	return c.lookAtCalls(ctx)
}

// think reads the agent's configuration. It returns false if that has changed the conversation, so that it must be read again before a
// decision.
func (c *carrying) think(ctx context.Context) (bool, error) {
	first := c.first()
	switch {
	case c.state.Turn == "" && first == nil: // the core settles what is left, and rests
		c.mind.Config.Conversation = c.key()
		if len(c.mind.Config.Models) == 0 {
			c.mind.Config.Models = []turns.Model{{}}
		}
		return true, nil
	case c.state.Turn == "" && (first.FollowUp.Agent != c.hold.Agent || c.hold.Turn != ""):
		c.hold.Agent, c.hold.Turn, c.known = first.FollowUp.Agent, "", false
	}
	if c.known {
		return true, nil
	}
	mind, err := c.r.Minds.Mind(ctx, c.account, c.hold.Agent)
	switch {
	case err == nil && len(mind.Config.Models) > 0 && len(mind.Config.Models) == len(mind.Clients):
		c.mind, c.known = mind, true
		c.mind.Config.Conversation = c.key()
		return true, nil
	case err == nil:
		err = schemas.Errorf(schemas.Unsupported, "the agent has no model")
	case schemas.CodeOf(err).Retryable() || ctx.Err() != nil:
		return false, err
	}
	if c.state.Turn != "" {
		return false, c.abandon(ctx, err)
	}
	// It was said to an agent that cannot take it in: a harness's, or one that is gone.
	if !errors.Is(err, schemas.ErrUnsupported) {
		if err := c.refuse(ctx, *first, schemas.Public(err).Message); err != nil {
			return false, err
		}
	}
	return false, c.settle(ctx, []turns.Settled{{ID: string(first.FollowUp.ID), Outcome: turns.Useless}})
}

// key returns the name of the conversation that ids are derived from.
func (c *carrying) key() string { return string(c.account) + "/" + string(c.conversation) }

// first returns the message with which a new turn would begin; nil if there is none.
func (c *carrying) first() *streams.WaitingTurn {
	var found *streams.WaitingTurn
	for i, w := range c.inbox {
		if w.FollowUp.Mode.Stops() || w.FollowUp.Text == "" {
			continue
		}
		if w.FollowUp.Mode == schemas.TurnInterrupt {
			return &c.inbox[i]
		}
		if found == nil {
			found = &c.inbox[i]
		}
	}
	return found
}

// view returns the view for [turns.Next].
func (c *carrying) view() turns.View {
	v := turns.View{Now: c.r.Bus.Now().UTC(), Mine: c.own, Asked: c.asked, Called: c.called, Ended: c.ended, Cancelled: c.cancelled}
	for _, w := range c.inbox {
		f := w.FollowUp
		if !f.Mode.Stops() && f.Agent != c.hold.Agent {
			continue // the turn is another agent's: this one waits for its end
		}
		e := turns.Envelope{ID: string(f.ID), Mode: turns.Mode(f.Mode)}
		if f.Text != "" && !f.Mode.Stops() {
			e.Messages = []schemas.ModelMessage{{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockText, Text: f.Text}}}}
		}
		v.Inbox = append(v.Inbox, e)
	}
	return v
}

// settle records messages that are done.
func (c *carrying) settle(ctx context.Context, list []turns.Settled) error {
	for _, s := range list {
		i := slices.IndexFunc(c.inbox, func(w streams.WaitingTurn) bool { return string(w.FollowUp.ID) == s.ID })
		if i < 0 {
			continue
		}
		w := c.inbox[i]
		if s.Outcome == turns.Rejected {
			if err := c.refuse(ctx, w, "a turn of the conversation runs"); err != nil {
				return err
			}
		}
		c.inbox = slices.Delete(c.inbox, i, i+1)
		c.hold.Settled = append(c.hold.Settled, w.FollowUp.ID)
		if s.Outcome == turns.Rejected || len(c.hold.Settled) > schemas.MaxTaken/4 {
			if err := c.checkpoint(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpoint writes the record, after compacting its list of messages that are done.
func (c *carrying) checkpoint(ctx context.Context) error {
	c.compact()
	return c.write(ctx)
}

// compact advances the sequence up to which all messages are done.
func (c *carrying) compact() {
	if len(c.inbox) == 0 {
		c.hold.Seen, c.hold.Settled = max(c.hold.Seen, c.readTo), nil
		return
	}
	c.hold.Seen = max(c.hold.Seen, c.inbox[0].Seq-1)
}

// commit appends entries to the transcript, and publishes the events that follow from them. If another process has written to the
// transcript, it returns errMoved.
func (c *carrying) commit(ctx context.Context, turn schemas.TurnID, from uint64, entries []schemas.Entry) error {
	if entries[0].Begins {
		if err := c.begin(ctx, turn, entries[0]); err != nil {
			return err
		}
	}
	commit := schemas.Commit{
		ID: schemas.NewID(schemas.CommitPrefix), Turn: turn, Owner: c.r.name, At: c.r.Bus.Now().UTC().Round(0), Entries: entries,
	}
	data, err := schemas.EncodeCommit(commit)
	if err == nil {
		commit, err = schemas.DecodeCommit(data) // as everybody reads it
	}
	if err != nil {
		if c.lost {
			return fmt.Errorf("a commit that cannot be stored: %w", err)
		}
		c.lost = true // asking the model again would cost again, and end likewise
		return c.abandon(ctx, err)
	}
	if err := c.r.at("commit " + string(entries[0].Kind)); err != nil {
		return err
	}
	absent := c.r.Bus.Absent()
	var seq uint64
	for try := 1; ; try++ {
		seq, err = streams.AppendCommit(ctx, c.r.Bus, c.account, c.conversation, c.state.Tail, from, commit)
		if !errors.Is(err, schemas.ErrUnavailable) || ctx.Err() != nil {
			break
		}
		c.log.Warn("commit not confirmed, appending it again", "error", err)
		(wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}).Sleep(ctx, try)
	}
	switch {
	case errors.Is(err, schemas.ErrConflict):
		return errMoved
	case errors.Is(err, schemas.ErrExhausted) && c.state.Tail == 0:
		return c.full(ctx, err)
	case err != nil:
		return err
	}
	if err := c.r.at("committed " + string(entries[0].Kind)); err != nil {
		return err
	}
	k := turns.Kept{Seq: seq, Commit: commit}
	c.state, c.own = c.state.Apply(k), seq
	for _, e := range commit.Entries {
		c.note(commit.At, e)
		switch e.Kind {
		case schemas.EntryAnswer, schemas.EntrySpent, schemas.EntrySummary:
			c.asked, c.known = nil, false
		case schemas.EntryResults:
			c.calls, c.called, c.ended, c.cancelled = nil, map[schemas.CallID]bool{}, map[schemas.CallID]schemas.UsedResult{}, time.Time{}
			c.known = false
		case schemas.EntryEnd:
			c.asked, c.cancelled, c.hold.Turn, c.lost = nil, time.Time{}, "", false
		case schemas.EntryIn, schemas.EntryOpen:
		}
	}
	for try := 1; ; try++ { // before anything else is written: the next owner only looks for those of the last commit
		if err = c.publishEvents(ctx, k, absent); err == nil {
			c.hold.Derived = seq
			return c.r.at("told " + string(entries[0].Kind))
		}
		if ctx.Err() != nil || !schemas.CodeOf(err).Retryable() {
			return err
		}
		c.log.Warn("events of a turn not published, retrying", "error", err)
		(wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}).Sleep(ctx, try)
	}
}

// begin records the turn and its origin before the turn begins.
func (c *carrying) begin(ctx context.Context, turn schemas.TurnID, in schemas.Entry) error {
	c.hold.Turn, c.hold.Origin = turn, nil
	for _, w := range c.inbox {
		if string(w.FollowUp.ID) == in.Taken[0] {
			c.hold.Origin = w.FollowUp.Origin
		}
	}
	return c.checkpoint(ctx)
}

// full refuses all waiting messages, because the account may store no more and the conversation has no transcript yet.
func (c *carrying) full(ctx context.Context, cause error) error {
	for _, w := range slices.Clone(c.inbox) {
		if err := c.refuse(ctx, w, schemas.Public(cause).Message); err != nil {
			return err
		}
		if err := c.settle(ctx, []turns.Settled{{ID: string(w.FollowUp.ID), Outcome: turns.Useless}}); err != nil {
			return err
		}
	}
	c.hold.Turn = ""
	return nil
}

// abandon ends a turn that cannot continue, such as one whose agent's configuration is gone.
func (c *carrying) abandon(ctx context.Context, cause error) error {
	var entries []schemas.Entry
	if uses := c.state.Uses(); len(uses) > 0 {
		e := schemas.Entry{Kind: schemas.EntryResults, Step: max(c.state.Steps, 1)}
		for _, u := range uses {
			e.Results = append(e.Results, schemas.UsedResult{
				Use: u.Use, Call: u.Call, Status: schemas.StatusInterrupted, Text: "Interrupted: it may have taken effect.", IsError: true,
			})
		}
		entries = append(entries, e)
	}
	entries = append(entries, schemas.Entry{
		Kind: schemas.EntryEnd, Status: schemas.TurnFailed, Reason: schemas.HeadText(schemas.Public(cause).Message, schemas.MaxDescription),
		Usage: c.state.Used,
	})
	return c.commit(ctx, c.state.Turn, c.state.From, entries)
}

// effects does what a decision says besides entries. Done reports that there is nothing to do for now.
func (c *carrying) effects(ctx context.Context, d turns.Decision) (done bool, err error) {
	if d.StopAsk && c.asking != nil {
		c.asking.stop()
	}
	if len(d.Cancel) > 0 && c.cancelled.IsZero() {
		if err := c.cancelCalls(ctx, d.Cancel); err != nil {
			return false, err
		}
		return false, nil
	}
	if len(d.Call) > 0 {
		return false, c.publish(ctx, d.Call)
	}
	if d.Ask != nil {
		if err := c.mine(ctx); err != nil {
			return false, err
		}
		c.ask(ctx, *d.Ask)
		return false, nil
	}
	if d.Idle {
		return len(c.inbox) == 0 || c.first() == nil, nil
	}
	return c.rest(ctx, d.Until)
}

// rest waits for the next event: for a short time in this process; then it schedules a wake of the conversation and returns true.
func (c *carrying) rest(ctx context.Context, until time.Time) (done bool, err error) {
	now := c.r.Bus.Now()
	pause := c.r.Linger
	var answers <-chan *turns.Asked
	if c.asking != nil {
		answers, pause = c.asking.answer, time.Hour
	}
	if !until.IsZero() {
		left := max(until.Sub(now), 0)
		if c.asking == nil && c.cancelled.IsZero() && left > waitsHere {
			return true, c.wakeAt(ctx, until)
		}
		pause = min(pause, left+time.Millisecond)
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	stopped := c.r.done
	if c.asking != nil {
		stopped = nil // the answer has the grace
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-stopped:
		return false, errStopping
	case <-c.hand.poked:
		return false, nil
	case a := <-answers:
		c.asked, c.asking = a, nil
		if a.Err != nil && ctx.Err() != nil {
			return false, ctx.Err() // the process stops: the result is unknown
		}
		return false, nil
	case <-t.C:
	}
	if c.asking != nil || !until.IsZero() {
		return false, nil
	}
	after := min(max(lookAgain, c.r.Bus.Now().Sub(c.answered)/4), lookSeldom)
	return true, c.wakeAt(ctx, now.Add(after))
}

// wakeAt schedules a wake of the conversation, for any process.
func (c *carrying) wakeAt(ctx context.Context, at time.Time) error {
	return streams.ScheduleWake(ctx, c.r.Bus, schemas.Wake{Account: c.account, Conversation: c.conversation}, at)
}

// release writes the conversation's record without an owner, so that any process can run its turns.
func (c *carrying) release(ctx context.Context) error {
	c.compact()
	c.hold.Owner, c.hold.Resting = "", 0
	if c.asked == nil && c.own == c.state.Tail && len(c.state.Pending()) == 0 {
		c.hold.Resting = c.state.Tail
	}
	if c.state.Turn == "" {
		c.hold.Turn = ""
	}
	err := c.write(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

// origin returns the origin for the calls of the turn.
func (c *carrying) origin() *schemas.Origin {
	if o := c.hold.Origin; o != nil {
		return o
	}
	return &schemas.Origin{Kind: "api"}
}

// chat returns the chat that answers are delivered to; nil if the conversation belongs to none.
func (c *carrying) chat(ctx context.Context) (*schemas.Origin, error) {
	if o := c.hold.Origin; o != nil && o.Kind == schemas.OriginChannel {
		return o, nil
	}
	found, err := lifecycle.FindChat(ctx, c.r.Bus, c.account, c.conversation)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	o := found.Origin()
	return &o, nil
}
