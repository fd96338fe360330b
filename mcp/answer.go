package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// record is the structured content of an answer: a [schemas.Result], or the state of a call that has none yet. A test compares its fields
// with those of Result.
type record struct {
	Call         schemas.CallID         `json:"call"`
	Conversation schemas.ConversationID `json:"conversation"`
	Tool         schemas.Tool           `json:"tool"`
	Status       string                 `json:"status"`
	Text         string                 `json:"text"`
	Output       *schemas.Output        `json:"output,omitzero"`
	StatusID     string                 `json:"status_id,omitzero"`
	Artifacts    []schemas.Artifact     `json:"artifacts,omitzero"`

	SkippedArtifacts []schemas.SkippedArtifact `json:"skipped_artifacts,omitzero"`

	Notices  []string       `json:"notices,omitzero"`
	Error    *schemas.Error `json:"error,omitzero"`
	Started  time.Time      `json:"started,omitzero"`
	Finished time.Time      `json:"finished,omitzero"`
}

// outputSchema is the JSON Schema of [record]. It is open: a newer gateway may say more than a client has listed.
var outputSchema = sync.OnceValue(func() *jsonschema.Schema { //nolint:gochecknoglobals // made once from a type
	s, err := jsonschema.For[record](nil)
	if err != nil {
		panic(fmt.Sprintf("schema of an answer: %v", err)) // a type of ours that has none: found by any test
	}
	s.Properties["status"].Enum = []any{StatusQueued, StatusRunning, StatusCancelling, StatusAwaiting}
	for _, status := range schemas.Statuses() {
		s.Properties["status"].Enum = append(s.Properties["status"].Enum, string(status))
	}
	reopen(s)
	return s
})

func reopen(s *jsonschema.Schema) {
	s.AdditionalProperties = nil
	for _, p := range s.Properties {
		reopen(p)
	}
	if s.Items != nil {
		reopen(s.Items)
	}
}

// answerOf returns a result in the format of a revision of the protocol. It is marked as an error if the tool was not run to its end. A
// command that failed has an exit code, and is not an error of the tool.
func answerOf(r schemas.Result, revision string) (*sdk.CallToolResult, error) {
	text := r.Text
	if text == "" {
		text = "the call is " + string(r.Status)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, protocolError(err)
	}
	return &sdk.CallToolResult{
		Content: append([]sdk.Content{&sdk.TextContent{Text: text}}, links(revision, r.Artifacts)...), StructuredContent: json.RawMessage(b),
		IsError: r.Status != schemas.StatusCompleted,
	}, nil
}

// stillRunning returns the answer for a call that still runs, or whose result is withheld: it says how to get the result.
func stillRunning(st State, tool schemas.Tool) *sdk.CallToolResult {
	if st.Withheld != nil {
		return unfinished(st, tool, fmt.Sprintf("No result yet: %s. The call itself is carried out, and nothing of it is lost. Its result "+
			"comes from async_status with statusId %q. Do not send the call again: that would run it a second time.", st.Withheld, st.ID))
	}
	return unfinished(st, tool, fmt.Sprintf("Still running: the call goes on, and nothing of it is lost. Its result comes from "+
		`async_status with statusId %q, which waits for it. Do not send the call again: that would run it a second time.`, st.ID))
}

// waiting returns the answer for a call that waits for an approval.
func waiting(st State) *sdk.CallToolResult { return unfinished(st, "", howToAllow(st)) }

func howToAllow(st State) string {
	return fmt.Sprintf("Not run yet: a person has to allow this call first. Ask the user to run\n"+
		"  sandjet approvals approve %s\n(or: deny), or to answer it where their approvals are shown. "+
		`Once it is answered, async_status with statusId %q returns the result. Do not send the call again.`, st.Approval, st.ID)
}

func unfinished(st State, tool schemas.Tool, text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: text}},
		StructuredContent: record{
			Call: st.ID, Conversation: st.Conversation, Tool: tool, Status: st.Status, Text: text, StatusID: string(st.ID),
		},
	}
}

// answerOfError returns the answer for a call that was not admitted: errors in its arguments as a result for the model, which can correct
// them; all others as protocol errors for the client.
func answerOfError(err error) (*sdk.CallToolResult, error) {
	e, ok := errors.AsType[*schemas.Error](err)
	if ok && e.Code == schemas.Invalid && (e.Field == "input" || strings.HasPrefix(e.Field, "input.")) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: e.Error()}}, IsError: true}, nil
	}
	return nil, protocolError(err)
}

// protocolError returns the public part of an error as a JSON-RPC error; code and field are in its data.
func protocolError(err error) error {
	public := schemas.Public(err)
	code := int64(jsonrpc.CodeInvalidParams)
	switch public.Code {
	case schemas.Exhausted, schemas.Unavailable, schemas.Timeout, schemas.Interrupted, schemas.Internal, schemas.Unsupported:
		code = jsonrpc.CodeInternalError
	case schemas.Invalid, schemas.NotFound, schemas.Conflict, schemas.Denied:
	}
	if public.Code == schemas.Internal {
		public.Message = "internal error"
	}
	data, merr := json.Marshal(public)
	if merr != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: code, Message: public.Error(), Data: data}
}
