package wire

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// maxUse is the length of the longest id of a use of a tool that every server takes.
const maxUse = 40

// Prepare returns the messages in a form that a server of the wire accepts for model: Raw remains only in blocks that it sent itself,
// blocks that it cannot know and blank texts are omitted, the ids of uses of tools consist of letters, digits, _ and -, results come first
// and in the order of their uses, and roles alternate. The given messages are not changed.
func Prepare(messages []schemas.ModelMessage, w schemas.Wire, model string) []schemas.ModelMessage {
	var out []schemas.ModelMessage
	taken := map[string]bool{}
	var ids map[string]string // of the uses of the last message of the assistant, as they are written
	var order []string
	for _, m := range messages {
		if m.Role == schemas.RoleAssistant {
			ids, order = map[string]string{}, nil
		}
		var blocks []schemas.Block
		for _, b := range m.Blocks {
			own := len(b.Raw) > 0 && b.Wire == w && b.Model == model
			if !own {
				b.Raw = nil
			}
			switch b.Type {
			case schemas.BlockThinking, schemas.BlockOther:
				if !own {
					continue
				}
			case schemas.BlockText:
				if strings.TrimSpace(b.Text) == "" { // servers refuse it, also when it was theirs
					continue
				}
			case schemas.BlockToolUse:
				given := b.Use
				if !own {
					b.Use = safe(given, taken)
				}
				taken[b.Use] = true
				ids[given], order = b.Use, append(order, b.Use)
			case schemas.BlockToolResult:
				b.Use = cmp.Or(ids[b.Use], b.Use)
			case schemas.BlockImage:
			}
			blocks = append(blocks, b)
		}
		slices.SortStableFunc(blocks, func(a, b schemas.Block) int { return cmp.Compare(rank(a, order), rank(b, order)) })
		switch last := len(out) - 1; {
		case len(blocks) == 0:
		case last >= 0 && out[last].Role == m.Role:
			out[last].Blocks = append(out[last].Blocks, blocks...)
		default:
			out = append(out, schemas.ModelMessage{Role: m.Role, Blocks: blocks})
		}
	}
	return out
}

// rank returns the sort key of a block in its message: results first, in the order of their uses.
func rank(b schemas.Block, order []string) int {
	if b.Type != schemas.BlockToolResult {
		return len(order) + 1
	}
	if at := slices.Index(order, b.Use); at >= 0 {
		return at
	}
	return len(order)
}

// safe returns an id that every server accepts and that is not in taken; it depends only on id and taken.
func safe(id string, taken map[string]bool) string {
	plain := len(id) > 0 && len(id) <= maxUse
	for _, c := range []byte(id) {
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if plain && !taken[id] {
		return id
	}
	for n := 0; ; n++ {
		sum := sha256.Sum256([]byte(strconv.Itoa(n) + id))
		if made := "use_" + hex.EncodeToString(sum[:16]); !taken[made] {
			return made
		}
	}
}

// Input returns the input of a use of a tool as a JSON object, which both wires require. An input that is not an object is replaced by {}.
func Input(b schemas.Block) json.RawMessage {
	if !IsObject(b.Input) {
		return json.RawMessage("{}")
	}
	return b.Input
}

// IsObject reports whether text is a JSON object.
func IsObject(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && text[0] == '{' && json.Valid(text)
}

// ReadInput returns the input that a model wrote for a tool: the object; or, if it is not one, the text as a JSON string. An empty text
// gives {}.
func ReadInput(text []byte) json.RawMessage {
	if len(bytes.TrimSpace(text)) == 0 {
		return json.RawMessage("{}")
	}
	if !IsObject(text) {
		return String(string(text))
	}
	return Compact(text)
}

// Encode returns v as JSON without HTML escapes, so that text from servers is sent back unchanged.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// String returns s as JSON.
func String(s string) json.RawMessage {
	b, err := Encode(s)
	if err != nil {
		panic(err) // no string has no JSON
	}
	return b
}

// Compact returns a copy of valid JSON without insignificant spaces.
func Compact(text []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return bytes.Clone(text)
	}
	return b.Bytes()
}
