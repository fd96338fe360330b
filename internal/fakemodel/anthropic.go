package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// anthropic is the wire format of the Messages API.
type anthropic struct{}

func (anthropic) name() string { return "anthropic" }

type anthropicRequest struct {
	Model     string             `json:"model"`
	MaxTokens *int64             `json:"max_tokens"`
	System    json.RawMessage    `json:"system"`
	Messages  []anthropicMessage `json:"messages"`
	Stream    bool               `json:"stream"`
	Tools     []struct {
		Name         string          `json:"name"`
		Type         string          `json:"type"`
		InputSchema  json.RawMessage `json:"input_schema"`
		CacheControl json.RawMessage `json:"cache_control"`
	} `json:"tools"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicBlock struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	Content      json.RawMessage `json:"content"`
	Signature    string          `json:"signature"`
	CacheControl json.RawMessage `json:"cache_control"`
	Source       *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	} `json:"source"`
}

// blocks decodes a content, which is a list of blocks or a single text.
func blocks(content json.RawMessage) (list []anthropicBlock, err error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	err = json.Unmarshal(content, &list)
	return list, err
}

func bad(format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, kind: "invalid_request_error", reason: fmt.Sprintf(format, args...)}
}

func (anthropic) read(h http.Header, body []byte, key string) (q question, wrong *failure) { //nolint:gocognit,gocyclo // rules of a service, one by one
	given := h.Get("X-Api-Key")
	if given == "" {
		given = strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
	}
	switch {
	case given == "":
		return q, &failure{status: http.StatusUnauthorized, kind: "authentication_error", reason: "x-api-key header is required"}
	case key != "" && given != key:
		return q, &failure{status: http.StatusUnauthorized, kind: "authentication_error", reason: "invalid x-api-key"}
	case h.Get("Anthropic-Version") == "":
		return q, bad("anthropic-version: header is required")
	}
	var r anthropicRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return q, bad("The request body is not valid JSON: %v", err)
	}
	q.model, q.stream = r.Model, r.Stream
	switch {
	case r.Model == "":
		return q, bad("model: Field required")
	case r.MaxTokens == nil:
		return q, bad("max_tokens: Field required")
	case *r.MaxTokens < 1:
		return q, bad("max_tokens: Input should be greater than or equal to 1")
	case len(r.Messages) == 0:
		return q, bad("messages: at least one message is required")
	}
	marks := 0
	for i, t := range r.Tools {
		if !named(t.Name, 128) || slices.Contains(q.tools, t.Name) {
			return q, bad("tools.%d.name: %q is no name of a tool, or stands there twice", i, t.Name)
		}
		if (t.Type == "" || t.Type == "custom") && !ofObjects(t.InputSchema) {
			return q, bad("tools.%d.input_schema: Input should be a schema of type 'object'", i)
		}
		q.tools, marks = append(q.tools, t.Name), marks+marked(t.CacheControl)
	}
	if len(r.System) > 0 {
		list, err := blocks(r.System)
		if err != nil {
			return q, bad("system: Input should be a text or a list of texts")
		}
		for _, b := range list {
			marks += marked(b.CacheControl)
		}
	}
	var open, ids []string // ids of the previous message's tool uses, and of all
	for i, m := range r.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return q, bad("messages.%d.role: roles must alternate between \"user\" and \"assistant\", beginning with \"user\"", i)
		}
		list, err := blocks(m.Content)
		if err != nil || len(list) == 0 {
			return q, bad("messages.%d: all messages must have non-empty content", i)
		}
		q.text, q.results = "", false
		uses, answered, after := []string{}, []string{}, false
		for j, b := range list {
			where := fmt.Sprintf("messages.%d.content.%d", i, j)
			marks += marked(b.CacheControl)
			if wrong := b.check(where, m.Role); wrong != nil {
				return q, wrong
			}
			switch b.Type {
			case "text":
				q.text, after = join(q.text, *b.Text), true
			case "tool_use":
				if slices.Contains(ids, b.ID) {
					return q, bad("%s: `tool_use` ids must be unique", where)
				}
				uses, ids = append(uses, b.ID), append(ids, b.ID)
			case "tool_result":
				switch {
				case !slices.Contains(open, b.ToolUseID):
					return q, bad("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a "+
						"corresponding `tool_use` block in the previous message.", where, b.ToolUseID)
				case slices.Contains(answered, b.ToolUseID):
					return q, bad("%s: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", where, b.ToolUseID)
				case after:
					return q, bad("%s: `tool_result` blocks must come first in the content of a message", where)
				}
				answered, q.results = append(answered, b.ToolUseID), true
				inner, err := blocks(b.Content)
				if len(b.Content) > 0 && err != nil {
					return q, bad("%s.content: Input should be a text or a list of blocks", where)
				}
				for _, b := range inner {
					if b.Text != nil {
						q.text = join(q.text, *b.Text)
					}
				}
			}
		}
		for _, id := range open {
			if !slices.Contains(answered, id) {
				return q, bad("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block "+
					"must have a corresponding `tool_result` block in the next message.", i-1, id)
			}
		}
		open = uses
	}
	if len(open) > 0 {
		return q, bad("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s.", len(r.Messages)-1, open[0])
	}
	if marks > 4 {
		return q, bad("A maximum of 4 blocks with cache_control may be provided. Found %d.", marks)
	}
	return q, nil
}

func (b anthropicBlock) check(where, role string) *failure {
	switch b.Type {
	case "":
		return bad("%s.type: Field required", where)
	case "text":
		if b.Text == nil || strings.TrimSpace(*b.Text) == "" {
			return bad("%s: text content blocks must contain non-whitespace text", where)
		}
	case "tool_use":
		switch {
		case role != "assistant":
			return bad("%s: `tool_use` blocks can only be in `assistant` messages", where)
		case !named(b.ID, 256):
			return bad("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", where)
		case b.Name == "" || !isObject(b.Input):
			return bad("%s.tool_use: name and input are required, and input should be an object", where)
		}
	case "tool_result":
		if role != "user" {
			return bad("%s: `tool_result` blocks can only be in `user` messages", where)
		}
	case "thinking":
		if role != "assistant" || b.Signature == "" {
			return bad("%s.thinking.signature: Field required", where)
		}
	case "image":
		if s := b.Source; s == nil || s.Type == "base64" && (s.Data == "" || s.MediaType == "") || s.Type == "url" && s.URL == "" {
			return bad("%s.image.source: Field required", where)
		}
	}
	return nil
}

func marked(mark json.RawMessage) int {
	if len(mark) == 0 || string(mark) == "null" {
		return 0
	}
	return 1
}

func ofObjects(schema json.RawMessage) bool {
	var s struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(schema, &s) == nil && s.Type == "object"
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

func (anthropic) failed(f failure) any {
	kind := f.kind
	if kind == "" {
		kind = map[int]string{400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
			404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error"}[f.status]
	}
	if kind == "" {
		kind = "api_error"
	}
	e := map[string]any{"type": kind, "message": reason(f)}
	if f.code != "" {
		e["details"] = map[string]string{"error_code": f.code}
	}
	return map[string]any{"type": "error", "error": e, "request_id": "req_fake"}
}

func reason(f failure) string {
	if f.reason == "" {
		return fmt.Sprintf("The script answers with status %d", f.status)
	}
	return f.reason
}

type object = map[string]any

// content returns the complete blocks of an answer.
func (anthropic) content(q question, r Reply) (list []object) {
	if r.Think != "" {
		list = append(list, object{"type": "thinking", "thinking": r.Think, "signature": fmt.Sprintf("c2lnbmVk%d", q.n)})
	}
	if len(r.Other) > 0 {
		var o object
		if err := json.Unmarshal(r.Other, &o); err == nil { // check has validated it
			list = append(list, o)
		}
	}
	for _, text := range []string{r.Say, r.Refuse} {
		if text != "" {
			list = append(list, object{"type": "text", "text": text})
		}
	}
	for i, u := range r.Call {
		var input any = json.RawMessage(u.text())
		if !isObject([]byte(u.text())) {
			input = object{} // in a complete answer the service always sends an object
		}
		list = append(list, object{"type": "tool_use", "id": u.id("toolu", q.n, i), "name": u.Tool, "input": input})
	}
	return list
}

func (anthropic) stop(r Reply) string {
	switch {
	case r.Stop != "":
		return r.Stop
	case r.Refuse != "":
		return "refusal"
	case len(r.Call) > 0:
		return "tool_use"
	}
	return "end_turn"
}

func (a anthropic) message(q question, r Reply) object {
	u := r.usage(q)
	return object{"id": fmt.Sprintf("msg_fake_%d", q.n), "type": "message", "role": "assistant", "model": q.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": u.In, "cache_read_input_tokens": u.CacheRead,
			"cache_creation_input_tokens": u.CacheWrite, "output_tokens": 1}}
}

func (a anthropic) whole(q question, r Reply) any {
	m := a.message(q, r)
	m["stop_reason"] = a.stop(r)
	if list := a.content(q, r); list != nil {
		m["content"] = list
	}
	if u, ok := m["usage"].(object); ok {
		u["output_tokens"] = r.usage(q).Out
	}
	return m
}

func (a anthropic) events(q question, r Reply) (list []string) {
	add := func(kind string, o object) {
		o["type"] = kind
		list = append(list, fmt.Sprintf("event: %s\ndata: %s\n\n", kind, encode(o)))
	}
	add("message_start", object{"message": a.message(q, r)})
	add("ping", object{})
	first := len(a.content(q, r)) - len(r.Call) // index of the first use
	for i, b := range a.content(q, r) {
		delta := func(kind, field, text string) {
			add("content_block_delta", object{"index": i, "delta": object{"type": kind, field: text}})
		}
		start := func(b object) { add("content_block_start", object{"index": i, "content_block": b}) }
		switch {
		case i >= first:
			start(object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": object{}})
			delta("input_json_delta", "partial_json", "")
			for _, p := range pieces(r.Call[i-first].text()) {
				delta("input_json_delta", "partial_json", p)
			}
		case b["type"] == "thinking":
			start(object{"type": "thinking", "thinking": "", "signature": ""})
			for _, p := range pieces(r.Think) {
				delta("thinking_delta", "thinking", p)
			}
			delta("signature_delta", "signature", fmt.Sprint(b["signature"]))
		case b["type"] == "text" && (b["text"] == r.Say || b["text"] == r.Refuse):
			start(object{"type": "text", "text": ""})
			for _, p := range pieces(fmt.Sprint(b["text"])) {
				delta("text_delta", "text", p)
			}
		default:
			add("content_block_start", object{"index": i, "content_block": r.Other})
		}
		add("content_block_stop", object{"index": i})
	}
	if r.StreamError != "" {
		e := failure{kind: r.StreamError, code: r.Code, reason: r.Message}
		return append(list, fmt.Sprintf("event: error\ndata: %s\n\n", encode(a.failed(e))))
	}
	add("message_delta", object{"delta": object{"stop_reason": a.stop(r), "stop_sequence": nil},
		"usage": object{"output_tokens": r.usage(q).Out}})
	add("message_stop", object{})
	return list
}
