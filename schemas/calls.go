package schemas

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Request is a tool call as a client asks for it, over HTTP, WebSocket or plain NATS. Only Tool
// and Input must be there; the rest has defaults. The tenant is never part of it: it is taken from
// the credential. A body may repeat it in Account; if it differs the request is denied.
type Request struct {
	// ID makes the request idempotent: the same id with the same content is the same call, with
	// other content it is a conflict. Kept for 24 hours. Made by Sandjet when absent.
	ID           CallID          `json:"id,omitzero"`
	Account      AccountID       `json:"account,omitzero"`
	Agent        AgentID         `json:"agent,omitzero"`
	Conversation ConversationID  `json:"conversation,omitzero" jsonschema:"maxLength=256" jsonschema_description:"Where the events go. A new one is made when absent."`
	Turn         TurnID          `json:"turn,omitzero"`
	Tool         Tool            `json:"tool"`
	Input        json.RawMessage `json:"input" jsonschema:"type=object"`
	Dialect      Dialect         `json:"dialect,omitzero" jsonschema:"enum=claude,enum=deepagents"`
	Workspace    string          `json:"workspace,omitzero" jsonschema:"maxLength=128,pattern=^[A-Za-z0-9_. -]+$" jsonschema_description:"Name or id. Default: default."`
	Sandbox      string          `json:"sandbox,omitzero" jsonschema:"maxLength=128,pattern=^[A-Za-z0-9_. -]+$" jsonschema_description:"Name or id. Default: the workspace's."`
	Timeout      Duration        `json:"timeout,omitzero" jsonschema_description:"Of the run, from the start of its command: seconds or a duration such as 30s. Default: the sandbox's."`
	Deadline     time.Time       `json:"deadline,omitzero" jsonschema_description:"Absolute end, waiting included. Default: one hour from now."`
	Origin       *Origin         `json:"origin,omitzero"`
	Group        *GroupRef       `json:"group,omitzero" jsonschema_description:"Of background calls: those of one group come back in one follow-up."`
	TraceParent  string          `json:"traceparent,omitzero" jsonschema:"maxLength=128,pattern=^[A-Za-z0-9-]+$"`
	// WaitForWorker has the call wait, until its deadline, though no worker serves its provider now.
	WaitForWorker bool `json:"wait_for_worker,omitzero" jsonschema_description:"Accept the call though no worker serves its provider now: it waits until its deadline. Default: it is refused."`
	// Artifacts are patterns of files below the workspace, beside the folder outputs, that are artifacts when the call changes them.
	Artifacts []string `json:"artifacts,omitzero" jsonschema:"maxItems=16" jsonschema_description:"Files that are kept as artifacts when the call changes them, beside those below outputs: paths from the root of the workspace with wildcards, such as report.pdf or plots/*.png."`

	parsed *parsedInput // see [Request.Parsed]
}

// OriginChannel is the kind of the origin of what came from a chat.
const OriginChannel = "channel"

// Origin says where a call came from, so that a follow-up finds its way back.
type Origin struct {
	Kind    string          `json:"kind" jsonschema:"enum=api,enum=nats,enum=websocket,enum=channel,enum=async"`
	Channel string          `json:"channel,omitzero" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	Route   json.RawMessage `json:"route,omitzero"` // opaque to all but the channel
	// ChannelID is the chat channel's record. Empty: the only one of its kind that the account has.
	ChannelID ChannelID `json:"channel_id,omitzero"`
}

// Call is an admitted request: what a provider's worker finds on the log. Everything that decides
// how it runs is in it or named by an id in it, so it can be run by any worker at any time.
type Call struct {
	ID           CallID          `json:"id"`
	Account      AccountID       `json:"account"`
	Agent        AgentID         `json:"agent,omitzero"`
	Conversation ConversationID  `json:"conversation"`
	Turn         TurnID          `json:"turn,omitzero"`
	Tool         Tool            `json:"tool"`
	Input        json.RawMessage `json:"input"`
	InputSize    int             `json:"input_bytes,omitzero"` // size of an input that is left out
	Dialect      Dialect         `json:"dialect,omitzero"`
	Provider     string          `json:"provider"`
	Workspace    WorkspaceID     `json:"workspace,omitzero"` // empty: an agent's that has none
	Sandbox      SandboxID       `json:"sandbox,omitzero"`   // empty: an agent's that only reads, or has none
	Direct       bool            `json:"direct,omitzero"`    // files on S3 are read in the bucket: its agent asks for that with null as sandbox
	Timeout      Duration        `json:"timeout"`
	Accepted     time.Time       `json:"accepted"`
	Deadline     time.Time       `json:"deadline"`
	Origin       *Origin         `json:"origin,omitzero"`
	Job          JobID           `json:"job,omitzero"`        // of a background call: the job that it starts
	Approval     ApprovalID      `json:"approval,omitzero"`   // of a call that a person must allow first
	GrantedBy    ApprovalID      `json:"granted_by,omitzero"` // the answer that let the call run without a question
	Group        *GroupRef       `json:"group,omitzero"`
	TraceParent  string          `json:"traceparent,omitzero"`
	// Refused is why the call is not carried out, in words for the model; empty: it is.
	Refused string `json:"refused,omitzero"`
	// Misuse is what a model has done wrong in asking for the call, which ends with that; nil: nothing.
	Misuse *Error `json:"misuse,omitzero"`
	// Wake says that a turn waits for the result: who writes it has that looked at.
	Wake bool `json:"wake,omitzero"`
	// Artifacts are the patterns of files that the request has named.
	Artifacts []string `json:"artifacts,omitzero"`
	// Digest is [Request.Digest] of the request that was admitted.
	Digest string `json:"digest"`

	parsed *parsedInput // see [Call.Parsed]
}

// Unfit returns why the call is not carried out, as decided at admission: an error for its model. Nil: it is carried out.
func (c Call) Unfit() *Error {
	if c.Refused != "" {
		return &Error{Code: Denied, Message: c.Refused}
	}
	return c.Misuse
}

// WithoutInput returns c without an input above [MaxApprovalInput] bytes, which events leave out too, so that a caller that needs only the
// state of a call does not occupy megabytes. The input of async_status stays: it is small and decides whether the call may be repeated.
func (c Call) WithoutInput() Call {
	if len(c.Input) > MaxApprovalInput && c.Tool != ToolAsyncStatus {
		c.InputSize, c.Input, c.parsed = len(c.Input), nil, nil
	}
	return c
}

// InputLeftOut reports whether c is without its input.
func (c Call) InputLeftOut() bool { return c.InputSize > 0 }

// InputBytes is the size of the input, also where it is left out.
func (c Call) InputBytes() int { return max(len(c.Input), c.InputSize) }

// EventID is the call's key on the log: unique per tenant.
func (c Call) EventID() string { return string(c.Account) + "." + string(c.ID) }

// SideEffects reports whether a second run of the call could do harm, as for bash, write and edit, and for an async_status that writes to
// a job or signals it. Such a call is started at most once.
func (c Call) SideEffects() bool {
	if c.Tool != ToolAsyncStatus {
		return c.Tool.SideEffects()
	}
	in, err := c.TypedInput()
	s, ok := in.(AsyncStatusInput)
	return err == nil && ok && (s.Action == JobActionStdin || s.Action == JobActionSignal)
}

// Cancel asks for the end of a call, whether it waits or runs.
type Cancel struct {
	Account AccountID `json:"account"`
	Call    CallID    `json:"call"`
	Reason  string    `json:"reason,omitzero"`
	Time    time.Time `json:"time"`
	// Accepted is when the call was accepted that is meant, as the call has it: its id may be another's a day later.
	Accepted time.Time `json:"accepted,omitzero"`
}

// EventID is the same for each request to cancel the call, so repeating one has no effect.
func (c Cancel) EventID() string { return string(c.Account) + "." + string(c.Call) + ".cancel" }

// Digest identifies what the request asks for: two requests with the same id must have the same
// digest to be the same call. Everything but the id itself, the tenant and the trace counts; the
// spacing and the order of the keys of the input do not.
func (r Request) Digest() string {
	r.ID, r.Account, r.TraceParent, r.WaitForWorker = "", "", "", false
	r.Input = canonical(r.Input)
	if r.Origin != nil {
		r.Origin = &Origin{Kind: r.Origin.Kind, Channel: r.Origin.Channel, Route: canonical(r.Origin.Route), ChannelID: r.Origin.ChannelID}
	}
	sum := sha256.Sum256(mustJSON(r))
	return hex.EncodeToString(sum[:16])
}

// canonical returns the same JSON value with sorted keys and no spaces. Numbers stay as written: 1 and 1.0 differ, and no digit is lost.
// Text that is not JSON is returned as a string.
func canonical(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil || dec.More() {
		return mustJSON(string(raw))
	}
	return mustJSON(v)
}
