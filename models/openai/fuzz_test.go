package openai

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
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\",\"x\":[1],\"y\":{},\"reasoning\":\"r\"}}]}\n\n" +
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"b\",\"arguments\":\"{\"}}]}}]}\n\n" +
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"b\",\"arguments\":{}}}]},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n"))
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
		body, err := write(models.Request{Model: "m", Messages: []schemas.ModelMessage{said}}, nil, false)
		if err != nil || !json.Valid(body) {
			t.Errorf("it cannot be sent back: %v", err)
		}
	})
}
