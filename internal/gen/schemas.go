package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/sandjet/sandjet/schemas"
)

const (
	modulePath = "github.com/sandjet/sandjet"
	schemaBase = "https://" + modulePath + "/schemas/json/"
)

// root is a Go type with a document of its own.
type root struct {
	name  string // of the document, without ".schema.json"
	value any
	title string
	// closed documents reject unknown fields, as all APIs do. The types of the log are open, so that an older reader accepts the messages
	// of newer processes.
	closed bool
	// by adds rules by the value of another field.
	by func(*jsonschema.Schema)
	// with adds definitions of further types.
	with func(*jsonschema.Schema, *jsonschema.Reflector)
}

func roots() []root {
	list := []root{
		{name: "request", value: schemas.Request{}, title: "A tool call as a client asks for it", closed: true, by: inputByTool},
		{name: "call", value: schemas.Call{}, title: "An admitted call on the log"},
		{name: "result", value: schemas.Result{}, title: "The one answer to a call"},
		{name: "cancel", value: schemas.Cancel{}, title: "A request for the end of a call"},
		{name: "event", value: schemas.Event{}, title: "One line of a conversation: a CloudEvents 1.0 JSON event", by: dataByType},
		{name: "dead_letter", value: schemas.DeadLetter{}, title: "A message that failed for good, with its reason"},
		{name: "error", value: schemas.Error{}, title: "An error as it crosses a wire"},
		{name: "account", value: schemas.Account{}, title: "The record of a tenant"},
		{name: "sandbox", value: schemas.Sandbox{}, title: "The record of a sandbox"},
		{name: "workspace", value: schemas.Workspace{}, title: "The record of a set of files"},
		{name: "approval", value: schemas.Approval{}, title: "The record of a question to a person: may this call run?"},
		{name: "approval_answer", value: schemas.ApprovalAnswer{}, title: "What a person says to an approval", closed: true},
		{name: "approval_op", value: schemas.ApprovalOp{}, title: "A question about approvals over plain NATS", closed: true},
		{name: "job", value: schemas.Job{}, title: "The record of a background job"},
		{name: "group", value: schemas.Group{}, title: "The record of a group of background calls"},
		{name: "completion", value: schemas.Completion{}, title: "How a background job ended"},
		{name: "job_callback", value: schemas.JobCallback{}, title: "The body with which the end of a job is reported", closed: true},
		{name: "job_command", value: schemas.JobCommand{}, title: "A question to the worker that manages a job"},
		{name: "job_reply", value: schemas.JobReply{}, title: "Its answer"},
		{name: "endpoint", value: schemas.Endpoint{}, title: "The record of a webhook endpoint"},
		{name: "channel", value: schemas.ChatChannel{}, title: "The record of a chat channel"},
		{name: "delivery", value: schemas.Delivery{}, title: "An event on its way to a receiver"},
		{name: "manifest", value: schemas.Manifest{}, title: "Which sandboxes, workspaces, models and agents an account is to have",
			closed: true, with: configByKind},
		{name: "appended_event", value: schemas.AppendedEvent{}, title: "An event that a client adds to a conversation", closed: true},
	}
	for _, t := range schemas.Tools() {
		list = append(list, root{name: inputName(t), value: inputOf(t), title: "The input of " + string(t), closed: true})
	}
	for _, t := range schemas.EventTypes() {
		if name := dataName(t); name != "result" && name != "" {
			list = append(list, root{name: name, value: dataOf(t), title: "The data of " + string(t)})
		}
	}
	return list
}

func inputName(t schemas.Tool) string { return string(t) + "_input" }

func inputOf(t schemas.Tool) any {
	return map[schemas.Tool]any{
		schemas.ToolBash: schemas.BashInput{}, schemas.ToolRead: schemas.ReadInput{}, schemas.ToolWrite: schemas.WriteInput{},
		schemas.ToolEdit: schemas.EditInput{}, schemas.ToolGlob: schemas.GlobInput{}, schemas.ToolGrep: schemas.GrepInput{},
		schemas.ToolLS:          schemas.LSInput{},
		schemas.ToolLoadSkill:   schemas.LoadSkillInput{},
		schemas.ToolAsyncStatus: schemas.AsyncStatusInput{},
	}[t]
}

func dataName(t schemas.EventType) string {
	switch {
	case t == schemas.CallFinished:
		return "result"
	case slices.Contains(schemas.AppendableTypes(), t):
		return "" // clients define the data
	}
	return strings.ReplaceAll(string(t), ".", "_") + "_data"
}

func dataOf(t schemas.EventType) any {
	return map[schemas.EventType]any{
		schemas.CallAccepted: schemas.AcceptedData{}, schemas.CallStarted: schemas.StartedData{}, schemas.CallOutput: schemas.OutputData{},
		schemas.CallRejected: schemas.RejectedData{}, schemas.CallFinished: schemas.Result{},
		schemas.ApprovalRequested: schemas.ApprovalRequestedData{}, schemas.ApprovalDecided: schemas.ApprovalDecidedData{},
		schemas.MessageDelta: schemas.MessageDeltaData{}, schemas.AgentStepRetried: schemas.StepRetriedData{},
		schemas.JobStarted: schemas.JobStartedData{}, schemas.JobFinished: schemas.JobResult{}, schemas.FollowUpCreated: schemas.FollowUp{},
		schemas.ArtifactCreated: schemas.Artifact{}, schemas.MessageReceived: schemas.ChatMessage{},
		schemas.DeliverySent: schemas.DeliverySentData{}, schemas.DeliveryFailed: schemas.DeliveryFailedData{},
	}[t]
}

// Documents returns the contents of all generated files, by their paths in the module at dir.
func Documents(dir string) (map[string][]byte, error) {
	comments, err := readComments(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, r := range roots() {
		if r.value == nil {
			return nil, fmt.Errorf("%s has no Go type: add it to the table", r.name)
		}
		s := reflectType(r, comments)
		text, err := indent(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		out["schemas/json/"+r.name+".schema.json"] = text
	}
	if out[openAPIFile], err = openAPI(dir, comments); err != nil {
		return nil, err
	}
	if out["schemas/asyncapi.json"], err = asyncAPI(); err != nil {
		return nil, err
	}
	if out["docs/PROOFS.md"], err = proofs(dir); err != nil {
		return nil, err
	}
	return out, nil
}

func reflectType(r root, comments map[string]string) *jsonschema.Schema {
	reflector := &jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: !r.closed, Mapper: mapped,
		LookupComment: func(t reflect.Type, field string) string {
			return comments[strings.TrimSuffix(t.Name()+"."+field, ".")]
		},
	}
	s := reflector.Reflect(r.value)
	s.ID = jsonschema.ID(schemaBase + r.name + ".schema.json")
	s.Title = r.title
	if r.by != nil {
		r.by(s)
	}
	if r.with != nil {
		r.with(s, reflector)
	}
	return s
}

// mapped returns the schema of a type whose JSON differs from its Go kind; nil for other types.
func mapped(t reflect.Type) *jsonschema.Schema {
	text := func(pattern, description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: pattern, Description: description}
	}
	id := func(prefix string) *jsonschema.Schema {
		return text("^"+prefix+"[A-Za-z0-9]{1,64}$", "An id: "+prefix+" and 1 to 64 letters or digits.")
	}
	switch t {
	case reflect.TypeFor[schemas.Duration]():
		return &jsonschema.Schema{
			Description: `Seconds (30, 1.5) or a text with a unit ("30s", "5m"). Written as text.`,
			OneOf: []*jsonschema.Schema{{Type: "number", Minimum: "0"},
				{Type: "string", Pattern: `^\+?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`}},
		}
	case reflect.TypeFor[schemas.AccountID]():
		return id(schemas.AccountPrefix)
	case reflect.TypeFor[schemas.AgentID]():
		return id(schemas.AgentPrefix)
	case reflect.TypeFor[schemas.ModelID]():
		return id(schemas.ModelPrefix)
	case reflect.TypeFor[schemas.SandboxID]():
		return id(schemas.SandboxPrefix)
	case reflect.TypeFor[schemas.WorkspaceID]():
		return id(schemas.WorkspacePrefix)
	case reflect.TypeFor[schemas.TurnID]():
		return id(schemas.TurnPrefix)
	case reflect.TypeFor[schemas.JobID]():
		return id(schemas.JobPrefix)
	case reflect.TypeFor[schemas.ApprovalID]():
		return id(schemas.ApprovalPrefix)
	case reflect.TypeFor[schemas.ApprovalState]():
		return enum(schemas.ApprovalStates())
	case reflect.TypeFor[schemas.EndpointID]():
		return id(schemas.EndpointPrefix)
	case reflect.TypeFor[schemas.ChannelID]():
		return id(schemas.ChannelPrefix)
	case reflect.TypeFor[schemas.OnAmbiguous]():
		return enum(schemas.OnAmbiguousWays())
	case reflect.TypeFor[schemas.GuardPolicy]():
		return enum(schemas.GuardPolicies())
	case reflect.TypeFor[schemas.JobState]():
		return enum(schemas.JobStates())
	case reflect.TypeFor[schemas.JobAction]():
		return enum(schemas.JobActions())
	case reflect.TypeFor[schemas.CallID]():
		return text(`^[A-Za-z0-9_.:-]{1,128}$`, "The id of a call. Chosen by the client it is the idempotency key.")
	case reflect.TypeFor[schemas.ConversationID]():
		return text(`^[A-Za-z0-9_.:@/#+=-]{1,256}$`, "The durable stream of events that a call belongs to.")
	case reflect.TypeFor[schemas.Code]():
		return enum(schemas.Codes())
	case reflect.TypeFor[schemas.Status]():
		return enum(schemas.Statuses())
	case reflect.TypeFor[schemas.ResourceKind]():
		return enum(schemas.ResourceKinds())
	case reflect.TypeFor[schemas.NetworkMode]():
		return enum([]schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted})
	case reflect.TypeFor[schemas.PermissionMode]():
		return enum([]schemas.PermissionMode{schemas.PermissionAsk, schemas.PermissionEdit, schemas.PermissionBypass})
	case reflect.TypeFor[schemas.NameChoice]():
		return named("Left out: the agent's sandbox, if it has one. null: none, so that files are only read. A name: that one.")
	case reflect.TypeFor[map[schemas.Tool]schemas.ToolConfig]():
		return tools()
	case reflect.TypeFor[schemas.Tool]():
		return text(`^[A-Za-z0-9_.-]{1,64}$`, "The name of a tool. It may be one that does not exist: the call has failed then.")
	}
	return nil
}

func enum[T ~string](values []T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// inputByTool adds the names of the tools, and the schema of each one's input.
func inputByTool(s *jsonschema.Schema) {
	s.Properties.Set("tool", enum(schemas.Tools()))
	for _, t := range schemas.Tools() {
		s.AllOf = append(s.AllOf, when("tool", string(t), "input", inputName(t)))
	}
}

// dataByType adds the schema of the data of each type of event. Unknown types may have any data: readers skip them.
func dataByType(s *jsonschema.Schema) {
	for _, t := range schemas.EventTypes() {
		if name := dataName(t); name != "" {
			s.AllOf = append(s.AllOf, when("type", string(t), "data", name))
		}
	}
}

func when(field, value, then, document string) *jsonschema.Schema {
	is, has := jsonschema.NewProperties(), jsonschema.NewProperties()
	is.Set(field, &jsonschema.Schema{Const: value})
	has.Set(then, &jsonschema.Schema{Ref: document + ".schema.json"})
	return &jsonschema.Schema{
		If:   &jsonschema.Schema{Properties: is, Required: []string{field}},
		Then: &jsonschema.Schema{Properties: has},
	}
}

// readComments returns the comments of the types and fields in schemas, by "Type" and "Type.Field", without the brackets of doc links.
func readComments(dir string) (map[string]string, error) {
	var r jsonschema.Reflector
	here, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the tree: %w", err)
	}
	if err := os.Chdir(dir); err != nil { // the library derives the import path from the relative one
		return nil, fmt.Errorf("find the tree: %w", err)
	}
	err = r.AddGoComments(modulePath, "schemas", jsonschema.WithFullComment())
	if back := os.Chdir(here); err == nil {
		err = back
	}
	if err != nil {
		return nil, fmt.Errorf("read the comments of %s: %w", filepath.Join(dir, "schemas"), err)
	}
	link := regexp.MustCompile(`\[([A-Za-z.]+)\]`)
	comments := make(map[string]string, len(r.CommentMap))
	for name, text := range r.CommentMap {
		text = link.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
		comments[strings.TrimPrefix(name, modulePath+"/schemas.")] = text
	}
	return comments, nil
}

func indent(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	return append(b, '\n'), nil
}
