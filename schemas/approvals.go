package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

// ApprovalState is the state of an approval.
type ApprovalState string

// The states. An approval moves from pending to exactly one of the others.
const (
	ApprovalPending   ApprovalState = "pending"
	ApprovalApproved  ApprovalState = "approved"  // a person said yes: the call is with the workers
	ApprovalDenied    ApprovalState = "denied"    // a person said no
	ApprovalCancelled ApprovalState = "cancelled" // the call was cancelled before the approval was answered
	ApprovalExpired   ApprovalState = "expired"   // no answer came in time
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
	// Asked says that the question is on the conversation.
	Asked   bool      `json:"asked,omitzero"`
	Decided time.Time `json:"decided,omitzero"`
	// DecidedBy is the way by which the answer came: api, websocket, nats, channel (a chat), or deadline when none did.
	DecidedBy string `json:"decided_by,omitzero"`
	Reason    string `json:"reason,omitzero"` // what was given with the answer
	// Remember says that the answer counts for later calls too, see [ApprovalGrant].
	Remember Remember `json:"remember,omitzero"`
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
	// Remember lets the answer count for later calls too. Only a yes is remembered.
	Remember Remember `json:"remember,omitzero" jsonschema:"enum=conversation"`
}

// Remember says for which later calls an answer counts too.
type Remember string

// RememberConversation is every call of the same agent, tool, workspace and sandbox on the same
// conversation, for [ApprovalGrantLifetime].
const RememberConversation Remember = "conversation"

// ApprovalGrant is an answer that counts for later calls too: they run without a question. It is in the bucket
// remembered under "<account>.<id>", and ends by itself.
type ApprovalGrant struct {
	ID           string         `json:"id"` // the same for every answer of this scope
	Account      AccountID      `json:"account"`
	Conversation ConversationID `json:"conversation"`
	Agent        AgentID        `json:"agent,omitzero"`
	Tool         Tool           `json:"tool"`
	Workspace    WorkspaceID    `json:"workspace,omitzero"`
	Sandbox      SandboxID      `json:"sandbox,omitzero"`
	Approval     ApprovalID     `json:"approval"` // which was answered so
	DecidedBy    string         `json:"decided_by"`
	Decided      time.Time      `json:"decided"`
	Expires      time.Time      `json:"expires"`
	// Revoked says that it does not count any more. The record stays until its time, so that an answer
	// that is carried out late does not bring it back.
	Revoked time.Time `json:"revoked,omitzero"`
}

// ApprovalGrantOf returns the grant of an answer to be remembered.
func ApprovalGrantOf(a Approval) ApprovalGrant {
	c := a.Call
	return ApprovalGrant{
		ID: ApprovalGrantID(c), Account: a.Account, Conversation: c.Conversation, Agent: c.Agent, Tool: c.Tool,
		Workspace: c.Workspace, Sandbox: c.Sandbox,
		Approval: a.ID, DecidedBy: a.DecidedBy, Decided: a.Decided, Expires: a.Decided.Add(ApprovalGrantLifetime),
	}
}

// Allows reports whether a call of the account may run without a question.
func (r ApprovalGrant) Allows(c Call, now time.Time) bool {
	return r.Revoked.IsZero() && now.Before(r.Expires) && r.Account == c.Account && r.Conversation == c.Conversation &&
		r.Agent == c.Agent && r.Tool == c.Tool && r.Workspace == c.Workspace && r.Sandbox == c.Sandbox
}

// ApprovalGrantPrefix begins the id of every remembered answer.
const ApprovalGrantPrefix = "mem_"

// ApprovalGrantID is the id of an answer that is remembered for calls like c.
func ApprovalGrantID(c Call) string {
	const bytes = 16
	h := sha256.New()
	for _, part := range []string{string(c.Conversation), string(c.Agent), string(c.Tool), string(c.Workspace), string(c.Sandbox)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails
	}
	return ApprovalGrantPrefix + hex.EncodeToString(h.Sum(nil)[:bytes])
}

// ValidateApprovalGrantID reports whether id is a well-formed id of a remembered answer.
func ValidateApprovalGrantID(id string) error {
	return validatePrefixed("id", ApprovalGrantPrefix, id)
}

// ApprovalGrantKey is the place of a remembered answer in its bucket.
func ApprovalGrantKey(a AccountID, id string) string { return string(a) + "." + id }

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
	switch {
	case in.Remember == "":
	case in.Remember != RememberConversation:
		return Invalidf("remember", "%q is unknown: use %s, or leave it out", Quotable(string(in.Remember)), RememberConversation)
	case !*in.Approved:
		return Invalidf("remember", "is for approved calls: only a yes is remembered")
	}
	return nil
}

// ParseApprovalState reads the name of a state.
func ParseApprovalState(s string) (ApprovalState, error) {
	state := ApprovalState(s)
	if err := oneOf("state", state, ApprovalStates()); err != nil {
		return "", err
	}
	return state, nil
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
	Remember  Remember      `json:"remember,omitzero"`
}

// ApprovalRequestedID is the id of the event that asks.
func ApprovalRequestedID(a AccountID, id ApprovalID) string { return ApprovalKey(a, id) + ".requested" }

// ApprovalDecidedID is the id of the one event about the answer.
func ApprovalDecidedID(a AccountID, id ApprovalID) string { return ApprovalKey(a, id) + ".decided" }
