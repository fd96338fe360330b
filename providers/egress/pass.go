package egress

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// MaxPass is the most bytes of what a [Pass] says, signed: clients send it with each request.
	MaxPass = 16 << 10
	// passPurpose keeps signatures of passes from being any others.
	passPurpose = "sandjet egress pass 1\n" //nolint:gosec // no password
)

// Pass authorizes one sandbox to use a [Gate]: it contains what the sandbox may reach, from which addresses, and until when. The sandbox's
// worker signs it; it is valid for connections from the sandbox's addresses only.
type Pass struct {
	Sandbox string            `json:"sandbox"` // whose connections count together
	Account schemas.AccountID `json:"account"`
	From    []netip.Addr      `json:"from"`
	Until   int64             `json:"until"` // Unix time
	Network schemas.Network   `json:"network"`
}

// Sign returns the signed text that a sandbox sends. Code: unsupported (its network is too long to be sent with each request).
func (p Pass) Sign(key ed25519.PrivateKey) (string, error) {
	said, err := json.Marshal(p)
	if err != nil {
		return "", schemas.Wrap(schemas.Internal, "pass", "the pass cannot be written", err)
	}
	text := encode(said) + "." + encode(ed25519.Sign(key, append([]byte(passPurpose), said...)))
	if len(text) > MaxPass {
		return "", schemas.OpErrorf(schemas.Unsupported, "network",
			"the lists of this network are too long for a proxy: %d bytes with all that belongs to them, at most %d", len(text), MaxPass)
	}
	return text, nil
}

// ReadPass verifies a pass, which one of the keys must have signed and which must be valid at that time. Code: denied.
func ReadPass(text string, keys []ed25519.PublicKey, now time.Time) (Pass, error) {
	first, second, ok := strings.Cut(text, ".")
	said, err1 := decode(first)
	signature, err2 := decode(second)
	if !ok || err1 != nil || err2 != nil || len(text) > MaxPass {
		return Pass{}, schemas.OpErrorf(schemas.Denied, "pass", "the pass is none")
	}
	message := append([]byte(passPurpose), said...)
	if !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool {
		return len(k) == ed25519.PublicKeySize && ed25519.Verify(k, message, signature)
	}) {
		return Pass{}, schemas.OpErrorf(schemas.Denied, "pass", "the pass is signed by no key that this proxy knows")
	}
	var p Pass
	if err := json.Unmarshal(said, &p); err != nil || p.Sandbox == "" || len(p.From) == 0 {
		return Pass{}, schemas.OpErrorf(schemas.Denied, "pass", "the pass does not say what it is for")
	}
	if now.Unix() >= p.Until {
		return Pass{}, schemas.OpErrorf(schemas.Denied, "pass", "the pass has ended: run the command again")
	}
	return p, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func decode(s string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(s) }

// ParseKey parses a public key in the form of [KeyText]. Code: invalid.
func ParseKey(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, schemas.Invalidf("key", "%q is not a public key: use what \"sandjet egress key\" prints", schemas.Quotable(text))
	}
	return key, nil
}

// KeyText returns a public key as text, for people and configuration.
func KeyText(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }
