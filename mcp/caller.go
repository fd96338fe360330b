package mcp

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// The states of a call that has no result, as the HTTP API names them.
const (
	StatusQueued     = "queued"
	StatusRunning    = "running"
	StatusCancelling = "cancelling"
	StatusAwaiting   = "awaiting_approval"
)

// State is the state of a call.
type State struct {
	ID           schemas.CallID
	Conversation schemas.ConversationID
	Status       string             // one of the states above, or the status of the result
	Approval     schemas.ApprovalID // of StatusAwaiting: the question that a person has to answer
	Accepted     time.Time          // zero: not known
	Result       *schemas.Result    // nil while there is none
	// Withheld is set if there is a result, but no memory to send it: the reason. Status is then StatusRunning.
	Withheld error
}

// Tool is a tool as a client lists it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"` //nolint:tagliatelle // the protocol's
	Annotations Annotations     `json:"annotations"`
}

// Annotations are hints of what a tool may do.
type Annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`    //nolint:tagliatelle // the protocol's
	Destructive bool `json:"destructiveHint"` //nolint:tagliatelle // the protocol's
	Idempotent  bool `json:"idempotentHint"`  //nolint:tagliatelle // the protocol's
	OpenWorld   bool `json:"openWorldHint"`   //nolint:tagliatelle // the protocol's
}

// Caller executes calls of one account. It must be safe for concurrent use. Its methods block until they have an answer or ctx is done.
type Caller interface {
	ArtifactReader

	// Tools returns the tools of an agent; without an agent, all tools. Code: not_found.
	Tools(ctx context.Context, agent schemas.AgentID) ([]Tool, error)
	// Submit admits a call. When it returns without an error the call is stored. The same id with the same content is the same call.
	// Codes: invalid, not_found, denied, conflict, exhausted, unavailable.
	Submit(ctx context.Context, r schemas.Request) (State, error)
	// Wait returns a call's state as soon as it has a result or waits for a person, and after wait whatever it is then. 0: now.
	// Codes: not_found.
	Wait(ctx context.Context, id schemas.CallID, wait time.Duration) (State, error)
	// Cancel asks for the end of a call. Codes: not_found, conflict (it has ended).
	Cancel(ctx context.Context, id schemas.CallID, reason string) error
	// Output calls each with a call's output from now on, until ctx is done. Output may be lost, since it is only displayed.
	Output(ctx context.Context, conversation schemas.ConversationID, id schemas.CallID, each func(text string)) error
	// Approval shows a question. Codes: not_found.
	Approval(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error)
	// Decide answers it. Codes: not_found, conflict (it was answered, or its time is over).
	Decide(ctx context.Context, id schemas.ApprovalID, answer schemas.ApprovalAnswer) error
	// Job shows a background job. Codes: not_found.
	Job(ctx context.Context, id schemas.JobID) (schemas.Job, error)
	// StopJob ends one. Codes: not_found, conflict (it has ended).
	StopJob(ctx context.Context, id schemas.JobID, reason string) error
}

// ArtifactReader reads artifacts of one account.
type ArtifactReader interface {
	// Artifacts lists at most limit artifacts of a conversation, in the order in which they were stored, from behind one on (empty: from
	// the first). Next is the last of the page, empty where there are no more. Codes: not_found (after is gone).
	Artifacts(ctx context.Context, conversation schemas.ConversationID, limit int, after schemas.ArtifactID) (
		list []schemas.Artifact, next schemas.ArtifactID, err error)
	// Artifact returns the content of an artifact of at most most bytes; if a conversation is named, the artifact must belong to it. Of
	// its description the media type is always set, the rest if it is known. Codes: not_found, exhausted ([ArtifactTooLarge]; no memory
	// for the answer).
	Artifact(ctx context.Context, of schemas.ConversationID, id schemas.ArtifactID, most int64) (schemas.Artifact, []byte, error)
}

// Scope is what a client can access: one account, by its credential, and within it perhaps one agent, workspace or conversation.
type Scope struct {
	Account   schemas.AccountID
	Agent     schemas.AgentID // empty: all tools
	Workspace string          // empty: the account's default, or the agent's first
	// Conversation is the conversation of the calls. Empty: each call has one of its own.
	Conversation schemas.ConversationID
	Caller       Caller
}
