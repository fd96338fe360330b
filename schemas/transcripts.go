package schemas

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// CommitPrefix begins the id of every commit of a transcript.
const CommitPrefix = "commit_"

// Limits of a transcript.
const (
	MaxCommit        = 32 << 20 // bytes of a commit's JSON
	MaxTranscript    = 64 << 20 // bytes of commits that are read of one transcript
	MaxCommitEntries = 256      // entries of a commit
	MaxCommitBlocks  = 4096     // blocks of an entry, in all of its messages and results
	MaxToolUses      = 128      // uses of tools in one answer of a model
	MaxTaken         = 256      // ids of envelopes that an entry names
)

// Commit is one write to the transcript of a conversation: entries that are there together or not at all.
type Commit struct {
	// ID is a new one for each commit, and stays when the commit is stored again because it is unknown whether it was stored.
	ID string `json:"id"`
	// Turn is the one that the entries belong to.
	Turn TurnID `json:"turn"`
	// Owner names the process that wrote it, for people.
	Owner string `json:"owner,omitzero"`
	// At is when it was written, by the log's clock.
	At      time.Time `json:"at"`
	Entries []Entry   `json:"entries"`
}

// EntryKind says what an [Entry] is, and so which of its fields have a meaning.
type EntryKind string

// The kinds of entries, in the order in which they come in a turn.
const (
	EntryIn      EntryKind = "in"      // Begins, Taken, Messages: what the turn takes in
	EntryOpen    EntryKind = "open"    // Step, Purpose, Reserved, Prefix: a model will be asked about all that stands before
	EntrySpent   EntryKind = "spent"   // Step, Attempt, Purpose, Model, Reason, Usage, Again: an attempt without an answer
	EntryAnswer  EntryKind = "answer"  // Step, Attempt, Model, Stop, Usage, Blocks, Calls
	EntryResults EntryKind = "results" // Step, Results: one for each use of a tool in the answer, in its order
	EntrySummary EntryKind = "summary" // Step, Attempt, Model, Usage, Text, Before, Carry: replaces what stands before
	EntryEnd     EntryKind = "end"     // Status, Reason, Usage, Taken: the turn is over
)

// Entry is what happened in a turn. Which fields are set, [EntryKind] says. Readers pass over kinds that they do not know.
type Entry struct {
	Kind EntryKind `json:"kind"`
	// Begins says that the turn begins with this entry.
	Begins bool `json:"begins,omitzero"`
	// Taken are the ids of the envelopes that are dealt with once this is stored.
	Taken    []string       `json:"taken,omitzero"`
	Messages []ModelMessage `json:"messages,omitzero"`
	// Step counts the questions of a turn that have an answer, from 1 on; Attempt the requests for one of them, from 1 on.
	Step    int `json:"step,omitzero"`
	Attempt int `json:"attempt,omitzero"`
	// Purpose is what is asked for: empty for the next answer, "summary" for one of what was said before.
	Purpose string `json:"purpose,omitzero"`
	// Model is the name that its server has for the model.
	Model string `json:"model,omitzero"`
	// Reserved are the tokens that the step may use at most.
	Reserved int64 `json:"reserved,omitzero"`
	// Prefix is a digest of the request's beginning that stays the same between steps.
	Prefix string `json:"prefix,omitzero"`
	// Reason says why an attempt has no answer, or a turn has ended.
	Reason string `json:"reason,omitzero"`
	// Again is when the next attempt is made, by the log's clock. Zero: there is none.
	Again time.Time `json:"again,omitzero"`
	// Usage is what the server counted; of an attempt that broke off, what it has cost at most. At an end: of the whole turn.
	Usage TokenUsage `json:"usage,omitzero"`
	// Stop says why an answer ends, in the words of the package models.
	Stop   string  `json:"stop,omitzero"`
	Blocks []Block `json:"blocks,omitzero"`
	// Calls says which call each use of a tool is.
	Calls   []UsedCall   `json:"calls,omitzero"`
	Results []UsedResult `json:"results,omitzero"`
	// Text is a summary of all entries that are stored before the sequence Before.
	Text   string `json:"text,omitzero"`
	Before uint64 `json:"before,omitzero"`
	// Carry is what the entries that a summary replaces have counted.
	Carry *Carry `json:"carry,omitzero"`
	// Status is how the turn ended.
	Status TurnStatus `json:"status,omitzero"`
}

// PurposeSummary is the [Entry.Purpose] of a request for a summary.
const PurposeSummary = "summary"

// UsedCall is the call that a use of a tool became.
type UsedCall struct {
	Use  string `json:"use"`
	Call CallID `json:"call"`
}

// UsedResult is the result of a use of a tool, as the model is shown it.
type UsedResult struct {
	Use  string `json:"use"`
	Call CallID `json:"call,omitzero"`
	// Status is that of the call's result; "cancelled" where it was not carried out, "interrupted" where it may have been.
	Status  Status `json:"status"`
	Text    string `json:"text"`
	IsError bool   `json:"is_error,omitzero"`
}

// Carry is what was counted of a turn in entries that a summary replaces.
type Carry struct {
	Began time.Time  `json:"began,omitzero"` // of the turn; zero: none was open
	Steps int        `json:"steps,omitzero"` // that had an answer
	Usage TokenUsage `json:"usage,omitzero"` // of the turn
	Taken []string   `json:"taken,omitzero"` // the last envelopes
	// Repeated is the digest of the last calls with their results, and Times how often it came.
	Repeated string `json:"repeated,omitzero"`
	Times    int    `json:"times,omitzero"`
}

// TurnStatus says how a turn ended.
type TurnStatus string

// The ends of turns.
const (
	TurnCompleted  TurnStatus = "completed"   // the model has said what it wanted to
	TurnStopped    TurnStatus = "stopped"     // a request ended it
	TurnFailed     TurnStatus = "failed"      // no model answers; Reason says why
	TurnRefused    TurnStatus = "refused"     // the model, or a filter, refuses
	TurnOverBudget TurnStatus = "over_budget" // the next request could have gone beyond the tokens or the time of a turn
	TurnMaxSteps   TurnStatus = "max_steps"   // the model wanted more steps than a turn may have
	TurnLooping    TurnStatus = "looping"     // the model repeats itself: the same calls had the same results
)

// TurnStatuses lists every end of a turn.
func TurnStatuses() []TurnStatus {
	return []TurnStatus{TurnCompleted, TurnStopped, TurnFailed, TurnRefused, TurnOverBudget, TurnMaxSteps, TurnLooping}
}

// EntryKinds lists every kind of an entry.
func EntryKinds() []EntryKind {
	return []EntryKind{EntryIn, EntryOpen, EntrySpent, EntryAnswer, EntryResults, EntrySummary, EntryEnd}
}

// DecodeCommit reads a commit from the log. Unknown fields are skipped, and unknown kinds of entries are kept as they are. Code: invalid.
func DecodeCommit(b []byte) (Commit, error) {
	var c Commit
	if len(b) > MaxCommit {
		return c, Invalidf("", "is %d bytes long: the limit is %d", len(b), MaxCommit)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return Commit{}, jsonError(err)
	}
	if err := c.checkIDs(); err != nil {
		return Commit{}, err
	}
	return c, nil
}

// EncodeCommit writes a commit for the log. Code: invalid, with the field; then nothing of it may be stored.
func EncodeCommit(c Commit) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b, err := EncodeJSON(c)
	if err != nil {
		return nil, Wrap(Invalid, "write a commit", "it cannot be written as JSON", err)
	}
	if len(b) > MaxCommit {
		return nil, Invalidf("entries", "are %d bytes long: the limit of a commit is %d", len(b), MaxCommit)
	}
	return b, nil
}

func (c Commit) checkIDs() error {
	if err := validatePrefixed("id", CommitPrefix, c.ID); err != nil {
		return err
	}
	return c.Turn.Validate()
}

// Validate reports the first thing that is wrong with a commit that is to be stored. Code: invalid.
func (c Commit) Validate() error {
	if err := c.checkIDs(); err != nil {
		return err
	}
	if c.At.IsZero() {
		return Invalidf("at", "is missing")
	}
	if n := len(c.Entries); n < 1 || n > MaxCommitEntries {
		return Invalidf("entries", "are %d: from 1 to %d", n, MaxCommitEntries)
	}
	for i := range c.Entries {
		if err := c.Entries[i].validate(); err != nil {
			return within("entries[]", err)
		}
	}
	return nil
}

// within puts the field of an error below another.
func within(field string, err error) error {
	e := *Public(err)
	e.Field = strings.TrimSuffix(field+"."+e.Field, ".")
	return &e
}

func (e *Entry) validate() error {
	if err := first(oneOf("kind", e.Kind, EntryKinds()), notNegative("step", &e.Step), notNegative("attempt", &e.Attempt)); err != nil {
		return err
	}
	if len(e.Taken) > MaxTaken {
		return Invalidf("taken", "has %d ids: the limit is %d", len(e.Taken), MaxTaken)
	}
	if e.Usage.In < 0 || e.Usage.Out < 0 || e.Usage.CacheRead < 0 || e.Usage.CacheWrite < 0 || e.Reserved < 0 {
		return Invalidf("usage", "has a negative count")
	}
	if e.Step == 0 && slices.Contains([]EntryKind{EntryOpen, EntrySpent, EntryAnswer, EntryResults, EntrySummary}, e.Kind) {
		return Invalidf("step", "is missing: %s is of a step, from 1 on", e.Kind)
	}
	if e.Purpose != "" && e.Purpose != PurposeSummary {
		return Invalidf("purpose", "%q is unknown: leave it out, or use %s", Quotable(e.Purpose), PurposeSummary)
	}
	switch e.Kind {
	case EntryIn:
		return e.validateIn()
	case EntrySpent:
		return length("reason", e.Reason, 1, MaxDescription)
	case EntryAnswer:
		return e.validateAnswer()
	case EntryResults:
		return e.validateResults()
	case EntrySummary:
		if e.Before == 0 {
			return Invalidf("before", "is missing: a summary replaces what is stored before a sequence")
		}
		return length("text", e.Text, 1, MaxCommit)
	case EntryEnd:
		return first(oneOf("status", e.Status, TurnStatuses()), length("reason", e.Reason, 0, MaxDescription))
	case EntryOpen:
	}
	return nil
}

func (e *Entry) validateIn() error {
	n := 0
	for _, m := range e.Messages {
		if m.Role != RoleUser {
			return Invalidf("messages.role", "%q does not come in: it must be user", Quotable(string(m.Role)))
		}
		for _, b := range m.Blocks {
			if b.Type != BlockText && b.Type != BlockImage {
				return Invalidf("messages.blocks.type", "%q does not come in: use text or image", Quotable(string(b.Type)))
			}
		}
		n += len(m.Blocks)
	}
	if n < 1 || n > MaxCommitBlocks {
		return Invalidf("messages", "have %d blocks: from 1 to %d", n, MaxCommitBlocks)
	}
	return nil
}

// validateAnswer holds uses of tools and calls together: a use without a call could never have a result.
func (e *Entry) validateAnswer() error {
	if e.Attempt == 0 {
		return Invalidf("attempt", "is missing: they count from 1 on")
	}
	if len(e.Blocks) > MaxCommitBlocks {
		return Invalidf("blocks", "are %d: the limit is %d", len(e.Blocks), MaxCommitBlocks)
	}
	var uses, called []string
	for _, b := range e.Blocks {
		switch b.Type {
		case BlockToolUse:
			if b.Use == "" || slices.Contains(uses, b.Use) {
				return Invalidf("blocks.use", "%q is empty or there twice: each use of a tool has an id of its own", Quotable(b.Use))
			}
			if uses = append(uses, b.Use); len(uses) > MaxToolUses {
				return Invalidf("blocks", "have more than %d uses of tools", MaxToolUses)
			}
		case BlockToolResult:
			return Invalidf("blocks.type", "an answer has no results of tools")
		case BlockText, BlockImage, BlockThinking, BlockOther:
		}
	}
	for _, c := range e.Calls {
		if err := c.Call.Validate(); err != nil {
			return within("calls[]", err)
		}
		called = append(called, c.Use)
	}
	if !slices.Equal(uses, called) {
		return Invalidf("calls", "must be one for each use of a tool, in their order")
	}
	return nil
}

func (e *Entry) validateResults() error {
	if n := len(e.Results); n < 1 || n > MaxToolUses {
		return Invalidf("results", "are %d: from 1 to %d", n, MaxToolUses)
	}
	seen := map[string]bool{}
	for _, r := range e.Results {
		if r.Use == "" || seen[r.Use] {
			return Invalidf("results.use", "%q is empty or there twice", Quotable(r.Use))
		}
		if r.Status == "" {
			return Invalidf("results.status", "is missing")
		}
		seen[r.Use] = true
	}
	return nil
}
