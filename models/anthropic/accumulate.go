package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/sse"
	"github.com/sandjet/sandjet/models/internal/wire"
	"github.com/sandjet/sandjet/schemas"
)

// event is any event of a stream; Type says which fields are set.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        struct {
		Type        string          `json:"type"`
		Text        string          `json:"text"`
		Thinking    string          `json:"thinking"`
		Signature   string          `json:"signature"`
		PartialJSON string          `json:"partial_json"`
		Citation    json.RawMessage `json:"citation"`
		StopReason  string          `json:"stop_reason"`
	} `json:"delta"`
	Usage usage           `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// usage has the token counts of the whole message so far. A count that an event omits is unchanged.
type usage struct {
	In         *int64 `json:"input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	Out        *int64 `json:"output_tokens"`
}

// part is a block of an answer that is being received.
type part struct {
	object    wire.Object
	kind      string
	text      []byte // of text or thinking
	signature []byte
	input     []byte
	citations [][]byte
	open      bool
}

// accumulator implements [wire.Accumulator].
type accumulator struct {
	model    string // as it was asked for
	answerer string // as the server names it
	parts    []*part
	usage    schemas.TokenUsage
	stop     string
	begun    bool
	done     bool
}

var errOrder = errors.New("the events of the stream are not in the order of the API")

// Event implements [wire.Accumulator].
func (a *accumulator) Event(e sse.Event, yield func(models.Delta) bool) (bool, error) {
	var ev event
	if err := json.Unmarshal(e.Data, &ev); err != nil {
		return false, fmt.Errorf("an event of the stream is not understood: %w", err)
	}
	switch ev.Type {
	case "error":
		class, message := refusal(0, e.Data)
		return false, &models.Error{Class: class, Message: message}
	case "message_start":
		if a.begun {
			return false, errOrder
		}
		a.begun, a.answerer = true, ev.Message.Model
		a.count(ev.Message.Usage)
		return false, nil
	case "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
		if !a.begun || a.done {
			return false, errOrder
		}
	default: // ping, and what comes later: the API says that events may be added
		return false, nil
	}
	switch ev.Type {
	case "content_block_start":
		return false, a.start(ev)
	case "message_delta":
		if ev.Delta.StopReason != "" {
			a.stop = ev.Delta.StopReason
		}
		a.count(ev.Usage)
		return false, nil
	case "message_stop":
		a.done = true
		return true, nil
	}
	if ev.Index < 0 || ev.Index >= len(a.parts) || !a.parts[ev.Index].open {
		return false, errOrder
	}
	p := a.parts[ev.Index]
	if ev.Type == "content_block_stop" {
		p.open = false
		return false, nil
	}
	d := ev.Delta
	p.text = append(append(p.text, d.Text...), d.Thinking...)
	p.signature = append(p.signature, d.Signature...)
	p.input = append(p.input, d.PartialJSON...)
	if len(d.Citation) > 0 {
		p.citations = append(p.citations, d.Citation)
	}
	return false, show(models.Delta{Text: d.Text, Thinking: d.Thinking}, yield)
}

func (a *accumulator) start(ev event) error {
	o, err := wire.ReadObject(ev.ContentBlock)
	if err != nil || ev.Index != len(a.parts) {
		return errOrder
	}
	var b struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	}
	if err := json.Unmarshal(ev.ContentBlock, &b); err != nil {
		return fmt.Errorf("a block of the stream is not understood: %w", err)
	}
	p := &part{object: o, kind: b.Type, open: true}
	switch b.Type {
	case "text":
		p.text = []byte(b.Text)
	case "thinking":
		p.text = []byte(b.Thinking)
	}
	a.parts = append(a.parts, p)
	return nil
}

func show(d models.Delta, yield func(models.Delta) bool) error {
	if (d.Text != "" || d.Thinking != "") && !yield(d) {
		return wire.ErrLeft
	}
	return nil
}

func (a *accumulator) count(u usage) {
	for _, n := range []struct {
		from *int64
		to   *int64
	}{{u.In, &a.usage.In}, {u.CacheRead, &a.usage.CacheRead}, {u.CacheWrite, &a.usage.CacheWrite}, {u.Out, &a.usage.Out}} {
		if n.from != nil {
			*n.to = max(0, *n.from)
		}
	}
}

// Usage implements [wire.Accumulator].
func (a *accumulator) Usage() (schemas.TokenUsage, bool) { return a.usage, a.begun }

// Answer implements [wire.Accumulator].
func (a *accumulator) Answer() (models.Answer, error) {
	if !a.done {
		return models.Answer{}, errors.New("the stream ended before the answer did")
	}
	out := models.Answer{Usage: a.usage, Model: a.answerer, Stop: models.StopEnd}
	if s, ok := stops[a.stop]; ok {
		out.Stop = s
	}
	for _, p := range a.parts {
		b, err := p.block(a.model)
		if err != nil {
			return models.Answer{}, err
		}
		out.Blocks = append(out.Blocks, b)
	}
	return out, nil
}

// block returns the complete block of the part.
func (p *part) block(model string) (schemas.Block, error) {
	o := p.object
	set := func(name string, value []byte) {
		if len(value) > 0 {
			o = o.With(name, wire.String(string(value)))
		}
	}
	set("signature", p.signature)
	if len(p.citations) > 0 {
		o = o.With("citations", append(append([]byte{'['}, bytes.Join(p.citations, []byte{','})...), ']'))
	}
	switch p.kind {
	case "text":
		set("text", p.text)
		return block(o, schemas.Block{Type: schemas.BlockText, Text: string(p.text)}, model), nil
	case "thinking":
		set("thinking", p.text)
		return block(o, schemas.Block{Type: schemas.BlockThinking, Text: string(p.text)}, model), nil
	}
	given := p.input
	if len(given) == 0 {
		given = o.Get("input")
	}
	if len(p.input) > 0 { // an input that is no object would be refused when it is sent again
		o = o.With("input", json.RawMessage("{}"))
		if wire.IsObject(p.input) {
			o = o.With("input", wire.Compact(p.input))
		}
	}
	if p.kind != "tool_use" {
		return block(o, schemas.Block{Type: schemas.BlockOther}, model), nil
	}
	b := schemas.Block{Type: schemas.BlockToolUse, Input: wire.ReadInput(given)}
	if json.Unmarshal(o.Get("id"), &b.Use) != nil || json.Unmarshal(o.Get("name"), &b.Name) != nil || b.Use == "" || b.Name == "" {
		return schemas.Block{}, errors.New("a use of a tool has no id or no name")
	}
	return block(o, b, model), nil
}
