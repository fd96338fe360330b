package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandjet/sandjet/schemas"
)

const module = "../.."

func TestDocumentsAreUpToDate(t *testing.T) {
	if err := run(module, true); err != nil {
		t.Fatal(err)
	}
}

// TestCheckBites: the check finds each way in which generated files can be wrong.
func TestCheckBites(t *testing.T) {
	documents, err := Documents(module)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range documents {
		write(name, text)
	}
	if err := compare(dir, documents); err != nil {
		t.Fatal(err)
	}
	const call = "schemas/json/call.schema.json"
	write(call, append([]byte(" "), documents[call]...))
	write("schemas/json/stranger.schema.json", []byte("{}"))
	if err := os.Remove(filepath.Join(dir, "schemas/json/result.schema.json")); err != nil {
		t.Fatal(err)
	}
	err = compare(dir, documents)
	for _, want := range []string{call + " is not what", "result.schema.json is missing", "stranger.schema.json belongs to no Go type"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the check does not say %q: %v", want, err)
		}
	}
}

// compile loads all the documents; references between them must hold.
func compile(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	documents, err := Documents(module)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	names := map[string]string{}
	for path, text := range documents {
		name, ok := strings.CutSuffix(filepath.Base(path), ".schema.json")
		if !ok {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		names[name] = schemaBase + name + ".schema.json"
		if err := c.AddResource(names[name], doc); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]*jsonschema.Schema{}
	for name, url := range names {
		if out[name], err = c.Compile(url); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return out
}

func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// Each type, marshalled by Go, keeps its document; and the documents refuse what the decoders do.
func TestExamplesKeepTheirDocuments(t *testing.T) {
	compiled := compile(t)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	call := schemas.Call{
		ID: "call_1", Account: "acct_1", Conversation: "c_1", Tool: schemas.ToolBash,
		Input: json.RawMessage(`{"command":"true"}`), Provider: "local",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(90 * time.Second), Accepted: now, Deadline: now, Digest: "d",
		Origin: &schemas.Origin{Kind: "channel", Channel: "telegram", Route: json.RawMessage(`{"chat":1}`)},
	}
	failure := &schemas.Error{Code: schemas.Invalid, Field: "tool", Message: "m"}
	result := schemas.Result{
		Call: call.ID, Conversation: call.Conversation, Tool: call.Tool, Status: schemas.StatusFailed, Text: "t",
		Finished: now, Started: now, Error: failure,
		Output: &schemas.Output{Runtime: "local/L3", Data: []int{1},
			Isolation: &schemas.Isolation{Level: "L3", Enforced: []string{"netns"}}},
		Artifacts:        []schemas.Artifact{schemas.NewArtifact(call, "outputs/a.png", 3, "00", nil, now)},
		SkippedArtifacts: []schemas.SkippedArtifact{{Path: "outputs/b", Reason: schemas.SkipLink}, {Reason: schemas.SkipTooMany, Count: 2}},
	}
	data := map[schemas.EventType]any{
		schemas.CallAccepted: schemas.AcceptedData{Call: call.ID, Tool: call.Tool, Input: call.Input, Provider: "local", Deadline: now},
		schemas.CallStarted:  schemas.StartedData{Call: call.ID, Tool: call.Tool, Worker: "w", Attempt: 1},
		schemas.CallOutput:   schemas.OutputData{Call: call.ID, Stream: "stdout", Text: "a", Attempt: 1},
		schemas.CallFinished: result,
		schemas.CallRejected: schemas.RejectedData{Error: failure},
		schemas.ApprovalRequested: schemas.ApprovalRequestedData{
			ID: "appr_1", Call: call.ID, Tool: call.Tool, Input: call.Input, InputSize: 9, Workspace: "ws_1", Sandbox: "sb_1", Expires: now,
		},
		schemas.ApprovalDecided: schemas.ApprovalDecidedData{ID: "appr_1", Call: call.ID, State: schemas.ApprovalDenied,
			DecidedBy: "api", Reason: "r"},
		schemas.JobStarted: schemas.JobStartedData{Job: "job_1", Call: call.ID, Tool: call.Tool, Command: "a", Provider: "local",
			Actions: schemas.JobActions(), Deadline: now},
		schemas.JobFinished: schemas.JobResult{Job: "job_1", Call: call.ID, Tool: call.Tool, State: schemas.JobFailed, ExitCode: new(3),
			ReportedBy: schemas.ReportedByProvider, Finished: now},
		schemas.FollowUpCreated: schemas.FollowUp{
			ID: "fu_1", Account: "acct_1", Conversation: "c", Created: now,
			Results: []schemas.JobResult{{Job: "job_1", Call: call.ID, Tool: call.Tool, State: schemas.JobCompleted, Finished: now}},
		},
	}
	data[schemas.ArtifactCreated] = result.Artifacts[0]
	data[schemas.MessageReceived] = schemas.ChatMessage{Channel: "chan_1", Kind: "telegram", Event: "tg:1", Place: "42", User: "7", Text: "a",
		Files: []schemas.ChatFile{{Name: "f", Type: "text/plain", Size: 1, Ref: "r"}}, Received: now}
	data[schemas.DeliverySent] = schemas.DeliverySentData{Delivery: "msg_1", Event: "e", Channel: "telegram", ChannelID: "chan_1",
		Messages: []schemas.SentMessage{{ID: "1", URL: "https://example.com", Repeat: true}}}
	data[schemas.DeliveryFailed] = schemas.DeliveryFailedData{
		Delivery: "msg_1", Event: "e", Channel: "telegram", Reason: "gone", Fallback: "chan_2",
	}
	data[schemas.MessageDelta] = schemas.MessageDeltaData{Turn: "turn_1", Step: 1, Attempt: 1, Text: "a"}
	data[schemas.AgentStepRetried] = schemas.StepRetriedData{Turn: "turn_1", Step: 1, Attempt: 1, Model: "m", Reason: "overloaded", Again: now}
	for _, t := range schemas.AppendableTypes() {
		data[t] = map[string]any{"anything": true}
	}
	examples := map[string][]any{
		"request": {schemas.Request{Tool: schemas.ToolRead, Input: json.RawMessage(`{"file_path":"a"}`),
			Timeout: schemas.Duration(time.Minute), Deadline: now}},
		"call": {call},
		"result": {result, schemas.Result{Call: "x", Conversation: "c", Tool: schemas.ToolGlob,
			Status: schemas.StatusCompleted, Finished: now}},
		"cancel": {schemas.Cancel{Account: "acct_1", Call: "call_1", Time: now}},
		"dead_letter": {schemas.DeadLetter{ID: "CALLS.1", Code: schemas.Internal, Payload: []byte{0, 255},
			Headers: map[string][]string{"a": {"b"}}, First: now, Time: now}},
		"error":   {failure},
		"account": {schemas.Account{ID: "acct_1", Created: now}},
		"sandbox": {schemas.Sandbox{ID: "sb_1", Account: "acct_1", Network: schemas.Network{Mode: schemas.DenyAll},
			PermissionMode: schemas.PermissionBypass, Created: now}},
		"workspace": {schemas.Workspace{ID: "ws_1", Account: "acct_1", Created: now}},
		"approval": {schemas.Approval{ID: "appr_1", Account: "acct_1", State: schemas.ApprovalPending, Call: call,
			Requested: now, Expires: now}},
		"approval_answer": {schemas.ApprovalAnswer{Approved: new(false), Reason: "r"}},
		"approval_op": {
			schemas.ApprovalOp{Op: schemas.ApprovalsList, State: schemas.ApprovalPending, Limit: 1},
			schemas.ApprovalOp{Op: schemas.ApprovalApprove, Approval: "appr_1", Approved: new(true), Remember: schemas.RememberConversation},
		},
		"job": {schemas.Job{
			ID: "job_1", Account: "acct_1", Conversation: "c", Call: "x", Tool: schemas.ToolBash, Workspace: "ws_1", Sandbox: "sb_1",
			State: schemas.JobRunning, Actions: schemas.JobActions(),
			Group: &schemas.GroupRef{ID: "g", Size: 2}, Created: now, Deadline: now,
		}},
		"group": {schemas.Group{ID: "g", Account: "acct_1", Conversation: "c", Size: 2, Settled: []schemas.JobID{"job_1"},
			Created: now, Deadline: now}},
		"completion": {schemas.Completion{Job: "job_1", Account: "acct_1", State: schemas.JobLost,
			ReportedBy: schemas.ReportedByProbe, Finished: now}},
		"job_callback": {schemas.JobCallback{Status: "completed", Response: &schemas.JobCallbackBody{ExitCode: new(0), Logs: "x"}}},
		"job_command":  {schemas.JobCommand{Account: "acct_1", Job: "job_1", Action: schemas.JobActionLogs}},
		"job_reply":    {schemas.JobReply{Running: true, Data: []byte("x"), Size: 1}},
		"endpoint": {schemas.Endpoint{ID: "wh_1", Account: "acct_1", URL: "https://example.com",
			Secrets: []schemas.EndpointSecret{{Key: "whsec_x"}}, Created: now}},
		"channel": {schemas.ChatChannel{ID: "chan_1", Account: "acct_1", Kind: "telegram", Name: "support", Created: now,
			Fallback: &schemas.ChannelPlace{Channel: "chan_2", Route: []byte(`{"chat":1}`)}, Secrets: map[string]string{"bot_token": "x"}}},
		"delivery": {schemas.Delivery{ID: "msg_1", Account: "acct_1", Channel: "webhook", Endpoint: "wh_1", Event: "e", Type: schemas.JobFinished,
			Conversation: "c", Created: now}},
		"manifest": {schemas.Manifest{Version: 1, Project: "p", Resources: []schemas.Resource{
			{Kind: schemas.KindSandbox, Name: "b", Config: json.RawMessage(`{"timeout":30}`)}, {Kind: schemas.KindWorkspace, Name: "w"},
			{Kind: schemas.KindAgent, Name: "g", Config: json.RawMessage(`{"workspaces":[{"workspace":"w","sandbox":null}]}`)},
		}}},
		"appended_event": {schemas.AppendedEvent{Type: schemas.AgentFinished, Data: json.RawMessage(`{"finishReason":"stop"}`)}},
	}
	for _, typ := range schemas.EventTypes() {
		if data[typ] == nil {
			t.Errorf("no example of %s", typ)
			continue
		}
		examples["event"] = append(examples["event"], schemas.NewEvent(call, typ, "id", now, data[typ]))
		if name := dataName(typ); name != "" {
			examples[name] = append(examples[name], data[typ])
		}
	}
	for tool, in := range map[schemas.Tool]any{
		schemas.ToolBash: schemas.BashInput{Command: "a"}, schemas.ToolRead: schemas.ReadInput{FilePath: "a", Base: new(0)},
		schemas.ToolWrite:       schemas.WriteInput{FilePath: "a", Mode: schemas.WriteAppend},
		schemas.ToolEdit:        schemas.EditInput{FilePath: "a", OldString: "b"},
		schemas.ToolGlob:        schemas.GlobInput{Pattern: "*", Sort: schemas.SortName},
		schemas.ToolGrep:        schemas.GrepInput{Pattern: "a", OutputMode: schemas.GrepCount},
		schemas.ToolLS:          schemas.LSInput{Path: "a", Missing: schemas.MissingEmpty},
		schemas.ToolLoadSkill:   schemas.LoadSkillInput{Name: "pdf"},
		schemas.ToolAsyncStatus: schemas.AsyncStatusInput{StatusID: "job_1", Action: schemas.JobActionLogs, Offset: 1},
	} {
		examples[inputName(tool)] = append(examples[inputName(tool)], in)
	}
	for _, name := range slices.Sorted(maps.Keys(compiled)) {
		if len(examples[name]) == 0 {
			t.Errorf("no example of %s", name)
		}
		for _, v := range examples[name] {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, compiled[name], text); err != nil {
				t.Errorf("%s: %s\n%v", name, text, err)
			}
		}
	}
}

// What the document of a request says, its decoder and validation do. They may be stricter (lengths are
// bytes, names twice are refused), never looser.
//
//guarantee:bad-input-is-answered-not-guessed
func TestRequestDocumentAgreesWithTheDecoder(t *testing.T) {
	s := compile(t)["request"]
	for _, text := range []string{
		`{"tool":"bash","input":{"command":"true"}}`,
		`{"tool":"bash","input":{"command":"true"},"timeout":1.5,"id":"a:b","conversation":"a/b#c"}`,
		`{"tool":"read","input":{"file_path":"a","offset":-2}}`,
		`{"tool":"bash","input":{"command":"true"},"timeout":"1m30s"}`,
	} {
		_, err := schemas.DecodeRequest([]byte(text))
		if doc := validate(t, s, []byte(text)); doc != nil || err != nil {
			t.Errorf("%s\ndocument: %v\ndecoder: %v", text, doc, err)
		}
	}
	for _, text := range []string{
		`{}`, `[]`, `{"tool":"bash"}`, `{"tool":"python","input":{}}`, `{"tool":"bash","input":{}}`, `{"tool":"bash","input":{"command":""}}`,
		`{"tool":"bash","input":{"command":1}}`, `{"tool":"bash","input":{"file_path":"a"}}`, `{"tool":"read","input":{"command":"a"}}`,
		`{"tool":"bash","input":{"command":"a"},"extra":1}`, `{"tool":"bash","input":{"command":"a","extra":1}}`, `{"tool":"bash","input":"a"}`,
		`{"tool":"read","input":{"file_path":"a","base":2}}`, `{"tool":"read","input":{"file_path":"a","limit":-1}}`,
		`{"tool":"write","input":{"file_path":"a","content":"","mode":"w"}}`,
		`{"tool":"edit","input":{"file_path":"a","old_string":"","new_string":""}}`,
		`{"tool":"bash","input":{"command":"a"},"id":"a/b"}`, `{"tool":"bash","input":{"command":"a"},"account":"me"}`,
		`{"tool":"bash","input":{"command":"a"},"timeout":"soon"}`, `{"tool":"bash","input":{"command":"a"},"timeout":-1}`,
		`{"tool":"bash","input":{"command":"a"},"deadline":"tomorrow"}`, `{"tool":"bash","input":{"command":"a"},"dialect":"x"}`,
		`{"tool":"bash","input":{"command":"a"},"origin":{"kind":"fax"}}`, `{"tool":"bash","input":{"command":"a"},"traceparent":"a\nb"}`,
		`{"tool":"bash","input":{"command":"a"},"workspace":"../a"}`,
	} {
		r, err := schemas.DecodeRequest([]byte(text))
		if err == nil {
			err = r.Validate()
		}
		if doc := validate(t, s, []byte(text)); doc == nil || err == nil {
			t.Errorf("%s\ndocument: %v\ndecoder: %v", text, doc, err)
		}
	}
}
