package turns

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
)

// Kept is a commit with its sequence in the transcript.
type Kept struct {
	Seq    uint64
	Commit schemas.Commit
}

// State is the state that a transcript results in. It is a value: copies are independent.
type State struct { //nolint:recvcheck // a value outside; what changes it inside works on a copy
	Tail uint64 // the last commit's sequence; 0: there is none
	From uint64 // from where on the transcript is read

	Turn  schemas.TurnID // the open turn; empty: none
	Began time.Time
	Steps int // that have an answer
	Used  schemas.TokenUsage

	items   []item
	summary *schemas.Entry
	taken   []string // the last envelopes, oldest first

	asked     *question
	uses      []use // of the last answer, without results
	stop      models.Stop
	compacted bool // a summary was asked for in this step
	tooLong   bool // a model had no room for this step

	context  int64 // tokens of the last request and its answer, as the server counted; 0: unknown
	behind   int   // items that are part of that
	repeated string
	times    int
}

// item is a message of the transcript.
type item struct {
	seq     uint64
	kind    schemas.EntryKind
	message schemas.ModelMessage
}

// question is a step that has no answer yet.
type question struct {
	step      int
	purpose   string
	opened    time.Time
	reserved  int64
	attempts  int // that have failed
	overloads int
	again     time.Time
}

// use is a use of a tool by the model.
type use struct {
	id    string
	call  schemas.CallID
	name  string
	input json.RawMessage
}

// Load returns the state of a transcript, or of what retention has left of it: a turn without its beginning is ignored.
func Load(commits []Kept) State {
	var s State
	whole := func(k Kept) bool {
		return slices.ContainsFunc(k.Commit.Entries, func(e schemas.Entry) bool { return e.Kind == schemas.EntryIn && e.Begins })
	}
	summed := slices.ContainsFunc(commits, func(k Kept) bool {
		return slices.ContainsFunc(k.Commit.Entries, func(e schemas.Entry) bool { return e.Kind == schemas.EntrySummary })
	})
	begun := summed
	for _, k := range commits {
		if begun = begun || whole(k); begun {
			s = s.Apply(k)
		}
		s.Tail = k.Seq
	}
	return s
}

// Apply returns the state after one more commit. Entries of unknown kinds change nothing.
func (s State) Apply(k Kept) State {
	s.items, s.taken, s.uses = slices.Clone(s.items), slices.Clone(s.taken), slices.Clone(s.uses)
	if s.asked != nil {
		q := *s.asked
		s.asked = &q
	}
	s.Tail = k.Seq
	for i := range k.Commit.Entries {
		s.apply(k, &k.Commit.Entries[i])
	}
	return s
}

func (s *State) apply(k Kept, e *schemas.Entry) {
	switch e.Kind {
	case schemas.EntryIn:
		if e.Begins {
			s.Turn, s.Began, s.Steps, s.Used = k.Commit.Turn, k.Commit.At, 0, schemas.TokenUsage{}
			s.repeated, s.times = "", 0
		}
		s.take(e.Taken)
		for _, m := range e.Messages {
			s.items = append(s.items, item{k.Seq, e.Kind, m})
		}
		s.stop = ""
	case schemas.EntryOpen:
		if e.Purpose == schemas.PurposeSummary {
			s.compacted = true
		}
		s.asked = &question{step: e.Step, purpose: e.Purpose, opened: k.Commit.At, reserved: e.Reserved}
	case schemas.EntrySpent:
		s.spent(e)
	case schemas.EntryAnswer:
		s.answered(k.Seq, e)
	case schemas.EntryResults:
		s.resulted(k.Seq, e)
	case schemas.EntrySummary:
		s.summed(k, e)
	case schemas.EntryEnd:
		s.take(e.Taken)
		s.Turn, s.asked, s.uses, s.stop, s.compacted, s.tooLong = "", nil, nil, "", false, false
	}
}

func (s *State) spent(e *schemas.Entry) {
	s.Used = s.Used.Add(e.Usage)
	if s.asked == nil {
		return
	}
	s.asked.attempts, s.asked.again = e.Attempt, e.Again
	switch models.Class(e.Reason) {
	case models.Overloaded, models.RateLimited:
		s.asked.overloads++
	case models.TooLong:
		s.tooLong = s.tooLong || s.asked.purpose == ""
	case models.SpendLimit, models.BadRequest, models.BadKey, models.Disconnected:
	}
	if e.Again.IsZero() {
		s.asked = nil
	}
}

func (s *State) answered(seq uint64, e *schemas.Entry) {
	s.Used, s.Steps, s.stop = s.Used.Add(e.Usage), e.Step, models.Stop(e.Stop)
	s.asked, s.compacted, s.tooLong, s.uses = nil, false, false, nil
	called := map[string]schemas.CallID{}
	for _, c := range e.Calls {
		called[c.Use] = c.Call
	}
	for _, b := range e.Blocks {
		if b.Type == schemas.BlockToolUse {
			s.uses = append(s.uses, use{b.Use, called[b.Use], b.Name, b.Input})
		}
	}
	s.items = append(s.items, item{seq, e.Kind, schemas.ModelMessage{Role: schemas.RoleAssistant, Blocks: e.Blocks}})
	s.context, s.behind = total(e.Usage), len(s.items)
}

func (s *State) resulted(seq uint64, e *schemas.Entry) {
	m := schemas.ModelMessage{Role: schemas.RoleUser}
	h := sha256.New()
	for i, r := range e.Results {
		m.Blocks = append(m.Blocks, schemas.Block{Type: schemas.BlockToolResult, Use: r.Use, Text: r.Text, IsError: r.IsError})
		if i < len(s.uses) {
			for _, part := range []string{s.uses[i].name, string(s.uses[i].input), r.Text} {
				sum := sha256.Sum256([]byte(part))
				h.Write(sum[:])
			}
		}
	}
	digest := hex.EncodeToString(h.Sum(nil))
	if digest != s.repeated {
		s.repeated, s.times = digest, 0
	}
	s.times++
	s.uses, s.items = nil, append(s.items, item{seq, e.Kind, m})
}

func (s *State) summed(k Kept, e *schemas.Entry) {
	s.items = slices.DeleteFunc(s.items, func(it item) bool { return it.seq < e.Before })
	s.summary, s.From, s.Turn, s.asked, s.uses, s.stop = e, e.Before, k.Commit.Turn, nil, nil, ""
	s.compacted, s.tooLong, s.context, s.behind = true, false, 0, 0
	if c := e.Carry; c != nil {
		s.Began, s.Steps, s.Used, s.taken, s.repeated, s.times = c.Began, c.Steps, c.Usage, slices.Clone(c.Taken), c.Repeated, c.Times
	}
}

func (s *State) take(ids []string) {
	s.taken = append(s.taken, ids...)
	s.taken = s.taken[max(0, len(s.taken)-schemas.MaxTaken):]
}

// Took reports whether an envelope was taken in.
func (s State) Took(id string) bool { return slices.Contains(s.taken, id) }

// Pending returns the calls whose results are awaited.
func (s State) Pending() []schemas.CallID {
	var ids []schemas.CallID
	for _, u := range s.uses {
		ids = append(ids, u.call)
	}
	return ids
}

// Uses returns the uses of tools whose results are awaited, each with its call.
func (s State) Uses() []schemas.UsedCall {
	var list []schemas.UsedCall
	for _, u := range s.uses {
		list = append(list, schemas.UsedCall{Use: u.id, Call: u.call})
	}
	return list
}

// final reports whether the last answer completes the turn.
func (s State) final() bool {
	n := len(s.items)
	return n > 0 && s.items[n-1].kind == schemas.EntryAnswer && len(s.uses) == 0 && s.stop != models.StopPause && s.stop != ""
}

func total(u schemas.TokenUsage) int64 { return u.In + u.CacheRead + u.CacheWrite + u.Out }
