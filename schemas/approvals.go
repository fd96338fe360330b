package schemas

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// ApprovalID names a question to a person: may this call run?
type ApprovalID string

// ApprovalPrefix begins the id of every approval.
const ApprovalPrefix = "appr_"

// NewApprovalID returns a fresh approval id.
func NewApprovalID() ApprovalID { return ApprovalID(NewID(ApprovalPrefix)) }

// Validate reports whether id is a well-formed approval id.
func (id ApprovalID) Validate() error {
	return validatePrefixed("approval", ApprovalPrefix, string(id))
}

// ApprovalState is what became of a question.
type ApprovalState string

// The states. An approval moves from pending to exactly one of the others.
const (
	ApprovalPending   ApprovalState = "pending"
	ApprovalApproved  ApprovalState = "approved"  // a person said yes: the call is with the workers
	ApprovalDenied    ApprovalState = "denied"    // a person said no
	ApprovalCancelled ApprovalState = "cancelled" // the call was cancelled before anybody answered
	ApprovalExpired   ApprovalState = "expired"   // nobody answered in time
)

// ApprovalStates lists every state.
func ApprovalStates() []ApprovalState {
	return []ApprovalState{ApprovalPending, ApprovalApproved, ApprovalDenied, ApprovalCancelled, ApprovalExpired}
}

// Approval is the record of a question, in the bucket approvals under "<account>.<approval>".
type Approval struct {
	ID      ApprovalID    `json:"id"`
	Account AccountID     `json:"account"`
	State   ApprovalState `json:"state"`
	// Call is what is asked about. Its input is left out of the record above MaxApprovalInput bytes:
	// it is on the log then, with the call that waits there.
	Call      Call      `json:"call"`
	InputSize int       `json:"input_bytes"`
	Requested time.Time `json:"requested"`
	Expires   time.Time `json:"expires"` // unanswered until then it is expired
	Decided   time.Time `json:"decided,omitzero"`
	// DecidedBy is the way by which the answer came: api, websocket, or deadline when none did.
	DecidedBy string `json:"decided_by,omitzero"`
	Reason    string `json:"reason,omitzero"` // what was given with the answer
	// Done says that what follows from the answer is on the log: the call, or its result.
	Done bool `json:"done,omitzero"`
}

// LeftOut reports whether the record is without the input of its call.
func (a Approval) LeftOut() bool { return a.InputSize > MaxApprovalInput }

// ApprovalKey is the place of an approval in its bucket.
func ApprovalKey(a AccountID, id ApprovalID) string { return string(a) + "." + string(id) }

// Key is the approval's place in its bucket.
func (a Approval) Key() string { return ApprovalKey(a.Account, a.ID) }

// ApprovalAnswer is what a person says to an approval.
type ApprovalAnswer struct {
	Approved *bool  `json:"approved"` // must be there: a forgotten field must not mean no
	Reason   string `json:"reason,omitzero"`
}

// DecodeApprovalAnswer reads an answer strictly. Errors are of code invalid and name the field.
func DecodeApprovalAnswer(b []byte) (ApprovalAnswer, error) {
	var in ApprovalAnswer
	if err := DecodeStrict(b, MaxRequest, &in); err != nil {
		return ApprovalAnswer{}, err
	}
	return in, in.Validate()
}

// Validate reports the first thing that is wrong with an answer.
func (in ApprovalAnswer) Validate() error {
	if in.Approved == nil {
		return Invalidf("approved", "is missing: true lets the call run, false refuses it")
	}
	if len(in.Reason) > MaxApprovalReason {
		return Invalidf("reason", "is %d bytes long: the limit is %d", len(in.Reason), MaxApprovalReason)
	}
	return nil
}

// ParseApprovalState reads the name of a state.
func ParseApprovalState(s string) (ApprovalState, error) {
	if state := ApprovalState(s); slices.Contains(ApprovalStates(), state) {
		return state, nil
	}
	names := make([]string, 0, len(ApprovalStates()))
	for _, state := range ApprovalStates() {
		names = append(names, string(state))
	}
	return "", Invalidf("state", "%q is unknown: use one of %s", Quotable(s), strings.Join(names, ", "))
}

// ApprovalRequestedData is the data of [ApprovalRequested].
type ApprovalRequestedData struct {
	ID        ApprovalID      `json:"id"`
	Call      CallID          `json:"call"`
	Tool      Tool            `json:"tool"`
	Input     json.RawMessage `json:"input,omitzero"` // left out above MaxApprovalInput bytes, see InputSize
	InputSize int             `json:"input_bytes"`
	Workspace WorkspaceID     `json:"workspace,omitzero"` // empty: of an agent that has none
	Sandbox   SandboxID       `json:"sandbox,omitzero"`   // empty: of a call that only reads
	Expires   time.Time       `json:"expires"`
}

// ApprovalDecidedData is the data of [ApprovalDecided].
type ApprovalDecidedData struct {
	ID        ApprovalID    `json:"id"`
	Call      CallID        `json:"call"`
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by"`
	Reason    string        `json:"reason,omitzero"`
}

// ApprovalRequestedID is the id of the event that asks.
func ApprovalRequestedID(a AccountID, id ApprovalID) string { return ApprovalKey(a, id) + ".requested" }

// ApprovalDecidedID is the id of the one event that tells the answer.
func ApprovalDecidedID(a AccountID, id ApprovalID) string { return ApprovalKey(a, id) + ".decided" }
