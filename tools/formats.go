package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Format is the format of definitions for a model's API.
type Format string

// The formats.
const (
	FormatAnthropic Format = "anthropic" // for the Messages API: [Definition] itself
	FormatOpenAI    Format = "openai"    // for the Chat Completions API
	FormatMCP       Format = "mcp"       // for tools/list

	FormatOpenAIStrict    Format = "openai-strict"    // for the Chat Completions API in its strict mode
	FormatOpenAIResponses Format = "openai-responses" // for the Responses API, which is strict by default
)

// Formats lists the formats, the default first.
func Formats() []Format {
	return []Format{FormatAnthropic, FormatOpenAI, FormatOpenAIStrict, FormatOpenAIResponses, FormatMCP}
}

// OpenAITool is a definition in the format of the Chat Completions API.
type OpenAITool struct {
	Type     string         `json:"type"` // function
	Function OpenAIFunction `json:"function"`
}

// OpenAIFunction is the function of an [OpenAITool].
type OpenAIFunction struct {
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict,omitzero"` // the model's arguments always match Parameters
}

// OpenAIResponsesTool is a definition in the format of the Responses API.
type OpenAIResponsesTool struct {
	Type        string          `json:"type"` // function
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

// MCPTool is a definition in the format of the Model Context Protocol.
type MCPTool struct {
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"` //nolint:tagliatelle // the protocol's
	Annotations MCPAnnotations  `json:"annotations"`
}

// MCPAnnotations are hints about the effects of a tool. All are written, because clients assume the worst about omitted ones.
type MCPAnnotations struct {
	ReadOnly bool `json:"readOnlyHint"` //nolint:tagliatelle // the protocol's
	// Destructive: it may destroy what it changes.
	Destructive bool `json:"destructiveHint"` //nolint:tagliatelle // the protocol's
	// Idempotent: repeating a call changes nothing more.
	Idempotent bool `json:"idempotentHint"` //nolint:tagliatelle // the protocol's
	// OpenWorld: it may reach beyond the workspace.
	OpenWorld bool `json:"openWorldHint"` //nolint:tagliatelle // the protocol's
}

// Write converts definitions to a format; empty means the default. Code invalid: the format is unknown.
func Write(f Format, list []Definition) (any, error) {
	switch f {
	case "", FormatAnthropic:
		return list, nil
	case FormatOpenAI:
		return eachOf(list, func(d Definition) OpenAITool {
			return OpenAITool{"function", OpenAIFunction{d.Name, d.Description, d.InputSchema, false}}
		}), nil
	case FormatOpenAIStrict, FormatOpenAIResponses:
		list, err := strictly(list)
		if err != nil {
			return nil, err
		}
		if f == FormatOpenAIResponses {
			return eachOf(list, func(d Definition) OpenAIResponsesTool {
				return OpenAIResponsesTool{"function", d.Name, d.Description, d.InputSchema, true}
			}), nil
		}
		return eachOf(list, func(d Definition) OpenAITool {
			return OpenAITool{"function", OpenAIFunction{d.Name, d.Description, d.InputSchema, true}}
		}), nil
	case FormatMCP:
		return eachOf(list, func(d Definition) MCPTool {
			return MCPTool{d.Name, d.Description, d.InputSchema, annotationsOf(d.Name)}
		}), nil
	}
	return nil, schemas.Invalidf("format", "%q is unknown: use %s", schemas.Quotable(string(f)), formatNames())
}

func formatNames() string {
	names := make([]string, 0, len(Formats()))
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// strictly rewrites the schemas for the strict mode of OpenAI's APIs: every argument is required, optional ones may be null, and defaults,
// which the mode does not support, are mentioned in the descriptions.
func strictly(list []Definition) ([]Definition, error) {
	out := make([]Definition, 0, len(list))
	for _, d := range list {
		var schema inputSchema
		if err := json.Unmarshal(d.InputSchema, &schema); err != nil {
			return nil, fmt.Errorf("rewrite the schema of %s: %w", d.Name, err)
		}
		for name, p := range schema.Properties {
			if slices.Contains(schema.Required, name) {
				continue
			}
			p.Type = []any{p.Type, "null"}
			if p.Enum != nil {
				p.Enum = append(p.Enum, nil)
			}
			if p.Default != nil {
				p.Description = fmt.Sprintf("%s Null means %v.", p.Description, p.Default)
				p.Default = nil
			} else {
				p.Description += " Use null to omit it."
			}
			schema.Properties[name] = p
		}
		schema.Required = slices.Sorted(maps.Keys(schema.Properties))
		raw, err := json.Marshal(schema)
		if err != nil {
			return nil, fmt.Errorf("rewrite the schema of %s: %w", d.Name, err)
		}
		d.InputSchema = raw
		out = append(out, d)
	}
	return out, nil
}

func eachOf[T any](list []Definition, one func(Definition) T) []T {
	out := make([]T, 0, len(list))
	for _, d := range list {
		out = append(out, one(d))
	}
	return out
}

func annotationsOf(t schemas.Tool) MCPAnnotations {
	reads := slices.Contains([]schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolGrep, schemas.ToolLS}, t)
	loads := t == schemas.ToolLoadSkill
	return MCPAnnotations{
		ReadOnly: reads, Destructive: !reads && !loads, Idempotent: reads || loads || t == schemas.ToolWrite,
		OpenWorld: t == schemas.ToolBash,
	}
}
