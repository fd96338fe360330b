package anthropic

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/sse"
	"github.com/sandjet/sandjet/schemas"
)

// FuzzAccumulator: whatever a stream has, an answer that is whole can be sent back.
func FuzzAccumulator(f *testing.F) {
	f.Add([]byte("data: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":1}}}\n\n" +
		"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":" +
		"{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}}\n\n" +
		"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n" +
		"data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n" +
		"data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"a\":1}}}\n\n" +
		"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":-1}}\n\n" +
		"data: {\"type\":\"message_stop\"}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		a := &accumulator{model: "m"}
		r := sse.NewReader(bytes.NewReader(stream))
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			if done, err := a.Event(e, func(models.Delta) bool { return true }); done || err != nil {
				break
			}
		}
		answer, err := a.Answer()
		if err != nil {
			return
		}
		if u := answer.Usage; u.In < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.Out < 0 {
			t.Errorf("it costs %+v", u)
		}
		for _, b := range answer.Blocks {
			if !json.Valid(b.Raw) || b.Type == schemas.BlockToolUse && (b.Use == "" || b.Name == "" || !json.Valid(b.Input)) {
				t.Errorf("a block is %+v, raw %s", b, b.Raw)
			}
		}
		said := schemas.ModelMessage{Role: schemas.RoleAssistant, Blocks: answer.Blocks}
		body, err := write(models.Request{Model: "m", Messages: []schemas.ModelMessage{said}}, nil)
		if err != nil || !json.Valid(body) {
			t.Errorf("it cannot be sent back: %v", err)
		}
	})
}
