package turns

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
)

// Limits of a turn.
const (
	DefaultMaxSteps = 50
	MaxSteps        = schemas.MaxTurnSteps
	MaxAttempts     = 8                // requests for one step
	MaxRetrying     = 15 * time.Minute // from a step's opening to its last attempt
	MaxWall         = 30 * 24 * time.Hour
	StopWithin      = 5 * time.Second // that calls have to end, once their end is asked for

	loopTimes    = 3   // that the same calls may have the same results
	overloadsPer = 2   // of a model, before the next one is asked
	leastAnswer  = 256 // tokens that are worth a request
	maxUse       = 256 // bytes of an id that a model gives a use of a tool
	compactAt    = 75  // percent of a model's context, by default
)

// Model is one of the models of an agent.
type Model struct {
	Name    string
	Context int64 // tokens; 0: unknown
}

// Config is the configuration of an agent's turns. Zero fields have their defaults.
type Config struct {
	// Conversation names it, with its account: ids of turns and calls are made of it.
	Conversation string
	// Models has at least one; the others are asked when it is overloaded.
	Models    []Model
	System    string
	Tools     []models.Tool
	MaxSteps  int           // default [DefaultMaxSteps]
	MaxTokens int64         // of one answer; default 4096
	Budget    int64         // tokens of a turn; 0: any number
	Wall      time.Duration // from a turn's beginning to its last request; default and most [MaxWall]
	CompactAt int           // percent of a model's context from which on a summary is asked for; default 75
}

func (c Config) withDefaults() Config {
	if c.MaxSteps <= 0 {
		c.MaxSteps = DefaultMaxSteps
	}
	if c.MaxTokens <= 0 {
		c.MaxTokens = schemas.DefaultAnswerTokens
	}
	if c.Wall <= 0 || c.Wall > MaxWall {
		c.Wall = MaxWall
	}
	if c.CompactAt <= 0 || c.CompactAt > 100 {
		c.CompactAt = compactAt
	}
	c.MaxSteps = min(c.MaxSteps, MaxSteps)
	return c
}

// Mode says what happens to an envelope that arrives while a turn runs.
type Mode string

// The modes.
const (
	Steer     Mode = "steer"     // it is taken in behind the next results
	FollowUp  Mode = "followup"  // it begins the next turn
	Collect   Mode = "collect"   // all that wait begin the next turn together
	Reject    Mode = "reject"    // it is refused
	Interrupt Mode = "interrupt" // the turn is stopped, and it begins the next one
	StopSoon  Mode = "stop"      // the turn ends after the awaited results; the envelope has no message
	StopNow   Mode = "stop_now"  // the turn ends at once, and its calls are cancelled
)

// Envelope is an incoming message for the model, or a request to stop the turn.
type Envelope struct {
	ID       string
	Mode     Mode // empty: Steer
	Messages []schemas.ModelMessage
}

// View is the caller's knowledge beside the transcript.
type View struct {
	Now time.Time // by the log's clock
	// Inbox are the waiting envelopes, oldest first. Those that were taken in already are ignored.
	Inbox []Envelope
	// Mine is the sequence of the last commit that this process has appended itself since it holds the conversation. A step that
	// another has opened may have been asked by it.
	Mine uint64
	// Asked is the request of this process for the open step, running or over.
	Asked *Asked
	// Called are the calls that this process has published, Ended the results that are known.
	Called map[schemas.CallID]bool
	Ended  map[schemas.CallID]schemas.UsedResult
	// Cancelled is when this process has asked for the end of the turn's calls; zero: it has not.
	Cancelled time.Time
}

// Asked is a request to a model. If neither Answer nor Err is set, it is in progress.
type Asked struct {
	Step, Attempt int
	Purpose       string
	Answer        *models.Answer
	Err           *models.Error // of class [Stopped] when the caller has closed it
}

// Classes of requests that ended for a reason of the caller's.
const (
	Stopped   models.Class = "stopped"    // its own caller has closed it
	OwnerLost models.Class = "owner_lost" // the process that asked is gone, and the result is unknown
)

// Outcome is the outcome of an envelope.
type Outcome string

// The outcomes.
const (
	Taken    Outcome = "taken"    // the transcript has it
	Rejected Outcome = "rejected" // a turn runs
	Useless  Outcome = "useless"  // there is nothing to stop
)

// Settled is an envelope that is done and need not be passed again.
type Settled struct {
	ID      string
	Outcome Outcome
}

// ToolCall is a call to publish. Publishing it again must find the same call.
type ToolCall struct {
	ID   schemas.CallID
	Use  string
	Name string
	// Input is a JSON object; a JSON string where the model wrote something else.
	Input []byte
}

// Decision is what the caller must do. It handles Settle first. If Entries is set, nothing else is: the entries must be stored as one
// commit of Turn, and the transcript is read from From on. Otherwise the caller must do everything that is set, and call [Next] again when
// something has happened, at the latest at Until (zero means no such time). Idle means that no turn is open and nothing waits.
type Decision struct {
	Settle []Settled

	Turn    schemas.TurnID
	Entries []schemas.Entry
	From    uint64

	Ask     *Ask
	StopAsk bool
	Call    []ToolCall
	Cancel  []schemas.CallID
	Until   time.Time
	Idle    bool
}

// Ask is a request to send to a model.
type Ask struct {
	Step, Attempt int
	Purpose       string
	Model         int // of Config.Models
	Request       models.Request
}

// CallIDOf returns the id of the call for a use of a tool: the same in every process.
func CallIDOf(conversation string, turn schemas.TurnID, step int, use string) schemas.CallID {
	return schemas.CallID(schemas.CallPrefix + digest(conversation, string(turn), string(rune(step)), use))
}

func turnIDOf(conversation string, tail uint64, envelope string) schemas.TurnID {
	return schemas.TurnID(schemas.TurnPrefix + digest(conversation, string(binary(tail)), envelope))
}

func binary(n uint64) []byte {
	b := make([]byte, 0, 8)
	for range 8 {
		b, n = append(b, byte(n)), n>>8
	}
	return b
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256([]byte(p))
		h.Write(sum[:])
	}
	const length = 32
	return hex.EncodeToString(h.Sum(nil))[:length]
}
