package turns

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
)

// step holds the inputs while a decision is made.
type step struct {
	s State
	c Config
	v View
}

// Next decides what happens next in a conversation. It is pure.
func Next(s State, c Config, v View) Decision {
	d := Decision{From: s.From, Turn: s.Turn}
	n := step{s: s, c: c.withDefaults(), v: v}
	n.v.Inbox = nil
	for _, e := range v.Inbox {
		e.Mode = orSteer(e.Mode)
		stops := e.Mode == StopSoon || e.Mode == StopNow
		switch {
		case s.Took(e.ID):
			d.Settle = append(d.Settle, Settled{e.ID, Taken})
		case e.Mode == Reject && s.Turn != "":
			d.Settle = append(d.Settle, Settled{e.ID, Rejected})
		case stops && s.Turn == "" || !stops && blocksOf(e) == 0:
			d.Settle = append(d.Settle, Settled{e.ID, Useless})
		case blocksOf(e) > schemas.MaxCommitBlocks:
			d.Settle = append(d.Settle, Settled{e.ID, Rejected})
		default:
			n.v.Inbox = append(n.v.Inbox, e)
		}
	}
	switch {
	case s.Turn == "":
		n.begin(&d)
	case len(s.uses) > 0:
		n.results(&d)
	case s.asked != nil:
		n.open(&d)
	default:
		n.store(&d, nil)
	}
	return d
}

func blocksOf(e Envelope) (n int) {
	for _, m := range e.Messages {
		n += len(m.Blocks)
	}
	return n
}

func orSteer(m Mode) Mode {
	if m == "" {
		return Steer
	}
	return m
}

// begin opens a turn with the first envelope, and those that are taken in together with it.
func (n step) begin(d *Decision) {
	if len(n.v.Inbox) == 0 {
		d.Idle = true
		return
	}
	first := n.v.Inbox[0]
	if e := n.find(Interrupt); e != nil {
		first = *e
	}
	with := []Envelope{first}
	if first.Mode == Collect || first.Mode == Steer {
		with = n.waiting(first.Mode)
	}
	d.Turn = turnIDOf(n.c.Conversation, n.s.Tail, first.ID)
	in := inOf(with)
	in.Begins = true
	n.store(d, []schemas.Entry{in})
}

// waiting returns the waiting envelopes of a mode, as many as fit into one entry.
func (n step) waiting(m Mode) []Envelope {
	var list []Envelope
	blocks := 0
	for _, e := range n.v.Inbox {
		if e.Mode != m {
			continue
		}
		if blocks += blocksOf(e); blocks > schemas.MaxCommitBlocks || len(list) == schemas.MaxTaken/4 {
			break
		}
		list = append(list, e)
	}
	return list
}

func inOf(list []Envelope) schemas.Entry {
	e := schemas.Entry{Kind: schemas.EntryIn}
	for _, in := range list {
		e.Taken = append(e.Taken, in.ID)
		e.Messages = append(e.Messages, in.Messages...)
	}
	return e
}

// store sets the decision's entries: the given ones and those that follow from them at once.
func (n step) store(d *Decision, entries []schemas.Entry) {
	after := n.s
	if len(entries) > 0 {
		after = n.s.Apply(Kept{n.s.Tail + 1, schemas.Commit{Turn: d.Turn, At: n.v.Now, Entries: entries}})
		for _, id := range after.taken {
			n.v.Inbox = slices.DeleteFunc(slices.Clone(n.v.Inbox), func(e Envelope) bool { return e.ID == id })
		}
	}
	if after.Turn != "" && after.asked == nil && len(after.uses) == 0 {
		entries = append(entries, step{after, n.c, n.v}.boundary()...)
	}
	d.Entries = entries
}

// find returns the first envelope of one of these modes; nil if there is none.
func (n step) find(modes ...Mode) *Envelope {
	for i := range n.v.Inbox {
		if slices.Contains(modes, n.v.Inbox[i].Mode) {
			return &n.v.Inbox[i]
		}
	}
	return nil
}

// boundary returns the next entries when neither an answer nor a result is awaited: the end of the turn, or new messages and the next
// step.
func (n step) boundary() []schemas.Entry {
	if e := n.find(StopNow, StopSoon, Interrupt); e != nil {
		return []schemas.Entry{n.stopped(e)}
	}
	final := n.s.final()
	switch {
	case n.s.stop == models.StopRefusal:
		return []schemas.Entry{n.end(schemas.TurnRefused, "")}
	case n.s.times >= loopTimes:
		return []schemas.Entry{n.end(schemas.TurnLooping, fmt.Sprintf("the same calls had the same results %d times", n.s.times))}
	}
	var entries []schemas.Entry
	if steers := n.waiting(Steer); len(steers) > 0 {
		in := inOf(steers)
		entries = append(entries, in)
		n.s = n.s.Apply(Kept{n.s.Tail + 1, schemas.Commit{Turn: n.s.Turn, At: n.v.Now, Entries: []schemas.Entry{in}}})
	} else if final && n.s.stop != models.StopContext {
		reason := ""
		if n.s.stop != models.StopEnd {
			reason = string(n.s.stop)
		}
		return []schemas.Entry{n.end(schemas.TurnCompleted, reason)}
	}
	return append(entries, n.question())
}

// question returns the entry that opens the next step, or the one that ends the turn if a limit is reached.
func (n step) question() schemas.Entry {
	if n.s.Steps >= n.c.MaxSteps {
		return n.end(schemas.TurnMaxSteps, fmt.Sprintf("it had %d steps", n.s.Steps))
	}
	if n.v.Now.Sub(n.s.Began) > n.c.Wall {
		return n.end(schemas.TurnOverBudget, fmt.Sprintf("it has lasted longer than %s", n.c.Wall))
	}
	input, room := n.s.input(n.c), n.c.Models[0].Context
	full := n.s.tooLong || n.s.stop == models.StopContext || room > 0 && input+n.c.MaxTokens > room/100*int64(n.c.CompactAt)
	forced := n.s.tooLong || n.s.stop == models.StopContext
	purpose := ""
	if full {
		switch {
		case !n.s.compacted && n.s.cut() > 0:
			purpose = schemas.PurposeSummary
		case forced:
			return n.end(schemas.TurnFailed, string(models.TooLong))
		}
	}
	reserved := input + n.c.MaxTokens
	if n.c.Budget > 0 {
		left := n.c.Budget - total(n.s.Used)
		if left < input+min(leastAnswer, n.c.MaxTokens) {
			return n.end(schemas.TurnOverBudget,
				fmt.Sprintf("of %d tokens %d are left, and the next request may take more", n.c.Budget, max(left, 0)))
		}
		reserved = min(reserved, left)
	}
	return schemas.Entry{Kind: schemas.EntryOpen, Step: n.s.Steps + 1, Purpose: purpose, Reserved: reserved, Prefix: n.c.prefix()}
}

func (n step) end(status schemas.TurnStatus, reason string) schemas.Entry {
	return schemas.Entry{Kind: schemas.EntryEnd, Status: status, Reason: reason, Usage: n.s.Used}
}

// stopped returns the entry that ends the turn because of an envelope. An envelope that interrupts then begins the next turn.
func (n step) stopped(by *Envelope) schemas.Entry {
	e := n.end(schemas.TurnStopped, string(by.Mode))
	for _, in := range n.v.Inbox {
		if (in.Mode == StopNow || in.Mode == StopSoon) && len(e.Taken) < schemas.MaxTaken {
			e.Taken = append(e.Taken, in.ID)
		}
	}
	return e
}

// open handles the open step: it asks the model, waits, or records the outcome of an attempt.
func (n step) open(d *Decision) {
	q, stop := n.s.asked, n.find(StopNow, Interrupt)
	asked := n.v.Asked
	if asked != nil && (asked.Step != q.step || asked.Attempt != q.attempts+1 || asked.Purpose != q.purpose) {
		asked = nil
	}
	lost := asked == nil && n.s.Tail != n.v.Mine
	switch {
	case asked != nil && asked.Answer != nil:
		n.answer(d, asked)
	case asked != nil && asked.Err != nil:
		n.failed(d, asked.Err, stop)
	case asked != nil && stop != nil:
		d.StopAsk = true
	case asked != nil: // it runs
	case lost && n.v.Now.Before(q.again) && stop == nil: // no process can have asked: wait for it as for one's own
		d.Until = q.again
	case lost:
		n.failed(d, &models.Error{Class: OwnerLost, Begun: true}, stop)
	case stop != nil:
		d.Entries = []schemas.Entry{n.stopped(stop)}
	case n.v.Now.Before(q.again):
		d.Until = q.again
	default:
		m := n.model()
		d.Ask = &Ask{Step: q.step, Attempt: q.attempts + 1, Purpose: q.purpose, Model: m, Request: n.s.request(n.c, n.c.Models[m])}
	}
}

// model returns the index of the model to ask next.
func (n step) model() int { return min(n.s.asked.overloads/overloadsPer, len(n.c.Models)-1) }

// failed records a failed attempt, and either schedules the next one or ends the step or the turn.
func (n step) failed(d *Decision, err *models.Error, stop *Envelope) {
	q := n.s.asked
	e := schemas.Entry{
		Kind: schemas.EntrySpent, Step: q.step, Attempt: q.attempts + 1, Purpose: q.purpose, Model: n.c.Models[n.model()].Name,
		Reason: string(err.Class), Usage: err.Usage,
	}
	if total(e.Usage) == 0 && (err.Begun || err.Class == models.Disconnected) {
		e.Usage.In = q.reserved // the most that it can have cost
	}
	retry := err.Class == models.Overloaded || err.Class == models.RateLimited || err.Class == models.Disconnected || err.Class == OwnerLost
	again := n.v.Now.Add(n.delay(err))
	affordable := n.c.Budget <= 0 || total(n.s.Used)+total(e.Usage)+q.reserved <= n.c.Budget
	if retry && stop == nil && affordable && e.Attempt < MaxAttempts && again.Sub(q.opened) <= MaxRetrying {
		e.Again = again
		d.Entries = []schemas.Entry{e}
		return
	}
	var last schemas.Entry
	n.s = n.s.Apply(Kept{n.s.Tail + 1, schemas.Commit{Turn: d.Turn, At: n.v.Now, Entries: []schemas.Entry{e}}})
	switch {
	case stop != nil:
		last = n.stopped(stop)
	case q.purpose == schemas.PurposeSummary, err.Class == models.TooLong: // without a summary, or with one
		last = n.question()
	case retry && !affordable:
		last = n.end(schemas.TurnOverBudget, "another attempt may take more tokens than are left")
	default:
		last = n.end(schemas.TurnFailed, string(err.Class))
	}
	d.Entries = []schemas.Entry{e, last}
}

// delay returns how long to wait before the next attempt: as long as the server asked for, or else an exponential backoff with jitter that
// every process computes alike.
func (n step) delay(err *models.Error) time.Duration {
	if err.After > 0 {
		return err.After
	}
	if err.Class == OwnerLost {
		return 0
	}
	const most = 2 * time.Minute
	longest := min(500*time.Millisecond<<min(n.s.asked.attempts, 16), most)
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, n.c.Conversation, n.s.Turn, n.s.asked.step, n.s.asked.attempts) // never fails
	return longest/4 + time.Duration(h.Sum64()%uint64(longest-longest/4))
}

// answer records an answer of a model.
func (n step) answer(d *Decision, a *Asked) {
	if a.Purpose == schemas.PurposeSummary {
		n.summary(d, a)
		return
	}
	e := schemas.Entry{
		Kind: schemas.EntryAnswer, Step: a.Step, Attempt: a.Attempt, Model: a.Answer.Model, Stop: string(a.Answer.Stop), Usage: a.Answer.Usage,
	}
	seen := map[string]bool{}
	for _, it := range n.s.items {
		for _, b := range it.message.Blocks {
			seen[b.Use] = true
		}
	}
	for i, b := range a.Answer.Blocks {
		switch {
		case b.Type == schemas.BlockToolResult || len(e.Blocks) >= schemas.MaxCommitBlocks:
			continue // it is no answer's to say
		case b.Type == schemas.BlockToolUse && len(e.Calls) >= schemas.MaxToolUses:
			continue
		case b.Type == schemas.BlockToolUse:
			if b.Use == "" || len(b.Use) > maxUse || seen[b.Use] { // no server's id: one of ours, and not what the server has signed
				b.Use, b.Raw = fmt.Sprintf("use_%d_%d", n.s.Tail, i), nil
			}
			seen[b.Use] = true
			e.Calls = append(e.Calls, schemas.UsedCall{Use: b.Use, Call: CallIDOf(n.c.Conversation, n.s.Turn, a.Step, b.Use)})
		}
		e.Blocks = append(e.Blocks, b)
	}
	if e.Stop == "" {
		e.Stop = string(models.StopEnd)
	}
	n.store(d, []schemas.Entry{e})
}

// summary records a summary, or that the model gave none.
func (n step) summary(d *Decision, a *Asked) {
	var parts []string
	for _, b := range a.Answer.Blocks {
		if b.Type == schemas.BlockText {
			parts = append(parts, b.Text)
		}
	}
	text := strings.Join(parts, "")
	cut := n.s.cut()
	if text == "" || cut == 0 {
		n.failed(d, &models.Error{Class: models.BadRequest, Usage: a.Answer.Usage}, n.find(StopNow, Interrupt))
		return
	}
	after := n.s
	after.Used = after.Used.Add(a.Answer.Usage)
	d.From = n.s.items[cut].seq
	n.store(d, []schemas.Entry{{
		Kind: schemas.EntrySummary, Step: a.Step, Attempt: a.Attempt, Model: a.Answer.Model, Usage: a.Answer.Usage, Text: text,
		Before: d.From, Messages: n.s.lastWords(cut),
		Carry: &schemas.Carry{Began: n.s.Began, Steps: n.s.Steps, Usage: after.Used, Taken: n.s.taken, Repeated: n.s.repeated, Times: n.s.times},
	}})
}

// results publishes calls and waits for their results; when all are known, it records them.
func (n step) results(d *Decision) {
	stop := n.find(StopNow, Interrupt)
	e := schemas.Entry{Kind: schemas.EntryResults, Step: n.s.Steps}
	cut := n.s.stop == models.StopMaxTokens || n.s.stop == models.StopRefusal || n.s.stop == models.StopContext
	late := !n.v.Cancelled.IsZero() && n.v.Now.Sub(n.v.Cancelled) >= StopWithin
	for _, u := range n.s.uses {
		r, ended := n.v.Ended[u.call]
		r.Use, r.Call = u.id, u.call
		unpublished := n.s.Tail == n.v.Mine && !n.v.Called[u.call]
		switch {
		case ended:
		case cut:
			r.Status, r.Text, r.IsError = schemas.StatusFailed, "Not carried out: the answer was cut off.", true
		case stop != nil && unpublished:
			r.Status, r.Text, r.IsError = schemas.StatusCancelled, "Not carried out: the turn was stopped.", true
		case stop != nil && late:
			r.Status, r.Text, r.IsError = schemas.StatusInterrupted, "Interrupted: it may have taken effect.", true
		case stop != nil:
			d.Cancel = append(d.Cancel, u.call)
			continue
		default:
			if !n.v.Called[u.call] {
				d.Call = append(d.Call, ToolCall{u.call, u.id, u.name, u.input})
			}
			continue
		}
		e.Results = append(e.Results, r)
	}
	if len(e.Results) == len(n.s.uses) {
		d.Call, d.Cancel = nil, nil
		n.store(d, []schemas.Entry{e})
		return
	}
	if stop != nil && !n.v.Cancelled.IsZero() {
		d.Cancel, d.Until = nil, n.v.Cancelled.Add(StopWithin)
	}
}
