package attachtoken

import (
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of a token. They keep a token small enough for a header (see [MaxToken]).
const (
	MaxConversations = 32      // patterns
	MaxPatternBytes  = 2 << 10 // of all patterns together
	DefaultTTL       = 15 * time.Minute
	MaxTTL           = 24 * time.Hour
	minTTL           = time.Second
)

// Op is an operation that a token allows on its conversations.
type Op string

// The ops.
const (
	Read    Op = "read"    // attach, replay, follow
	Send    Op = "send"    // send calls that name one of the conversations
	Cancel  Op = "cancel"  // ask for the end of calls on them
	Approve Op = "approve" // answer approvals on them
)

// Ops returns all operations.
func Ops() []Op { return []Op{Read, Send, Cancel, Approve} }

// Fingerprint identifies an account's API key in a token. It is no secret; the key cannot be derived from it.
type Fingerprint [12]byte

// FingerprintOf returns the fingerprint of the key with this hash, which is the one in the account's record.
func FingerprintOf(keyHash string) Fingerprint {
	sum := sha256.Sum256([]byte("sandjet attach token key\x00" + keyHash))
	return Fingerprint(sum[:len(Fingerprint{})])
}

// Claims are the content of an attach token. The zero Claims allow nothing.
type Claims struct {
	Account schemas.AccountID
	// Key is the account's key that the token was made with: it ends when that key does.
	Key Fingerprint
	// Conversations are the ids of conversations; one that ends in * stands for all that begin so.
	Conversations []string
	Ops           []Op
	Expires       time.Time // whole seconds
	Reach                   // of the calls that are sent
}

// Validate validates the claims of a new token. Code: invalid, with the field of the request.
func (t Claims) Validate(now time.Time) error {
	if err := t.Account.Validate(); err != nil {
		return err
	}
	if n := len(t.Conversations); n == 0 || n > MaxConversations {
		return schemas.Invalidf("conversations", "has %d entries: 1 to %d ids, or beginnings of ids that end in *, are needed",
			n, MaxConversations)
	}
	size := 0
	for _, p := range t.Conversations {
		if err := validPattern(p); err != nil {
			return err
		}
		size += len(p)
	}
	if size > MaxPatternBytes {
		return schemas.Invalidf("conversations", "has %d bytes of ids: at most %d, so that the token fits a header; use beginnings that end in *",
			size, MaxPatternBytes)
	}
	if len(t.Ops) == 0 {
		return schemas.Invalidf("ops", "is empty: use read, send, cancel or approve")
	}
	for i, op := range t.Ops {
		switch {
		case !slices.Contains(Ops(), op):
			return schemas.Invalidf("ops", "%q is unknown: use read, send, cancel or approve", schemas.Quotable(string(op)))
		case slices.Contains(t.Ops[:i], op):
			return schemas.Invalidf("ops", "%s is given twice", op)
		}
	}
	if err := t.validate(t.Ops); err != nil {
		return err
	}
	if ttl := t.Expires.Sub(now); ttl < minTTL/2 || ttl > MaxTTL+minTTL { // the end is rounded to whole seconds
		return schemas.Invalidf("ttl", "%s is out of range: %s to %s", (ttl + time.Second - 1).Truncate(time.Second), minTTL, MaxTTL)
	}
	return nil
}

func validPattern(p string) error {
	begin, open := strings.CutSuffix(p, "*")
	if open && begin == "" {
		return nil
	}
	if err := schemas.ConversationID(begin).Validate(); err != nil {
		return schemas.Invalidf("conversations", "%q is neither the id of a conversation nor the beginning of one that ends in *",
			schemas.Quotable(p))
	}
	return nil
}

// Allows reports whether the token allows op on the conversation. It does not check whether the token has expired.
func (t Claims) Allows(op Op, c schemas.ConversationID) bool {
	return slices.Contains(t.Ops, op) && slices.ContainsFunc(t.Conversations, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return open && strings.HasPrefix(string(c), begin) || !open && string(c) == p
	})
}

// Check is Allows that returns an error of the code denied, which says what the token is for.
func (t Claims) Check(op Op, c schemas.ConversationID) error {
	if t.Allows(op, c) {
		return nil
	}
	if !slices.Contains(t.Ops, op) {
		return schemas.Errorf(schemas.Denied, "the attach token does not allow %s: create one with it in \"ops\"", op)
	}
	if c == "" {
		return schemas.Errorf(schemas.Denied, "the attach token is for some conversations only: name one of them in the request")
	}
	return schemas.Errorf(schemas.Denied, "the attach token is not for the conversation %q: create one with it in \"conversations\"",
		schemas.Quotable(string(c)))
}
