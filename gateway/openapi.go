package gateway

import (
	_ "embed"
	"maps"
	"net/http"
	"reflect"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/accounts"
	"github.com/sandjet/sandjet/gateway/approvals"
	"github.com/sandjet/sandjet/gateway/artifacts"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/channels"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/gateway/files"
	"github.com/sandjet/sandjet/gateway/instances"
	"github.com/sandjet/sandjet/gateway/jobs"
	"github.com/sandjet/sandjet/gateway/sandboxapi"
	"github.com/sandjet/sandjet/gateway/skills"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/gateway/webhooks"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// openAPI describes the HTTP API. A test holds it to the routes and to the types.
//
//go:embed openapi.json
var openAPI string

func (g *Gateway) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	version := g.Version
	if version == "" {
		version = "dev"
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	doc := strings.Replace(openAPI, `"version": "0"`, `"version": `+quote(version), 1)
	_, _ = w.Write([]byte(doc)) // no client is left to answer
	return nil
}

func quote(s string) string {
	b, err := schemas.EncodeJSON(s)
	if err != nil {
		return `""` // a string always encodes
	}
	return string(b)
}

// Components returns the Go types of schemas in the OpenAPI document, by name; internal/gen generates those parts of the document from
// them.
func Components() map[string]reflect.Type {
	all := map[string]reflect.Type{
		"Request": reflect.TypeFor[schemas.Request](), "Origin": reflect.TypeFor[schemas.Origin](), "Error": reflect.TypeFor[schemas.Error](),
		"Result": reflect.TypeFor[schemas.Result](), "Output": reflect.TypeFor[schemas.Output](),
		"Isolation": reflect.TypeFor[schemas.Isolation](),
		"Artifact":  reflect.TypeFor[schemas.Artifact](), "SkippedArtifact": reflect.TypeFor[schemas.SkippedArtifact](),
		"ArtifactList": reflect.TypeFor[artifacts.List](),
		"Skill":        reflect.TypeFor[schemas.SkillDocument](), "SkillList": reflect.TypeFor[skills.List](),
		"Event":    reflect.TypeFor[schemas.Event](),
		"Snapshot": reflect.TypeFor[outputs.Snapshot](), "SnapshotText": reflect.TypeFor[outputs.SnapshotText](),
		"Problem": reflect.TypeFor[web.Problem](), "Gap": reflect.TypeFor[streams.Gap](),
		"Job": reflect.TypeFor[schemas.Job](), "Completion": reflect.TypeFor[schemas.Completion](), "Group": reflect.TypeFor[schemas.GroupRef](),
		"CallSummary":         reflect.TypeFor[schemas.CallSummary](),
		"ConversationSummary": reflect.TypeFor[schemas.ConversationSummary](),
		"FileInfo":            reflect.TypeFor[schemas.FileInfo](), "FileList": reflect.TypeFor[files.Listing](),
		"FileUpload":  reflect.TypeFor[files.Upload](),
		"Instance":    reflect.TypeFor[schemas.InstanceDocument](),
		"JobCallback": reflect.TypeFor[schemas.JobCallback](), "JobCallbackBody": reflect.TypeFor[schemas.JobCallbackBody](),
		"TurnEnd": reflect.TypeFor[schemas.TurnEndData](), "TokenUsage": reflect.TypeFor[schemas.TokenUsage](),
		"AppendedEvent": reflect.TypeFor[schemas.AppendedEvent](),
		"Endpoint":      reflect.TypeFor[schemas.Endpoint](), "EndpointSecret": reflect.TypeFor[schemas.EndpointSecret](),
		"ChatChannel": reflect.TypeFor[schemas.ChatChannel](), "ChannelPlace": reflect.TypeFor[schemas.ChannelPlace](),
		"Call": reflect.TypeFor[schemas.Call](), "Approval": reflect.TypeFor[schemas.Approval](),
		"ApprovalList":   reflect.TypeFor[admission.ApprovalList](),
		"ApprovalAnswer": reflect.TypeFor[schemas.ApprovalAnswer](),
		"Account":        reflect.TypeFor[schemas.AccountDocument](), "AccountSpec": reflect.TypeFor[schemas.AccountSpec](),
		"NATSCredential": reflect.TypeFor[schemas.NATSCredential](),
		"Sandbox":        reflect.TypeFor[schemas.SandboxDocument](), "SandboxSpec": reflect.TypeFor[schemas.SandboxSpec](),
		"SandboxConfig": reflect.TypeFor[schemas.SandboxConfig](),
		"NetworkConfig": reflect.TypeFor[schemas.NetworkConfig](), "LifecycleConfig": reflect.TypeFor[schemas.LifecycleConfig](),
		"Workspace": reflect.TypeFor[schemas.WorkspaceDocument](), "WorkspaceSpec": reflect.TypeFor[schemas.WorkspaceSpec](),
		"WorkspaceConfig": reflect.TypeFor[schemas.WorkspaceConfig](), "HarnessConfig": reflect.TypeFor[schemas.HarnessConfig](),
		"StorageConfig": reflect.TypeFor[schemas.StorageConfig](),
		"Agent":         reflect.TypeFor[schemas.AgentDocument](), "AgentSpec": reflect.TypeFor[schemas.AgentSpec](),
		"AgentConfig": reflect.TypeFor[schemas.AgentConfig](), "AgentWorkspace": reflect.TypeFor[schemas.AgentWorkspace](),
		"AgentTurns": reflect.TypeFor[schemas.AgentTurns](), "TurnBudget": reflect.TypeFor[schemas.TurnBudget](),
		"Model": reflect.TypeFor[schemas.ModelDocument](), "ModelSpec": reflect.TypeFor[schemas.ModelSpec](),
		"ModelConfig": reflect.TypeFor[schemas.ModelConfig](), "ModelPrice": reflect.TypeFor[schemas.ModelPrice](),
		"ToolConfig": reflect.TypeFor[schemas.ToolConfig](),
		"Manifest":   reflect.TypeFor[schemas.Manifest](), "Resource": reflect.TypeFor[schemas.Resource](),
		"ManifestRequest": reflect.TypeFor[schemas.ManifestRequest](),
		"ManifestAnswer":  reflect.TypeFor[schemas.ManifestAnswer](), "ManifestChange": reflect.TypeFor[schemas.ManifestChange](),
		"FieldChange": reflect.TypeFor[schemas.FieldChange](), "ManifestWarnings": reflect.TypeFor[schemas.ManifestWarnings](),
		"Variable": reflect.TypeFor[schemas.VariableDocument](),
		"Usage":    reflect.TypeFor[schemas.Usage](), "Amount": reflect.TypeFor[schemas.Amount](),
		"ApprovalGrant": reflect.TypeFor[schemas.ApprovalGrant](),
		"AttachToken":   reflect.TypeFor[AttachToken](), "AttachTokenRequest": reflect.TypeFor[attachTokenRequest](),
		"CancelRequest": reflect.TypeFor[web.CancelRequest](),
	}
	maps.Copy(all, sandboxapi.Components())
	maps.Copy(all, accounts.Components())
	maps.Copy(all, calls.Components())
	maps.Copy(all, conversations.Components())
	maps.Copy(all, approvals.Components())
	maps.Copy(all, channels.Components())
	maps.Copy(all, instances.Components())
	maps.Copy(all, jobs.Components())
	maps.Copy(all, webhooks.Components())
	return all
}

// HiddenFields returns the fields of a type that no response has.
func HiddenFields(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[schemas.Job]():
		return []string{"token_hash", "places", "outputs"}
	case reflect.TypeFor[schemas.ApprovalGrant]():
		return []string{"revoked"} // one that is, is in no answer
	}
	return nil
}
