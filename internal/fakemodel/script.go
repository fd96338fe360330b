// Package fakemodel is a server that imitates language models for tests: it implements Anthropic's Messages API and OpenAI's Chat
// Completions API, with streams and without. It answers by a script, and rejects what the services reject, with their error messages.
package fakemodel

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Script determines the answers. Without rules, or if none matches, the server echoes: see [Script.reply].
type Script struct {
	// Key is the API key that is accepted; "": any key, but there must be one.
	Key   string `json:"key,omitzero"`
	Rules []Rule `json:"rules,omitzero"`
}

// Rule is an answer with its conditions. All conditions that are set must hold. The first rule that matches is used.
type Rule struct {
	Request  int    `json:"request,omitzero"`  // the number of the request, from 1 on; rejected ones count
	Contains string `json:"contains,omitzero"` // in the texts and results of the last message
	Model    string `json:"model,omitzero"`
	Times    int    `json:"times,omitzero"` // how many requests it answers; 0: any number
	Reply
}

// Reply is an answer, or the failure that takes its place.
type Reply struct {
	Think string `json:"think,omitzero"`
	Say   string `json:"say,omitzero"`
	// Refuse is the text of a refusal by the model.
	Refuse string `json:"refuse,omitzero"`
	Call   []Use  `json:"call,omitzero"`
	// Other is an object that clients do not know: a block on Anthropic's wire, fields of the message on OpenAI's.
	Other json.RawMessage `json:"other,omitzero"`
	// Stop is the reason for the end of the answer, in the wire's terms; "": it follows from the content.
	Stop  string `json:"stop,omitzero"`
	Usage *Usage `json:"usage,omitzero"` // nil: estimated from lengths

	// Status is that of an error, such as 429 or 529. Type, Code and Message go into its body.
	Status     int    `json:"status,omitzero"`
	Type       string `json:"type,omitzero"`
	Code       string `json:"code,omitzero"`
	Message    string `json:"message,omitzero"`
	RetryAfter string `json:"retry_after,omitzero"` // the value of the header
	// StreamError is the type of an error that is sent instead of the end of a stream.
	StreamError string `json:"stream_error,omitzero"`

	Wait       Duration `json:"wait,omitzero"`        // before the first byte
	Pace       Duration `json:"pace,omitzero"`        // before each event of a stream
	BreakAfter int      `json:"break_after,omitzero"` // bytes of the body after which the connection breaks
	BadJSON    bool     `json:"bad_json,omitzero"`    // the end of the body is invalid JSON
}

// Use is a call of a tool.
type Use struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input,omitzero"` // an object; none: {}
	Raw   string          `json:"raw,omitzero"`   // text in place of Input, which may be invalid JSON
	ID    string          `json:"id,omitzero"`    // "": derived from the request's number
}

// Usage is the number of tokens that the answer reports.
type Usage struct {
	In         int64 `json:"in"` // without cached ones
	CacheRead  int64 `json:"cache_read,omitzero"`
	CacheWrite int64 `json:"cache_write,omitzero"`
	Out        int64 `json:"out"`
}

// Duration is a time.Duration in Go's notation: 250ms, 2s.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 250ms or 2s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// check returns an error for the first invalid rule.
func (s Script) check() error {
	for i, r := range s.Rules {
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("rule %d: %s", i+1, fmt.Sprintf(format, args...))
		}
		switch {
		case r.Request < 0 || r.Times < 0 || r.BreakAfter < 0:
			return wrong("request, times and break_after count from 0")
		case r.Status != 0 && (r.Status < 300 || r.Status > 599):
			return wrong("status is that of an error, from 300 to 599")
		case r.Status != 0 && (r.Say != "" || len(r.Call) > 0 || r.Refuse != ""):
			return wrong("it has a status of an error and an answer")
		case r.Status == 0 && (r.Message != "" && r.StreamError == "" || r.Type != "" || r.Code != ""):
			return wrong("type, code and message are those of an error: it needs a status")
		case len(r.Other) > 0 && !isObject(r.Other):
			return wrong("other is an object")
		case strings.ContainsAny(r.RetryAfter, "\r\n"):
			return wrong("retry_after is one line")
		}
		for _, u := range r.Call {
			if !named(u.Tool, 64) {
				return wrong("%q is not the name of a tool", u.Tool)
			}
			if len(u.Input) > 0 && (u.Raw != "" || !isObject(u.Input)) {
				return wrong("the input of %s is an object, or raw is a text in its place", u.Tool)
			}
		}
	}
	return nil
}

// question is the part of a request that determines the answer.
type question struct {
	n       int
	model   string
	stream  bool
	usage   bool // whether a stream must end with the usage, on OpenAI's wire
	tools   []string
	text    string // of the last message
	results bool   // it has results of tools
	size    int    // bytes of the body
}

// reply returns the answer of the first rule that matches, and the rule's number. If none does, the number is 0: the server calls the tool
// bash for a message "run: COMMAND", repeats the result of a tool, and echoes everything else.
func (s Script) reply(q question, used []int) (r Reply, rule int) {
	for i, r := range s.Rules {
		if (r.Request == 0 || r.Request == q.n) && strings.Contains(q.text, r.Contains) && (r.Model == "" || r.Model == q.model) &&
			(r.Times == 0 || used[i] < r.Times) {
			used[i]++
			return r.Reply, i + 1
		}
	}
	if q.results {
		return Reply{Say: "The tool says:\n" + q.text}, 0
	}
	command, ok := strings.CutPrefix(q.text, "run:")
	if !ok {
		return Reply{Say: "You said: " + q.text}, 0
	}
	for _, name := range q.tools {
		if name == "bash" {
			input, err := json.Marshal(map[string]string{"command": strings.TrimSpace(command)})
			if err != nil {
				return Reply{Say: err.Error()}, 0
			}
			return Reply{Say: "I run it.", Call: []Use{{Tool: "bash", Input: input}}}, 0
		}
	}
	return Reply{Say: "I have no tool with the name bash."}, 0
}

func (r Reply) usage(q question) Usage {
	if r.Usage != nil {
		return *r.Usage
	}
	out := len(r.Say) + len(r.Think) + len(r.Refuse)
	for _, u := range r.Call {
		out += len(u.Tool) + len(u.text())
	}
	return Usage{In: int64(q.size/4 + 1), Out: int64(out/4 + 1)}
}

// text returns the input as the model writes it.
func (u Use) text() string {
	switch {
	case u.Raw != "":
		return u.Raw
	case len(u.Input) > 0:
		return string(u.Input)
	}
	return "{}"
}

func (u Use) id(prefix string, n, i int) string {
	if u.ID != "" {
		return u.ID
	}
	return fmt.Sprintf("%s_fake_%d_%d", prefix, n, i+1)
}

func isObject(text []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(text, &o) == nil && o != nil
}

// named reports whether s is a name: 1 to most letters, digits, _ and -.
func named(s string, most int) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// pieces splits a text into the parts in which a stream sends it.
func pieces(text string) (list []string) {
	const runes = 6
	at, n := 0, 0
	for i := range text {
		if n == runes {
			list, at, n = append(list, text[at:i]), i, 0
		}
		n++
	}
	if at < len(text) {
		list = append(list, text[at:])
	}
	return list
}
