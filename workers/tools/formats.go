package tools

import (
	"encoding/json"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// Format is how definitions are written down for a model's API.
type Format string

// The formats.
const (
	FormatAnthropic Format = "anthropic" // of the Messages API: [Definition] as it is
	FormatOpenAI    Format = "openai"    // of the Chat Completions API
	FormatMCP       Format = "mcp"       // of tools/list
)

// Formats lists the formats, the default first.
func Formats() []Format { return []Format{FormatAnthropic, FormatOpenAI, FormatMCP} }

// OpenAITool is a definition as the Chat Completions API takes it. Its function alone, beside the type, is
// what the Responses API takes.
type OpenAITool struct {
	Type     string         `json:"type"` // function
	Function OpenAIFunction `json:"function"`
}

// OpenAIFunction is what an [OpenAITool] holds.
type OpenAIFunction struct {
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// MCPTool is a definition as a server of the Model Context Protocol lists it.
type MCPTool struct {
	Name        schemas.Tool    `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"` //nolint:tagliatelle // the protocol's
	Annotations MCPAnnotations  `json:"annotations"`
}

// MCPAnnotations are hints of what a tool may do. Each is written, since what is left out means the worst.
type MCPAnnotations struct {
	ReadOnly bool `json:"readOnlyHint"` //nolint:tagliatelle // the protocol's
	// Destructive: what it changes may be lost.
	Destructive bool `json:"destructiveHint"` //nolint:tagliatelle // the protocol's
	// Idempotent: doing it again changes nothing more.
	Idempotent bool `json:"idempotentHint"` //nolint:tagliatelle // the protocol's
	// OpenWorld: it may reach beyond the workspace.
	OpenWorld bool `json:"openWorldHint"` //nolint:tagliatelle // the protocol's
}

// Write puts definitions into a format; empty: the default. Codes: invalid (the format is unknown).
func Write(f Format, list []Definition) (any, error) {
	switch f {
	case "", FormatAnthropic:
		return list, nil
	case FormatOpenAI:
		return eachOf(list, func(d Definition) OpenAITool {
			return OpenAITool{"function", OpenAIFunction{d.Name, d.Description, d.InputSchema}}
		}), nil
	case FormatMCP:
		return eachOf(list, func(d Definition) MCPTool {
			return MCPTool{d.Name, d.Description, d.InputSchema, annotationsOf(d.Name)}
		}), nil
	}
	return nil, schemas.Invalidf("format", "%q is unknown: use anthropic, openai or mcp", schemas.Quotable(string(f)))
}

func eachOf[T any](list []Definition, one func(Definition) T) []T {
	out := make([]T, 0, len(list))
	for _, d := range list {
		out = append(out, one(d))
	}
	return out
}

func annotationsOf(t schemas.Tool) MCPAnnotations {
	reads := slices.Contains([]schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolGrep}, t)
	return MCPAnnotations{
		ReadOnly: reads, Destructive: !reads, Idempotent: reads || t == schemas.ToolWrite, OpenWorld: t == schemas.ToolBash,
	}
}
