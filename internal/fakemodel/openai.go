package fakemodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// openai is the wire format of the Chat Completions API.
type openai struct{}

func (openai) name() string { return "openai" }

type openaiRequest struct {
	Model               string          `json:"model"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	Messages            []openaiMessage `json:"messages"`
	Stream              bool            `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

type openaiMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Refusal    string          `json:"refusal"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// text returns the text of a message, and whether its content is valid and not empty.
func (m openaiMessage) text() (text string, some bool) {
	if json.Unmarshal(m.Content, &text) == nil && string(m.Content) != "null" {
		return text, true
	}
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL *struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0 {
		return "", false
	}
	for _, p := range parts {
		if p.Type == "image_url" && (p.ImageURL == nil || p.ImageURL.URL == "") || p.Type == "" {
			return "", false
		}
		text = join(text, p.Text)
	}
	return text, true
}

func badParam(param, format string, args ...any) *failure {
	f := bad(format, args...)
	f.param = param
	return f
}

func (openai) read(h http.Header, body []byte, key string) (q question, wrong *failure) { //nolint:gocognit,gocyclo // rules of a service, one by one
	given, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	switch {
	case !ok || given == "":
		return q, &failure{status: http.StatusUnauthorized, kind: "invalid_request_error",
			reason: "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth"}
	case key != "" && given != key:
		return q, &failure{status: http.StatusUnauthorized, kind: "invalid_request_error", code: "invalid_api_key",
			reason: "Incorrect API key provided"}
	}
	var r openaiRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return q, bad("We could not parse the JSON body of your request: %v", err)
	}
	q.model, q.stream, q.usage = r.Model, r.Stream, r.StreamOptions != nil && r.StreamOptions.IncludeUsage
	switch {
	case r.Model == "":
		return q, bad("you must provide a model parameter")
	case len(r.Messages) == 0:
		return q, badParam("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1")
	case r.MaxTokens != nil && r.MaxCompletionTokens != nil:
		return q, badParam("max_tokens", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case r.MaxTokens != nil && *r.MaxTokens < 1 || r.MaxCompletionTokens != nil && *r.MaxCompletionTokens < 1:
		return q, badParam("max_completion_tokens", "Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1")
	case r.StreamOptions != nil && !r.Stream:
		return q, badParam("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	for i, t := range r.Tools {
		if t.Type != "function" || !named(t.Function.Name, 64) || slices.Contains(q.tools, t.Function.Name) {
			return q, badParam("tools", "Invalid 'tools[%d].function.name': %q", i, t.Function.Name)
		}
		if len(t.Function.Parameters) > 0 && !ofObjects(t.Function.Parameters) {
			return q, badParam("tools", "Invalid schema for function '%s': schema must be of type \"object\"", t.Function.Name)
		}
		q.tools = append(q.tools, t.Function.Name)
	}
	var open []string // ids of calls without a result
	said := ""        // role of the previous message
	for i, m := range r.Messages {
		where := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return q, unanswered(open)
		}
		text, some := m.text()
		switch m.Role {
		case "system", "developer":
		case "user":
			if said == "user" { // OpenAI accepts it, many compatible servers do not
				return q, badParam(where, "Conversation roles must alternate user/assistant/user/assistant/...")
			}
		case "assistant":
			if said == "assistant" {
				return q, badParam(where, "Conversation roles must alternate user/assistant/user/assistant/...")
			}
			some = some || len(m.ToolCalls) > 0 || m.Refusal != ""
			for j, c := range m.ToolCalls {
				switch {
				case c.ID == "" || len(c.ID) > 40 || slices.Contains(open, c.ID):
					return q, badParam(where, "Invalid '%s.tool_calls[%d].id': %q is empty, longer than 40, or stands there twice", where, j, c.ID)
				case c.Type != "function" || c.Function.Name == "" || c.Function.Arguments == nil:
					return q, badParam(where, "Missing required parameter: '%s.tool_calls[%d].function'.", where, j)
				}
				open = append(open, c.ID)
			}
		case "tool":
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return q, badParam(where, "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.")
			}
			open = slices.Delete(open, at, at+1)
		default:
			return q, badParam(where, "Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.", m.Role)
		}
		if !some {
			return q, badParam(where, "Invalid value for 'content': expected a string or an array of parts, got null.")
		}
		if m.Role == "tool" && said == "tool" {
			text = join(q.text, text)
		}
		q.text, q.results, said = text, m.Role == "tool", m.Role
	}
	if len(open) > 0 {
		return q, unanswered(open)
	}
	return q, nil
}

func unanswered(open []string) *failure {
	return badParam("messages", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "+
		"The following tool_call_ids did not have response messages: %s", strings.Join(open, ", "))
}

func (openai) failed(f failure) any {
	kind := f.kind
	if kind == "" {
		kind = "invalid_request_error"
		switch {
		case f.status == http.StatusTooManyRequests:
			kind = "requests"
		case f.status >= http.StatusInternalServerError:
			kind = "server_error"
		}
	}
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return object{"error": object{"message": reason(f), "type": kind, "param": null(f.param), "code": null(f.code)}}
}

func (openai) finish(r Reply) string {
	switch {
	case r.Stop != "":
		return r.Stop
	case len(r.Call) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (openai) cost(q question, r Reply) object {
	u := r.usage(q)
	in := u.In + u.CacheRead + u.CacheWrite
	return object{"prompt_tokens": in, "completion_tokens": u.Out, "total_tokens": in + u.Out,
		"prompt_tokens_details": object{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite}}
}

func (openai) frame(q question, kind string) object {
	return object{"id": fmt.Sprintf("chatcmpl-fake-%d", q.n), "object": kind, "created": 1764000000, "model": q.model}
}

// other returns fields of the message that clients do not know.
func (openai) other(r Reply) (o object) {
	_ = json.Unmarshal(r.Other, &o) // check has validated it
	return o
}

func (a openai) whole(q question, r Reply) any {
	m := object{"role": "assistant", "content": nil, "refusal": nil}
	if r.Say != "" {
		m["content"] = r.Say
	}
	if r.Refuse != "" {
		m["refusal"] = r.Refuse
	}
	if r.Think != "" {
		m["reasoning_content"] = r.Think
	}
	maps.Copy(m, a.other(r))
	var calls []object
	for i, u := range r.Call {
		calls = append(calls, object{"id": u.id("call", q.n, i), "type": "function", "function": object{"name": u.Tool, "arguments": u.text()}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	out := a.frame(q, "chat.completion")
	out["choices"] = []object{{"index": 0, "message": m, "finish_reason": a.finish(r), "logprobs": nil}}
	out["usage"] = a.cost(q, r)
	return out
}

func (a openai) events(q question, r Reply) (list []string) {
	add := func(delta object, finish any) {
		c := a.frame(q, "chat.completion.chunk")
		c["choices"] = []object{{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": nil}}
		if q.usage {
			c["usage"] = nil
		}
		list = append(list, fmt.Sprintf("data: %s\n\n", encode(c)))
	}
	add(object{"role": "assistant", "content": "", "refusal": nil}, nil)
	for _, p := range pieces(r.Think) {
		add(object{"reasoning_content": p}, nil)
	}
	if o := a.other(r); o != nil {
		add(o, nil)
	}
	for _, p := range pieces(r.Say) {
		add(object{"content": p}, nil)
	}
	for _, p := range pieces(r.Refuse) {
		add(object{"refusal": p}, nil)
	}
	for i, u := range r.Call {
		add(object{"tool_calls": []object{{"index": i, "id": u.id("call", q.n, i), "type": "function",
			"function": object{"name": u.Tool, "arguments": ""}}}}, nil)
		for _, p := range pieces(u.text()) {
			add(object{"tool_calls": []object{{"index": i, "function": object{"arguments": p}}}}, nil)
		}
	}
	if r.StreamError != "" {
		return append(list, fmt.Sprintf("data: %s\n\n", encode(a.failed(failure{kind: r.StreamError, code: r.Code, reason: r.Message}))))
	}
	add(object{}, a.finish(r))
	if q.usage {
		c := a.frame(q, "chat.completion.chunk")
		c["choices"], c["usage"] = []any{}, a.cost(q, r)
		list = append(list, fmt.Sprintf("data: %s\n\n", encode(c)))
	}
	return append(list, "data: [DONE]\n\n")
}
