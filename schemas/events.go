package schemas

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Eventer is anything that can be published: EventID is stable across retries, it is the key by
// which a second publish of the same thing is recognised.
type Eventer interface{ EventID() string }

// EventType names what an [Event] is about.
type EventType string

// The event types of a conversation. More will come: readers must skip what they do not know.
const (
	CallAccepted EventType = "call.accepted"
	CallStarted  EventType = "call.started"
	CallOutput   EventType = "call.output"
	CallFinished EventType = "call.finished"
	CallRejected EventType = "call.rejected" // a request from plain NATS that could not be admitted

	ArtifactCreated EventType = "artifact.created" // a call has left a file for people

	ApprovalRequested EventType = "approval.requested" // a call waits for a person's yes
	ApprovalDecided   EventType = "approval.decided"   // the answer to that, or its end without one

	JobStarted      EventType = "job.started"
	JobFinished     EventType = "job.finished"
	FollowUpCreated EventType = "followup.created" // results of jobs for the agent or the channel
	MessageReceived EventType = "message.received" // a person wrote in a chat

	DeliverySent   EventType = "delivery.sent"   // a message is in its chat
	DeliveryFailed EventType = "delivery.failed" // a message will not reach its chat

	AgentStarted      EventType = "agent.started" // a harness reports these about its agent, see AppendedEvent
	AgentFinished     EventType = "agent.finished"
	AgentFailed       EventType = "agent.failed"
	AgentStepFinished EventType = "agent.step.finished"
	Message           EventType = "message"

	MessageDelta     EventType = "message.delta"      // a piece of an answer that a model is writing
	AgentStepRetried EventType = "agent.step.retried" // a request to a model had no answer
)

// EventTypes lists the event types that this version publishes.
func EventTypes() []EventType {
	return []EventType{
		CallAccepted, CallStarted, CallOutput, CallFinished, CallRejected, ArtifactCreated, ApprovalRequested, ApprovalDecided,
		JobStarted, JobFinished, FollowUpCreated, MessageReceived, DeliverySent, DeliveryFailed,
		AgentStarted, AgentFinished, AgentFailed, AgentStepFinished, Message, MessageDelta, AgentStepRetried,
	}
}

// AppendableTypes lists what clients may add to a conversation.
func AppendableTypes() []EventType {
	return []EventType{AgentStarted, AgentFinished, AgentFailed, AgentStepFinished, Message}
}

// DeliverableTypes lists what webhook endpoints may ask for.
func DeliverableTypes() []EventType {
	return append([]EventType{JobFinished, FollowUpCreated, MessageReceived}, AppendableTypes()...)
}

// Event is one line of a conversation: a CloudEvents 1.0 JSON event. Data is one of the …Data
// types of this package, by Type.
type Event struct {
	SpecVersion  string          `json:"specversion"` // always "1.0"
	ID           string          `json:"id"`          // stable across retries
	Type         EventType       `json:"type"`
	Source       string          `json:"source"`           // "/accounts/<account>"
	Subject      string          `json:"subject,omitzero"` // the call, job or turn it is about
	Time         time.Time       `json:"time"`
	Conversation ConversationID  `json:"conversation"`
	Account      AccountID       `json:"-"` // in Source; kept apart for routing
	TraceParent  string          `json:"traceparent,omitzero"`
	Data         json.RawMessage `json:"data"`
}

// EventID returns the event's id.
func (e Event) EventID() string { return e.ID }

// AcceptedData is the data of [CallAccepted].
type AcceptedData struct {
	Call      CallID          `json:"call"`
	Tool      Tool            `json:"tool"`
	Input     json.RawMessage `json:"input,omitzero"` // left out above 64 KiB, see InputBytes
	InputSize int             `json:"input_bytes"`
	Provider  string          `json:"provider"`
	Deadline  time.Time       `json:"deadline"`
	Origin    *Origin         `json:"origin,omitzero"`
	// GrantedBy is the approval whose answer let the call run without a question.
	GrantedBy ApprovalID `json:"granted_by,omitzero"`
}

// StartedData is the data of [CallStarted]: the proof that a call was started, and by whom.
type StartedData struct {
	Call    CallID `json:"call"`
	Tool    Tool   `json:"tool"`
	Worker  string `json:"worker"`  // names the worker's lease
	Attempt int    `json:"attempt"` // 1 at the first delivery
}

// OutputData is the data of [CallOutput]: a piece of live output. Offset counts bytes of that
// stream from its start, so a reader can prove that it has all of them up to the cap.
type OutputData struct {
	Call   CallID `json:"call"`
	Stream string `json:"stream"` // stdout or stderr
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	// Bytes is how many bytes of the stream Text stands for: the next piece begins at Offset + Bytes.
	// It differs from the length of Text where bytes were not UTF-8.
	Bytes   int `json:"bytes"`
	Attempt int `json:"attempt"`
	// Capped marks the last piece of a call that prints more than is sent live. Its Text is empty.
	Capped bool `json:"capped,omitzero"`
}

// RejectedData is the data of [CallRejected].
type RejectedData struct {
	Call  CallID `json:"call,omitzero"`
	Error *Error `json:"error"`
}

// The data of [CallFinished] is a [Result], that of [ArtifactCreated] an [Artifact], that of [JobFinished] a [JobResult], that of
// [FollowUpCreated] a [FollowUp], that of the types that clients add is theirs.

// NewEvent makes an event on a call's conversation. It panics only if data cannot be marshalled,
// which for the types of this package cannot happen.
func NewEvent(c Call, t EventType, id string, at time.Time, data any) Event {
	return Event{
		SpecVersion: "1.0", ID: id, Type: t, Source: AccountSource(c.Account), Subject: string(c.ID), Time: at.UTC(),
		Conversation: c.Conversation, Account: c.Account, TraceParent: c.TraceParent, Data: mustJSON(data),
	}
}

// AcceptedEvent is the event about a call's acceptance, the same in every process. An input above
// [MaxApprovalInput] bytes is left out, only its size is reported.
func AcceptedEvent(c Call) Event {
	data := AcceptedData{
		Call: c.ID, Tool: c.Tool, Input: c.Input, InputSize: c.InputBytes(), Provider: c.Provider, Deadline: c.Deadline, Origin: c.Origin,
		GrantedBy: c.GrantedBy,
	}
	if c.InputBytes() > MaxApprovalInput {
		data.Input = nil
	}
	return NewEvent(c, CallAccepted, AcceptedID(c.Account, c.ID), c.Accepted, data)
}

// NewJobEvent makes an event on a job's conversation.
func NewJobEvent(j Job, t EventType, id string, at time.Time, data any) Event {
	return Event{
		SpecVersion: "1.0", ID: id, Type: t, Source: AccountSource(j.Account), Subject: string(j.ID), Time: at.UTC(),
		Conversation: j.Conversation, Account: j.Account, Data: mustJSON(data),
	}
}

// JobStartedID is the id of the event about a job's start.
func JobStartedID(a AccountID, j JobID) string { return JobKey(a, j) + ".started" }

// JobFinishedID is the id of the only event about a job's end. No event of a call can have it, whatever the call's id is.
func JobFinishedID(a AccountID, j JobID) string { return JobKey(a, j) + ".jobfinished" }

// FollowUpEventID is the id of the event about a follow-up.
func FollowUpEventID(a AccountID, f FollowUpID) string {
	return string(a) + "." + string(f) + ".created"
}

const accountSource = "/accounts/"

// AccountSource is the source of a tenant's events.
func AccountSource(a AccountID) string { return accountSource + string(a) }

// FinishedID is the id of the one event that carries the result of a call.
func FinishedID(a AccountID, c CallID) string { return string(a) + "." + string(c) + ".finished" }

// StartedID is the id of the event that proves the start of an attempt. A call with side effects is started
// once, whichever its attempt: its proof has the id of the first.
func StartedID(a AccountID, c CallID, attempt int) string {
	return string(a) + "." + string(c) + ".started." + strconv.Itoa(attempt)
}

// AcceptedID is the id of the event about a call's acceptance.
func AcceptedID(a AccountID, c CallID) string { return string(a) + "." + string(c) + ".accepted" }

// OutputID is the id of one piece of live output.
func OutputID(a AccountID, c CallID, attempt, n int) string {
	return fmt.Sprintf("%s.%s.output.%d.%d", a, c, attempt, n)
}

func mustJSON(v any) json.RawMessage {
	b, err := EncodeJSON(v)
	if err != nil {
		panic("schemas: marshal " + fmt.Sprintf("%T: %v", v, err))
	}
	return b
}
