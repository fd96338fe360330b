package schemas

import (
	"crypto/rand"
	"strings"

	"github.com/oklog/ulid/v2"
)

// The id types are checked at the border (Validate) and trusted inside.
type (
	// AccountID names a tenant: "acct_" and 1 to 64 letters or digits. It is a NATS subject token.
	AccountID string
	// AgentID names an agent: "agent_" and 1 to 64 letters or digits.
	AgentID string
	// SandboxID names a sandbox record: "sb_" and 1 to 64 letters or digits.
	SandboxID string
	// WorkspaceID names a workspace record: "ws_" and 1 to 64 letters or digits.
	WorkspaceID string
	// TurnID names one go of an agent: "turn_" and 1 to 64 letters or digits.
	TurnID string
	// CallID names one use of a tool. Clients may choose it (it is then the idempotency key):
	// 1 to 128 of A-Z a-z 0-9 _ . : - and nothing else.
	CallID string
	// ConversationID names a durable stream of events. Clients choose it: 1 to 256 bytes of
	// A-Z a-z 0-9 _ . : - @ / # + = and nothing else.
	ConversationID string
)

// Prefixes of the ids that Sandjet makes.
const (
	AccountPrefix      = "acct_"
	AgentPrefix        = "agent_"
	SandboxPrefix      = "sb_"
	WorkspacePrefix    = "ws_"
	TurnPrefix         = "turn_"
	CallPrefix         = "call_"
	ConversationPrefix = "c_"
)

// NewID returns prefix followed by a fresh ULID in lower case: 26 characters that sort by the
// time of their making (millisecond), 80 bits of them random. Safe for concurrent use.
func NewID(prefix string) string {
	return prefix + strings.ToLower(ulid.MustNew(ulid.Now(), rand.Reader).String())
}

// NewCallID returns a fresh call id.
func NewCallID() CallID { return CallID(NewID(CallPrefix)) }

// NewConversationID returns a fresh conversation id.
func NewConversationID() ConversationID { return ConversationID(NewID(ConversationPrefix)) }

// Validate reports whether id is a well-formed account id.
func (id AccountID) Validate() error { return validatePrefixed("account", AccountPrefix, string(id)) }

// Validate reports whether id is a well-formed sandbox id.
func (id SandboxID) Validate() error { return validatePrefixed("sandbox", SandboxPrefix, string(id)) }

// Validate reports whether id is a well-formed workspace id.
func (id WorkspaceID) Validate() error {
	return validatePrefixed("workspace", WorkspacePrefix, string(id))
}

// Validate reports whether id is a well-formed agent id.
func (id AgentID) Validate() error { return validatePrefixed("agent", AgentPrefix, string(id)) }

// Validate reports whether id is a well-formed turn id.
func (id TurnID) Validate() error { return validatePrefixed("turn", TurnPrefix, string(id)) }

// Validate reports whether id may name a call.
func (id CallID) Validate() error {
	return validateToken("id", string(id), MaxCallID, "_.:-")
}

// Validate reports whether id may name a conversation.
func (id ConversationID) Validate() error {
	return validateToken("conversation", string(id), MaxConversationID, "_.:-@/#+=")
}

func validatePrefixed(field, prefix, id string) error {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || rest == "" || len(rest) > 64 || strings.IndexFunc(rest, notAlnum) >= 0 {
		return Invalidf(field, "%q is not an id: want %q and 1 to 64 letters or digits", Quotable(id), prefix)
	}
	return nil
}

func validateToken(field, s string, limit int, extra string) error {
	bad := func(r rune) bool { return notAlnum(r) && !strings.ContainsRune(extra, r) }
	switch {
	case s == "":
		return Invalidf(field, "must not be empty")
	case len(s) > limit:
		return Invalidf(field, "is %d bytes long: the limit is %d", len(s), limit)
	case strings.IndexFunc(s, bad) >= 0:
		return Invalidf(field, "%q has a character outside A-Z a-z 0-9 %s", Quotable(s), extra)
	}
	return nil
}

func notAlnum(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Quotable shortens outside text to something that may stand in an error message.
func Quotable(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
