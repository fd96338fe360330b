package anthropic

import (
	"encoding/json"
	"fmt"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/wire"
	"github.com/sandjet/sandjet/schemas"
)

type text struct {
	Type         string `json:"type"`
	Text         string `json:"text"`
	CacheControl *cache `json:"cache_control,omitzero"`
}

type cache struct {
	Type string `json:"type"`
}

type tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitzero"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *cache          `json:"cache_control,omitzero"`
}

type message struct {
	Role    schemas.Role      `json:"role"`
	Content []json.RawMessage `json:"content"`
}

type image struct {
	Type         string `json:"type"`
	Source       source `json:"source"`
	CacheControl *cache `json:"cache_control,omitzero"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      []byte `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
}

type toolUse struct {
	Type         string          `json:"type"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	CacheControl *cache          `json:"cache_control,omitzero"`
}

type toolResult struct {
	Type         string `json:"type"`
	ToolUseID    string `json:"tool_use_id"`
	Content      string `json:"content,omitzero"`
	IsError      bool   `json:"is_error,omitzero"`
	CacheControl *cache `json:"cache_control,omitzero"`
}

// write returns the body of a request. Equal requests have equal bytes.
func write(r models.Request, extra map[string]json.RawMessage) ([]byte, error) {
	body := map[string]any{} // maps are written in the order of their keys
	for name, value := range extra {
		body[name] = value
	}
	body["model"], body["max_tokens"], body["stream"] = r.Model, r.MaxTokens, true
	mark := func(at bool) *cache {
		if !at || !r.Cache {
			return nil
		}
		return &cache{"ephemeral"}
	}
	if len(r.Tools) > 0 {
		tools := make([]tool, len(r.Tools))
		for i, t := range r.Tools {
			tools[i] = tool{t.Name, t.Description, t.Schema, mark(r.System == "" && i == len(r.Tools)-1)}
		}
		body["tools"] = tools
	}
	if r.System != "" {
		body["system"] = []text{{"text", r.System, mark(true)}} // the server reads the tools before it
	}
	prepared := wire.Prepare(r.Messages, schemas.WireAnthropic, r.Model)
	messages := make([]message, 0, len(prepared))
	for i, m := range prepared {
		// The end of the message before the last answer was marked in the last request: there the server finds what it has, also when
		// more than the 20 blocks came since that it looks back over.
		cached := m.Role == schemas.RoleUser && i >= len(prepared)-3
		out := message{Role: m.Role, Content: make([]json.RawMessage, 0, len(m.Blocks))}
		for j, b := range m.Blocks {
			c, err := content(b, mark(cached && j == len(m.Blocks)-1))
			if err != nil {
				return nil, fmt.Errorf("block %d of message %d: %w", j+1, i+1, err)
			}
			out.Content = append(out.Content, c)
		}
		messages = append(messages, out)
	}
	body["messages"] = messages
	return wire.Encode(body)
}

// content returns the form of a block on this wire: the raw form if the block came from there.
func content(b schemas.Block, mark *cache) (json.RawMessage, error) {
	switch b.Type {
	case schemas.BlockText:
		if len(b.Raw) == 0 {
			return wire.Encode(text{"text", b.Text, mark})
		}
	case schemas.BlockImage:
		if b.URL != "" {
			return wire.Encode(image{"image", source{Type: "url", URL: b.URL}, mark})
		}
		return wire.Encode(image{"image", source{Type: "base64", MediaType: b.MediaType, Data: b.Data}, mark})
	case schemas.BlockToolUse:
		if len(b.Raw) == 0 {
			return wire.Encode(toolUse{"tool_use", b.Use, b.Name, wire.Input(b), mark})
		}
	case schemas.BlockToolResult:
		return wire.Encode(toolResult{"tool_result", b.Use, b.Text, b.IsError, mark})
	case schemas.BlockThinking, schemas.BlockOther:
	default:
		return nil, fmt.Errorf("its type %q has no form on this wire", b.Type)
	}
	if !wire.IsObject(b.Raw) {
		return nil, fmt.Errorf("the raw form of a block of type %q is not a JSON object", b.Type)
	}
	return b.Raw, nil
}
