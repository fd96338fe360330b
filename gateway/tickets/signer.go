package tickets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Prefix begins every attach token, so that it is told from a key, and found where it was spilt.
const Prefix = "sjat_"

// MaxToken is the most bytes of an attach token. A usual one has about 200.
const MaxToken = 4096

const (
	keyBytes = 32
	macBytes = sha256.Size
	version  = 1
)

// Is reports whether a credential is meant as an attach token.
func Is(credential string) bool { return strings.HasPrefix(credential, Prefix) }

// Signer makes tokens with the first of its keys and takes those made with any. It does not change and is
// safe for concurrent use.
type Signer struct{ keys [][]byte }

// NewSigner returns a signer of one or more keys of 32 bytes. Code: invalid.
func NewSigner(keys ...[]byte) (*Signer, error) {
	if len(keys) == 0 {
		return nil, schemas.Invalidf("keys", "there are none: at least one is needed to sign")
	}
	s := &Signer{}
	for i, k := range keys {
		if len(k) != keyBytes {
			return nil, schemas.Invalidf("keys", "key %d has %d bytes: %d are needed", i+1, len(k), keyBytes)
		}
		s.keys = append(s.keys, append([]byte(nil), k...))
	}
	return s, nil
}

// content is what a token says: behind the MAC, as JSON with short names.
type content struct {
	Version       int               `json:"v"`
	Account       schemas.AccountID `json:"a"`
	Key           []byte            `json:"k"`
	Conversations []string          `json:"c"`
	Ops           []Op              `json:"o"`
	Expires       int64             `json:"e"` // seconds since 1970
}

// Sign makes the token of a ticket. It does not validate it. Code: invalid for one that does not fit a
// token.
func (s *Signer) Sign(t Ticket) (string, error) {
	body, err := json.Marshal(content{version, t.Account, t.Key[:], t.Conversations, t.Ops, t.Expires.Unix()})
	if err != nil {
		return "", schemas.Wrap(schemas.Internal, "sign an attach token", "it cannot be encoded", err)
	}
	token := Prefix + base64.RawURLEncoding.EncodeToString(append(mac(s.keys[0], body), body...))
	if len(token) > MaxToken {
		return "", schemas.Invalidf("conversations", "make a token of %d bytes: at most %d; use beginnings of ids that end in *", len(token), MaxToken)
	}
	return token, nil
}

// Verify returns the ticket of a token that one of the keys made. Code denied, in words for the client:
// for one that has ended, and for one that is not ours whatever is wrong with it.
func (s *Signer) Verify(token string, now time.Time) (Ticket, error) {
	body, ok := s.open(token)
	if !ok {
		return Ticket{}, schemas.Errorf(schemas.Denied, "", "the attach token is not known here: have another made")
	}
	var c content // written by us: nobody else has the keys
	if err := json.Unmarshal(body, &c); err != nil || c.Version != version || len(c.Key) != len(Fingerprint{}) {
		return Ticket{}, schemas.Errorf(schemas.Denied, "", "the attach token is of another version: have another made")
	}
	t := Ticket{c.Account, Fingerprint(c.Key), c.Conversations, c.Ops, time.Unix(c.Expires, 0).UTC()}
	if !now.Before(t.Expires) {
		return Ticket{}, schemas.Errorf(schemas.Denied, "", "the attach token has ended: have another made")
	}
	return t, nil
}

// open returns what stands behind a MAC of one of the keys. There is one text for each token: the decoder
// alone would pass over line ends.
func (s *Signer) open(token string) ([]byte, bool) {
	text, ok := strings.CutPrefix(token, Prefix)
	if !ok || len(token) > MaxToken || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) <= macBytes {
		return nil, false
	}
	for _, k := range s.keys {
		if hmac.Equal(mac(k, b[macBytes:]), b[:macBytes]) {
			return b[macBytes:], true
		}
	}
	return nil, false
}

func mac(key, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(body) // never fails
	return h.Sum(nil)
}
