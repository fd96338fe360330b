package attachtoken

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Prefix begins every attach token, so that scanners find leaked tokens, and none is taken for a key.
const Prefix = "sjat_"

// MaxToken is the most bytes of an attach token. A usual one has about 200.
const MaxToken = 4096

const (
	purpose  = "attach token"
	macBytes = 32
	maxKeyID = 255
	version  = 1 // of a token without limits of its reach
	reaching = 2 // of a token with limits: older gateways, which do not know them, must reject it
)

// Is reports whether a credential has the form of an attach token.
func Is(credential string) bool { return strings.HasPrefix(credential, Prefix) }

// Keys sign and verify. It must be safe for concurrent use. A former key must verify for as long as tokens that it has signed should be
// valid.
type Keys interface {
	// Sign returns the id of the current key, of at most 255 bytes, and its MAC of 32 bytes.
	Sign(purpose string, message []byte) (key string, signature []byte, err error)
	Verify(key, purpose string, message, signature []byte) bool
}

// Signer signs and verifies tokens. Keys is required.
type Signer struct{ Keys Keys }

// content is the payload of a token, as JSON with short names. A token is the length of the signing key's id in one byte, the id, the
// signature and the payload.
type content struct {
	Version       int               `json:"v"`
	Account       schemas.AccountID `json:"a"`
	Key           []byte            `json:"k"`
	Conversations []string          `json:"c"`
	Ops           []Op              `json:"o"`
	Expires       int64             `json:"e"` // seconds since 1970
	Reach         *Reach            `json:"r,omitempty"`
}

// Sign returns the token for claims, which it does not validate. Codes: invalid if the token would be too long, and those of the keys.
func (s Signer) Sign(t Claims) (string, error) {
	c := content{version, t.Account, t.Key[:], t.Conversations, t.Ops, t.Expires.Unix(), nil}
	if !t.everything() {
		c.Version, c.Reach = reaching, &t.Reach
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", schemas.Wrap(schemas.Internal, "sign an attach token", "it cannot be encoded", err)
	}
	key, signature, err := s.Keys.Sign(purpose, body)
	if err != nil {
		return "", err
	}
	if len(key) > maxKeyID || len(signature) != macBytes {
		return "", schemas.OpErrorf(schemas.Internal, "sign an attach token", "the key or its signature has another size than is known")
	}
	b := append([]byte{byte(len(key))}, key...)
	token := Prefix + base64.RawURLEncoding.EncodeToString(slices.Concat(b, signature, body))
	if len(token) > MaxToken {
		return "", schemas.Invalidf("",
			"the lists make a token of %d bytes: at most %d; use beginnings of conversations that end in *, or shorter lists", len(token), MaxToken)
	}
	return token, nil
}

// Verify returns the claims of a token that was signed by a known key and has not expired. Code denied, with a message for the client; for
// tokens that are not ours it is always the same.
func (s Signer) Verify(token string, now time.Time) (Claims, error) {
	body, ok := s.open(token)
	if !ok {
		return Claims{}, schemas.Errorf(schemas.Denied, "invalid attach token: create another with POST /v1/attach-tokens")
	}
	var c content // written by us: no other process has the keys
	if err := json.Unmarshal(body, &c); err != nil || !c.known() || len(c.Key) != len(Fingerprint{}) {
		return Claims{}, schemas.Errorf(schemas.Denied, "the attach token has an unsupported version: create another with POST /v1/attach-tokens")
	}
	t := Claims{Account: c.Account, Key: Fingerprint(c.Key), Conversations: c.Conversations, Ops: c.Ops,
		Expires: time.Unix(c.Expires, 0).UTC()}
	if c.Reach != nil {
		t.Reach = *c.Reach
	}
	if !now.Before(t.Expires) {
		return Claims{}, schemas.Errorf(schemas.Denied, "the attach token has expired: create another with POST /v1/attach-tokens")
	}
	return t, nil
}

// known reports whether the payload has a supported version and the fields of that version.
func (c content) known() bool {
	return c.Version == version && c.Reach == nil || c.Version == reaching && c.Reach != nil
}

// open decodes a token, verifies its signature and returns its payload. Line ends are rejected, although the decoder would skip them, so
// that each token has only one valid text.
func (s Signer) open(token string) ([]byte, bool) {
	text, ok := strings.CutPrefix(token, Prefix)
	if !ok || len(token) > MaxToken || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) == 0 {
		return nil, false
	}
	key, b := int(b[0]), b[1:]
	if len(b) < key+macBytes {
		return nil, false
	}
	body := b[key+macBytes:]
	return body, s.Keys.Verify(string(b[:key]), purpose, body, b[key:key+macBytes])
}
