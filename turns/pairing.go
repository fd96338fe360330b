package turns

import (
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// Pairing checks messages for what the servers of both wires would reject: messages that do not alternate or are empty, a first or last
// message that is not the user's, a use of a tool whose result is not at the beginning of the next message, a result without a use, and an
// id of a use that is empty or occurs twice. Code: invalid.
func Pairing(messages []schemas.ModelMessage) error {
	var open []string // uses of the last message
	seen := map[string]bool{}
	for i, m := range messages {
		want := schemas.RoleUser
		if i%2 == 1 {
			want = schemas.RoleAssistant
		}
		if m.Role != want || len(m.Blocks) == 0 {
			return schemas.Invalidf("messages", "message %d of role %s has %d blocks: want one of role %s", i, m.Role, len(m.Blocks), want)
		}
		answered := map[string]bool{}
		for at, b := range m.Blocks {
			switch b.Type {
			case schemas.BlockToolUse:
				if m.Role != schemas.RoleAssistant || b.Use == "" || seen[b.Use] {
					return schemas.Invalidf("messages", "message %d uses a tool as %q, which is empty, not its to say, or there twice",
						i, schemas.Quotable(b.Use))
				}
				seen[b.Use] = true
				open = append(open, b.Use)
			case schemas.BlockToolResult:
				if m.Role != schemas.RoleUser || at >= len(open) || answered[b.Use] || !slices.Contains(open, b.Use) {
					return schemas.Invalidf("messages", "message %d has a result for %q at block %d, where none belongs", i, schemas.Quotable(b.Use), at)
				}
				answered[b.Use] = true
			case schemas.BlockText, schemas.BlockImage, schemas.BlockThinking, schemas.BlockOther:
			}
		}
		if m.Role == schemas.RoleUser {
			if len(answered) != len(open) {
				return schemas.Invalidf("messages", "message %d has results for %d of %d uses of tools", i, len(answered), len(open))
			}
			open = nil
		}
	}
	if len(messages)%2 == 0 {
		return schemas.Invalidf("messages", "the last one must be the user's")
	}
	return nil
}
