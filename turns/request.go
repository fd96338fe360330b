package turns

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
)

const (
	bytesPerToken = 3    // of text, at least: an estimate must not be too low
	imageTokens   = 2000 // of an image, about
	blockTokens   = 16   // around each block
)

// Messages returns the messages of a transcript in the form for a model: they alternate, begin and end with the user's, and each use of a
// tool has its result in the next message.
func (s State) Messages() []schemas.ModelMessage {
	var list []schemas.ModelMessage
	add := func(m schemas.ModelMessage) {
		if len(m.Blocks) == 0 {
			return
		}
		if n := len(list); n > 0 && list[n-1].Role == m.Role {
			list[n-1].Blocks = append(slices.Clip(list[n-1].Blocks), m.Blocks...)
			return
		}
		list = append(list, m)
	}
	if e := s.summary; e != nil {
		add(said("What was said before, in short:\n\n" + e.Text))
		for _, m := range e.Messages {
			add(m)
		}
	}
	for _, it := range s.items {
		add(it.message)
	}
	if n := len(list); n > 0 && list[n-1].Role == schemas.RoleAssistant && len(s.uses) == 0 {
		add(said("Continue."))
	}
	return list
}

func said(text string) schemas.ModelMessage {
	return schemas.ModelMessage{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockText, Text: text}}}
}

// request returns the request to a model for the open step.
func (s State) request(c Config, m Model) models.Request {
	r := models.Request{Model: m.Name, System: c.System, Tools: c.sortedTools(), Messages: s.Messages(), Cache: true}
	if s.asked.purpose == schemas.PurposeSummary {
		cut := s.cut()
		old := s
		old.items, old.uses = s.items[:cut], nil
		r.Messages, r.Tools = old.Messages(), nil
		for i := range r.Messages {
			r.Messages[i].Blocks = inWords(r.Messages[i].Blocks)
		}
		ask := said("Summarize the conversation so far for yourself: what is wanted, what was done and found, what is open. " +
			"Write the summary alone.")
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == schemas.RoleUser {
			r.Messages[n-1].Blocks = append(r.Messages[n-1].Blocks, ask.Blocks...)
		} else {
			r.Messages = append(r.Messages, ask)
		}
	}
	r.MaxTokens = max(min(c.MaxTokens, s.asked.reserved-estimateRequest(r)), 1)
	return r
}

// inWords replaces uses of tools and their results by text, since a request for a summary offers no tools.
func inWords(blocks []schemas.Block) []schemas.Block {
	var list []schemas.Block
	for _, b := range blocks {
		switch b.Type {
		case schemas.BlockText, schemas.BlockImage:
			list = append(list, b)
		case schemas.BlockToolUse:
			list = append(list, schemas.Block{Type: schemas.BlockText, Text: "[" + b.Name + " " + string(b.Input) + "]"})
		case schemas.BlockToolResult:
			list = append(list, schemas.Block{Type: schemas.BlockText, Text: "[result: " + b.Text + "]"})
		case schemas.BlockThinking, schemas.BlockOther:
		}
	}
	if len(list) == 0 {
		list = []schemas.Block{{Type: schemas.BlockText, Text: "[…]"}}
	}
	return list
}

// cut returns the index of the first item that a summary does not replace: the last two answers and everything after them stay. 0 means
// that nothing can be replaced.
func (s State) cut() int {
	const stay = 2
	answers := 0
	for i := len(s.items) - 1; i > 0; i-- {
		if s.items[i].kind != schemas.EntryAnswer {
			continue
		}
		if answers++; answers >= stay && s.items[i].seq != s.items[i-1].seq {
			return i
		}
	}
	return 0
}

// lastWords returns the user's last message if a summary up to an item would replace it; otherwise nil.
func (s State) lastWords(cut int) []schemas.ModelMessage {
	for i, it := range slices.Backward(s.items) {
		if it.kind == schemas.EntryIn {
			if i >= cut {
				return nil
			}
			return []schemas.ModelMessage{it.message}
		}
	}
	if s.summary != nil {
		return s.summary.Messages
	}
	return nil
}

// input estimates the tokens of the next request; the estimate is rather too high.
func (s State) input(c Config) int64 {
	all := estimateRequest(models.Request{System: c.System, Tools: c.Tools, Messages: s.Messages()})
	if s.context == 0 {
		return all
	}
	since := s.context
	for _, it := range s.items[min(s.behind, len(s.items)):] {
		since += estimate(it.message)
	}
	return max(all, since)
}

func estimateRequest(r models.Request) int64 {
	n := int64(len(r.System)/bytesPerToken + blockTokens)
	for _, t := range r.Tools {
		n += int64((len(t.Name)+len(t.Description)+len(t.Schema))/bytesPerToken + blockTokens)
	}
	for _, m := range r.Messages {
		n += estimate(m)
	}
	return n
}

func estimate(m schemas.ModelMessage) (n int64) {
	for _, b := range m.Blocks {
		n += int64((len(b.Text)+len(b.Input)+len(b.Name)+len(b.Use))/bytesPerToken + blockTokens)
		if b.Type == schemas.BlockImage {
			n += imageTokens
		}
		if b.Type == schemas.BlockThinking || b.Type == schemas.BlockOther {
			n += int64(len(b.Raw) / bytesPerToken)
		}
	}
	return n
}

func (c Config) sortedTools() []models.Tool {
	return slices.SortedFunc(slices.Values(c.Tools), func(a, b models.Tool) int { return strings.Compare(a.Name, b.Name) })
}

// prefix returns a digest of the system prompt and the tools, with which each request begins.
func (c Config) prefix() string {
	const length = 16
	parts := []string{c.System}
	for _, t := range c.sortedTools() {
		parts = append(parts, t.Name, t.Description, string(t.Schema))
	}
	return digest(parts...)[:length]
}
