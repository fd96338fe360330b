package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/wire"
	"github.com/sandjet/sandjet/schemas"
)

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Parameters  json.RawMessage `json:"parameters"`
}

type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitzero"`
	ImageURL *imageURL `json:"image_url,omitzero"`
}

type imageURL struct {
	URL string `json:"url"`
}

type toolCall struct {
	ID       string     `json:"id"`
	Type     string     `json:"type"`
	Function calledFunc `json:"function"`
}

type calledFunc struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type system struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type toolMessage struct {
	Role       string `json:"role"`
	ToolCallID string `json:"tool_call_id"`
	Content    string `json:"content"`
}

type userMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content"` // a string or parts
}

// write returns the body of a request. Equal requests have equal bytes.
func write(r models.Request, extra map[string]json.RawMessage, legacy bool) ([]byte, error) {
	body := map[string]any{} // maps are written in the order of their keys
	for name, value := range extra {
		body[name] = value
	}
	body["model"], body["stream"], body["stream_options"] = r.Model, true, map[string]bool{"include_usage": true}
	if limit := "max_completion_tokens"; legacy {
		body["max_tokens"] = r.MaxTokens
	} else {
		body[limit] = r.MaxTokens
	}
	if len(r.Tools) > 0 {
		tools := make([]tool, len(r.Tools))
		for i, t := range r.Tools {
			tools[i] = tool{"function", function{t.Name, t.Description, t.Schema}}
		}
		body["tools"] = tools
	}
	messages := []any{}
	if r.System != "" {
		messages = append(messages, system{"system", r.System})
	}
	for i, m := range wire.Prepare(r.Messages, schemas.WireOpenAI, r.Model) {
		if m.Role == schemas.RoleAssistant {
			o, err := said(m.Blocks)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", i+1, err)
			}
			messages = append(messages, o)
			continue
		}
		var parts []part
		pictures := false
		for _, b := range m.Blocks {
			switch b.Type {
			case schemas.BlockToolResult:
				messages = append(messages, toolMessage{"tool", b.Use, b.Text})
			case schemas.BlockText:
				parts = append(parts, part{Type: "text", Text: b.Text})
			case schemas.BlockImage:
				address := b.URL
				if address == "" {
					address = "data:" + b.MediaType + ";base64," + base64.StdEncoding.EncodeToString(b.Data)
				}
				parts, pictures = append(parts, part{Type: "image_url", ImageURL: &imageURL{address}}), true
			default:
				return nil, fmt.Errorf("message %d: a user has no block of type %q on this wire", i+1, b.Type)
			}
		}
		switch {
		case pictures || len(parts) > 1:
			messages = append(messages, userMessage{"user", parts})
		case len(parts) == 1: // some servers know only strings
			messages = append(messages, userMessage{"user", parts[0].Text})
		}
	}
	body["messages"] = messages
	return wire.Encode(body)
}

// said returns a message of the assistant. The raw form of a block is one field of the message, or one tool call.
func said(blocks []schemas.Block) (wire.Object, error) {
	o := wire.Object{}.With("role", wire.String(string(schemas.RoleAssistant)))
	var texts []string
	var calls []json.RawMessage
	for _, b := range blocks {
		switch {
		case b.Type == schemas.BlockToolUse && len(b.Raw) > 0:
			calls = append(calls, b.Raw)
		case b.Type == schemas.BlockToolUse:
			c, err := wire.Encode(toolCall{b.Use, "function", calledFunc{b.Name, string(wire.Input(b))}})
			if err != nil {
				return nil, fmt.Errorf("the use %q of a tool: %w", b.Use, err)
			}
			calls = append(calls, c)
		case len(b.Raw) > 0:
			fields, err := wire.ReadObject(b.Raw)
			if err != nil {
				return nil, fmt.Errorf("the raw form of a block of type %q: %w", b.Type, err)
			}
			for _, f := range fields {
				if f.Name == "content" {
					texts = append(texts, b.Text)
				}
				o = o.With(f.Name, f.Value)
			}
		case b.Type == schemas.BlockText:
			texts = append(texts, b.Text)
		default:
			return nil, fmt.Errorf("an assistant has no block of type %q on this wire", b.Type)
		}
	}
	switch {
	case len(texts) > 0:
		o = o.With("content", wire.String(strings.Join(texts, "\n\n")))
	case o.Get("content") == nil:
		o = o.With("content", json.RawMessage("null"))
	}
	if len(calls) > 0 {
		list, err := wire.Encode(calls)
		if err != nil {
			return nil, fmt.Errorf("the uses of tools: %w", err)
		}
		o = o.With("tool_calls", list)
	}
	return o, nil
}
