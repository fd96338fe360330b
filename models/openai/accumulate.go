package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/sse"
	"github.com/sandjet/sandjet/models/internal/wire"
	"github.com/sandjet/sandjet/schemas"
)

// chunk is an event of a stream.
type chunk struct {
	Model   string `json:"model"`
	Choices []struct {
		Index        int             `json:"index"`
		Delta        json.RawMessage `json:"delta"`
		FinishReason string          `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"` // including cached tokens
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
}

// field is a field of the message that is being received: a text or a list that grows, or another value, of which the last counts.
type field struct {
	name  string
	text  []byte
	items [][]byte
	other json.RawMessage
}

// call is a use of a tool that is being received.
type call struct {
	index     int
	id, name  string
	arguments []byte
	more      wire.Object // fields that this version does not know, such as signatures
}

// Bounds of an answer, beyond those of its stream.
const (
	maxCalls  = 1024
	maxFields = 64
)

// accumulator implements [wire.Accumulator].
type accumulator struct {
	model    string // as it was asked for
	answerer string // as the server names it
	fields   []*field
	calls    []*call
	usage    schemas.TokenUsage
	finish   string
	begun    bool
}

// Event implements [wire.Accumulator].
func (a *accumulator) Event(e sse.Event, yield func(models.Delta) bool) (bool, error) {
	if string(e.Data) == "[DONE]" {
		return true, nil
	}
	var c chunk
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return false, fmt.Errorf("an event of the stream is not understood: %w", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		class, message := refusal(0, e.Data)
		return false, &models.Error{Class: class, Message: message}
	}
	if c.Model != "" {
		a.answerer = c.Model
	}
	if u := c.Usage; u != nil {
		read, written := max(0, u.Details.Cached), max(0, u.Details.Written)
		a.usage = schemas.TokenUsage{In: max(0, u.Prompt-read-written), CacheRead: read, CacheWrite: written, Out: max(0, u.Completion)}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 { // one is asked for
			continue
		}
		a.begun = true
		if len(choice.Delta) > 0 && string(choice.Delta) != "null" {
			if err := a.add(choice.Delta, yield); err != nil {
				return false, err
			}
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	return false, nil
}

// dropped reports whether a field of an answer is not sent back, since servers reject it in a request.
func dropped(name string) bool {
	return slices.Contains([]string{"role", "annotations", "audio", "function_call"}, name)
}

// thinks reports whether a field contains the model's thinking, under one of the names that servers use.
func thinks(name string) bool { return name == "reasoning_content" || name == "reasoning" }

func (a *accumulator) add(delta []byte, yield func(models.Delta) bool) error {
	o, err := wire.ReadObject(delta)
	if err != nil {
		return fmt.Errorf("a delta of the stream: %w", err)
	}
	for _, f := range o {
		switch {
		case dropped(f.Name) || string(f.Value) == "null" || string(f.Value) == `""`:
		case f.Name == "tool_calls":
			if err := a.addCalls(f.Value); err != nil {
				return err
			}
		default:
			if err := a.addField(f, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *accumulator) addField(f wire.Field, yield func(models.Delta) bool) error {
	at := slices.IndexFunc(a.fields, func(have *field) bool { return have.name == f.Name })
	if at < 0 {
		if len(a.fields) == maxFields {
			return fmt.Errorf("the message has more than %d fields", maxFields)
		}
		at, a.fields = len(a.fields), append(a.fields, &field{name: f.Name})
	}
	have := a.fields[at]
	switch f.Value[0] {
	case '"':
		var text string
		if err := json.Unmarshal(f.Value, &text); err != nil {
			return fmt.Errorf("the field %s: %w", f.Name, err)
		}
		have.text = append(have.text, text...)
		d := models.Delta{}
		switch {
		case f.Name == "content" || f.Name == "refusal":
			d.Text = text
		case thinks(f.Name):
			d.Thinking = text
		}
		if d != (models.Delta{}) && !yield(d) {
			return wire.ErrLeft
		}
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(f.Value, &items); err != nil {
			return fmt.Errorf("the field %s: %w", f.Name, err)
		}
		for _, item := range items {
			have.items = append(have.items, item)
		}
	default:
		have.other = f.Value
	}
	return nil
}

func (a *accumulator) addCalls(text []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("the calls of the stream are not understood: %w", err)
	}
	for _, item := range list {
		var d struct {
			Index    *int   `json:"index"`
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		}
		o, err := wire.ReadObject(item)
		if err == nil {
			err = json.Unmarshal(item, &d)
		}
		if err != nil {
			return fmt.Errorf("a call of the stream is not understood: %w", err)
		}
		c, err := a.call(d.Index, d.ID)
		if err != nil {
			return err
		}
		if c.id == "" {
			c.id = d.ID
		}
		if c.name == "" {
			c.name = d.Function.Name
		}
		var arguments string
		switch raw := d.Function.Arguments; {
		case len(raw) == 0 || string(raw) == "null":
		case json.Unmarshal(raw, &arguments) == nil:
			c.arguments = append(c.arguments, arguments...)
		default: // some servers send the object itself
			c.arguments = append(c.arguments, raw...)
		}
		for _, f := range o {
			if !slices.Contains([]string{"index", "id", "type", "function"}, f.Name) {
				c.more = c.more.With(f.Name, f.Value)
			}
		}
	}
	return nil
}

// call returns the call that a delta belongs to, and adds it if it is new. Some servers omit the index: then a new id begins a new call.
func (a *accumulator) call(index *int, id string) (*call, error) {
	for i, c := range slices.Backward(a.calls) {
		if index != nil && c.index == *index || index == nil && i == len(a.calls)-1 && (id == "" || c.id == id) {
			return c, nil
		}
	}
	if len(a.calls) == maxCalls {
		return nil, fmt.Errorf("the answer has more than %d calls", maxCalls)
	}
	c := &call{index: len(a.calls)}
	if index != nil {
		c.index = *index
	}
	a.calls = append(a.calls, c)
	return c, nil
}

// Usage implements [wire.Accumulator].
func (a *accumulator) Usage() (schemas.TokenUsage, bool) { return a.usage, a.begun }

// Answer implements [wire.Accumulator]. Some servers omit the last event, so an answer counts as complete when it has a finish_reason.
func (a *accumulator) Answer() (models.Answer, error) {
	if a.finish == "" {
		return models.Answer{}, errors.New("the stream ended before the answer did")
	}
	out := models.Answer{Usage: a.usage, Model: a.answerer}
	refused := false
	for _, f := range a.fields {
		b := schemas.Block{Type: schemas.BlockOther, Text: string(f.text)}
		switch {
		case len(f.text) == 0 && len(f.items) == 0 && len(f.other) == 0:
			continue
		case f.name == "content" || f.name == "refusal":
			b.Type, refused = schemas.BlockText, refused || f.name == "refusal"
		case thinks(f.name):
			b.Type = schemas.BlockThinking
		default:
			b.Text = ""
		}
		out.Blocks = append(out.Blocks, a.from(b, wire.Object{}.With(f.name, f.value())))
	}
	for _, c := range a.calls {
		b, err := a.use(c)
		if err != nil {
			return models.Answer{}, err
		}
		out.Blocks = append(out.Blocks, b)
	}
	out.Stop = stop(a.finish, len(a.calls) > 0, refused)
	return out, nil
}

func (a *accumulator) from(b schemas.Block, o wire.Object) schemas.Block {
	b.Raw, b.Wire, b.Model = o.JSON(), schemas.WireOpenAI, a.model
	return b
}

func (f *field) value() json.RawMessage {
	switch {
	case len(f.text) > 0:
		return wire.String(string(f.text))
	case len(f.items) > 0:
		return append(append([]byte{'['}, bytes.Join(f.items, []byte{','})...), ']')
	}
	return f.other
}

func (a *accumulator) use(c *call) (schemas.Block, error) {
	if c.name == "" {
		return schemas.Block{}, errors.New("a call has no name")
	}
	if c.id == "" { // some servers give none, and its result must name one
		c.id = "call_" + rand.Text()
	}
	input := wire.ReadInput(c.arguments)
	arguments := c.arguments
	if !wire.IsObject(input) || len(arguments) == 0 { // servers fail on it when it is sent again
		arguments = []byte("{}")
	}
	called := wire.Object{}.With("name", wire.String(c.name)).With("arguments", wire.String(string(arguments)))
	o := wire.Object{}.With("id", wire.String(c.id)).With("type", wire.String("function")).With("function", called.JSON())
	return a.from(schemas.Block{Type: schemas.BlockToolUse, Use: c.id, Name: c.name, Input: input}, append(o, c.more...)), nil
}

// stop returns the reason for a finish_reason. Not all servers have a finish_reason of their own for answers with calls.
func stop(finish string, calls, refused bool) models.Stop {
	switch {
	case finish == "length":
		return models.StopMaxTokens
	case finish == "content_filter":
		return models.StopRefusal
	case calls:
		return models.StopToolUse
	case refused:
		return models.StopRefusal
	}
	return models.StopEnd
}
