package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// CallSummary is a call in a list: what it is and how far it is, without its input and output.
type CallSummary struct {
	ID           CallID         `json:"id"`
	Conversation ConversationID `json:"conversation"`
	Tool         Tool           `json:"tool"`
	Summary      string         `json:"summary,omitzero"` // of the input, at most [MaxSummary] bytes; see [Summary]
	// Status is queued, running, awaiting_approval or one of [Statuses]. It is absent where so much else happened on the conversation
	// that the list did not find it: the call itself has it.
	Status    string      `json:"status,omitzero"`
	Accepted  time.Time   `json:"accepted"`
	Started   time.Time   `json:"started,omitzero"` // of one that has ended, if it ever started
	Finished  time.Time   `json:"finished,omitzero"`
	ExitCode  *int        `json:"exit_code,omitzero"` // of a command that has ended
	Agent     AgentID     `json:"agent,omitzero"`
	Workspace WorkspaceID `json:"workspace,omitzero"`
	Sandbox   SandboxID   `json:"sandbox,omitzero"`
	Provider  string      `json:"provider"`
	Job       JobID       `json:"job,omitzero"`      // that a background call starts
	Approval  ApprovalID  `json:"approval,omitzero"` // of a call that a person must allow
}

// ConversationSummary is a conversation in a list, with the newest call on it.
type ConversationSummary struct {
	ID       ConversationID `json:"id"`
	LastCall CallSummary    `json:"last_call"`
}

// MaxSummary is the most bytes of a summary of an input.
const MaxSummary = 200

// Summary is a tool's input in one short text: the command, the file, the pattern or the job, else the beginning of the input. It is
// empty for an input that is null.
func Summary(tool Tool, input json.RawMessage) string {
	text := strings.ToValidUTF8(Command(tool, input), string(utf8.RuneError))
	if len(text) > MaxSummary {
		text = strings.ToValidUTF8(text[:MaxSummary-len("…")], "") + "…"
	}
	return text
}

// Command is what people read of an input: the command, file or pattern, else the input as it is.
func Command(tool Tool, input json.RawMessage) string {
	var in struct {
		Command  string `json:"command"`
		FilePath string `json:"file_path"`
		Pattern  string `json:"pattern"`
		Path     string `json:"path"`
		Name     string `json:"name"`
		StatusID string `json:"statusId"` //nolint:tagliatelle // as models write it
	}
	_ = json.Unmarshal(input, &in) // what is not there is empty
	text := map[Tool]string{
		ToolBash: in.Command, ToolRead: in.FilePath, ToolWrite: in.FilePath, ToolEdit: in.FilePath, ToolGlob: in.Pattern, ToolGrep: in.Pattern,
		ToolLS: cmp.Or(in.Path, "."), ToolLoadSkill: in.Name, ToolAsyncStatus: in.StatusID,
	}[tool]
	if text == "" && !bytes.Equal(bytes.TrimSpace(input), []byte("null")) {
		text = string(input)
	}
	return text
}
