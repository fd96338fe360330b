package schemas

import (
	"slices"
	"time"
)

// TurnMode says what becomes of what comes in for an agent while a turn of its conversation runs.
type TurnMode string

// The modes.
const (
	TurnSteer     TurnMode = "steer"     // the turn takes it in behind the results that it waits for; the default
	TurnFollowUp  TurnMode = "followup"  // it begins the next turn
	TurnCollect   TurnMode = "collect"   // all that wait begin the next turn together
	TurnReject    TurnMode = "reject"    // it is refused
	TurnInterrupt TurnMode = "interrupt" // the turn is stopped, and it begins the next one
	TurnStop      TurnMode = "stop"      // the turn ends behind the results that it waits for; there is no text
	TurnStopNow   TurnMode = "stop_now"  // the turn ends at once, and its calls are cancelled; there is no text
)

// TurnModes lists the modes of what has a text.
func TurnModes() []TurnMode {
	return []TurnMode{TurnSteer, TurnFollowUp, TurnCollect, TurnReject, TurnInterrupt}
}

// Stops reports whether the mode is a wish for the end of a turn, and nothing else.
func (m TurnMode) Stops() bool { return m == TurnStop || m == TurnStopNow }

// Validate reports whether m is a mode; empty is [TurnSteer].
func (m TurnMode) Validate() error {
	if m == "" || m.Stops() {
		return nil
	}
	return oneOf("mode", m, TurnModes())
}

// Limits of what waits for an agent in one conversation.
const (
	MaxWaitingTurns     = 100       // messages
	MaxWaitingTurnBytes = 1 << 20   // bytes of their texts
	MaxTurnInput        = 256 << 10 // bytes of one text
	maxSettledTurns     = 10_000    // that a record names, above all that may wait
)

// Wake makes a process check a conversation whose turn may continue: something has come in, a call has ended, or a time has come. Of
// several only the last one is kept.
type Wake struct {
	Account      AccountID      `json:"account"`
	Conversation ConversationID `json:"conversation"`
}

// EventID is that of the conversation: one wake does for all.
func (w Wake) EventID() string { return string(w.Account) + "." + string(w.Conversation) + ".wake" }

// TurnHold is the record of who carries on the turns of a conversation, and how far what came in is dealt with. What was said stands on
// the transcript alone.
type TurnHold struct {
	Account      AccountID      `json:"account"`
	Conversation ConversationID `json:"conversation"`
	// Owner is the process that carries them on; empty: no process does. Epoch grows with each owner.
	Owner string `json:"owner,omitzero"`
	Epoch uint64 `json:"epoch"`
	// Turn is the one that is open, as far as the record knows: it may lag behind the transcript. Agent is whose it is, or was, and
	// Origin is where it came from.
	Turn   TurnID  `json:"turn,omitzero"`
	Agent  AgentID `json:"agent,omitzero"`
	Origin *Origin `json:"origin,omitzero"`
	// First is where those that the conversation's agents take in begin in the stream of turns; up to Seen all are dealt with, and
	// behind it those of Settled.
	First   uint64       `json:"first"`
	Seen    uint64       `json:"seen"`
	Settled []FollowUpID `json:"settled,omitzero"`
	// Resting is the transcript's end at which its last owner has left it with no request to a model under way; 0: that is not known.
	// Up to Derived the events of its commits are published.
	Resting uint64 `json:"resting,omitzero"`
	Derived uint64 `json:"derived,omitzero"`

	Updated time.Time `json:"updated"`
}

// Has reports whether an envelope is dealt with.
func (h TurnHold) Has(seq uint64, id FollowUpID) bool {
	return seq <= h.Seen || slices.Contains(h.Settled, id)
}

// Crowded reports whether the record has to be written before more envelopes are dealt with.
func (h TurnHold) Crowded() bool { return len(h.Settled) > maxSettledTurns/2 }

// MakeEnvelopeID is the id of what a client sends to an agent under a key of its own; without a key it is a new one.
func MakeEnvelopeID(c ConversationID, key string) FollowUpID {
	if key == "" {
		return FollowUpID(NewID("in_"))
	}
	return FollowUpID("in_" + shortHash("turn\x00"+string(c)+"\x00"+key))
}

// AgentStartedData is the data of [AgentStarted], where Sandjet carries the turn out.
type AgentStartedData struct {
	Turn  TurnID  `json:"turn"`
	Agent AgentID `json:"agent"`
	// Taken are the ids of the messages that the turn begins with.
	Taken []string `json:"taken"`
}

// MessageData is the data of [Message], where Sandjet carries the turn out.
type MessageData struct {
	Turn  TurnID   `json:"turn"`
	Role  Role     `json:"role"`
	Step  int      `json:"step,omitzero"`  // of an assistant's
	Taken []string `json:"taken,omitzero"` // ids of the messages, of a user's
	Text  string   `json:"text"`
	// TextTruncated says that the text was longer than [MaxTurnText] bytes. The transcript has the whole.
	TextTruncated bool `json:"text_truncated,omitzero"`
}

// MaxTurnText is how many bytes of a text an event of a turn carries.
const MaxTurnText = 128 << 10

// MessageDeltaData is the data of [MessageDelta]: a piece of an answer that is not whole yet. A higher attempt of the same step begins
// again, and what came before it is void.
type MessageDeltaData struct {
	Turn    TurnID `json:"turn"`
	Step    int    `json:"step"`
	Attempt int    `json:"attempt"`
	Offset  int    `json:"offset"` // bytes of the answer before this piece
	Text    string `json:"text"`
}

// StepFinishedData is the data of [AgentStepFinished], where Sandjet carries the turn out.
type StepFinishedData struct {
	Turn    TurnID     `json:"turn"`
	Step    int        `json:"step"`
	Attempt int        `json:"attempt"`
	Model   string     `json:"model"`
	Stop    string     `json:"stop"`
	Usage   TokenUsage `json:"usage"`
	Calls   []UsedCall `json:"calls,omitzero"`
}

// StepRetriedData is the data of [AgentStepRetried]: a request to a model had no answer.
type StepRetriedData struct {
	Turn    TurnID    `json:"turn"`
	Step    int       `json:"step"`
	Attempt int       `json:"attempt"`
	Model   string    `json:"model"`
	Reason  string    `json:"reason"`
	Again   time.Time `json:"again,omitzero"` // when it is asked again; absent: it is not
}

// TurnEndData is the data of [AgentFinished] and [AgentFailed], where Sandjet carries the turn out. One that was refused before it
// began has no turn, and Taken.
type TurnEndData struct {
	Turn   TurnID     `json:"turn,omitzero"`
	Agent  AgentID    `json:"agent,omitzero"`
	Status TurnStatus `json:"status"`
	Taken  []string   `json:"taken,omitzero"`
	// Reason says more about the status, Error why it failed in words for people.
	Reason string `json:"reason,omitzero"`
	Error  string `json:"error,omitzero"`
	// Text is what the agent has said last.
	Text          string     `json:"text,omitzero"`
	TextTruncated bool       `json:"text_truncated,omitzero"`
	Steps         int        `json:"steps,omitzero"`
	Usage         TokenUsage `json:"usage,omitzero"`
}
